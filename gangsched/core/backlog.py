"""Which gangs a planner should look at now, and what the others were told."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gangsched.core.gangs import GangState
from gangsched.core.lines import Lines
from gangsched.core.model import Alike, GangId, Waiting
from gangsched.core.refusal import Refusal

_AGAIN_S = 5.0
_AGAIN_AT_ONCE = 20
_LOOKED_AT = 400


class Backlog:
    """Gangs to plan, gangs refused on the present room, and their refusals.

    `room_grew` is set by whoever frees room: those refused before may fit then. It stands until
    gangs are put in line for it, so that a refusal on older room is not the last word.
    """

    def __init__(self, gangs: dict[GangId, GangState]) -> None:
        self.refusals = Refusals()
        self.room_grew = False
        self._gangs = gangs
        # Ordered sets (dicts without values): iterating a real set would depend on the hash seed.
        self._to_plan: dict[GangId, None] = {}
        self._alone: dict[GangId, None] = {}
        self._lines = self.refusals.lines
        self._patrol: list[GangId] = []
        self._learnt: dict[str, None] = {}

    # -- who is to be planned -----------------------------------------------------------------

    def want(self, gang: GangId) -> None:
        """Have a gang planned: something about it changed."""
        self._leave(gang)
        self._to_plan[gang] = None

    def pause(self, gang: GangId) -> None:
        """Do not plan a gang until it is wanted again."""
        self._leave(gang)

    def again(self) -> None:
        """Have all refused gangs planned again."""
        if self._lines or self._alone:
            self.room_grew = True

    def relearn(self) -> None:
        """Have gangs planned anew whose run time is guessed from others that have ended."""
        for line in self._lines.views() if self._learnt else ():
            if line.gangs[0].gang.user in self._learnt:
                for one in line.gangs:
                    if one.gang.expected_runtime_s is None:
                        self.want(one.gang.id)
        self._learnt.clear()

    def anew(self) -> None:
        """Have every gang planned by itself: what all of them are worth has changed."""
        for gang in self._lines.dissolve():
            self._to_plan[gang] = None
        self.room_grew = True

    def learnt(self, user: str) -> None:
        """Take note that there is more to guess run times of a user's gangs from."""
        self._learnt[user] = None

    def forget(self, gang: GangId) -> None:
        """Forget a gang."""
        self._leave(gang)
        self.refusals.forget(gang)

    def _leave(self, gang: GangId) -> None:
        self._to_plan.pop(gang, None)
        self._alone.pop(gang, None)
        self._lines.leave(gang)

    def any(self) -> bool:
        """Tell whether there is a gang to plan now."""
        while self._to_plan:
            first = next(iter(self._to_plan))
            gang = self._gangs.get(first)
            if gang is not None and gang.plannable():
                return True
            del self._to_plan[first]
        return self.room_grew and bool(self._lines or self._alone)

    def plannable(self) -> tuple[list[GangState], tuple[Alike, ...]]:
        """Return the gangs to plan now: one by one, and in lines where there is more room."""
        lines: tuple[Alike, ...] = ()
        if self.room_grew:
            self._to_plan.update(self._alone)
            self._alone.clear()
            self.room_grew = False
            lines = self._lines.views()
        ready, left = [], []
        for gang_id in self._to_plan:
            gang = self._gangs.get(gang_id)
            if gang is not None and gang.plannable():
                ready.append(gang)
            else:
                left.append(gang_id)
        for gang_id in left:
            del self._to_plan[gang_id]
        return ready, lines

    # -- what they were told ------------------------------------------------------------------

    def refused(self, waiting: Waiting, *, alone: bool) -> None:
        """Do not plan a gang again before there is more room; `alone` if it is like no other."""
        gang = waiting.gang.id
        if not alone:
            self._to_plan.pop(gang, None)
            self._alone.pop(gang, None)
            self._lines.join(waiting)
            return
        self._leave(gang)
        self._alone[gang] = None

    def say(self, gang: GangId, refusal: Refusal, now_s: float) -> bool:
        """Keep a refusal; return whether its gang is to be told now: a new reason, or advice.

        The same reason with other numbers is told later (`untold`), and what was said with advice
        is not taken back by the same without.
        """
        known = self.refusals.get(gang)
        if known is not None and not refusal.remedies and _same(known, refusal):
            refusal = known
        own = refusal if refusal.gang == gang else replace(refusal, gang=gang)
        self.refusals.say(gang, own)
        told = self.refusals.told(gang)
        advice = told is not None and refusal.remedies and told.remedies != refusal.remedies
        if told is not None and told.reason is refusal.reason and not advice:
            return False
        self.refusals.tell(gang, now_s)
        return True

    def say_line(self, alike: tuple[int, int], refusal: Refusal) -> None:
        """Keep what all gangs of a line were told."""
        self._lines.tell(alike, refusal, self.refusals.plans)

    def untold(self, now_s: float) -> list[GangId]:
        """Return gangs that were told something else last; they are told now.

        Looks at some in turn. Each is told other numbers every `_AGAIN_S` at most, and few at
        once: with ten thousand waiting, every start changes the numbers of all.
        """
        if not self._patrol:
            self._patrol = list(self.refusals)[::-1]
        due: list[GangId] = []
        for _ in range(min(_LOOKED_AT, len(self._patrol))):
            gang = self._patrol.pop()
            if self.refusals.changed(gang, now_s - _AGAIN_S) and gang in self._gangs:
                due.append(gang)
                self.refusals.tell(gang, now_s)
                if len(due) == _AGAIN_AT_ONCE:
                    break
        return due

    def stands(self, gang: GangId, refusal: Refusal) -> bool:
        """Tell whether this is still what a gang was refused for."""
        known = self.refusals.get(gang)
        same = known is not None and known.message == refusal.message
        waits = gang in self._lines or gang in self._alone
        return same and waits and not self.room_grew

    def unadvised(
        self, limit: int, now_s: float, advice_s: float
    ) -> list[tuple[GangState, Refusal]]:
        """Return refused gangs that wait for advice, longest first; they count as advised now.

        Advice older than `advice_s` is asked for again: the world has moved.
        """
        due: list[tuple[float, GangState]] = []
        for gang_id in (*self._lines.members(), *self._alone):
            gang = self._gangs.get(gang_id)
            if gang is None or not gang.plannable():
                continue
            if gang.advised is None:
                due.append((0.0, gang))
            elif now_s - gang.advised[1] >= advice_s:
                due.append((gang.advised[1], gang))
            elif gang.advised[0] != self.refusals[gang_id].message:
                due.append((0.0, gang))
        due.sort(key=lambda item: (item[0], item[1].id))
        found = [(gang, self.refusals[gang.id]) for _, gang in due[:limit]]
        for gang, refusal in found:
            gang.advised = (refusal.message, now_s)
        return found


