"""A live cluster's snapshot as the initial state of a run: nodes, queues, and gangs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gangsched.core import facts as f
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import Member, PendingGang
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import AdvanceReservation, Queue
from gangsched.core.model.topology import Topology
from gangsched.core.snapshot import RunningGang
from gangsched.recording.journal import restore
from simulator.jobs import GPU, Job, Part

Seats = list[tuple[str, NodeName]]
"""The role and the node of each pod."""


@dataclass(frozen=True, slots=True)
class InitialState:
    """The state at the start of a run. Times count from the snapshot; earlier times are negative.

    `seats` are the roles and nodes of running jobs. `others` are pods that only use capacity. The
    remaining run time of a job is what the scheduler expects.
    """

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    topologies: tuple[Topology, ...]
    bookings: tuple[AdvanceReservation, ...]
    jobs: tuple[Job, ...]
    seats: dict[GangId, Seats]
    started_s: dict[GangId, float]
    others: tuple[f.PodSeen, ...]


def read_initial_state(path: Path) -> InitialState:
    """Read a snapshot.

    Raises:
        ConfigError: the file cannot be read.

    """
    restored = restore(path)
    engine, now_s = restored.engine, restored.now_s
    running = engine.view.running()
    waiting = engine.view.snapshot_all(now_s).pending
    return InitialState(
        tuple(node for node in engine.view.cluster.nodes if node is not None),
        tuple(engine.view.queues.values()),
        tuple(engine.view.topologies.values()),
        tuple(engine.view.bookings.values()),
        (
            *(_running(gang, now_s) for gang in running),
            *(
                _waiting(gang, now_s)
                for gang in waiting
                if not gang.is_scale_up and not gang.is_refill
            ),
        ),
        {gang.gang.id: [(place.role, place.node) for place in gang.places] for gang in running},
        {gang.gang.id: gang.started_s - now_s for gang in running},
        tuple(_others(engine, {gang.gang.id for gang in running})),
    )


def _running(running: RunningGang, now_s: float) -> Job:
    parts: dict[str, tuple[int, PodRequirements]] = {}
    for place in running.places:
        parts[place.role] = (parts.get(place.role, (0, place.needs))[0] + 1, place.needs)
    estimate = running.estimate
    left_s = 3600.0 if estimate is None else estimate.left_s(now_s - running.started_s)
    declared = running.gang.expected_runtime_s
    declared_s = None if declared is None else max(declared - (now_s - running.started_s), 1.0)
    return _job(
        running, now_s, left_s, declared_s, [(r, c, needs) for r, (c, needs) in parts.items()]
    )


def _waiting(pending: PendingGang, now_s: float) -> Job:
    parts: dict[tuple[str, PodRequirements], list[Member]] = {}
    for member in pending.members:
        parts.setdefault((member.role, member.needs), []).append(member)
    runtime_s = 3600.0 if pending.estimate is None else pending.estimate.left_s(0.0)
    parts_of_job = [(role, len(members), needs) for (role, needs), members in parts.items()]
    return _job(pending, now_s, runtime_s, pending.gang.expected_runtime_s, parts_of_job)


def _job(
    view: RunningGang | PendingGang,
    now_s: float,
    runtime_s: float,
    declared_s: float | None,
    parts: list[tuple[str, int, PodRequirements]],
) -> Job:
    namespace, name = view.gang.id.split("/", 1)
    pods = sum(count for _, count, _ in parts)
    gpus = sum(count * dict(needs.requests).get(GPU, 0) for _, count, needs in parts)
    return Job(
        name,
        view.queued_since_s - now_s,
        max(runtime_s, 1.0),
        pods,
        round(gpus / max(pods, 1)),
        view.gang.queue,
        view.gang.user,
        view.priority,
        declared_s,
        minimum=min(view.gang.min_member, pods),
        preemptible=view.gang.preemptible,
        min_runtime_s=view.gang.min_runtime_s,
        parts=tuple(Part(*part) for part in parts),
        constraints=view.constraints,
        namespace=namespace,
    )


def _others(engine: SchedulingEngine, running: set[GangId]) -> Iterable[f.PodSeen]:
    """Yield pods that use capacity and belong to no running gang."""
    for pod in engine.view.pods():
        if pod.node is not None and not pod.ended and pod.gang not in running:
            yield f.PodSeen(pod.uid, pod.name, pod.needs, node=pod.node)
