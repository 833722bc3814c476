"""A live cluster's snapshot as the beginning of a run: nodes, queues, who runs and who waits."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine
from gangsched.core.model.gangs import Member, PendingGang
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodNeeds
from gangsched.core.model.queues import Booking, Queue
from gangsched.core.model.topology import Topology
from gangsched.core.snapshot import Asked, RunningGang
from gangsched.recording.journal import restore
from simulator.jobs import GPU, Job, Part

Seats = list[tuple[str, NodeName]]
"""The role and the node of each pod."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a run begins with; moments count from that of the snapshot, so who came before has less.

    `seats` are those of jobs that run. `others` are pods that only take room. Jobs that run have as
    much left, and those that wait take as long, as the scheduler expects.
    """

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    topologies: tuple[Topology, ...]
    bookings: tuple[Booking, ...]
    jobs: tuple[Job, ...]
    seats: dict[GangId, Seats]
    started_s: dict[GangId, float]
    others: tuple[f.PodSeen, ...]


def begin(path: Path) -> Beginning:
    """Read a snapshot.

    Raises:
        ConfigError: it cannot be read.

    """
    found = restore(path)
    engine, now_s = found.engine, found.now_s
    running = engine.running()
    waiting = engine.snapshot(now_s, who=Asked.ALL).waiting
    return Beginning(
        tuple(node for node in engine.cluster.nodes if node is not None),
        tuple(engine.queues.values()),
        tuple(engine.topologies.values()),
        tuple(engine.bookings.values()),
        (
            *(_running(one, now_s) for one in running),
            *(_waiting(one, now_s) for one in waiting if not one.surplus and not one.repair),
        ),
        {one.gang.id: [(place.role, place.node) for place in one.places] for one in running},
        {one.gang.id: one.started_s - now_s for one in running},
        tuple(_others(engine, {one.gang.id for one in running})),
    )


def _running(one: RunningGang, now_s: float) -> Job:
    parts: dict[str, tuple[int, PodNeeds]] = {}
    for place in one.places:
        parts[place.role] = (parts.get(place.role, (0, place.needs))[0] + 1, place.needs)
    estimate = one.estimate
    left_s = 3600.0 if estimate is None else estimate.left_s(now_s - one.started_s)
    declared = one.gang.expected_runtime_s
    said_s = None if declared is None else max(declared - (now_s - one.started_s), 1.0)
    return _job(one, now_s, left_s, said_s, [(r, c, needs) for r, (c, needs) in parts.items()])


def _waiting(one: PendingGang, now_s: float) -> Job:
    parts: dict[tuple[str, PodNeeds], list[Member]] = {}
    for member in one.members:
        parts.setdefault((member.role, member.needs), []).append(member)
    takes_s = 3600.0 if one.estimate is None else one.estimate.left_s(0.0)
    listed = [(role, len(members), needs) for (role, needs), members in parts.items()]
    return _job(one, now_s, takes_s, one.gang.expected_runtime_s, listed)


def _job(
    one: RunningGang | PendingGang,
    now_s: float,
    runtime_s: float,
    said_s: float | None,
    parts: list[tuple[str, int, PodNeeds]],
) -> Job:
    namespace, name = one.gang.id.split("/", 1)
    pods = sum(count for _, count, _ in parts)
    gpus = sum(count * dict(needs.requests).get(GPU, 0) for _, count, needs in parts)
    return Job(
        name,
        one.since_s - now_s,
        max(runtime_s, 1.0),
        pods,
        round(gpus / max(pods, 1)),
        one.gang.queue,
        one.gang.user,
        one.priority,
        said_s,
        minimum=min(one.gang.min_member, pods),
        preemptible=one.gang.preemptible,
        min_runtime_s=one.gang.min_runtime_s,
        parts=tuple(Part(*part) for part in parts),
        constraints=one.constraints,
        namespace=namespace,
    )


def _others(engine: Engine, running: set[GangId]) -> Iterable[f.PodSeen]:
    """Yield pods that take room and belong to no gang that runs whole."""
    for pod in engine.pods():
        if pod.node is not None and not pod.ended and pod.gang not in running:
            yield f.PodSeen(pod.uid, pod.name, pod.needs, node=pod.node)
