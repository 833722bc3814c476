"""One planning cycle: each pending gang in its turn is placed, or preempts, or is reserved for.

Each answer of a policy is verified before it counts.
"""

from collections.abc import Callable
from typing import NamedTuple

from gangsched.core.model.gangs import EquivalenceClassView, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.optimal.joint import BATCH_MAX, Outcome
from gangsched.core.planning.backfill_step import (
    SHORTAGE_REASONS,
    reserve_start,
    restore_reservations,
)
from gangsched.core.planning.context import PlanningContext
from gangsched.core.planning.place_step import errors_of, place_gang, place_together
from gangsched.core.planning.preempt_step import find_preemption, victims_removed
from gangsched.core.planning.queue_order import QueueOrderIterator
from gangsched.core.planning.refusal_cache import RefusalCache
from gangsched.core.policy import Policies
from gangsched.core.quota.charges import charge_of
from gangsched.core.snapshot import BackfillReservation, Snapshot, Trial

Verify = Callable[[PendingGang, Placement, Snapshot, Trial], None]


class Refused(NamedTuple):
    """A pending gang and why it was refused."""

    waiting: PendingGang
    refusal: Refusal


class Cycle:
    """The state of one planning cycle. `verify` charges a placement to a trial, or raises."""

    def __init__(
        self, snapshot: Snapshot, policies: Policies, now_s: float, verify: Verify
    ) -> None:
        self._context = PlanningContext(snapshot, policies, now_s)
        self._verify = verify
        self._turns = QueueOrderIterator(
            snapshot.pending,
            snapshot.equivalence_classes,
            self._context.usage,
            policies,
            now_s,
            charge_of,
        )
        self._refusals = RefusalCache(self._context)
        self._pods_left = snapshot.pods_max
        self.started: list[tuple[PendingGang, Placement]] = []
        self.refused: list[Refused] = []
        self.class_refusals: dict[tuple[int, int], Refusal] = {}
        self.truncated = False

    @property
    def reservations(self) -> tuple[BackfillReservation, ...]:
        """Return the backfill reservations."""
        return tuple(self._context.reservations)

    @property
    def deferred(self) -> frozenset[GangId]:
        """Return the refused gangs that were not planned in full; see `PlanningContext`."""
        return frozenset(self._context.deferred)

    @property
    def preemption_infeasible(self) -> frozenset[tuple[int, int]]:
        """Return the equivalence classes for which no running gang can be preempted."""
        return frozenset(self._context.preemption_infeasible)

    def run(self, trial: Trial) -> None:
        """Decide on every pending gang; placements are charged to the trial.

        1. Restore the backfill reservations of earlier cycles.
        2. Take the next gang, by the shares of the queues and the order inside its queue.
        """
        restore_reservations(self._context)
        for gang in self._turns:
            if self._pods_left is not None and self._pods_left <= 0:
                self.truncated = True
                return
            if self._repeat_refusal(gang):
                continue
            with errors_of(gang):
                self._context.snapshot.progress.turn(gang.gang.id)
                self._decide(gang, trial)

    def _decide(self, first: PendingGang, trial: Trial) -> None:
        """Decide on a gang, and on those that are planned together with it.

        3. Admit it: rules of the queue, limits of users and namespaces, quota.
        4. Place it; where that is short, once reservations of gangs that it outranks are revoked.
        5. Else preempt running gangs.
        6. Else reserve its start, and refuse it for now.

        A gang with a backfill reservation is planned alone: peers may not use what is reserved for
        it. Where a peer gets something else than was planned for it, those after it are planned
        again.
        """
        context = self._context
        reserved = context.take_reservation(first)
        batch = [(first, place_gang(context, first))] if reserved else self._place_batch(first)
        changes = context.changes
        for gang, planned in batch:
            answer = planned if context.changes == changes else place_gang(context, gang)
            overtakes = _is_short(answer) and reserved is None and not gang.is_scale_up
            if overtakes and context.revoke_outranked(gang):
                answer = place_gang(context, gang)
            if _is_short(answer):
                answer = find_preemption(context, gang) or answer
            if isinstance(answer, Placement):
                self._start(gang, answer, trial)
                changes += answer is planned
            else:
                self._refuse(gang, reserve_start(context, gang, answer, reserved))

    def _place_batch(self, first: PendingGang) -> Outcome:
        """Place a gang, together with those its order calls peers and that have no reservation."""
        has_reservation = self._context.availability.has_reservation
        peers = self._turns.peers(first, BATCH_MAX - 1, has_reservation)
        if not peers:
            return [(first, place_gang(self._context, first))]
        return place_together(self._context, [first, *peers], self._count_start)

    def _start(self, gang: PendingGang, placed: Placement, trial: Trial) -> None:
        """Start a gang in the plan; gangs after it are planned on what it leaves."""
        self._count_start(gang, placed, trial)
        self._turns.charged(gang.gang.queue)
        self.started.append((gang, placed))
        if self._pods_left is not None:
            self._pods_left -= len(placed.nodes)

    def _count_start(self, gang: PendingGang, placed: Placement, trial: Trial) -> Amounts:
        """Verify a placement and charge it to cluster and queue; return the charge."""
        context = self._context
        with victims_removed(context, placed, trial):
            self._verify(gang, placed, context.snapshot, trial)
        context.snapshot.cluster.set_exclusive_domains(gang.gang.id, gang.constraints)
        charge = context.charge_of_placement(gang, placed)
        context.started(gang, placed, charge)
        return charge

    # -- refusals -----------------------------------------------------------------------------

    def _refuse(self, gang: PendingGang, refusal: Refusal) -> None:
        """Refuse a gang, and those of its class and queue that this refuses as well."""
        self._refusals.record(gang, refusal)
        self.refused.append(Refused(gang, refusal))
        if self._blocks_its_queue(gang, refusal):
            self._block_queue(gang)
        else:
            self._refuse_rest_of_class()

    def _repeat_refusal(self, gang: PendingGang) -> bool:
        """Refuse a gang for the reason of its equivalence class; return whether there is one."""
        refusal = self._refusals.lookup(gang)
        if refusal is None:
            return False
        if refusal.gang in self._context.deferred:
            self._context.deferred.add(gang.gang.id)
        self.refused.append(Refused(gang, refusal))
        self._refuse_rest_of_class()
        return True

    def _refuse_rest_of_class(self) -> None:
        """Refuse those of the class of the last gang that are refused for the same reason."""
        rest = self._turns.rest_of_class()
        refusal = self._refusals.lookup(rest.gangs[0]) if rest.gangs else None
        if refusal is None:
            return
        self.class_refusals[rest.gangs[0].equivalence_key] = refusal
        if refusal.gang in self._context.deferred:
            self._context.deferred.add(rest.gangs[0].gang.id)
        self._turns.keep_only(self._not_refused(rest))

    def _not_refused(self, rest: EquivalenceClassView) -> list[PendingGang]:
        if self._refusals.applies_to_all(rest):
            return []
        return [gang for gang in rest.gangs if self._refusals.lookup(gang) is None]

    def _blocks_its_queue(self, gang: PendingGang, refusal: Refusal) -> bool:
        """Return whether a refused gang lets no later gang of its queue pass (strict FIFO).

        Any user may name any queue: a gang that may not use its queue is ahead of none there.
        """
        queue = self._context.usage.tree.queues.get(gang.gang.queue)
        strict = queue is not None and queue.strict
        permitted = refusal.reason is not Reason.NOT_PERMITTED
        return strict and permitted and not gang.is_scale_up and not gang.is_refill

    def _block_queue(self, head: PendingGang) -> None:
        """Refuse all gangs of a queue in strict order that are behind its head."""
        name, ahead = head.gang.queue, head.gang.id
        message = f"Queue {name} is strict FIFO: {ahead} is ahead and cannot start yet."
        blocked = Refusal(ahead, Reason.BLOCKED, message)
        for rest, is_class in self._turns.block(name):
            if is_class:
                self.class_refusals[rest.gangs[0].equivalence_key] = blocked
                continue
            for gang in rest.gangs:
                self._context.release(gang.gang.id)
                self.refused.append(Refused(gang, blocked))


def _is_short(answer: Placement | Refusal) -> bool:
    """Return whether capacity or quota is short: time, or gangs that end, would help."""
    return isinstance(answer, Refusal) and answer.reason in SHORTAGE_REASONS
