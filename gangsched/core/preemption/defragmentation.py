"""Defragmentation: which running gangs to move, so that a gang starts or a domain becomes free.

A gang that moves is preempted and starts on other nodes. It loses the work since its last
checkpoint. Only gangs move that are movable, that ran for their minimum time, and that no
PodDisruptionBudget protects. Each of them has new nodes in the plan, or there is no plan. With
`starts`, whole planning cycles must also start the gang and those that move: with quotas,
permissions, reservations, and in queue order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from gangsched.core.cluster.node_table import Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model.gangs import Member, PendingGang
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GPU, PODS
from gangsched.core.model.refusal import Refusal, Remedy
from gangsched.core.placement.advice import Starts
from gangsched.core.placement.constraints import MisconfiguredError, resolve_constraints
from gangsched.core.policy import Placer
from gangsched.core.snapshot import RunningGang, Snapshot
from gangsched.core.what_if import WhatIf, places_of, without_gangs

_SHARED = frozenset({"cpu", "memory", "ephemeral-storage", PODS})
"""Resources that services of a node use; a domain where only these are in use counts as free."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a plan: lost GPU-seconds in all, and the number of gangs."""

    gpu_s: float = float("inf")
    gangs: int = 8


@dataclass(frozen=True, slots=True)
class Move:
    """One gang that is preempted and starts elsewhere, and the GPU-seconds that it loses."""

    gang: GangId
    source: tuple[NodeName, ...]
    target: tuple[NodeName, ...]
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """The moves in their order, and what they are for.

    `placement` is that of the gang that starts; `domain` is the name of the domain that becomes
    free.
    """

    moves: tuple[Move, ...]
    placement: Placement | None = None
    domain: str = ""

    @property
    def lost_gpu_s(self) -> float:
        """Return the GPU-seconds all moves lose."""
        return sum(move.lost_gpu_s for move in self.moves)


