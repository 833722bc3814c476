"""Pods that come one after the other and stay: how much of the GPUs can be handed out.

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
from gangsched.core.model.pods import GPU, MILLI, PodNeeds
from gangsched.core.planning.planner import verify
from gangsched.core.policy import Placer
from gangsched.core.snapshot import Asked, Snapshot, Trial

Chooser = Callable[[Cluster, PodNeeds], tuple[int, Devices] | None]
"""Returns the slot of the node a pod goes to and the GPUs it shares, or None: nowhere."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Thousandths of GPUs after a pod came: asked for by all so far, and handed out."""

    asked_milli: int
    used_milli: int


def gpu_milli(needs: PodNeeds) -> int:
    """Return the thousandths of GPUs a pod asks for."""
    if needs.share is not None:
        return needs.share.milli * needs.share.devices
    return dict(needs.requests).get(GPU, 0) * MILLI


def arrive(nodes: Iterable[Node], pods: Sequence[PodNeeds], by: Chooser | Placer) -> list[Arrival]:
    """Place pods one by one; those that do not fit are gone."""
    engine = Engine(Limits())
    for node in nodes:
        engine.observe(NodeSeen(node), 0.0)
    place = _chosen(engine, by) if callable(by) else _placed(engine, pods, by)
    asked = used = 0
    found = []
    for needs in pods:
        milli = gpu_milli(needs)
        asked += milli
        used += milli * place(needs)
        found.append(Arrival(asked, used))
    return found


def _chosen(engine: Engine, choose: Chooser) -> Callable[[PodNeeds], bool]:
    cluster = engine.cluster

    def place(needs: PodNeeds) -> bool:
        found = choose(cluster, needs)
        if found is not None:
            cluster.take(found[0], needs, 1, None, found[1])
        return found is not None

    return place


def _placed(engine: Engine, pods: Sequence[PodNeeds], placer: Placer) -> Callable[[PodNeeds], bool]:
    """Place as a planner does: each pod is a gang of one."""
    kinds = {
        needs: _waiting(engine, needs, number) for number, needs in enumerate(dict.fromkeys(pods))
    }
    snapshot: Snapshot = engine.snapshot(who=Asked.NONE)
    trial = Trial(snapshot.cluster)

    def place(needs: PodNeeds) -> bool:
        found = placer.place(kinds[needs], snapshot)
        if not isinstance(found, Placement):
            return False
        verify(kinds[needs], found, snapshot, trial)
        return True

    return place


def _waiting(engine: Engine, needs: PodNeeds, number: int) -> PendingGang:
    gang = Gang(GangId(f"ns/pod-{number}"), 1, (Role("w", 1, 1, needs),))
    engine.observe(GangSeen(gang), 0.0)
    return engine.pending(gang.id)
