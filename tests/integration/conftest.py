"""Real control planes for the tests: one for each way of binding, shared by the session."""

import contextlib
import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from audited import AUDIT
from cluster import Cluster
from shared_planes import plane_of

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

ROOT = Path(__file__).parents[2]
KWOK = NodeGroup(name="k", kind="kwok", count=4, gpus=8, rack_size=2, taints=())
PROCESS = NodeGroup(name="p", kind="process", count=2, cpu="64", memory="64Gi", gpus=4)
PROCESS_TAINT = {"key": "process", "value": "", "effect": "NoSchedule"}
UPSTREAM_GROUPS = (
    "--feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1alpha2=true"
)
"""Kubernetes' own PodGroups, which are an alpha feature of 1.36."""
CONTROLLERS = "--controllers=*,-namespace-controller,-endpoints-controller"
"""Deleted namespaces of tests stay, terminating, and nothing can be created in them. The API server
needs about seven times as much CPU to remove a namespace as to remove its objects (0.14 s against
0.02 s). No test reads Endpoints: EndpointSlices replace them."""
_numbers = itertools.count()

# The programs of control planes are written in Go, and live for minutes: less collecting of garbage
# saves a fifth of their time, for 200 MB each.
os.environ.setdefault("GOGC", "400")


def pytest_collection_modifyitems(items):
    """Everything here needs the control plane."""
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker(pytest.mark.integration)


@contextlib.contextmanager
def a_plane(name: str, nodes: NodeFile, options: PlaneOptions):
    """Start a control plane, and stop it whatever happens."""
    AUDIT.mkdir(parents=True, exist_ok=True)
    log = AUDIT / f"{name}-{os.getpid()}-{next(_numbers)}.log"
    flags = dict(options.flags)
    audit = f"--audit-policy-file={Path(__file__).parent / 'audit.yaml'} --audit-log-path={log}"
    flags["kube-apiserver"] = f"{flags.get('kube-apiserver', '')} {audit}"
    options = replace(options, flags=tuple(flags.items()))
    plane = Plane(name)
    plane.down()
    plane.up(nodes, options, lambda _: None)
    try:
        yield plane
    finally:
        plane.down()


@contextlib.contextmanager
def bound_by(binding: str):
    """Start a control plane with 4 KWOK nodes of 8 GPUs and 2 process nodes of 4."""
    nodes = NodeFile(nodes=(KWOK, PROCESS.model_copy(update={"taints": (PROCESS_TAINT,)})))
    flags = (("kube-apiserver", UPSTREAM_GROUPS), ("kube-controller-manager", CONTROLLERS))
    options = PlaneOptions(binding=binding, flags=flags)
    with a_plane(f"test-{binding}", nodes, options) as plane:
        found = Cluster(plane, binding)
        yield found
        # The last test may have started the scheduler again.
        text = found.wait(found.metrics, "the scheduler's metrics")
        assert "quota_drift_total{" not in text, "the books were wrong at some time"


@contextlib.contextmanager
def of_processes(name: str):
    """Start what a user gets on a laptop: process nodes alone, through the extender."""
    options = PlaneOptions(flags=(("kube-controller-manager", CONTROLLERS),))
    with a_plane(f"test-{name}", NodeFile(nodes=(PROCESS,)), options) as plane:
        yield Cluster(plane, "extender")


def commands(section: str) -> list[list[str]]:
    """Return what kubectl is given by a section's first commands in docs/operations.md."""
    text = (ROOT / "docs" / "operations.md").read_text()
    lines = text.split(f"## {section}\n")[1].split("```")[1].splitlines()
    own = [line.removeprefix("kubectl ") for line in lines if line.startswith("kubectl ")]
    return [line.replace("-k manifests", f"-k {ROOT / 'manifests'}").split() for line in own]


@contextlib.contextmanager
def installed_on(name: str):
    """Start what `local up --binding off` gives, and install as docs/operations.md says."""
    nodes = NodeFile(nodes=(PROCESS.model_copy(update={"rack_size": 2}),))
    with a_plane(f"test-{name}", nodes, PlaneOptions(binding="off", topology=True)) as plane:
        found = Cluster(plane, "extender")
        (install,) = commands("Install")
        found.kubectl(*install)
        yield found


_shared = contextlib.ExitStack()


@pytest.fixture(scope="session", params=["direct", "extender"])
def cluster(request):
    """The shared plane of each way of binding."""
    yield _shared.enter_context(bound_by(request.param))
    _shared.close()  # of a run that was interrupted


@pytest.fixture(scope="session", params=["laptop"])
def laptop(request):
    """The shared plane of process nodes alone."""
    yield _shared.enter_context(of_processes(request.param))
    _shared.close()  # of a run that was interrupted


@pytest.fixture(scope="session", params=["deployed"])
def deployed(request):
    """The shared plane on which pods of the manifests schedule."""
    yield _shared.enter_context(installed_on(request.param))
    _shared.close()  # of a run that was interrupted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Stop a shared plane after its last test: idle, it takes a fifteenth of a core."""
    try:
        return (yield)
    finally:
        if nextitem is None or plane_of(nextitem.nodeid) != plane_of(item.nodeid):
            _shared.close()


@pytest.fixture
def namespace(cluster):
    """A namespace of the test's own; everything in it is gone afterwards."""
    name = cluster.new_namespace()
    yield name
    cluster.remove_namespace(name)
