"""Pods that arrive one after the other and stay: how much of the GPUs can be allocated.

The set-up of FGD's evaluation (Weng et al., USENIX ATC'23): no queues, no departures, no gangs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.facts import GangSeen, NodeSeen
from gangsched.core.model.gangs import Gang, PendingGang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.planning.planner import verify
from gangsched.core.policy import Placer
from gangsched.core.snapshot import Snapshot, Trial

Chooser = Callable[[Cluster, PodRequirements], tuple[int, Devices] | None]
"""Returns the row of a pod's node and the GPUs it shares; None if no node fits."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Thousandths of GPUs after a pod arrived: requested by all pods so far, and allocated."""

    asked_milli: int
    used_milli: int


def gpu_milli(needs: PodRequirements) -> int:
    """Return the thousandths of GPUs that a pod requests."""
    if needs.share is not None:
        return needs.share.milli * needs.share.devices
    return dict(needs.requests).get(GPU, 0) * MILLI


def arrive(
    nodes: Iterable[Node], pods: Sequence[PodRequirements], by: Chooser | Placer
) -> list[Arrival]:
    """Place pods one by one; pods that do not fit are dropped."""
    engine = Engine(Limits())
    for node in nodes:
        engine.observe(NodeSeen(node), 0.0)
    place = _chosen(engine, by) if callable(by) else _placed(engine, pods, by)
    asked = used = 0
    arrivals = []
    for needs in pods:
        milli = gpu_milli(needs)
        asked += milli
        used += milli * place(needs)
        arrivals.append(Arrival(asked, used))
    return arrivals


def _chosen(engine: Engine, choose: Chooser) -> Callable[[PodRequirements], bool]:
    cluster = engine.view.cluster

    def place(needs: PodRequirements) -> bool:
        slot = choose(cluster, needs)
        if slot is not None:
            cluster.add_pods(slot[0], needs, 1, None, slot[1])
        return slot is not None

    return place


def _placed(
    engine: Engine, pods: Sequence[PodRequirements], placer: Placer
) -> Callable[[PodRequirements], bool]:
    """Place pods as a planner does, each as a gang of one member."""
    gangs = {
        needs: _waiting(engine, needs, number) for number, needs in enumerate(dict.fromkeys(pods))
    }
    snapshot: Snapshot = engine.view.snapshot_cluster()
    trial = Trial(snapshot.cluster)

    def place(needs: PodRequirements) -> bool:
        placement = placer.place(gangs[needs], snapshot)
        if not isinstance(placement, Placement):
            return False
        verify(gangs[needs], placement, snapshot, trial)
        return True

    return place


def _waiting(engine: Engine, needs: PodRequirements, number: int) -> PendingGang:
    gang = Gang(GangId(f"ns/pod-{number}"), 1, (Role("w", 1, 1, needs),))
    engine.observe(GangSeen(gang), 0.0)
    return engine.view.pending(gang.id)
