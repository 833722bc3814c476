"""Which gangs a planner should look at now, and what the others were told."""

from dataclasses import replace

from gangsched.core.gangs import GangState
from gangsched.core.model import GangId
from gangsched.core.refusal import Refusal

_AGAIN_S = 5.0
_AGAIN_AT_ONCE = 20


class Backlog:
    """Gangs to plan, gangs refused on the present room, and their refusals.

    `room_grew` is set by whoever frees room: those refused before may fit then. `room` counts how
    often that was, so that a refusal on older room is known as such.
    """

    def __init__(self, gangs: dict[GangId, GangState]) -> None:
        self.refusals: dict[GangId, Refusal] = {}
        self.room = 0
        self._grew = False
        self._gangs = gangs
        # Ordered sets (dicts without values): iterating a real set would depend on the hash seed.
        self._to_plan: dict[GangId, None] = {}
        self._refused: dict[GangId, None] = {}
        self._told_s: dict[GangId, float] = {}
        self._untold: dict[GangId, None] = {}

    @property
    def room_grew(self) -> bool:
        """Tell whether room came free since gangs were last put in line for it."""
        return self._grew

    @room_grew.setter
    def room_grew(self, grew: bool) -> None:
        self._grew = grew
        self.room += grew  # a plan made before does not know of it

    def want(self, gang: GangId) -> None:
        """Have a gang planned."""
        self._refused.pop(gang, None)
        self._to_plan[gang] = None

    def pause(self, gang: GangId) -> None:
        """Do not plan a gang until it is wanted again."""
        self._to_plan.pop(gang, None)

    def again(self) -> None:
        """Have all refused gangs planned again."""
        if self._refused:
            self.room_grew = True

    def refused(self, gang: GangId) -> None:
        """Do not plan a gang again before there is more room."""
        self._to_plan.pop(gang, None)
        self._refused[gang] = None

    def forget(self, gang: GangId) -> None:
        """Forget a gang."""
        for group in (self._to_plan, self._refused, self.refusals, self._told_s, self._untold):
            group.pop(gang, None)

    def say(self, gang: GangId, refusal: Refusal, now_s: float) -> bool:
        """Keep a refusal; return whether its gang is to be told now: a new reason, or advice.

        The same reason with other numbers is told later (`untold`), and what was said with advice
        is not taken back by the same without.
        """
        known = self.refusals.get(gang)
        news = known is None or known.reason is not refusal.reason
        if known is not None and not news:
            news = bool(refusal.remedies) and known.remedies != refusal.remedies
            same = known.message == refusal.message and known.starts_s == refusal.starts_s
            if same and not news:
                return False
        self.refusals[gang] = refusal if refusal.gang == gang else replace(refusal, gang=gang)
        if not news:
            self._untold[gang] = None
            return False
        self._untold.pop(gang, None)
        self._told_s[gang] = now_s
        return True

    def untold(self, now_s: float) -> list[GangId]:
        """Return gangs whose numbers have changed since they were told; they are told now.

        Each is told anew every `_AGAIN_S` at most, and few at once: with ten thousand waiting,
        every start changes the numbers of all.
        """
        due = []
        for gang in self._untold:
            if now_s - self._told_s.get(gang, 0.0) >= _AGAIN_S:
                due.append(gang)
                if len(due) == _AGAIN_AT_ONCE:
                    break
        for gang in due:
            del self._untold[gang]
            self._told_s[gang] = now_s
        return [gang for gang in due if gang in self.refusals]

    def stands(self, refusal: Refusal) -> bool:
        """Tell whether this is still what its gang was refused for."""
        known = self.refusals.get(refusal.gang)
        same = known is not None and known.message == refusal.message
        return same and refusal.gang in self._refused

    def any(self) -> bool:
        """Tell whether there is a gang to plan now."""
        self._line_up()
        while self._to_plan:
            gang = self._gangs.get(next(iter(self._to_plan)))
            if gang is not None and gang.plannable():
                return True
            del self._to_plan[next(iter(self._to_plan))]
        return False

    def plannable(self) -> list[GangState]:
        """Return the gangs to plan now."""
        self._line_up()
        ready, left = [], []
        for gang_id in self._to_plan:
            gang = self._gangs.get(gang_id)
            if gang is not None and gang.plannable():
                ready.append(gang)
            else:
                left.append(gang_id)
        for gang_id in left:
            del self._to_plan[gang_id]
        return ready

    def _line_up(self) -> None:
        """Put those who were refused on less room in line again."""
        if self._grew:
            self._to_plan.update(self._refused)
            self._refused.clear()
            self._grew = False

    def unadvised(
        self, limit: int, now_s: float, advice_s: float
    ) -> list[tuple[GangState, Refusal]]:
        """Return refused gangs that wait for advice, longest first; they count as advised now.

        Advice older than `advice_s` is asked for again: the world has moved.
        """
        due: list[tuple[float, GangState, Refusal]] = []
        for gang_id in self._refused:
            gang, refusal = self._gangs.get(gang_id), self.refusals.get(gang_id)
            if gang is None or refusal is None or not gang.plannable():
                continue
            if gang.advised is None or gang.advised[0] != refusal.message:
                due.append((0.0, gang, refusal))
            elif now_s - gang.advised[1] >= advice_s:
                due.append((gang.advised[1], gang, refusal))
        due.sort(key=lambda item: (item[0], item[1].id))
        for _, gang, refusal in due[:limit]:
            gang.advised = (refusal.message, now_s)
        return [(gang, refusal) for _, gang, refusal in due[:limit]]
