"""Which gangs a planner should look at now, and what the others were told."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from gangsched.core.engine.allocation.freed_generation import FreedGeneration
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.pending.equivalence import EquivalenceClasses
from gangsched.core.engine.pending.refusal_log import RefusalLog, ReportChange, _same
from gangsched.core.model.gangs import EquivalenceClassView, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Refusal

_AGAIN_S = 5.0
_AGAIN_AT_ONCE = 20
_NEWS_AT_ONCE = 200
_LOOKED_AT = 400


class PendingQueue:
    """Gangs to plan, those that wait in line, and what they were told.

    A gang that changed is `fresh` until it has joined a line; a line is planned when somebody has
    joined it, and all lines are when capacity came free (`freed`). Both hold until a plan is
    accepted that knew of it: `number` counts what plans were made on.
    """

    def __init__(self, gangs: Mapping[GangId, GangState], freed: FreedGeneration) -> None:
        self._classes = EquivalenceClasses()
        self.refusals = RefusalLog(self._classes)
        self.number = 0
        self._freed = freed
        self._freed_known = 0
        """The generation of freed capacity that the latest snapshot was taken at."""
        self._grew_at: int | None = None
        """Of which snapshot capacity came free that no accepted plan knew of."""
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
        """Tell whether room came free that no accepted plan knew of."""
        return self._grew_at is not None or self._freed.value != self._freed_known

    # -- who is to be planned -----------------------------------------------------------------

    def add(self, gang: GangId) -> None:
        """Have a gang planned: something about it changed."""
        self._drop(gang)
        self._unclassified[gang] = None

    def remove(self, gang: GangId) -> None:
        """Do not plan a gang until it is wanted again."""
        self._drop(gang)

    def retry_all(self) -> None:
        """Have all gangs planned again that wait."""
        if self._classes or self._individual:
            self._freed.advance()

    def requeue_relearned(self) -> None:
        """Have gangs planned anew whose run time is guessed from others that have ended."""
        for line in self._classes.views() if self._relearned_users else ():
            user = line.gangs[0].gang.user
            if user in self._relearned_users:
                for one in line.gangs:
                    if one.gang.expected_runtime_s is None or self._relearned_users[user]:
                        self.add(one.gang.id)
        self._relearned_users.clear()

    def rebuild(self) -> None:
        """Have every gang planned by itself: what all of them are worth has changed."""
        for gang in self._classes.clear():
            self._unclassified[gang] = None
        self._freed.advance()

    def runtimes_learned(self, user: str, *, declared: bool) -> None:
        """Take note that there is more to guess run times of a user's gangs from.

        With `declared`, also those that the user says.
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
        """Tell whether any gang waits."""
        return bool(self._unclassified or self._individual or self._classes)

    def has_pending_work(self) -> bool:
        """Tell whether there is a gang to plan now."""
        if self.capacity_freed and (self._classes or self._individual):
            return True
        if any(alike in self._classes.classes for alike in self._joined_at):
            return True
        while self._unclassified:
            first = next(iter(self._unclassified))
            gang = self._gangs.get(first)
            if gang is not None and gang.is_plannable():
                return True
            del self._unclassified[first]
        return False

    def take_unclassified(self) -> list[GangState]:
        """Return the gangs that have to join a line."""
        gangs = [self._gangs.get(gang) for gang in self._unclassified]
        if self._unclassified:
            self._changed_at = self.number
        self._unclassified.clear()
        return [gang for gang in gangs if gang is not None and gang.is_plannable()]

    def unclassified(self) -> list[GangId]:
        """Return who has to join a line; they stay so until they are planned."""
        return list(self._unclassified)

    def classify(self, waiting: PendingGang, *, alone: bool = False) -> None:
        """Let a gang wait in line, or `alone` if something is kept for it."""
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
        """Return whom to plan now: those with something kept for them, and lines.

        Whoever plans anybody must know of the former, and in `strict` queues of all who are there:
        nobody passes them by coming later.
        """
        wanted = None if self.capacity_freed else dict(self._joined_at)
        if wanted and strict:
            queues = {self._classes.queue(alike) for alike in wanted}.intersection(strict)
            wanted |= {
                kind: 0 for kind in self._classes.classes if self._classes.queue(kind) in queues
            }
        lines = self._classes.views(wanted)
        news = lines or self.capacity_freed or self._changed_at is not None
        alone = [self._gangs.get(gang) for gang in self._individual] if news else []
        if self._freed.value != self._freed_known:
            self._freed_known, self._grew_at = self._freed.value, self.number
        self.number += 1
        return [gang for gang in alone if gang is not None and gang.is_plannable()], lines

    def planned(self, number: int) -> None:
        """Take note that a plan was accepted that knew of everything up to its number."""
        if self._grew_at is not None and self._grew_at < number:
            self._grew_at = None
        if self._changed_at is not None and self._changed_at < number:
            self._changed_at = None
        for alike in [alike for alike, at in self._joined_at.items() if at < number]:
            del self._joined_at[alike]

    # -- what they were told ------------------------------------------------------------------

    def record_refusal(self, gang: GangId, refusal: Refusal, now_s: float) -> bool:
        """Record a refusal; return whether it must be reported now: a new reason, or new remedies.

        The same reason with other numbers is reported later (`take_unreported`), and a refusal
        without remedies does not replace the same refusal with remedies.
        """
        told = self.refusals.last_reported(gang)
        if (
            told is not None
            and told.reason is refusal.reason
            and self._classes.has_refusal(gang, refusal)
        ):
            return False  # it is told with its line
        known = self.refusals.get(gang)
        if known is not None and not refusal.remedies and _same(known, refusal):
            refusal = known
        own = refusal if refusal.gang == gang else replace(refusal, gang=gang)
        self.refusals.record(gang, own)
        told = self.refusals.last_reported(gang)
        advice = told is not None and refusal.remedies and told.remedies != refusal.remedies
        if told is not None and told.reason is refusal.reason and not advice:
            return False
        self.refusals.mark_reported(gang, now_s)
        return True

    def record_class_refusal(self, alike: tuple[int, int], refusal: Refusal) -> None:
        """Keep what all gangs of a line were told."""
        self._classes.record_refusal(alike, refusal, self.refusals.plan_count)

    def take_unreported(self, now_s: float, patrol_s: float) -> list[GangId]:
        """Return gangs that have not heard what their line was told; they are told now.

        Looks at some in turn, every `patrol_s`. News comes soon; other numbers for the same reason
        every `_AGAIN_S` at most and for few at once: with ten thousand waiting, every start changes
        the numbers of all.
        """
        if now_s < self._check_s:
            return []
        self._check_s = now_s + patrol_s
        if not self._to_check:
            self._to_check = self.refusals.gangs()[::-1]
        due: list[GangId] = []
        again = 0
        for _ in range(min(_LOOKED_AT, len(self._to_check))):
            gang = self._to_check.pop()
            change = self.refusals.report_change(gang) if gang in self._gangs else ReportChange.NONE
            if change is ReportChange.DETAILS:
                late = self.refusals.last_reported_s(gang) <= now_s - _AGAIN_S
                if not late or again == _AGAIN_AT_ONCE:
                    continue
                again += 1
            elif change is ReportChange.NONE:
                continue
            due.append(gang)
            self.refusals.mark_reported(gang, now_s)
            if len(due) == _NEWS_AT_ONCE:
                break
        return due

    def is_current(self, gang: GangId, refusal: Refusal) -> bool:
        """Tell whether this is still what a gang was refused for."""
        known = self.refusals.get(gang)
        same = known is not None and known.message == refusal.message
        waits = gang in self._classes or gang in self._individual
        return same and waits and not self.capacity_freed

    def take_advice_requests(
        self, limit: int, now_s: float, advice_s: float
    ) -> list[tuple[GangState, Refusal]]:
        """Return refused gangs that wait for advice, longest first; they count as advised now.

        Advice older than `advice_s` is asked for again: the world has moved.
        """
        due: list[tuple[float, GangState]] = []
        for gang_id in (*self._classes.members(), *self._individual):
            gang = self._gangs.get(gang_id)
            if gang is None or not gang.is_plannable() or gang_id not in self.refusals:
                continue
            if gang.last_advice is None:
                due.append((0.0, gang))
            elif now_s - gang.last_advice[1] >= advice_s:
                due.append((gang.last_advice[1], gang))
            elif gang.last_advice[0] != self.refusals[gang_id].message:
                due.append((0.0, gang))
        due.sort(key=lambda item: (item[0], item[1].id))
        found = [(gang, self.refusals[gang.id]) for _, gang in due[:limit]]
        for gang, refusal in found:
            gang.last_advice = (refusal.message, now_s)
        return found