@dataclass(frozen=True, slots=True)
class _Said:
    when: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class _Told:
    at_s: float
    refusal: Refusal


class Refusals(Mapping[GangId, Refusal]):
    """Why each waiting gang waits: by its own refusal, or by that of its line, if later.

    `plans` counts plans, to tell which is later.
    """

    def __init__(self) -> None:
        self.lines = Lines()
        self.plans = 0
        self._said: dict[GangId, _Said] = {}
        self._told: dict[GangId, _Told] = {}

    def __getitem__(self, gang: GangId) -> Refusal:
        found = self._latest(gang)
        return found if found.gang == gang else replace(found, gang=gang)

    def _latest(self, gang: GangId) -> Refusal:
        own, lines = self._said[gang], self.lines.told(gang)
        if lines is None or lines[0] <= own.when:
            return own.refusal
        same = lines[1].message == own.refusal.message  # then there may be advice with it
        return own.refusal if same else lines[1]

    def __iter__(self) -> Iterator[GangId]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def say(self, gang: GangId, refusal: Refusal) -> None:
        """Keep what a gang is refused for."""
        self._said[gang] = _Said(self.plans, refusal)

    def unsay(self, gang: GangId) -> None:
        """Take note that a gang is refused no more."""
        self._said.pop(gang, None)
        self._told.pop(gang, None)

    forget = unsay

    def tell(self, gang: GangId, now_s: float) -> None:
        """Take note that a gang is told why it waits."""
        self._told[gang] = _Told(now_s, self[gang])

    def told(self, gang: GangId) -> Refusal | None:
        """Return what a gang was told last."""
        known = self._told.get(gang)
        return known.refusal if known is not None else None

    def changed(self, gang: GangId, before_s: float) -> bool:
        """Tell whether a gang has news: another reason, or other numbers if told before."""
        told = self._told.get(gang)
        if gang not in self._said or told is None:
            return False
        now = self._latest(gang)
        if now.reason is not told.refusal.reason:
            return True
        return not _same(now, told.refusal) and told.at_s <= before_s


def _same(one: Refusal, other: Refusal) -> bool:
    return one.message == other.message and one.starts_s == other.starts_s