@dataclass(slots=True)
class Defragmenter:
    """Plans moves on one snapshot; PodDisruptionBudgets protect the `protected` gangs.

    With `starts`, moves for a gang are tried in planning cycles; then the snapshot has to hold all
    pending gangs.
    """

    snapshot: Snapshot
    placer: Placer
    now_s: float
    budget: Budget = field(default_factory=Budget)
    protected: frozenset[GangId] = frozenset()
    starts: Starts | None = None

    def find_moves(self, waiting: PendingGang) -> Defragmentation | None:
        """Return the cheapest set of gangs to move so that a pending gang starts, or None."""
        best: Defragmentation | None = None
        for group in self._groups_for(waiting):
            plan = self._smallest(group, lambda gone: self._move_aside(waiting, gone))
            if plan is not None and (best is None or plan.lost_gpu_s < best.lost_gpu_s):
                best = plan
        return best

    def free_domain(self, topology: str, level: int) -> Defragmentation | None:
        """Find the domain of a level that is cheapest to empty of gangs, or None.

        If one is free already, no gang moves.
        """
        cluster = self.snapshot.cluster
        tree = cluster.tree(topology)
        if tree is None or level >= len(tree.codes):
            return None
        best: Defragmentation | None = None
        for code in np.unique(tree.codes[level][tree.codes[level] != UNKNOWN]):
            inside = tree.codes[level] == code
            if self._free(inside):
                return Defragmentation((), domain=tree.name(level, int(code)))
            gone = self._inside(inside)
            if not gone or not self._allowed(gone):
                continue
            plan = self._move_out(gone, inside)
            if plan is not None and (best is None or plan.lost_gpu_s < best.lost_gpu_s):
                best = replace(plan, domain=tree.name(level, int(code)))
        return best

    def free_nodes(
        self, nodes: Collection[NodeName], avoid: Collection[NodeName] = ()
    ) -> Defragmentation | None:
        """Move all gangs off some nodes, to none of those nor of `avoid`; None: not possible."""
        cluster = self.snapshot.cluster
        inside = np.zeros(len(cluster.names), dtype=bool)
        inside[[cluster.rows[name] for name in nodes]] = True
        gone = self._inside(inside)
        staying = (*self.snapshot.starting, *self.snapshot.terminating)
        if any(_touches(gang, inside, cluster) for gang in staying) or not self._allowed(gone):
            return None
        what_if = WhatIf(without_gangs(self.snapshot, _ids(gone)))
        moved = self._placed_again(gone, what_if, (*nodes, *avoid))
        return None if moved is None else Defragmentation(self._moves(gone, moved))

    def lost_gpu_s(self, gang: RunningGang) -> float:
        """Return the GPU-seconds a gang loses when it is preempted now."""
        gpus = sum(dict(place.needs.requests).get(GPU, 0) for place in gang.places)
        return gang.lost_s(self.now_s) * gpus

    def _groups_for(self, waiting: PendingGang) -> Iterator[tuple[RunningGang, ...]]:
        """Yield the sets of movable gangs to try: those of each domain, then all."""
        movable = tuple(gang for gang in self.snapshot.running if self._movable(gang))
        movable = tuple(sorted(movable, key=lambda gang: (self.lost_gpu_s(gang), gang.gang.id)))
        cluster = self.snapshot.cluster
        try:
            scope = resolve_constraints(waiting, cluster)
        except MisconfiguredError:
            return
        level = scope.rules.required
        if level is not None:
            codes = scope.codes(level, len(cluster.names))
            for code in np.unique(codes[(codes != UNKNOWN) & cluster.live]):
                inside = codes == code
                group = tuple(gang for gang in movable if _touches(gang, inside, cluster))
                if group:
                    yield group
        if movable:
            yield movable

    def _smallest(
        self,
        group: tuple[RunningGang, ...],
        attempt: Callable[[tuple[RunningGang, ...]], Defragmentation | None],
    ) -> Defragmentation | None:
        """Grow a set from the cheapest gang until it works, then drop gangs that are not needed."""
        for count in range(1, min(len(group), self.budget.gangs) + 1):
            gone = group[:count]
            if attempt(gone) is None:
                continue
            for gang in sorted(gone, key=self.lost_gpu_s, reverse=True):
                fewer = tuple(other for other in gone if other is not gang)
                if fewer and attempt(fewer) is not None:
                    gone = fewer
            return attempt(gone) if self._allowed(gone) else None
        return None

    def _move_aside(
        self, waiting: PendingGang, gone: tuple[RunningGang, ...]
    ) -> Defragmentation | None:
        """Place the pending gang on the nodes of other gangs, and these on other nodes."""
        self.snapshot.progress.check()
        what_if = WhatIf(without_gangs(self.snapshot, _ids(gone)))
        placed = self.placer.place(waiting, what_if.snapshot())
        if isinstance(placed, Refusal):
            return None
        what_if.hold(self._as_running(waiting, placed))
        moved = self._placed_again(gone, what_if)
        if moved is None or not self._starts_everywhere(waiting, placed, gone, moved):
            return None
        return Defragmentation(self._moves(gone, moved), placement=placed)

    def _move_out(self, gone: tuple[RunningGang, ...], inside: Mask) -> Defragmentation | None:
        """Place gangs again, outside the domain to free."""
        what_if = WhatIf(without_gangs(self.snapshot, _ids(gone)))
        names = what_if.cluster.names
        barred = tuple(names[row] for row in np.flatnonzero(inside & what_if.cluster.live))
        moved = self._placed_again(gone, what_if, barred)
        return None if moved is None else Defragmentation(self._moves(gone, moved))

    def _placed_again(
        self, gone: tuple[RunningGang, ...], what_if: WhatIf, avoid: tuple[NodeName, ...] = ()
    ) -> dict[GangId, RunningGang] | None:
        """Place gangs again, the largest first; return them as they would run."""
        moved = {}
        for gang in sorted(gone, key=_largest):
            self.snapshot.progress.check()
            waiting = as_pending(gang, avoid)
            placed = self.placer.place(waiting, what_if.snapshot())
            if isinstance(placed, Refusal):
                return None
            there = replace(gang, places=places_of(waiting, placed))
            moved[gang.gang.id] = what_if.hold(there)
        return moved

    def _moves(
        self, gone: tuple[RunningGang, ...], moved: dict[GangId, RunningGang]
    ) -> tuple[Move, ...]:
        return tuple(
            Move(gang.gang.id, _nodes(gang), _nodes(moved[gang.gang.id]), self.lost_gpu_s(gang))
            for gang in sorted(gone, key=_largest)
        )

    def _starts_everywhere(
        self,
        waiting: PendingGang,
        placed: Placement,
        gone: tuple[RunningGang, ...],
        moved: dict[GangId, RunningGang],
    ) -> bool:
        """Return whether a gang starts once others have moved, and whether these start again."""
        if self.starts is None:
            return True
        without = without_gangs(self.snapshot, _ids(gone))
        if not self.starts(waiting, _running_too(without, moved.values()), None):
            return False
        left = _running_too(without, [self._as_running(waiting, placed)])
        again = tuple(
            replace(as_pending(gang), queued_since_s=gang.queued_since_s, priority=gang.priority)
            for gang in gone
        )
        others = (gang for gang in left.pending if gang.gang.id != waiting.gang.id)
        left = replace(left, pending=(*others, *again))
        return all(self.starts(gang, left, None) for gang in again)

    def _as_running(self, waiting: PendingGang, placed: Placement) -> RunningGang:
        """Return a pending gang as it would run from now on."""
        return RunningGang(
            waiting.gang,
            places_of(waiting, placed),
            self.now_s,
            estimate=waiting.estimate,
            constraints=waiting.constraints,
        )

    def _free(self, inside: Mask) -> bool:
        """Return whether a domain has nodes, but neither gangs nor pods with GPUs."""
        cluster = self.snapshot.cluster
        inside = inside & cluster.live
        there = (*self.snapshot.occupants, *self.snapshot.terminating)
        if not inside.any() or any(_touches(gang, inside, cluster) for gang in there):
            return False
        devices = np.array([name not in _SHARED for name in cluster.resources])
        return not cluster.used[inside][:, devices].any()

    def _inside(self, inside: Mask) -> tuple[RunningGang, ...]:
        cluster = self.snapshot.cluster
        return tuple(gang for gang in self.snapshot.running if _touches(gang, inside, cluster))

    def _movable(self, gang: RunningGang) -> bool:
        ran_s = self.now_s - gang.started_s
        return (
            gang.movable and ran_s >= gang.gang.min_runtime_s and gang.gang.id not in self.protected
        )

    def _allowed(self, gone: Iterable[RunningGang]) -> bool:
        group = tuple(gone)
        within = sum(self.lost_gpu_s(gang) for gang in group) <= self.budget.gpu_s
        return (
            within
            and len(group) <= self.budget.gangs
            and all(self._movable(gang) for gang in group)
        )


