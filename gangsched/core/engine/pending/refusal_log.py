"""Why each pending gang waits, and which report of it is due."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from gangsched.core.engine.pending.equivalence import EquivalenceClasses
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Reason, Refusal


@dataclass(frozen=True, slots=True)
class _Said:
    when: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class _Told:
    at_s: float
    refusal: Refusal


class ReportChange(Enum):
    """What a gang has not heard yet."""

    NONE = 0
    DETAILS = 1
    REASON = 2


class RefusalLog(Mapping[GangId, Refusal]):
    """Why each waiting gang waits: by its own refusal, or by that of its line, if later.

    `plan_count` counts plans, so that the later of two refusals is known.
    """

    def __init__(self, lines: EquivalenceClasses) -> None:
        self.plan_count = 0
        self._lines = lines
        self._said: dict[GangId, _Said] = {}
        self._told: dict[GangId, _Told] = {}

    def __getitem__(self, gang: GangId) -> Refusal:
        found = self._latest(gang)
        if found is None:
            raise KeyError(gang)
        return found if found.gang == gang else replace(found, gang=gang)

    def _latest(self, gang: GangId) -> Refusal | None:
        own, lines = self._said.get(gang), self._lines.refusal_of(gang)
        if own is None:
            return lines[1] if lines is not None else None
        if lines is None or lines[0] <= own.when:
            return own.refusal
        same = lines[1].message == own.refusal.message  # then there may be advice with it
        return own.refusal if same else lines[1]

    def __iter__(self) -> Iterator[GangId]:
        yield from self._said
        for gang in self._lines.members():
            if gang not in self._said and self._latest(gang) is not None:
                yield gang

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._said) or next(iter(self), None) is not None

    def reasons(self) -> dict[Reason, int]:
        """Return how many are refused for which reason."""
        found: dict[Reason, int] = {}
        for gang in self.gangs():
            refusal = self._latest(gang)
            if refusal is not None:
                found[refusal.reason] = found.get(refusal.reason, 0) + 1
        return found

    def gangs(self) -> list[GangId]:
        """Return all who may have been told something."""
        return [*self._said, *(g for g in self._lines.members() if g not in self._said)]

    def record(self, gang: GangId, refusal: Refusal) -> None:
        """Keep what a gang is refused for."""
        self._said[gang] = _Said(self.plan_count, refusal)

    def clear(self, gang: GangId) -> None:
        """Take note that a gang is refused no more."""
        self._said.pop(gang, None)
        self._told.pop(gang, None)

    def mark_reported(self, gang: GangId, now_s: float) -> None:
        """Take note that a gang is told why it waits."""
        self._told[gang] = _Told(now_s, self[gang])

    def last_reported(self, gang: GangId) -> Refusal | None:
        """Return what a gang was told last."""
        known = self._told.get(gang)
        return known.refusal if known is not None else None

    def last_reported_s(self, gang: GangId) -> float:
        """Return when a gang was told something last."""
        known = self._told.get(gang)
        return known.at_s if known is not None else float("-inf")

    def report_change(self, gang: GangId) -> ReportChange:
        """Tell what a gang has not heard yet."""
        told, now = self._told.get(gang), self._latest(gang)
        if now is None:
            return ReportChange.NONE
        if told is None or now.reason is not told.refusal.reason:
            return ReportChange.REASON
        return ReportChange.NONE if _same(now, told.refusal) else ReportChange.DETAILS


def _same(one: Refusal, other: Refusal) -> bool:
    return one.message == other.message and one.starts_s == other.starts_s
