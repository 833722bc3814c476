"""One planning cycle: turn by turn, quota, then place, else stop others, else keep room in time.

The order of steps is design.md's; each answer of a policy is verified before it counts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts
from gangsched.core.model.refusal import Reason, Refusal, beyond
from gangsched.core.placement.fill import is_feasible
from gangsched.core.placement.optimal.joint import BATCH_MAX, Outcome, choose_jointly
from gangsched.core.placement.repartition import place_with_repartition
from gangsched.core.planning.admission import (
    admission_refusal,
    may_not_borrow,
    over_quota,
    trim_to_quota,
)
from gangsched.core.planning.backfill_step import LACKS, keep_room, restore_reservations
from gangsched.core.planning.context import PlanningContext
from gangsched.core.planning.namespace_quotas import not_let_in
from gangsched.core.planning.preempt_step import find_preemption, without_victims
from gangsched.core.planning.queue_order import QueueOrderIterator
from gangsched.core.planning.refusal_cache import RefusalCache
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.progress import StoppedError
from gangsched.core.quota.charges import charge_of, kinds_to_try, of_kind
from gangsched.core.snapshot import BackfillReservation, Snapshot, Trial

Verify = Callable[[PendingGang, Placement, Snapshot, Trial], None]


class Refused(NamedTuple):
    """A gang that was refused; what it is told may be told to others, word by word."""

    waiting: PendingGang
    refusal: Refusal


class Cycle:
    """The state of one planning cycle. `verify` charges a placement to a trial, or raises."""

    def __init__(
        self, snapshot: Snapshot, policies: Policies, now_s: float, verify: Verify
    ) -> None:
        self._outlook = PlanningContext(snapshot, policies, now_s)
        restore_reservations(self._outlook)
        self._verify = verify
        usage = self._outlook.usage
        self._turns = QueueOrderIterator(
            snapshot.waiting, snapshot.lines, usage, policies, now_s, charge_of
        )
        self._answers = RefusalCache(self._outlook)
        self.started: list[tuple[PendingGang, Placement]] = []
        self.refused: list[Refused] = []
        self.lines: dict[tuple[int, int], Refusal] = {}
        self.cut = False
        self._starts = snapshot.starts

    @property
    def reserved(self) -> tuple[BackfillReservation, ...]:
        """Return the room, or the quota, kept for gangs in time."""
        return tuple(self._outlook.reserved)

    @property
    def postponed(self) -> frozenset[GangId]:
        """Return the refused gangs that were not looked at in full; see `PlanningContext`."""
        return frozenset(self._outlook.postponed)

    @property
    def unhelped(self) -> frozenset[tuple[int, int]]:
        """Return shapes and priorities for which nobody could be stopped."""
        return frozenset(self._outlook.unhelped)

    # -- turn by turn -------------------------------------------------------------------------

    def run(self, trial: Trial) -> None:
        """Decide on every waiting gang; placements are charged to the trial."""
        for waiting in self._turns:
            if self._starts is not None and self._starts <= 0:
                self.cut = True
                return
            if self._tell(waiting):
                self._tell_alike()
                continue
            try:
                self._outlook.snapshot.progress.turn(waiting.gang.id)
                self._turn(waiting, trial)
            except (PolicyError, StoppedError):
                raise
            except Exception as error:
                raise PolicyError(waiting.gang.id, f"{type(error).__name__}: {error}") from error

    def _before_promises(self, waiting: PendingGang, refusal: Refusal) -> Placement | Refusal:
        """Try again without what was promised to gangs that come later."""
        if waiting.surplus or not self._outlook.lapse(waiting):
            return refusal
        return self._plan(waiting)

    def _batch(self, first: PendingGang) -> Outcome:
        """Plan a gang, together with those its order calls peers and that have no reservation."""
        peers = self._turns.peers(first, BATCH_MAX - 1, self._outlook.horizon.keeps)
        if not peers:
            return [(first, self._planned(first))]
        batch = [first, *peers]

        def in_order(gangs: list[PendingGang]) -> Outcome:
            outcome: Outcome = []
            started: list[tuple[PendingGang, Placement, Amounts]] = []
            cluster = self._outlook.snapshot.cluster
            claims = dict(cluster.exclusive_domains)
            with self._outlook.snapshot.trial() as trial:
                for waiting in gangs:
                    result = self._planned(waiting)
                    if isinstance(result, Placement):
                        started.append((waiting, result, self._count(waiting, result, trial)))
                    outcome.append((waiting, result))
            cluster.exclusive_domains = claims
            for start in reversed(started):
                self._outlook.undo_start(*start)
            return outcome

        outcome = in_order(batch)
        if all(isinstance(result, Placement) for _, result in outcome):
            return outcome
        return choose_jointly(batch, self._outlook.snapshot, outcome, in_order)

    def _start(self, waiting: PendingGang, placed: Placement, trial: Trial) -> None:
        """Count a placement; whoever comes later plans on what it leaves."""
        self._count(waiting, placed, trial)
        self._turns.charged(waiting.gang.queue)
        self.started.append((waiting, placed))
        if self._starts is not None:
            self._starts -= len(placed.nodes)

    def _count(self, waiting: PendingGang, placed: Placement, trial: Trial) -> Amounts:
        """Verify a placement and charge it to cluster and queue; return the charge."""
        with without_victims(self._outlook, placed, trial):
            self._verify(waiting, placed, self._outlook.snapshot, trial)
        self._outlook.snapshot.cluster.set_exclusive_domains(waiting.gang.id, waiting.constraints)
        charge = self._outlook.charged(waiting, placed)
        self._outlook.started(waiting, placed, charge)
        return charge

    def _refuse(
        self,
        waiting: PendingGang,
        refusal: Refusal,
        trial: Trial,
        promised: BackfillReservation | None,
    ) -> None:
        """Look for another way to start a gang: stop others; else keep room for it."""
        if refusal.reason in LACKS:
            placed = find_preemption(self._outlook, waiting)
            if isinstance(placed, Placement):
                self._start(waiting, placed, trial)
                return
            refusal = placed or refusal
            refusal = keep_room(self._outlook, waiting, refusal, promised)
        self._answers.remember(waiting, refusal)
        self._say(waiting, refusal)
        self._behind(waiting, refusal)

    def _behind(self, waiting: PendingGang, refusal: Refusal) -> None:
        """Where the queue is strict nobody passes; elsewhere those alike are told the same."""
        queue = self._outlook.usage.tree.queues.get(waiting.gang.queue)
        # Anybody may name any queue: who may not use it is not before those who may.
        there = refusal.reason is not Reason.NOT_PERMITTED
        if (
            queue is not None
            and queue.strict
            and there
            and not waiting.surplus
            and not waiting.repair
        ):
            head = waiting.gang.id
            message = f"queue {queue.name} is strictly in order, and {head} is before it."
            blocked = Refusal(head, Reason.BLOCKED, message)
            for rest, in_line in self._turns.block(queue.name):
                if in_line:
                    self.lines[rest.gangs[0].alike] = blocked
                    continue
                for one in rest.gangs:
                    self._outlook.cancel(one.gang.id)
                    self._say(one, blocked)
            return
        self._tell_alike()

    def _tell_alike(self) -> None:
        """Tell those like the last who had its turn the same, all who must be told so."""
        rest = self._turns.rest()
        known = self._answers.told(rest.gangs[0]) if rest.gangs else None
        if known is None:
            return
        self.lines[rest.gangs[0].alike] = known
        if known.gang in self._outlook.postponed:
            self._outlook.postponed.add(rest.gangs[0].gang.id)
        if not self._answers.all_told(rest):
            told = self._answers.told
            self._turns.keep([one for one in rest.gangs if told(one) is None])
        else:
            self._turns.keep(())

    def _turn(self, waiting: PendingGang, trial: Trial) -> None:
        """Decide on a gang, and on those that are planned together with it.

        A gang with a backfill reservation is planned alone: peers may not use what is reserved for
        it. Where a peer gets something else than it was planned (a reservation, what was reserved
        for others, what it preempts), those after it are planned again.
        """
        promised = self._outlook.turn_of(waiting)
        batch = self._batch(waiting) if promised is None else [(waiting, self._planned(waiting))]
        changes = self._outlook.changes
        for one, result in batch:
            answer = result if self._outlook.changes == changes else self._planned(one)
            lacks = isinstance(answer, Refusal) and answer.reason in LACKS
            if isinstance(answer, Refusal) and lacks and promised is None:
                answer = self._before_promises(one, answer)
            if isinstance(answer, Placement):
                self._start(one, answer, trial)
                changes += answer is result
            else:
                self._refuse(one, answer, trial, promised)

    def _tell(self, waiting: PendingGang) -> bool:
        """Tell a gang what another of its kind was told; tell whether there was one."""
        known = self._answers.told(waiting)
        if known is None:
            return False
        if known.gang in self._outlook.postponed:
            self._outlook.postponed.add(waiting.gang.id)
        self._say(waiting, known)
        return True

    def _say(self, waiting: PendingGang, refusal: Refusal) -> None:
        self.refused.append(Refused(waiting, refusal))

    # -- one gang -----------------------------------------------------------------------------

    def _planned(self, waiting: PendingGang) -> Placement | Refusal:
        """Plan a gang; a failure is told of this one, whoever is looked at together with it."""
        try:
            return self._plan(waiting)
        except (PolicyError, StoppedError):
            raise
        except Exception as error:
            raise PolicyError(waiting.gang.id, f"{type(error).__name__}: {error}") from error

    def _plan(self, waiting: PendingGang) -> Placement | Refusal:
        outlook = self._outlook
        outlook.snapshot.progress.at(waiting.gang.id)
        refusal = admission_refusal(
            waiting, outlook.snapshot, outlook.usage, outlook.users, outlook.now_s
        )
        if refusal is None and waiting.unborn:
            unborn = outlook.unborn.get(waiting.gang.id.partition("/")[0], {})
            refusal = not_let_in(waiting, outlook.snapshot.rules, unborn)
        if refusal is not None:
            return refusal
        if not self._outlook.snapshot.beyond_is_judged:
            for member in waiting.members:
                if member.needs.beyond:
                    return Refusal(
                        waiting.gang.id,
                        Reason.BEYOND_PLANNER,
                        beyond(member.name, member.needs.beyond),
                    )
        answer: Refusal | None = None
        for kind in kinds_to_try(waiting, self._outlook.usage):
            short = None if waiting.repair else self._quota(waiting, kind)
            if short is not None:
                answer = answer or short
                continue
            trial = of_kind(
                trim_to_quota(waiting, self._outlook.usage, kind, self._outlook.snapshot), kind
            )
            result = self._place(trial)
            if isinstance(result, Placement):
                return result
            answer = result
        assert answer is not None, "there is always a kind to try"  # noqa: S101
        return answer

    def _quota(self, waiting: PendingGang, kind: str) -> Refusal | None:
        charge = self._outlook.snapshot.rules.kinds.counted(charge_of(waiting), kind)
        usage = self._outlook.usage
        short = may_not_borrow(waiting, usage, charge) or over_quota(waiting, usage, charge)
        if short is not None:
            return short
        end_s = self._outlook.now_s + self._outlook.runtime_s(waiting)
        hold = self._outlook.holds.blocking(waiting.gang.queue, charge, end_s)
        if hold is None:
            return None
        message = f"it would take quota that is kept for {hold.gang}, which is before it."
        return Refusal(waiting.gang.id, Reason.BEHIND, message)

    def _place(self, waiting: PendingGang) -> Placement | Refusal:
        gang = waiting.gang
        namespace = gang.id.split("/", 1)[0]
        end_s = self._outlook.now_s + self._outlook.runtime_s(waiting)
        view = self._outlook.horizon.view(namespace, gang.queue, end_s)
        snapshot = self._outlook.snapshot
        if view is not snapshot.cluster and not waiting.repair:
            snapshot = replace(snapshot, cluster=view)
        placer = self._outlook.policies.placer
        result = placer.place(waiting, snapshot)
        if not isinstance(result, Refusal) or result.reason is Reason.MISCONFIGURED:
            return result
        cut = place_with_repartition(waiting, snapshot, placer)
        if cut is not None:
            return cut
        if snapshot is not self._outlook.snapshot and is_feasible(waiting, self._outlook.snapshot):
            return self._kept_out(waiting, end_s)
        return result

    def _kept_out(self, waiting: PendingGang, end_s: float) -> Refusal:
        """Say for whom the room is kept that the gang would fit into."""
        gang = waiting.gang
        first = next((one for one in self._outlook.horizon.reserved if one.start_s < end_s), None)
        if first is not None:
            message = f"it would delay {first.gang}, for which room is reserved."
            return Refusal(gang.id, Reason.BEHIND, message)
        booked = self._outlook.horizon.booked(gang.id.split("/", 1)[0], gang.queue, end_s)
        names = ", ".join(one.name for one in booked)
        message = f"the free nodes are booked ({names}), and the gang would not end before."
        return Refusal(gang.id, Reason.BOOKED, message)
