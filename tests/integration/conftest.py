"""Real control planes for the tests: one for each way of binding, shared by the whole session."""

import contextlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from cluster import Cluster

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Options, Plane

KWOK = NodeGroup(name="k", kind="kwok", count=4, gpus=8, rack_size=2, taints=())
PROCESS = NodeGroup(name="p", kind="process", count=2, cpu="64", memory="64Gi", gpus=4)
PROCESS_TAINT = {"key": "process", "value": "", "effect": "NoSchedule"}
UPSTREAM_GROUPS = (
    "--feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1alpha2=true"
)
"""Kubernetes' own PodGroups, which are an alpha feature of 1.36."""
AUDITED: list[Path] = []
"""What the API servers of this session noted of our own requests."""

_AUDIT = Path(tempfile.mkdtemp(prefix="gangsched-audit-"))


def pytest_sessionfinish():
    """Leave nothing behind."""
    shutil.rmtree(_AUDIT, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Everything here needs the control plane; tests of one plane run together."""
    for item in items:
        if "integration" in str(item.fspath):
            item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: (_binding_of(item), "test_rights" in str(item.fspath)))


def _binding_of(item) -> str:
    call = getattr(item, "callspec", None)
    return str(call.params.get("cluster", "")) if call is not None else ""


@contextlib.contextmanager
def a_plane(name: str, nodes: NodeFile, options: Options):
    """Start a control plane, and stop it whatever happens."""
    log = _AUDIT / f"{name}-{len(AUDITED)}.log"
    AUDITED.append(log)
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


def start(binding: str):
    """Start the shared plane of one way of binding."""
    nodes = NodeFile(nodes=(KWOK, PROCESS.model_copy(update={"taints": (PROCESS_TAINT,)})))
    flags = (("kube-apiserver", UPSTREAM_GROUPS),)
    return a_plane(f"test-{binding}", nodes, Options(binding=binding, flags=flags))


@pytest.fixture(scope="session", params=["direct", "extender"])
def cluster(request):
    """A control plane with 4 KWOK nodes of 8 GPUs and 2 process nodes of 4."""
    with start(request.param) as plane:
        found = Cluster(plane, request.param)
        yield found
        assert "quota_drift_total{" not in found.metrics(), "the books were wrong at some time"


@pytest.fixture(scope="session")
def laptop():
    """What a user gets on a laptop: process nodes alone, through the extender."""
    with a_plane("test-laptop", NodeFile(nodes=(PROCESS,)), Options()) as plane:
        yield Cluster(plane, "extender")


@pytest.fixture
def namespace(cluster):
    """A namespace of the test's own; everything in it is gone afterwards."""
    name = cluster.new_namespace()
    yield name
    cluster.remove_namespace(name)
