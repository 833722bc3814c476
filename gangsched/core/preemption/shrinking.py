"""Which running gangs to move so that nodes that are paid for an hour can be given back.

Gangs that end leave nodes half used. A gang that asks before it is stopped, and may be moved, can
run on what is free elsewhere. It has to do the work since its last checkpoint again, on nodes that
are paid meanwhile. What is saved is the price of the nodes that become free, for as long as their
gangs are expected to run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.preemption.defragmentation import Defragmenter, Move
from gangsched.core.snapshot import RunningGang

_LEFT_MAX_S = 86_400.0
"""A gang counts as running for a day at most: what comes then is unknown."""
_START_S = 60.0
"""What a start on other nodes takes, beside the work that is done again."""
_TRIED = 16


@dataclass(frozen=True, slots=True)
class Shrinking:
    """Gangs to move, the nodes that they leave, and what that saves and costs, in $."""

    moves: tuple[Move, ...]
    nodes: tuple[NodeName, ...]
    saved: float
    lost: float


def find_shrinking(
    defragmenter: Defragmenter, prices: Mapping[NodeName, float], settled_s: float
) -> Shrinking | None:
    """Return the moves that save the most beyond what they cost, or None.

    `prices` are those of the nodes that can be given back, for an hour. Only gangs move that ran
    for `settled_s` seconds.

    Raises:
        StoppedError: the watcher of the snapshot's progress ended it.

    """
    search = _Search(defragmenter, prices, settled_s, _gangs_on(defragmenter, prices))
    idle = tuple(name for name, gangs in search.gangs_on.items() if not gangs)
    found = sorted(search.candidates(), key=lambda one: (one.lost - one.saved, one.nodes))
    for one in found[:_TRIED]:
        plan = defragmenter.free_nodes(one.nodes, avoid=idle)
        if plan is not None:
            return Shrinking(plan.moves, one.nodes, one.saved, one.lost)
    return None


def _gangs_on(
    defragmenter: Defragmenter, nodes: Iterable[NodeName]
) -> dict[NodeName, frozenset[GangId]]:
    """Return the gangs with pods on each node, or with assignments there."""
    cluster = defragmenter.snapshot.cluster
    rows = ((name, cluster.rows.get(name)) for name in nodes)
    return {
        name: frozenset() if row is None else frozenset(cluster.gangs_by_row.get(row, ()))
        for name, row in rows
    }


@dataclass(slots=True)
class _Search:
    defragmenter: Defragmenter
    prices: Mapping[NodeName, float]
    settled_s: float
    gangs_on: Mapping[NodeName, frozenset[GangId]]

    def candidates(self) -> list[Shrinking]:
        """Return what each set of gangs that shares a node would save, if it is worth it."""
        snapshot = self.defragmenter.snapshot
        running = {gang.gang.id: gang for gang in snapshot.running}
        groups = {gangs for gangs in self.gangs_on.values() if gangs}
        nodes_of: dict[GangId, list[NodeName]] = {}
        for name, gangs in self.gangs_on.items():
            for gang in gangs:
                nodes_of.setdefault(gang, []).append(name)
        found = []
        for group in sorted(groups, key=sorted):
            snapshot.progress.check()
            if not all(gang in running and self._may_move(running[gang]) for gang in group):
                continue
            touched = {name for gang in group for name in nodes_of[gang]}
            nodes = tuple(sorted(one for one in touched if self.gangs_on[one] <= group))
            saved = sum(
                self.prices[name]
                * max(self._left_s(running[gang]) for gang in self.gangs_on[name])
                / 3600
                for name in nodes
            )
            lost = sum(self._lost(running[gang]) for gang in group)
            if saved > lost:
                found.append(Shrinking((), nodes, saved, lost))
        return found

    def _may_move(self, gang: RunningGang) -> bool:
        ran_s = self.defragmenter.now_s - gang.started_s
        return gang.save_s is not None and not gang.terminating and ran_s >= self.settled_s

    def _left_s(self, gang: RunningGang) -> float:
        now_s = self.defragmenter.now_s
        return min(max(gang.expected_end_s(now_s) - now_s, 0.0), _LEFT_MAX_S)

    def _lost(self, gang: RunningGang) -> float:
        """Return the price of the time that a gang loses, on nodes like those it leaves."""
        per_hour = sum(self.prices.get(name, 0.0) for name in {place.node for place in gang.places})
        return per_hour * (gang.lost_s(self.defragmenter.now_s) + _START_S) / 3600
