"""Checks a plan against the present state before anything is reserved."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Eviction, Repartition
from gangsched.core.model.pods import PodRequirements
from gangsched.core.placement.constraints import barred_rows
from gangsched.core.planning.planner import Planned
from gangsched.core.snapshot import RunningGang
from gangsched.core.what_if import cluster_without

Gangs = Mapping[GangId, GangState]


def still_fits(cluster: Cluster, gang: GangState, planned: Planned) -> bool:
    """Return whether a placement still fits; pods of one class are counted together."""
    if not _alone(cluster, gang, planned):
        return False
    cuts = planned.placement.repartitions
    if not all(_still_idle(cluster, cut) for cut in cuts):
        return False
    if not cuts:
        return _fits(cluster, gang, planned)
    with cluster.with_allocatable({cut.node: (cut.held, cut.gained) for cut in cuts}):
        return _fits(cluster, gang, planned)


def _alone(cluster: Cluster, gang: GangState, planned: Planned) -> bool:
    """Return whether a placement breaks no exclusive domain, neither its own nor another's."""
    asked = gang.constraints()
    if asked.exclusive is None and not cluster.exclusive_domains:
        return True
    level = cluster.level(asked.topology, asked.exclusive) if asked.exclusive else None
    barred = barred_rows(gang.id, cluster, asked.topology, level)
    rows = {cluster.rows.get(node) for _, node in planned.placement.nodes}
    return not any(row is not None and barred[row] for row in rows)


def cluster_without_victims(
    cluster: Cluster, gangs: Gangs, evictions: Iterable[Eviction], leaving: Iterable[RunningGang]
) -> Cluster | None:
    """Return the cluster without the gangs that terminate already and those to preempt.

    Return None if one of these does not run as it did when the plan chose it.
    """
    gone = list(leaving)
    for eviction in evictions:
        victim = gangs.get(eviction.gang)
        if victim is None or victim.state is not State.PLACED or victim.run.stop is not None:
            return None
        whole = running_view(victim)
        going = {place.name for place in whole.places} & set(eviction.pods)
        if len(going) != len(eviction.pods):
            return None
        places = tuple(p for p in whole.places if not going or p.name in going)
        gone.append(replace(whole, places=places))
    return cluster_without(cluster, gone)


def _fits(cluster: Cluster, gang: GangState, planned: Planned) -> bool:
    devices = dict(planned.placement.devices)
    groups: dict[PodRequirements, dict[int, int]] = {}
    taken: list[tuple[int, PodRequirements, int, tuple[Devices, ...]]] = []
    try:
        for name, node in planned.placement.nodes:
            needs = gang.members[name].needs
            row = cluster.rows.get(node)
            if row is None:
                return False
            if needs.share is None:
                counts = groups.setdefault(needs, {})
                counts[row] = counts.get(row, 0) + 1
                continue
            if not cluster.fits(row, needs):
                return False
            chosen = cluster.add_pods(row, needs, 1, None, devices.get(name, ()))
            taken.append((row, needs, 1, chosen))
            if cluster.shared.overfull(row):
                return False
        for needs, counts in groups.items():
            rows = np.fromiter(counts, dtype=np.int64)
            if bool((cluster.capacity(needs)[rows] < list(counts.values())).any()):
                return False
            if len(groups) > 1:
                for row, times in counts.items():
                    taken.append((row, needs, times, cluster.add_pods(row, needs, times)))
        return True
    finally:
        for row, needs, times, on in reversed(taken):
            cluster.remove_pods(row, needs, times, None, on)


def _still_idle(cluster: Cluster, cut: Repartition) -> bool:
    """Return whether no pod uses the GPUs that are to be repartitioned."""
    row = cluster.rows.get(cut.node)
    if row is None:
        return False
    used = dict(zip(cluster.resources, cluster.used[row], strict=True))
    return all(used.get(name, 0) == 0 for name, _ in cut.held)
