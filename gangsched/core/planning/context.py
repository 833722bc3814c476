"""What one planning cycle works on: the cluster, the queues' usage, and what is to come."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

from gangsched.core.model.gangs import PendingGang, runtime_s
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts, QuotaKey
from gangsched.core.planning.namespace_quotas import add_to
from gangsched.core.planning.node_profile import (
    AvailabilityProfile,
    Occupancy,
    ReleaseSchedule,
    seats_of,
)
from gangsched.core.planning.quota_profile import QuotaClaim, QuotaProfile, QuotaProjection
from gangsched.core.policy import Candidate, Policies
from gangsched.core.preemption.candidates import (
    BorrowingQueues,
    candidates,
    outranks,
    overrun,
    preemptible,
)
from gangsched.core.quota.charges import (
    charge_of,
    charge_on_nodes,
    split_required_optional,
)
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import BackfillReservation, RunningGang, Snapshot
from gangsched.core.what_if import WhatIf

_EXAMINED = 500
"""So many running gangs are considered for stopping in one planning cycle, or those of one search:
one search in a large cluster, some in a small one. Others wait for the next cycle."""

_SEARCH = 100
"""A search costs as much as so many running gangs, beside those it considers."""

ALWAYS = float("-inf")
"""The mark of what holds for gangs of any run time."""

_GRACE_S = 60.0
_FOREVER_S = 10 * 365 * 86_400.0


class PlanningContext:
    """The state of one planning cycle. `victims` are gangs that it stops.

    `postponed` are gangs that have to wait for a later cycle before others are stopped for them;
    `unhelped` are shapes and priorities for which nobody could be.

    `leaving` take their room until they have left, those stopped in this cycle among them.
    `changes` counts starts and what becomes of reservations: a plan made before is out of date.
    """

    def __init__(self, snapshot: Snapshot, policies: Policies, now_s: float) -> None:
        self.snapshot = snapshot
        self.policies = policies
        self.now_s = now_s
        self.usage = snapshot.usage.copy()
        self.unborn = {name: dict(some) for name, some in snapshot.rules.unborn.items()}
        self.users = {account: dict(held) for account, held in snapshot.rules.users.items()}
        self._ends = ReleaseSchedule(partial(_ends_of, snapshot, now_s))
        self.horizon = AvailabilityProfile(
            snapshot.cluster, self._ends, now_s, snapshot.rules.bookings
        )
        self.holds = QuotaProfile()
        self.waiting = {one.gang.id: one for one in snapshot.waiting}
        self.victims: set[GangId] = set()
        self.changes = 0
        self._examined = 0
        self.postponed: set[GangId] = set()
        self.unhelped: set[tuple[int, int]] = set()
        self._afterwards: tuple[Snapshot, Usage] | None = None
        self._stoppable: dict[str, list[RunningGang]] | None = None
        self._lenders = BorrowingQueues()
        self._kept_in: dict[str, int] = {}
        self._may_keep: dict[str, bool] = {}
        self._tops: dict[str, str] = {}
        self._ending: dict[str, list[tuple[float, RunningGang]]] = {}
        self._marks_s: list[float] | None = None
        self._passed: dict[GangId, Amounts] = {}
        self._yields: dict[tuple[str, int], Amounts] = {}
        self.leaving: list[RunningGang] = list(snapshot.leaving)

    @cached_property
    def running(self) -> dict[GangId, RunningGang]:
        """Return who runs, by name."""
        return {one.gang.id: one for one in self.snapshot.running}

    # -- what is kept in time -----------------------------------------------------------------

    @property
    def reserved(self) -> list[BackfillReservation]:
        """Return what is kept, in the order it was."""
        return self.horizon.reserved

    def keep(
        self, waiting: PendingGang, promise: BackfillReservation, ahead: QuotaProjection | None
    ) -> None:
        """Keep room, and quota as it will be `ahead`, for a gang."""
        self.waiting[waiting.gang.id] = waiting
        stay = self.stay(waiting, promise.nodes, promise.start_s)
        self.horizon.reserve(promise.gang, stay, promise.nodes)
        if ahead is not None:
            self.holds.keep(self.claim(waiting), ahead)
        self.changes += 1
        self._kept_in[self.tree_of(waiting)] = self._kept_in.get(self.tree_of(waiting), 0) + 1
        self._marks_s = None
        self._may_keep.clear()

    def turn_of(self, waiting: PendingGang) -> BackfillReservation | None:
        """Begin a gang's turn: return what it was promised, which is free for it again."""
        if not self.horizon.keeps(waiting.gang.id):
            return None
        own = next(one for one in self.reserved if one.gang == waiting.gang.id)
        self.cancel(own.gang)
        return own

    def cancel(self, gang: GangId) -> None:
        """Keep nothing for a gang any more."""
        if self.horizon.keeps(gang):
            self.changes += 1
            self._kept_in[self.tree_of(self.waiting[gang])] -= 1
        self.horizon.cancel(gang)
        self.holds.cancel(gang)
        self._marks_s = None
        self._may_keep.clear()

    def may_keep(self, waiting: PendingGang) -> bool:
        """Tell whether a gang may have room and quota kept: so many of its tree, by the policy."""
        known = self._may_keep.get(waiting.gang.queue)
        if known is None:
            backfill, made = self.policies.backfill, self._kept_in.get(self.tree_of(waiting), 0)
            known = backfill is not None and backfill.reserves(made)
            self._may_keep[waiting.gang.queue] = known
        return known and not waiting.surplus

    def mark_s(self, waiting: PendingGang) -> float:
        """Return when the last thing begins that a gang would outlive if it started now.

        Two that outlive the same promises and bookings see the same cluster.
        """
        return self.mark_after_s(self.runtime_s(waiting))

    def mark_after_s(self, runtime_s: float) -> float:
        """Return the mark of a gang that runs for so long."""
        if self._marks_s is None:
            marks = {one.start_s for one in self.reserved} | {one.at_s for one in self.holds}
            self._marks_s = sorted(marks | {one.start_s for one in self.horizon.closed})
        count = bisect_left(self._marks_s, self.now_s + runtime_s)
        return self._marks_s[count - 1] if count else ALWAYS

    def lapse(self, first: PendingGang) -> bool:
        """Take back what was promised to those a gang outranks; tell if there was any."""
        if not self.reserved:
            return False
        yields = self._yielding(first)
        lower = [
            one.gang
            for one in self.reserved
            if outranks(first, yields, self.waiting[one.gang], self._passers(one.gang), self.usage)
        ]
        for gang in lower:
            self.cancel(gang)
        return bool(lower)

    def _passers(self, gang: GangId) -> Amounts:
        """Return what those hold who came after a gang, in its queue, and run already."""
        known = self._passed.get(gang)
        if known is None:
            waiting = self.waiting[gang]
            known = self._passed[gang] = _sum(
                one.charge
                for one in self.running.values()
                if one.since_s > waiting.since_s and one.gang.queue == waiting.gang.queue
            )
        return known

    def _yielding(self, waiting: PendingGang) -> Amounts:
        """Return what gangs of lower priority hold in a gang's queue: it may take their place."""
        key = (waiting.gang.queue, waiting.priority)
        known = self._yields.get(key)
        if known is None:
            ones = self.stoppable().get(waiting.gang.queue, ())
            known = _sum(one.charge for one in ones if one.priority < waiting.priority)
            self._yields[key] = known
        return known

    def claim(self, waiting: PendingGang) -> QuotaClaim:
        """Return what a gang would take of its queue."""
        runtime_s = self.runtime_s(waiting)
        return QuotaClaim(waiting.gang.id, waiting.gang.queue, charge_of(waiting), runtime_s)

    def tree_of(self, waiting: PendingGang) -> str:
        """Return the top of a gang's tree, "" where no quota bounds it."""
        queue = waiting.gang.queue
        known = self._tops.get(queue)
        if known is None:
            tree = self.usage.tree
            bounded = queue in tree and tree.quota_keys(queue)
            known = self._tops[queue] = tree.path(queue)[-1] if bounded else ""
        return known

    def ahead(self, waiting: PendingGang) -> QuotaProjection | None:
        """Return what a gang's tree will use as others end; None where no quota bounds it."""
        top = self.tree_of(waiting)
        if not top:
            return None
        usage, tree = self.usage.copy(top), self.usage.tree
        inside = set(tree.subtree(top))
        for one in self.leaving:
            if one.gang.queue in inside:
                usage.charge(one.gang.queue, one.charge, -1)
        if top not in self._ending:
            self._ending[top] = [
                (end_s, one)
                for end_s, one in self._ends
                if one.gang.queue in inside and not one.leaving
            ]
        return QuotaProjection(usage, self._ending[top], self.now_s, self.victims)

    # -- starts and stops ---------------------------------------------------------------------

    def started(self, waiting: PendingGang, placed: Placement, charge: Amounts) -> None:
        """Count a gang that starts now; the cluster was charged already."""
        stay = self.stay(waiting, placed.nodes)
        self.changes += 1
        self._count_start(waiting, stay, charge, 1)
        self.horizon.started(stay)

    def undo_start(self, waiting: PendingGang, placed: Placement, charge: Amounts) -> None:
        """Undo `started` for the last gang that started; the cluster is as before it."""
        stay = self.stay(waiting, placed.nodes)
        self._count_start(waiting, stay, charge, -1)
        self.horizon.undo_start(stay)

    def _count_start(
        self, waiting: PendingGang, stay: Occupancy, charge: Amounts, sign: int
    ) -> None:
        self.usage.charge(waiting.gang.queue, charge, sign, firm=not waiting.gang.preemptible)
        held = self.users.setdefault(waiting.gang.account, {})
        for key, quantity in charge:
            held[key] = held.get(key, 0) + sign * quantity
        if waiting.unborn:
            namespace = waiting.gang.id.partition("/")[0]
            more = tuple((name, sign * quantity) for name, quantity in waiting.unborn)
            add_to(self.unborn.setdefault(namespace, {}), more)
        self.holds.started(waiting.gang.queue, charge, stay.end_s, sign)
        self._afterwards = None
        self._lenders.changed(self.usage.tree.path(waiting.gang.queue))

    def afterwards(self) -> tuple[Snapshot, Usage]:
        """Return cluster and usage as they will be once those have left who were told to."""
        if not self.leaving:
            return self.snapshot, self.usage
        if self._afterwards is None:
            what_if = WhatIf(replace(self.snapshot, usage=self.usage))
            for one in self.leaving:
                what_if.release(one)
            self._afterwards = what_if.snapshot(), what_if.usage
        return self._afterwards

    def candidates(self, waiting: PendingGang, charge: Amounts) -> Iterator[Candidate]:
        """Yield the gangs that may be stopped for one with this charge, but not in turn."""
        _, usage = self.afterwards()
        found = candidates(waiting, self.stoppable(), self._lenders, usage, charge, self.now_s)
        if any(one.gang == waiting.gang.id for one in self.snapshot.promises):
            stay = {waiting.gang.id, *self.victims}  # it may run itself, and lack a member
            there = (one for one in self.running.values() if one.gang.id not in stay)
            known = {one.running.gang.id: one for one in overrun(waiting, there, usage, self.now_s)}
            known |= {one.running.gang.id: one for one in found}
            found = iter(known.values())
        stopped = {by for one, by in self.snapshot.rules.stopped if one == waiting.gang.id}
        return (one for one in found if one.running.gang.id not in stopped) if stopped else found

    def examines(self, count: int) -> bool:
        """Tell whether so many running gangs may still be considered; if so, count them."""
        cost = _SEARCH + count
        if self._examined and self._examined + cost > _EXAMINED:
            return False
        self._examined += cost
        return True

    def stoppable(self) -> dict[str, list[RunningGang]]:
        """Return by queue the gangs that may be stopped and are not yet."""
        if self._stoppable is None:
            ones = (one for one in self.running.values() if one.gang.id not in self.victims)
            self._stoppable = preemptible(ones, self.usage, self.now_s)
        return self._stoppable

    def stopped(self, gone: Sequence[RunningGang]) -> None:
        """Count gangs that are stopped in this cycle as leaving."""
        self.victims.update(one.gang.id for one in gone)
        self.leaving.extend(gone)
        self._afterwards = None
        for one in gone:
            self._lenders.changed(self.usage.tree.path(one.gang.queue))
        for queue in {one.gang.queue for one in gone} if self._stoppable is not None else ():
            ones = self.stoppable().get(queue, ())
            self.stoppable()[queue] = [one for one in ones if one.gang.id not in self.victims]
        self._yields.clear()

    # -- how long -----------------------------------------------------------------------------

    def runtime_s(self, waiting: PendingGang) -> float:
        """Return how long a gang is expected to run."""
        return runtime_s(waiting)

    def stay(
        self,
        waiting: PendingGang,
        nodes: tuple[tuple[PodName, NodeName], ...],
        start_s: float | None = None,
    ) -> Occupancy:
        """Return the room a placement takes, from now or from a moment on."""
        needs = {member.name: member.needs for member in waiting.members}
        start_s = self.now_s if start_s is None else start_s
        end_s = start_s + self.runtime_s(waiting)
        return Occupancy(start_s, end_s, tuple((node, needs[name]) for name, node in nodes))

    def stay_of(self, gang: GangId) -> Occupancy:
        """Return the room a running gang takes."""
        one = self.running[gang]
        return Occupancy(one.started_s, one.free_s(self.now_s), seats_of(one))

    def charged(self, waiting: PendingGang, placed: Placement) -> Amounts:
        """Return what a placement charges, on the GPUs it really gets."""
        needs = {member.name: member.needs for member in waiting.members}
        seats = ((node, needs[name]) for name, node in placed.nodes)
        return charge_on_nodes(self.snapshot.cluster, self.snapshot.rules.kinds, seats)


def _sum(charges: Iterable[Amounts]) -> Amounts:
    total: dict[QuotaKey, int] = {}
    for charge in charges:
        for key, quantity in charge:
            total[key] = total.get(key, 0) + quantity
    return tuple(sorted(total.items()))


def at_least(waiting: PendingGang) -> PendingGang:
    """Return the gang with the members it needs to start and no more."""
    if waiting.minimum >= len(waiting.members):
        return waiting
    must, _ = split_required_optional(waiting)
    return replace(waiting, members=must, minimum=len(must))


def _ends_of(snapshot: Snapshot, now_s: float) -> Iterator[tuple[float, RunningGang]]:
    last_s = now_s + _FOREVER_S
    yield from ((min(one.free_s(now_s), last_s), one) for one in snapshot.holders)
    yield from ((now_s + _GRACE_S, one) for one in snapshot.leaving)
