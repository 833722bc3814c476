"""The GPUs of this machine: what nvidia-smi prints, and which container gets which of them."""

import subprocess
import sys

import pytest

from gangsched.config import ConfigError
from gangsched.local import gpus
from gangsched.local.agent.devices import DevicePool, device_pool
from gangsched.local.agent.isolation.leftovers import end_leftovers
from gangsched.local.agent.spec import PodError
from gangsched.local.gpus import MachineGpus, machine_gpus, read_gpus
from gangsched.local.nodes import OF_MACHINE, NodeFile, read_nodes
from gangsched.local.processes import MARK

WHOLE_LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5c1b2d3e-0000-4a6b-9d1f-aaaaaaaaaaaa)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-6d2c3e4f-1111-4b7c-8e2a-bbbbbbbbbbbb)
"""
WHOLE_QUERY = """\
GPU-5c1b2d3e-0000-4a6b-9d1f-aaaaaaaaaaaa, 00000000:18:00.0, 81559, Disabled
GPU-6d2c3e4f-1111-4b7c-8e2a-bbbbbbbbbbbb, 00000000:2A:00.0, 81559, Disabled
"""
MIG_LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
  MIG 1g.5gb      Device  2: (UUID: MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/9/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-eb5b1c3a-0000-2b2c-524d-9e3d8d2b8a77)
"""
MIG_QUERY = """\
GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, 00000000:3B:00.0, 40960, Enabled
GPU-eb5b1c3a-0000-2b2c-524d-9e3d8d2b8a77, 00000000:86:00.0, 40960, Enabled
"""
FIRST, SECOND = [line.split(",")[0] for line in WHOLE_QUERY.splitlines()]


@pytest.fixture
def driver(tmp_path):
    """The driver's folder in /proc, where the second GPU has the first device file."""
    for place, minor in (("0000:18:00.0", 1), ("0000:2a:00.0", 0)):
        folder = tmp_path / "gpus" / place
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 42\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    return tmp_path / "gpus"


def machine(driver="/nowhere", listed=WHOLE_LIST, queried=WHOLE_QUERY) -> MachineGpus:
    """Return the GPUs of a machine."""
    return read_gpus(listed, queried, gpus.Path(driver))


def test_whole_gpus_are_devices_with_their_files(driver):
    first, second = machine(driver).gpus
    assert (first.uuid, first.model, first.memory_mib) == (FIRST, "NVIDIA H100 80GB HBM3", 81559)
    assert (first.minor, second.minor) == (1, 0)
    assert machine(driver).amounts() == {"nvidia.com/gpu": 2}
    assert [gpu.minor for gpu in machine().gpus] == [None, None]


def test_a_gpu_in_mig_mode_is_never_a_device_itself():
    there = machine(listed=MIG_LIST, queried=MIG_QUERY)
    assert there.amounts() == {
        "nvidia.com/mig-3g.20gb": 1,
        "nvidia.com/mig-1g.5gb.me": 1,
        "nvidia.com/mig-1g.5gb": 1,
    }
    assert there.devices[2].uuid == "MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/9/0"
    assert len(there.gpus) == 2


def test_a_gpu_of_unknown_mode_is_no_device():
    first, second = machine(queried=WHOLE_QUERY.splitlines()[0]).gpus
    assert (first.uuid, second.uuid) == (FIRST, SECOND)
    assert machine(queried=WHOLE_QUERY.splitlines()[0]).amounts() == {"nvidia.com/gpu": 1}
    assert machine(queried="").amounts() == {}


@pytest.mark.parametrize(
    "text",
    ["", "No devices were found\n", "GPU 0: x (UUID: $(id))\n", "  MIG 1g.5gb\n", "\x00" * 9],
)
def test_what_nvidia_smi_prints_else_is_no_gpu(text):
    assert machine(listed=text, queried="nonsense, a, b, c, d\n,,,\n") == MachineGpus()


