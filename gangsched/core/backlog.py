"""Which gangs a planner should look at now, and what the others were told."""

from dataclasses import replace

from gangsched.core.gangs import GangState
from gangsched.core.model import GangId
from gangsched.core.refusal import Refusal


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
        for group in (self._to_plan, self._refused, self.refusals):
            group.pop(gang, None)

    def say(self, gang: GangId, refusal: Refusal) -> bool:
        """Keep a refusal; return whether its gang has not heard it yet (perhaps with advice)."""
        known = self.refusals.get(gang)
        if known == refusal or (known is not None and replace(known, remedies=()) == refusal):
            return False
        self.refusals[gang] = refusal
        return True

    def stands(self, refusal: Refusal) -> bool:
        """Tell whether this is still what its gang was refused for."""
        known = self.refusals.get(refusal.gang)
        same = known is not None and known.message == refusal.message
        return same and refusal.gang in self._refused

    def plannable(self) -> list[GangState]:
        """Return the gangs to plan now."""
        if self.room_grew:
            self._to_plan.update(self._refused)
            self._refused.clear()
            self.room_grew = False
        ready = []
        for gang_id in list(self._to_plan):
            gang = self._gangs.get(gang_id)
            if gang is None or not gang.plannable():
                del self._to_plan[gang_id]
            else:
                ready.append(gang)
        return ready

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
