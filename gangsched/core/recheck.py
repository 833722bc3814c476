"""The second look at a plan, on the present state, before anything is reserved."""

from gangsched.core.cluster import Cluster
from gangsched.core.devices import Devices
from gangsched.core.gangs import GangState
from gangsched.core.model import NodeName, PodNeeds
from gangsched.core.planner import Planned
from gangsched.core.policy import Repartition


def holds(cluster: Cluster, gang: GangState, planned: Planned) -> bool:
    """Tell whether a placement still fits, counting pods of one kind together."""
    cuts = planned.placement.repartitions
    if not all(_still_idle(cluster, cut) for cut in cuts):
        return False
    if not cuts:
        return _fits(cluster, gang, planned)
    with cluster.offering({cut.node: (cut.held, cut.gained) for cut in cuts}):
        return _fits(cluster, gang, planned)


def _fits(cluster: Cluster, gang: GangState, planned: Planned) -> bool:
    devices = dict(planned.placement.devices)
    groups: dict[tuple[NodeName, PodNeeds], int] = {}
    taken: list[tuple[int, PodNeeds, int, tuple[Devices, ...]]] = []
    try:
        for name, node in planned.placement.nodes:
            needs = gang.members[name].needs
            row = cluster.rows.get(node)
            if row is None:
                return False
            if needs.share is None:
                groups[node, needs] = groups.get((node, needs), 0) + 1
                continue
            if not cluster.fits(row, needs):
                return False
            chosen = cluster.take(row, needs, 1, None, devices.get(name, ()))
            taken.append((row, needs, 1, chosen))
            if cluster.shared.overfull(row):
                return False
        for (node, needs), times in groups.items():
            row = cluster.rows[node]
            if times > 1:
                taken.append((row, needs, times - 1, cluster.take(row, needs, times - 1)))
            if not cluster.fits(row, needs):
                return False
            taken.append((row, needs, 1, cluster.take(row, needs)))
        return True
    finally:
        for row, needs, times, on in reversed(taken):
            cluster.give(row, needs, times, None, on)


def _still_idle(cluster: Cluster, cut: Repartition) -> bool:
    """Tell whether nobody uses the GPUs that are to be cut."""
    row = cluster.rows.get(cut.node)
    if row is None:
        return False
    used = dict(zip(cluster.resources, cluster.used[row], strict=True))
    return all(used.get(name, 0) == 0 for name, _ in cut.held)
