"""Shared control planes with other schedulers or nodes for a while, and as they were afterwards.

That takes the start of a program or two; a control plane takes 13 s of CPU to start.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from conftest import KWOK

from gangsched.local.network import answers, free_ports
from gangsched.local.nodes import NodeFile
from gangsched.local.processes import UNBUFFERED

BOTH = ("gangsched", "gangsched-standby")


@contextlib.contextmanager
def leader_and_standby(cluster, settings: Path, *flags: str) -> Iterator[None]:
    """Have two schedulers with these settings, in the place of the one that serves it."""
    programs = cluster.plane.programs
    own = programs.get("gangsched").command
    first = [*own, "--leader-elect", "--config", str(settings), *flags]
    programs.stop("gangsched")
    try:
        for name, command in zip(BOTH, (first, _beside(first)), strict=True):
            _start(cluster, name, command)
        yield
    finally:
        for name in BOTH:
            programs.stop(name)
        _start(cluster, "gangsched", own)


@contextlib.contextmanager
def other_nodes(cluster, nodes: NodeFile, settings: Path) -> Iterator[None]:
    """Have these KWOK nodes alone, and a scheduler with these settings."""
    programs = cluster.plane.programs
    own, agent = (programs.get(name).command for name in ("gangsched", "agent"))
    for name in ("gangsched", "agent"):
        programs.stop(name)
    try:
        _replace_nodes(cluster, nodes.nodes)
        _start(cluster, "gangsched", [*own, "--config", str(settings)])
        yield
    finally:
        programs.stop("gangsched")
        _replace_nodes(cluster, [KWOK])
        programs.start("agent", agent, UNBUFFERED)
        _start(cluster, "gangsched", own)
        names = {"p-0", "p-1"}
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


def _beside(command: list[str]) -> list[str]:
    """Return the command of a second scheduler: with ports of its own, and without a history."""
    flags = dict(zip(("--extender-port", "--metrics-port"), map(str, free_ports(2)), strict=True))
    pairs = zip(["", *command], command, strict=False)
    second = [flags.get(before, word) for before, word in pairs]
    at = second.index("--history")
    return second[:at] + second[at + 2 :]


def _start(cluster, name: str, command: list[str]) -> None:
    cluster.plane.programs.start(name, command, UNBUFFERED)
    port = command[command.index("--metrics-port") + 1]
    cluster.wait(lambda: answers(f"http://127.0.0.1:{port}/healthz"), f"{name} to be ready")