def move_remedy(plan: Defragmentation) -> Remedy:
    """Return the moves as a remedy: the gangs, and the work that they lose."""
    names = ", ".join(move.gang for move in plan.moves)
    loses = f"which loses {plan.lost_gpu_s / 3600:.3g} GPU-hours of work"
    return Remedy("move", f"moving {names} elsewhere, {loses}")


def as_pending(gang: RunningGang, avoid: tuple[NodeName, ...] = ()) -> PendingGang:
    """Return a running gang as a pending gang, as it is declared."""
    members = tuple(
        Member(place.name, place.role, place.needs, rank) for rank, place in enumerate(gang.places)
    )
    return PendingGang(
        gang=gang.declared or gang.gang,
        version=0,
        members=members,
        members_min=len(members),
        role_members_min=(),
        priority=gang.gang.priority or 0,
        queued_since_s=gang.started_s,
        excluded_nodes=avoid,
        constraints=gang.constraints,
        near_role=gang.near_role,
        estimate=gang.estimate,
    )


def _running_too(snapshot: Snapshot, gangs: Iterable[RunningGang]) -> Snapshot:
    """Return the snapshot with these gangs running as well."""
    what_if = WhatIf(snapshot)
    held = [what_if.hold(gang) for gang in gangs]
    return replace(what_if.snapshot(), running=(*snapshot.running, *held))


def _ids(gangs: Iterable[RunningGang]) -> frozenset[GangId]:
    return frozenset(gang.gang.id for gang in gangs)


def _nodes(gang: RunningGang) -> tuple[NodeName, ...]:
    return tuple(sorted({place.node for place in gang.places}))


def _largest(gang: RunningGang) -> tuple[int, GangId]:
    return -len(gang.places), gang.gang.id


def _touches(gang: RunningGang, inside: Mask, cluster: Cluster) -> bool:
    rows = (cluster.rows.get(place.node) for place in gang.places)
    return any(row is not None and inside[row] for row in rows)
