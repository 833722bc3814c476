"""Equivalence classes of pending gangs: planned by their first gang, refused together.

Ten thousand pending jobs are a few hundred different requests. The cost of a cycle depends on the
number of requests, not of jobs. (Borg: Verma et al., EuroSys'15, section 3.4.)
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from gangsched.core.model.gangs import EquivalenceClassView, PendingGang, runtime_s
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Refusal

_Age = tuple[float, GangId]


def _age(waiting: PendingGang) -> _Age:
    return waiting.queued_since_s, waiting.gang.id


@dataclass(slots=True)
class EquivalenceClass:
    """Pending gangs of one request and priority; `refusal` is the last one of the whole class.

    `plan_count` is the number of the plan that refused them.
    """

    refusal: Refusal | None = None
    plan_count: int = 0
    _gangs: list[PendingGang] = field(default_factory=list)
    _view: EquivalenceClassView | None = None

    def __len__(self) -> int:
        return len(self._gangs)

    def add(self, waiting: PendingGang) -> None:
        """Add a gang, in the order of age."""
        insort(self._gangs, waiting, key=_age)
        self._view = None

    def remove(self, waiting: PendingGang) -> None:
        """Remove a gang of this class."""
        del self._gangs[bisect_left(self._gangs, _age(waiting), key=_age)]
        self._view = None

    def view(self) -> EquivalenceClassView:
        """Return the class as planners see it."""
        if self._view is None:
            shortest_s = min((runtime_s(waiting) for waiting in self._gangs), default=0.0)
            self._view = EquivalenceClassView(tuple(self._gangs), shortest_s)
        return self._view


class EquivalenceClasses:
    """The equivalence classes by request and priority, and the class of each gang."""

    def __init__(self) -> None:
        self.classes: dict[tuple[int, int], EquivalenceClass] = {}
        self._members: dict[GangId, PendingGang] = {}

    def __contains__(self, gang: GangId) -> bool:
        return gang in self._members

    def __len__(self) -> int:
        return len(self._members)

    def add(self, waiting: PendingGang) -> bool:
        """Add a gang in place of its earlier request; return whether anything changed."""
        known = self._members.get(waiting.gang.id)
        if known is waiting:
            return False
        if known is not None:
            self.remove(waiting.gang.id)
        self._members[waiting.gang.id] = waiting
        self.classes.setdefault(waiting.equivalence_key, EquivalenceClass()).add(waiting)
        return True

    def remove(self, gang: GangId) -> None:
        """Remove a gang from its class, if it has one."""
        waiting = self._members.pop(gang, None)
        if waiting is None:
            return
        gangs = self.classes[waiting.equivalence_key]
        gangs.remove(waiting)
        if not gangs:
            del self.classes[waiting.equivalence_key]

    def clear(self) -> list[GangId]:
        """Remove all gangs; return them."""
        gangs = list(self._members)
        self.classes.clear()
        self._members.clear()
        return gangs

    def members(self) -> list[GangId]:
        """Return the gangs of all classes."""
        return list(self._members)

    def views(
        self, keys: Iterable[tuple[int, int]] | None = None
    ) -> tuple[EquivalenceClassView, ...]:
        """Return classes as planners see them: those of some keys, or all."""
        if keys is None:
            return tuple(gangs.view() for gangs in self.classes.values())
        return tuple(self.classes[key].view() for key in keys if key in self.classes)

    def queue(self, key: tuple[int, int]) -> str:
        """Return the queue of a class, "" if there is no such class."""
        gangs = self.classes.get(key)
        return gangs.view().gangs[0].gang.queue if gangs else ""

    def record_refusal(self, key: tuple[int, int], refusal: Refusal, plan_count: int) -> None:
        """Record the refusal of all gangs of a class."""
        gangs = self.classes.get(key)
        if gangs is not None:
            gangs.refusal, gangs.plan_count = refusal, plan_count

    def has_refusal(self, gang: GangId, refusal: Refusal) -> bool:
        """Return whether a gang's class has this very refusal."""
        waiting = self._members.get(gang)
        gangs = self.classes[waiting.equivalence_key] if waiting is not None else None
        return gangs is not None and gangs.refusal is refusal

    def refusal_of(self, gang: GangId) -> tuple[int, Refusal] | None:
        """Return the refusal of a gang's class, and the number of its plan."""
        waiting = self._members.get(gang)
        gangs = self.classes[waiting.equivalence_key] if waiting is not None else None
        if gangs is None or gangs.refusal is None:
            return None
        return gangs.plan_count, gangs.refusal
