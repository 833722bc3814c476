"""The gangs to plan next, and the refusals of the others."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from gangsched.core.engine.allocation.freed_generation import FreedGeneration
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.pending.equivalence import EquivalenceClasses
from gangsched.core.engine.pending.refusal_log import RefusalLog, ReportChange, same_refusal
from gangsched.core.model.gangs import EquivalenceClassView, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Refusal

_DETAILS_INTERVAL_S = 5.0
_DETAILS_MAX = 20
_REPORTS_MAX = 200
_CHECKED_MAX = 400


class PendingQueue:
    """Gangs to plan, the equivalence classes of those that were refused, and their refusals.

    A gang that changed is unclassified until it joins a class. A class is planned when a gang has
    joined it, and all classes are when capacity came free (`freed`). Both hold until a plan is
    accepted that knew of it: `number` counts the snapshots that plans are made on.
    """

    def __init__(self, gangs: Mapping[GangId, GangState], freed: FreedGeneration) -> None:
        self._classes = EquivalenceClasses()
        self.refusals = RefusalLog(self._classes)
        self.number = 0
        self._freed = freed
        self._freed_known = 0
        """The generation of freed capacity that the latest snapshot was taken at."""
        self._grew_at: int | None = None
        """The snapshot after which capacity came free that no accepted plan knew of."""
        self._changed_at: int | None = None
        self._gangs = gangs
        # Ordered sets (dicts without values): iterating a real set would depend on the hash seed.
        self._unclassified: dict[GangId, None] = {}
        self._individual: dict[GangId, None] = {}
        self._joined_at: dict[tuple[int, int], int] = {}
        self._to_check: list[GangId] = []
        self._check_s = 0.0
        self._relearned_users: dict[str, bool] = {}

    @property
    def capacity_freed(self) -> bool:
        """Return whether capacity came free that no accepted plan knew of."""
        return self._grew_at is not None or self._freed.value != self._freed_known

    # -- gangs to plan ------------------------------------------------------------------------

    def add(self, gang: GangId) -> None:
        """Add a gang to the next plan, because something about it changed."""
        self._drop(gang)
        self._unclassified[gang] = None

    def remove(self, gang: GangId) -> None:
        """Do not plan a gang until it is added again."""
        self._drop(gang)

    def retry_all(self) -> None:
        """Have all pending gangs planned again."""
        if self._classes or self._individual:
            self._freed.advance()

    def requeue_relearned(self) -> None:
        """Have gangs planned again if the estimate of their run time was learned since."""
        for equivalence_class in self._classes.views() if self._relearned_users else ():
            user = equivalence_class.gangs[0].gang.user
            if user in self._relearned_users:
                for waiting in equivalence_class.gangs:
                    if waiting.gang.expected_runtime_s is None or self._relearned_users[user]:
                        self.add(waiting.gang.id)
        self._relearned_users.clear()

    def rebuild(self) -> None:
        """Have every gang classified again: what their requests mean has changed."""
        for gang in self._classes.clear():
            self._unclassified[gang] = None
        self._freed.advance()

    def runtimes_learned(self, user: str, *, declared: bool) -> None:
        """Record that estimates of run times of a user's gangs have changed.

        With `declared`, those of gangs with a declared run time too.
        """
        self._relearned_users[user] = declared

    def forget(self, gang: GangId) -> None:
        """Forget a gang."""
        self._drop(gang)
        self.refusals.clear(gang)

    def _drop(self, gang: GangId) -> None:
        self._unclassified.pop(gang, None)
        self._individual.pop(gang, None)
        self._classes.remove(gang)

    def has_pending_gangs(self) -> bool:
        """Return whether any gang is pending."""
        return bool(self._unclassified or self._individual or self._classes)

    def has_pending_work(self) -> bool:
        """Return whether there is a gang to plan now."""
        if self.capacity_freed and (self._classes or self._individual):
            return True
        if any(key in self._classes.classes for key in self._joined_at):
            return True
        while self._unclassified:
            first = next(iter(self._unclassified))
            gang = self._gangs.get(first)
            if gang is not None and gang.is_plannable():
                return True
            del self._unclassified[first]
        return False

    def take_unclassified(self) -> list[GangState]:
        """Return the gangs that have to join a class."""
        gangs = [self._gangs.get(gang) for gang in self._unclassified]
        if self._unclassified:
            self._changed_at = self.number
        self._unclassified.clear()
        return [gang for gang in gangs if gang is not None and gang.is_plannable()]

    def unclassified(self) -> list[GangId]:
        """Return the gangs that have to join a class; they stay so until they are planned."""
        return list(self._unclassified)

    def classify(self, waiting: PendingGang, *, alone: bool = False) -> None:
        """Put a gang into its class, or `alone` if it has a backfill reservation."""
        gang = waiting.gang.id
        self._unclassified.pop(gang, None)
        if alone:
            self._classes.remove(gang)
            self._individual[gang] = None
            return
        self._individual.pop(gang, None)
        if self._classes.add(waiting):
            self._joined_at[waiting.equivalence_key] = self.number

    def heads(
        self, strict: Collection[str] = ()
    ) -> tuple[list[GangState], tuple[EquivalenceClassView, ...]]:
        """Return the gangs to plan now: those with a backfill reservation, and classes.

        Every plan must know of the former, and in `strict` queues of all pending gangs: no later
        gang may pass them.
        """
        wanted = None if self.capacity_freed else dict(self._joined_at)
        if wanted and strict:
            queues = {self._classes.queue(key) for key in wanted}.intersection(strict)
            wanted |= {
                key: 0 for key in self._classes.classes if self._classes.queue(key) in queues
            }
        classes = self._classes.views(wanted)
        news = classes or self.capacity_freed or self._changed_at is not None
        alone = [self._gangs.get(gang) for gang in self._individual] if news else []
        if self._freed.value != self._freed_known:
            self._freed_known, self._grew_at = self._freed.value, self.number
        self.number += 1
        return [gang for gang in alone if gang is not None and gang.is_plannable()], classes

    def planned(self, number: int) -> None:
        """Record that a plan was accepted that knew of everything up to its number."""
        if self._grew_at is not None and self._grew_at < number:
            self._grew_at = None
        if self._changed_at is not None and self._changed_at < number:
            self._changed_at = None
        for key in [key for key, at in self._joined_at.items() if at < number]:
            del self._joined_at[key]

    # -- refusals and their reports -----------------------------------------------------------

    def record_refusal(self, gang: GangId, refusal: Refusal, now_s: float) -> bool:
        """Record a refusal; return whether it must be reported now: a new reason, or new remedies.

        The same reason with other numbers is reported later (`take_unreported`), and a refusal
        without remedies does not replace the same refusal with remedies.
        """
        last = self.refusals.last_reported(gang)
        if (
            last is not None
            and last.reason is refusal.reason
            and self._classes.has_refusal(gang, refusal)
        ):
            return False  # its class has this refusal, and this reason was reported
        known = self.refusals.get(gang)
        if known is not None and not refusal.remedies and same_refusal(known, refusal):
            refusal = known
        own = refusal if refusal.gang == gang else replace(refusal, gang=gang)
        self.refusals.record(gang, own)
        advice = last is not None and refusal.remedies and last.remedies != refusal.remedies
        if last is not None and last.reason is refusal.reason and not advice:
            return False
        self.refusals.mark_reported(gang, now_s)
        return True

    def record_class_refusal(self, key: tuple[int, int], refusal: Refusal) -> None:
        """Record the refusal of all gangs of a class."""
        self._classes.record_refusal(key, refusal, self.refusals.plan_count)

    def take_unreported(self, now_s: float, interval_s: float) -> list[GangId]:
        """Return gangs with a refusal that was not reported; they count as reported now.

        Some gangs are checked in turn, every `interval_s`. A new reason is due at once. Other
        numbers for the same reason are due every `_DETAILS_INTERVAL_S` at most, and for few gangs
        at once, because every start changes the numbers of all pending gangs.
        """
        if now_s < self._check_s:
            return []
        self._check_s = now_s + interval_s
        if not self._to_check:
            self._to_check = self.refusals.gangs()[::-1]
        due: list[GangId] = []
        again = 0
        for _ in range(min(_CHECKED_MAX, len(self._to_check))):
            gang = self._to_check.pop()
            change = self.refusals.report_change(gang) if gang in self._gangs else ReportChange.NONE
            if change is ReportChange.DETAILS:
                late = self.refusals.last_reported_s(gang) <= now_s - _DETAILS_INTERVAL_S
                if not late or again == _DETAILS_MAX:
                    continue
                again += 1
            elif change is ReportChange.NONE:
                continue
            due.append(gang)
            self.refusals.mark_reported(gang, now_s)
            if len(due) == _REPORTS_MAX:
                break
        return due

    def is_current(self, gang: GangId, refusal: Refusal) -> bool:
        """Return whether this is still the refusal of a gang."""
        known = self.refusals.get(gang)
        same = known is not None and known.message == refusal.message
        waits = gang in self._classes or gang in self._individual
        return same and waits and not self.capacity_freed

    def take_advice_requests(
        self, limit: int, now_s: float, ttl_s: float
    ) -> list[tuple[GangState, Refusal]]:
        """Return refused gangs that wait for advice, longest first; they count as advised now.

        Advice older than `ttl_s` is requested again: the cluster has changed.
        """
        due: list[tuple[float, GangState]] = []
        for gang_id in (*self._classes.members(), *self._individual):
            gang = self._gangs.get(gang_id)
            if gang is None or not gang.is_plannable() or gang_id not in self.refusals:
                continue
            if gang.last_advice is None:
                due.append((0.0, gang))
            elif now_s - gang.last_advice[1] >= ttl_s:
                due.append((gang.last_advice[1], gang))
            elif gang.last_advice[0] != self.refusals[gang_id].message:
                due.append((0.0, gang))
        due.sort(key=lambda item: (item[0], item[1].id))
        requests = [(gang, self.refusals[gang.id]) for _, gang in due[:limit]]
        for gang, refusal in requests:
            gang.last_advice = (refusal.message, now_s)
        return requests
