"""Shared control planes with other schedulers or nodes for a while, and as they were afterwards.

That takes the start of a program or two, where a control plane starts seven and installs all kinds.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from conftest import KWOK, PROCESS

from gangsched.local.network import answers, free_ports
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions
from gangsched.local.processes import UNBUFFERED

BOTH = ("gangsched", "gangsched-standby")


@contextlib.contextmanager
def leader_and_standby(cluster, settings: Path, *, operators: bool = True) -> Iterator[None]:
    """Have two schedulers with these settings, as a plane with a standby starts them."""
    plane = cluster.plane
    own = plane.programs.get("gangsched").command
    options = PlaneOptions(
        binding=cluster.binding,
        operators=operators,
        standby=True,
        flags=(("gangsched", f"--config {settings}"),),
    )
    ports = [int(own[own.index(flag) + 1]) for flag in ("--extender-port", "--metrics-port")]
    plane.programs.stop("gangsched")
    try:
        for name, places in zip(BOTH, (ports, free_ports(2)), strict=True):
            plane.wait(*plane._gangsched(name, options, *places))
        yield
    finally:
        for program in plane.programs.all():
            if program.name in BOTH:
                plane.programs.stop(program.name)
        _start_scheduler(cluster, own)


@contextlib.contextmanager
def other_nodes(cluster, nodes: NodeFile, settings: Path) -> Iterator[None]:
    """Have these KWOK nodes alone, and a scheduler with these settings."""
    programs = cluster.plane.programs
    own, agent = (programs.get(name).command for name in ("gangsched", "agent"))
    for name in ("gangsched", "agent"):
        programs.stop(name)
    try:
        _replace_nodes(cluster, nodes.nodes)
        _start_scheduler(cluster, [*own, "--config", str(settings)])
        yield
    finally:
        programs.stop("gangsched")
        _replace_nodes(cluster, [KWOK])
        programs.start("agent", agent, UNBUFFERED)
        _start_scheduler(cluster, own)
        names = set(PROCESS.names())
        cluster.wait(lambda: names <= _ready(cluster), "the process nodes to be ready again")


def _replace_nodes(cluster, groups) -> None:
    cluster.core.delete_collection_node()
    cluster.wait(lambda: not cluster.items("nodes"), "the nodes to go")
    manifests = [manifest for group in groups for manifest in group.manifests()]
    for manifest in manifests:
        cluster.core.create_node(manifest)
    cluster.wait(lambda: len(_ready(cluster)) == len(manifests), "the nodes to be ready")


def _ready(cluster) -> set[str]:
    """Return the names of the nodes that are ready."""
    return {
        node["metadata"]["name"]
        for node in cluster.items("nodes")
        for condition in node["status"].get("conditions", [])
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }


def _start_scheduler(cluster, command: list[str]) -> None:
    cluster.plane.programs.start("gangsched", command, UNBUFFERED)
    port = command[command.index("--metrics-port") + 1]
    cluster.wait(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the scheduler to be ready")