def stand_in(folder, script: str) -> str:
    """Return the path of a program in place of nvidia-smi."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return str(path)


def test_nvidia_smi_is_asked_for_list_and_properties(tmp_path, driver):
    script = f"import sys\nprint({WHOLE_LIST!r} if sys.argv[1] == '-L' else {WHOLE_QUERY!r})\n"
    assert machine_gpus(stand_in(tmp_path, script), driver) == machine(driver)


@pytest.mark.parametrize(
    "script", ["import time; time.sleep(600)", "while True: print('x' * 9999)"]
)
def test_nvidia_smi_that_does_not_end_is_no_gpu(tmp_path, script, monkeypatch):
    monkeypatch.setattr(gpus, "_ANSWER_S", 1.0)
    assert machine_gpus(stand_in(tmp_path, script)) == MachineGpus()


def test_a_failing_or_absent_nvidia_smi_is_no_gpu(tmp_path):
    failing = stand_in(tmp_path, f"print({WHOLE_LIST!r}); raise SystemExit(9)")
    assert machine_gpus(failing) == MachineGpus()
    assert machine_gpus(str(tmp_path / "absent")) == MachineGpus()


# -- pods ----------------------------------------------------------------------------------------


def container(name: str, count: int = 0, resource: str = "nvidia.com/gpu", **fields) -> dict:
    """Return a container that asks for devices."""
    limits = {resource: str(count)} if count else {}
    return {"name": name, "resources": {"limits": limits}} | fields


def pod(uid: str, *containers: dict, init=(), node: str = "n-0") -> dict:
    """Return a pod on a node."""
    spec = {"nodeName": node, "containers": list(containers), "initContainers": list(init)}
    return {"metadata": {"uid": uid, "name": uid, "namespace": "x"}, "spec": spec}


def pool(*counts: int, there: MachineGpus | None = None) -> DevicePool:
    """Return the pool of nodes n-0, n-1, ... that declare whole GPUs."""
    nodes = [(f"n-{at}", {"nvidia.com/gpu": str(count)}) for at, count in enumerate(counts)]
    return DevicePool(machine() if there is None else there, nodes)


def test_two_pods_never_hold_one_gpu():
    devices = pool(2)
    one, other = (devices.take(pod(uid, container("main", 1))) for uid in "ab")
    assert one.variables("main", None)["CUDA_VISIBLE_DEVICES"] == FIRST
    assert other.variables("main", None)["CUDA_VISIBLE_DEVICES"] == SECOND
    assert devices.take(pod("a", container("main", 1))) is one
    with pytest.raises(PodError, match=r"needs 1 nvidia.com/gpu, and 0 of 2 of node n-0 are free"):
        devices.take(pod("c", container("main", 1)))
    devices.release("a")
    devices.release("a")
    again = devices.take(pod("c", container("main", 1)))
    assert again.variables("main", None)["CUDA_VISIBLE_DEVICES"] == FIRST


def test_containers_of_a_pod_share_nothing_but_with_init_containers():
    given = pool(2).take(
        pod(
            "a",
            container("left", 1),
            container("right", 1),
            container("none"),
            init=[container("fetch", 2), container("none-first")],
        )
    )
    seen = {
        name: given.variables(name, None)["CUDA_VISIBLE_DEVICES"]
        for name in ("left", "right", "none", "fetch", "none-first")
    }
    assert seen == {
        "left": FIRST,
        "right": SECOND,
        "none": "",
        "fetch": f"{FIRST},{SECOND}",
        "none-first": "",
    }


def test_a_sidecar_keeps_its_gpu():
    init = [container("watch", 1, restartPolicy="Always"), container("fetch", 1)]
    given = pool(2).take(pod("a", container("main", 1), init=init))
    seen = [given.variables(n, None)["CUDA_VISIBLE_DEVICES"] for n in ("watch", "fetch", "main")]
    assert seen == [FIRST, SECOND, SECOND]


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (None, [FIRST, SECOND]),
        ("1,0", [SECOND, FIRST]),
        ("0", [FIRST]),
        ("", []),
        ("-1", []),
        ("7", []),
        ("0,7,1", [FIRST]),
        ("0,0", [FIRST]),
        (SECOND[:8], [SECOND]),
        ("GPU-", []),
        ("GPU-of-another-pod", []),
        ("all", []),
        ("1" * 5000, []),
        ("0," * 100_000, [FIRST]),
        ("\u0661", []),
    ],
)
def test_a_value_of_the_user_only_leaves_devices_out(wanted, seen):
    given = pool(2).take(pod("a", container("main", 2)))
    variables = given.variables("main", wanted)
    assert variables["CUDA_VISIBLE_DEVICES"] == ",".join(seen)
    assert variables["NVIDIA_VISIBLE_DEVICES"] == f"{FIRST},{SECOND}"


def test_a_pod_opens_the_files_of_its_own_gpus_only(driver):
    devices = pool(2, there=machine(driver))
    names = [
        [str(p) for p in devices.take(pod(uid, container("main", n))).hidden]
        for uid, n in (("a", 1), ("b", 0))
    ]
    assert names == [["/dev/nvidia0"], ["/dev/nvidia1", "/dev/nvidia0"]]


def test_nodes_that_declare_more_than_the_machine_has_count_stand_ins():
    """Nodes share the machine: what one has, the next one lacks."""
    devices = pool(1, 2, 1)
    assert devices.nodes() == ["n-0", "n-2"]
    given = devices.take(pod("a", container("main", 2), node="n-1"))
    assert given.variables("main", "0,1") == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


def test_a_machine_without_gpus_sets_no_variable():
    given = pool(4, there=MachineGpus()).take(pod("a", container("main", 1)))
    assert given.variables("main", "0") == {}


def test_mig_instances_are_given_by_profile():
    there = machine(listed=MIG_LIST, queried=MIG_QUERY)
    nodes = read_nodes(OF_MACHINE, "--gpus", there)
    (manifest,) = nodes.nodes[0].manifests()
    amounts = manifest["status"]["allocatable"]
    assert amounts["nvidia.com/mig-3g.20gb"] == "1"
    assert "nvidia.com/gpu" not in amounts
    labels = manifest["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert labels["nvidia.com/gpu.memory"] == "40960"
    devices = device_pool(nodes, there)
    main = container("main", 1, "nvidia.com/mig-3g.20gb")
    given = devices.take(pod("a", main, node="local-0"))
    uuid = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
    assert given.variables("main", None)["CUDA_VISIBLE_DEVICES"] == uuid


# -- nodes ---------------------------------------------------------------------------------------


def test_a_group_with_the_gpus_of_the_machine():
    nodes = read_nodes(OF_MACHINE, "--gpus", machine())
    assert nodes.nodes[0].gpus == 2
    assert device_pool(nodes, machine()).nodes() == ["local-0"]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"name": "a", "gpus": "machine"}, "allowed for one node, of kind process"),
        ({"name": "a", "kind": "process", "count": 2, "gpus": "machine"}, "allowed for one node"),
        ({"name": "a", "kind": "process", "gpus": "all"}, "gpus"),
        ({"name": "a", "kind": "process", "gpus": "machine", "extended": [1]}, "extended"),
        ({"name": "a", "kind": "process", "gpus": "machine", "labels": "x"}, "labels"),
        ({"name": "a", "kind": "process", "gpus": "machine", "gpu_model": {}}, "gpu_model"),
    ],
)
def test_a_group_that_cannot_have_the_machine_is_refused(group, said):
    with pytest.raises(ConfigError, match=said):
        read_nodes({"nodes": [group]}, "nodes.yaml", machine())


def test_a_machine_without_gpus_is_named():
    with pytest.raises(ConfigError, match=r"--gpus: .*nvidia-smi lists none on this machine"):
        read_nodes(OF_MACHINE, "--gpus", MachineGpus())
    assert read_nodes({}, "nodes.yaml") == NodeFile()


# -- after a killed agent ------------------------------------------------------------------------


def test_pods_of_a_killed_agent_are_ended(tmp_path, monkeypatch):
    """The pod speaks first: before its program is loaded, the kernel shows no environment."""
    code = "import time; print('loaded', flush=True); time.sleep(600)"
    monkeypatch.setenv(MARK, str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code, "--kill-child"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as left:
        try:
            assert left.stdout is not None
            assert left.stdout.readline() == b"loaded\n"
            assert end_leftovers() >= 1
            assert left.poll() is not None
        finally:
            left.kill()
