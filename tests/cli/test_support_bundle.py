"""The contents of a support bundle: a local plane, nodes and jobs, without secrets."""

import json
import tarfile

import pytest
from recorded_planes import record

from gangsched.cli import support_bundle
from gangsched.cli.support_bundle import without_private_fields, write
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.local import plane as planes
from gangsched.recording.anonymize import Pseudonyms

SERVER = "https://127.0.0.1:1"
PRIVATE = "topsecret"
CONTAINER = {
    "name": "pytorch",
    "image": PRIVATE,
    "command": [PRIVATE],
    "env": [{"name": PRIVATE}],
    "livenessProbe": {"httpGet": {"httpHeaders": [{"value": PRIVATE}]}},
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
    "volumeMounts": [{"name": PRIVATE}],
}
POD = {
    "metadata": {"labels": {"app": PRIVATE, "gangsched.io/queue-name": "vision"}},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "hostAliases": [PRIVATE],
        "imagePullSecrets": [{"name": PRIVATE}],
        "nodeSelector": {"pool": "a"},
        "volumes": [{"secret": {"secretName": PRIVATE}}],
    },
}
JOB = {
    "metadata": {
        "name": "thesis",
        "namespace": "carol",
        "annotations": {"note": PRIVATE, "gangsched.io/user": "carol@example.com"},
        "labels": {"kueue.x-k8s.io/queue-name": "vision"},
    },
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": POD}}},
    "status": {"conditions": [{"message": "carol/thesis waits"}]},
}
TRAINJOB = {
    "metadata": {"name": "tune", "namespace": "carol"},
    "spec": {
        "initializer": {"dataset": {"storageUri": PRIVATE}},
        "podTemplateOverrides": [
            {"spec": {"serviceAccountName": PRIVATE, "nodeSelector": {"a": "b"}}}
        ],
        "trainer": {"image": PRIVATE, "args": [PRIVATE], "numNodes": 2},
    },
}
NODE = {
    "metadata": {"name": "n0", "labels": {"rack": "r1"}, "annotations": {"note": PRIVATE}},
    "spec": {"podCIDR": PRIVATE, "providerID": PRIVATE, "taints": [{"key": "gpu"}]},
    "status": {
        "addresses": [{"address": PRIVATE}],
        "allocatable": {"nvidia.com/gpu": "8"},
        "images": [{"names": [PRIVATE]}],
        "nodeInfo": {"machineID": PRIVATE},
    },
}


class Api:
    """An API server with a few objects, which serves no MPIJobs and shows nobody Experiments."""

    server = SERVER

    async def get(self, path, **params) -> bytes:
        listed = {"pytorchjobs": [JOB], "trainjobs": [TRAINJOB], "nodes": [NODE]}
        kind = path.rsplit("/", 1)[-1]
        if kind == "mpijobs":
            raise NotFound(404, "no such kind")
        if kind == "experiments":
            raise Forbidden(403, "not for you")
        more = {"continue": "there"} if kind == "nodes" and params["limit"] == "1000" else {}
        return json.dumps({"items": listed.get(kind, []), "metadata": more}).encode()


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """No plane is there yet, and the doctor says nothing."""

    async def examine(client, home):
        return []

    monkeypatch.setattr(planes.platformdirs, "user_state_dir", lambda _: str(tmp_path))
    monkeypatch.setattr(support_bundle, "run_checks", examine)


async def written(tmp_path, hide=None) -> dict[str, str]:
    """Return the files of a bundle."""
    out = tmp_path / "b.tar.gz"
    await write(Api(), out, hide)
    with tarfile.open(out) as archive:
        return {
            one.name.removeprefix("gangsched/"): archive.extractfile(one).read().decode()
            for one in archive.getmembers()
        }


async def test_a_bundle_has_only_the_fields_that_a_scheduler_reads(tmp_path):
    files = await written(tmp_path)
    (node,) = json.loads(files["nodes.json"])
    assert node["status"] == {"allocatable": {"nvidia.com/gpu": "8"}}
    assert node["spec"] == {"taints": [{"key": "gpu"}]}
    (job,) = json.loads(files["jobs/pytorchjobs.json"])
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    container = {"name": "pytorch", "resources": CONTAINER["resources"]}
    assert template["spec"] == {
        "containers": [container],
        "initContainers": [container],
        "nodeSelector": {"pool": "a"},
    }
    assert template["metadata"]["labels"] == {"gangsched.io/queue-name": "vision"}
    assert job["metadata"]["labels"] == JOB["metadata"]["labels"]
    (train,) = json.loads(files["jobs/trainjobs.json"])
    assert train["spec"] == {
        "podTemplateOverrides": [{"spec": {"nodeSelector": {"a": "b"}}}],
        "trainer": {"numNodes": 2},
    }
    assert PRIVATE not in "".join(files.values())


async def test_a_cut_list_has_a_remark_and_empty_job_lists_have_no_file(tmp_path):
    files = await written(tmp_path)
    assert files["nodes.txt"] == "/api/v1/nodes: only the first 1000 objects\n"
    assert "not for you" in files["jobs/experiments.txt"]
    assert not [name for name in files if name.startswith(("jobs/mpijobs", "jobs/jobsets"))]
    assert files["queues.json"] == "[]"


async def test_a_bundle_has_the_logs_of_a_local_plane(tmp_path):
    plane = record("mine", SERVER, etcd=True, gangsched=False)
    record("other", "https://127.0.0.1:2", etcd=True)
    logs = plane.programs.logs
    (logs / "etcd.log").write_text("".join(f"line {number}\n" for number in range(3000)))
    (logs / "gangsched.log").write_text("x" * 2**21 + "\nend\n")
    files = await written(tmp_path)
    assert "etcd: runs\ngangsched: ended\n" in files["plane.txt"]
    lines = files["plane/etcd.log"].splitlines()
    assert (len(lines), lines[-1]) == (2000, "line 2999")
    assert files["plane/gangsched.log"].endswith("x\nend\n")
    assert len(files["plane/gangsched.log"]) <= 2**20
    assert {name for name in files if name.startswith("plane/")} == {
        "plane/etcd.log",
        "plane/gangsched.log",
    }


async def test_paths_and_tokens_of_a_local_plane_are_left_out(tmp_path):
    plane = record("mine", SERVER, gangsched=True)
    log = plane.programs.logs / "gangsched.log"
    log.write_text(f"{plane.folder}/x: Bearer abc\n")
    files = await written(tmp_path)
    assert files["plane/gangsched.log"] == "<plane>/x: <token>\n"


async def test_names_of_jobs_without_a_gang_are_hidden_too(tmp_path):
    plane = record("mine", SERVER, etcd=True, gangsched=True)
    for program in ("etcd", "gangsched"):
        (plane.programs.logs / f"{program}.log").write_text("of carol/thesis\n")
    files = await written(tmp_path, Pseudonyms())
    assert "jobs/pytorchjobs.json" in files
    assert files["plane/gangsched.log"].startswith("of x")
    assert "plane/etcd.log" not in files, "it names what is no more"
    for word in ("thesis", "carol"):
        assert word not in "".join(files.values())


def test_objects_of_gangsched_keep_more_fields():
    own = {"metadata": {"labels": {"app": "gangsched"}}, "spec": {"containers": [CONTAINER]}}
    kept = without_private_fields(own)
    assert kept["metadata"]["labels"] == {"app": "gangsched"}
    assert kept["spec"]["containers"][0]["image"] == PRIVATE
    assert "env" not in kept["spec"]["containers"][0]
