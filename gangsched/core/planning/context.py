"""The state of one planning cycle: cluster, usage of queues, reservations and expected ends."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

from gangsched.core.model.gangs import PendingGang, runtime_s
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts, QuotaKey
from gangsched.core.planning.namespace_quotas import add_to
from gangsched.core.planning.profiles.node_profile import (
    AvailabilityProfile,
    Occupancy,
    ReleaseSchedule,
    slots_of,
)
from gangsched.core.planning.profiles.quota_profile import QuotaClaim, QuotaProfile, QuotaProjection
from gangsched.core.policy import Candidate, Policies
from gangsched.core.preemption.candidates import (
    BorrowingQueues,
    may_take_over,
    overrun,
    preemptible,
    preemption_candidates,
)
from gangsched.core.quota.charges import (
    charge_of,
    charge_on_nodes,
    split_required_optional,
)
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import BackfillReservation, RunningGang, Snapshot
from gangsched.core.what_if import WhatIf

_SEARCH_BUDGET = 500
"""Running gangs that one planning cycle considers for preemption, or those of one search: one
search in a large cluster, several in a small one. Other gangs are deferred to the next cycle."""

_SEARCH_COST = 100
"""The fixed cost of a search, counted in running gangs."""

ALWAYS = float("-inf")
"""The boundary of a refusal that holds for gangs of any run time."""

_GRACE_S = 60.0
_FOREVER_S = 10 * 365 * 86_400.0


class PlanningContext:
    """The state of one planning cycle. `victims` are the gangs that it preempts.

    `deferred` gangs wait for a later cycle before running gangs are preempted for them;
    `preemption_infeasible` are the equivalence classes for which no running gang can be preempted.

    `terminating` gangs use their nodes until they have ended; those preempted in this cycle are
    among them. `changes` counts starts and changes of reservations: a plan made before one is out
    of date.
    """

    def __init__(self, snapshot: Snapshot, policies: Policies, now_s: float) -> None:
        self.snapshot = snapshot
        self.policies = policies
        self.now_s = now_s
        self.usage = snapshot.usage.copy()
        self.unborn = {name: dict(some) for name, some in snapshot.rules.uncreated.items()}
        self.users = {account: dict(held) for account, held in snapshot.rules.users.items()}
        self._releases = ReleaseSchedule(partial(_expected_ends, snapshot, now_s))
        self.availability = AvailabilityProfile(
            snapshot.cluster, self._releases, now_s, snapshot.rules.advance_reservations
        )
        self.quota_profile = QuotaProfile()
        self.waiting = {waiting.gang.id: waiting for waiting in snapshot.pending}
        self.victims: set[GangId] = set()
        self.changes = 0
        self._searched = 0
        self.deferred: set[GangId] = set()
        self.preemption_infeasible: set[tuple[int, int]] = set()
        self._after_terminations: tuple[Snapshot, Usage] | None = None
        self._preemptible: dict[str, list[RunningGang]] | None = None
        self._borrowing = BorrowingQueues()
        self._reservations_of_tree: dict[str, int] = {}
        self._may_reserve: dict[str, bool] = {}
        self._roots: dict[str, str] = {}
        self._ends_of_tree: dict[str, list[tuple[float, RunningGang]]] = {}
        self._boundaries_s: list[float] | None = None
        self._overtaken: dict[GangId, Amounts] = {}
        self._preemptible_charges: dict[tuple[str, int], Amounts] = {}
        self.terminating: list[RunningGang] = list(snapshot.terminating)

    @cached_property
    def running(self) -> dict[GangId, RunningGang]:
        """Return the running gangs by name."""
        return {gang.gang.id: gang for gang in self.snapshot.running}

    # -- reservations -------------------------------------------------------------------------

    @property
    def reservations(self) -> list[BackfillReservation]:
        """Return the backfill reservations in the order in which they were made."""
        return self.availability.reservations

    def reserve(
        self,
        waiting: PendingGang,
        reservation: BackfillReservation,
        projection: QuotaProjection | None,
    ) -> None:
        """Reserve nodes for a gang, and quota on the usage that is projected for its start."""
        self.waiting[waiting.gang.id] = waiting
        occupancy = self.occupancy(waiting, reservation.nodes, reservation.start_s)
        self.availability.reserve(reservation.gang, occupancy, reservation.nodes)
        if projection is not None:
            self.quota_profile.reserve(self.quota_claim(waiting), projection)
        self.changes += 1
        self._reservations_of_tree[self.root_queue(waiting)] = (
            self._reservations_of_tree.get(self.root_queue(waiting), 0) + 1
        )
        self._boundaries_s = None
        self._may_reserve.clear()

    def take_reservation(self, waiting: PendingGang) -> BackfillReservation | None:
        """Release the reservation of the gang that is planned now, and return it."""
        if not self.availability.has_reservation(waiting.gang.id):
            return None
        own = next(
            reservation for reservation in self.reservations if reservation.gang == waiting.gang.id
        )
        self.release(own.gang)
        return own

    def release(self, gang: GangId) -> None:
        """Release the reservation of a gang, if it has one."""
        if self.availability.has_reservation(gang):
            self.changes += 1
            self._reservations_of_tree[self.root_queue(self.waiting[gang])] -= 1
        self.availability.release(gang)
        self.quota_profile.release(gang)
        self._boundaries_s = None
        self._may_reserve.clear()

    def may_reserve(self, waiting: PendingGang) -> bool:
        """Return whether the policy allows one more reservation in the tree of a gang's queue."""
        known = self._may_reserve.get(waiting.gang.queue)
        if known is None:
            backfill, count = (
                self.policies.backfill,
                self._reservations_of_tree.get(self.root_queue(waiting), 0),
            )
            known = backfill is not None and backfill.allows_reservation(count)
            self._may_reserve[waiting.gang.queue] = known
        return known and not waiting.is_scale_up

    def last_boundary_s(self, waiting: PendingGang) -> float:
        """Return the start of the last reservation that a gang would outlive if it started now.

        Two gangs that outlive the same reservations are planned on the same view of the cluster.
        """
        return self.last_boundary_before_s(self.runtime_s(waiting))

    def last_boundary_before_s(self, runtime_s: float) -> float:
        """Return `last_boundary_s` of a gang with this run time."""
        if self._boundaries_s is None:
            boundaries = {
                *(reservation.start_s for reservation in self.reservations),
                *(reservation.at_s for reservation in self.quota_profile),
                *(window.start_s for window in self.availability.windows),
            }
            self._boundaries_s = sorted(boundaries)
        count = bisect_left(self._boundaries_s, self.now_s + runtime_s)
        return self._boundaries_s[count - 1] if count else ALWAYS

    def revoke_outranked(self, first: PendingGang) -> bool:
        """Release the reservations that a gang may take over; return whether there was any."""
        if not self.reservations:
            return False
        yields = self._preemptible_charge(first)
        lower = [
            reservation.gang
            for reservation in self.reservations
            if may_take_over(
                first,
                yields,
                self.waiting[reservation.gang],
                self._overtaken_charge(reservation.gang),
                self.usage,
            )
        ]
        for gang in lower:
            self.release(gang)
        return bool(lower)

    def _overtaken_charge(self, gang: GangId) -> Amounts:
        """Return the charge of running gangs of a gang's queue that were queued after it."""
        known = self._overtaken.get(gang)
        if known is None:
            waiting = self.waiting[gang]
            known = self._overtaken[gang] = _sum(
                running.charge
                for running in self.running.values()
                if running.queued_since_s > waiting.queued_since_s
                and running.gang.queue == waiting.gang.queue
            )
        return known

    def _preemptible_charge(self, waiting: PendingGang) -> Amounts:
        """Return the charge of gangs of lower priority in a gang's queue, which it may preempt."""
        key = (waiting.gang.queue, waiting.priority)
        known = self._preemptible_charges.get(key)
        if known is None:
            gangs = self.preemptible_by_queue().get(waiting.gang.queue, ())
            known = _sum(gang.charge for gang in gangs if gang.priority < waiting.priority)
            self._preemptible_charges[key] = known
        return known

    def quota_claim(self, waiting: PendingGang) -> QuotaClaim:
        """Return what a gang would charge to its queue, and for how long."""
        runtime_s = self.runtime_s(waiting)
        return QuotaClaim(waiting.gang.id, waiting.gang.queue, charge_of(waiting), runtime_s)

    def root_queue(self, waiting: PendingGang) -> str:
        """Return the root of a gang's queue; "" if no quota limits it."""
        queue = waiting.gang.queue
        known = self._roots.get(queue)
        if known is None:
            tree = self.usage.tree
            bounded = queue in tree and tree.quota_keys(queue)
            known = self._roots[queue] = tree.path(queue)[-1] if bounded else ""
        return known

    def quota_projection(self, waiting: PendingGang) -> QuotaProjection | None:
        """Return the future usage of a gang's tree, as gangs end; None if no quota limits it."""
        top = self.root_queue(waiting)
        if not top:
            return None
        usage, tree = self.usage.copy(top), self.usage.tree
        inside = set(tree.subtree(top))
        for gang in self.terminating:
            if gang.gang.queue in inside:
                usage.charge(gang.gang.queue, gang.charge, -1)
        if top not in self._ends_of_tree:
            self._ends_of_tree[top] = [
                (end_s, gang)
                for end_s, gang in self._releases
                if gang.gang.queue in inside and not gang.terminating
            ]
        return QuotaProjection(usage, self._ends_of_tree[top], self.now_s, self.victims)

    # -- starts and preemptions ---------------------------------------------------------------

    def started(self, waiting: PendingGang, placed: Placement, charge: Amounts) -> None:
        """Count a gang that starts now; the cluster was charged already."""
        occupancy = self.occupancy(waiting, placed.nodes)
        self.changes += 1
        self._count_start(waiting, occupancy, charge, 1)
        self.availability.started(occupancy)

    def undo_start(self, waiting: PendingGang, placed: Placement, charge: Amounts) -> None:
        """Undo `started` for the last gang that started; the cluster is as before it."""
        occupancy = self.occupancy(waiting, placed.nodes)
        self._count_start(waiting, occupancy, charge, -1)
        self.availability.undo_start(occupancy)

    def _count_start(
        self, waiting: PendingGang, occupancy: Occupancy, charge: Amounts, sign: int
    ) -> None:
        self.usage.charge(waiting.gang.queue, charge, sign, firm=not waiting.gang.preemptible)
        held = self.users.setdefault(waiting.gang.account, {})
        for key, quantity in charge:
            held[key] = held.get(key, 0) + sign * quantity
        if waiting.unborn:
            namespace = waiting.gang.id.partition("/")[0]
            more = tuple((name, sign * quantity) for name, quantity in waiting.unborn)
            add_to(self.unborn.setdefault(namespace, {}), more)
        self.quota_profile.started(waiting.gang.queue, charge, occupancy.end_s, sign)
        self._after_terminations = None
        self._borrowing.changed(self.usage.tree.path(waiting.gang.queue))

    def after_terminations(self) -> tuple[Snapshot, Usage]:
        """Return cluster and usage as they will be once all terminating gangs have ended."""
        if not self.terminating:
            return self.snapshot, self.usage
        if self._after_terminations is None:
            what_if = WhatIf(replace(self.snapshot, usage=self.usage))
            for gang in self.terminating:
                what_if.release(gang)
            self._after_terminations = what_if.snapshot(), what_if.usage
        return self._after_terminations

    def candidates(self, waiting: PendingGang, charge: Amounts) -> Iterator[Candidate]:
        """Yield the gangs that may be preempted for this one; no two preempt each other in turn."""
        _, usage = self.after_terminations()
        found = preemption_candidates(
            waiting, self.preemptible_by_queue(), self._borrowing, usage, charge, self.now_s
        )
        if any(one.gang == waiting.gang.id for one in self.snapshot.backfill_reservations):
            stay = {waiting.gang.id, *self.victims}  # the gang may run already, and lack a member
            there = (one for one in self.running.values() if one.gang.id not in stay)
            known = {one.running.gang.id: one for one in overrun(waiting, there, usage, self.now_s)}
            known |= {one.running.gang.id: one for one in found}
            found = iter(known.values())
        stopped = {
            by for one, by in self.snapshot.rules.recent_preemptions if one == waiting.gang.id
        }
        return (one for one in found if one.running.gang.id not in stopped) if stopped else found

    def spend_search_budget(self, count: int) -> bool:
        """Charge `count` running gangs to the search budget; return whether that was possible."""
        cost = _SEARCH_COST + count
        if self._searched and self._searched + cost > _SEARCH_BUDGET:
            return False
        self._searched += cost
        return True

    def preemptible_by_queue(self) -> dict[str, list[RunningGang]]:
        """Return by queue the gangs that may be preempted and are not yet."""
        if self._preemptible is None:
            gangs = (gang for gang in self.running.values() if gang.gang.id not in self.victims)
            self._preemptible = preemptible(gangs, self.usage, self.now_s)
        return self._preemptible

    def count_preempted(self, gone: Sequence[RunningGang]) -> None:
        """Count gangs that are preempted in this cycle as terminating."""
        self.victims.update(gang.gang.id for gang in gone)
        self.terminating.extend(gone)
        self._after_terminations = None
        for gang in gone:
            self._borrowing.changed(self.usage.tree.path(gang.gang.queue))
        for queue in {gang.gang.queue for gang in gone} if self._preemptible is not None else ():
            gangs = self.preemptible_by_queue().get(queue, ())
            self.preemptible_by_queue()[queue] = [
                gang for gang in gangs if gang.gang.id not in self.victims
            ]
        self._preemptible_charges.clear()

    # -- how long -----------------------------------------------------------------------------

    def runtime_s(self, waiting: PendingGang) -> float:
        """Return how long a gang is expected to run."""
        return runtime_s(waiting)

    def occupancy(
        self,
        waiting: PendingGang,
        nodes: tuple[tuple[PodName, NodeName], ...],
        start_s: float | None = None,
    ) -> Occupancy:
        """Return the nodes that a placement uses, and when: from now, or from `start_s`."""
        needs = {member.name: member.needs for member in waiting.members}
        start_s = self.now_s if start_s is None else start_s
        end_s = start_s + self.runtime_s(waiting)
        return Occupancy(start_s, end_s, tuple((node, needs[name]) for name, node in nodes))

    def occupancy_of(self, gang: GangId) -> Occupancy:
        """Return the nodes that a running gang uses, and until when."""
        running = self.running[gang]
        return Occupancy(running.started_s, running.expected_end_s(self.now_s), slots_of(running))

    def charge_of_placement(self, waiting: PendingGang, placed: Placement) -> Amounts:
        """Return what a placement charges, on the GPUs it really gets."""
        needs = {member.name: member.needs for member in waiting.members}
        pods = ((node, needs[name]) for name, node in placed.nodes)
        return charge_on_nodes(self.snapshot.cluster, self.snapshot.rules.gpu_types, pods)


def _sum(charges: Iterable[Amounts]) -> Amounts:
    total: dict[QuotaKey, int] = {}
    for charge in charges:
        for key, quantity in charge:
            total[key] = total.get(key, 0) + quantity
    return tuple(sorted(total.items()))


def required_only(waiting: PendingGang) -> PendingGang:
    """Return the gang with the members it needs to start and no more."""
    if waiting.members_min >= len(waiting.members):
        return waiting
    must, _ = split_required_optional(waiting)
    return replace(waiting, members=must, members_min=len(must))


def _expected_ends(snapshot: Snapshot, now_s: float) -> Iterator[tuple[float, RunningGang]]:
    last_s = now_s + _FOREVER_S
    yield from ((min(gang.expected_end_s(now_s), last_s), gang) for gang in snapshot.occupants)
    yield from ((now_s + _GRACE_S, gang) for gang in snapshot.terminating)
