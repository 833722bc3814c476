"""Why each pending gang waits, and which report of it is due."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from gangsched.core.engine.pending.equivalence import EquivalenceClasses
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Reason, Refusal


@dataclass(frozen=True, slots=True)
class _Recorded:
    plan_count: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class _Reported:
    at_s: float
    refusal: Refusal


class ReportChange(Enum):
    """What changed since the last report on a gang."""

    NONE = 0
    DETAILS = 1
    REASON = 2


class RefusalLog(Mapping[GangId, Refusal]):
    """Why each pending gang waits: its own refusal, or that of its equivalence class, if later.

    `plan_count` counts plans, so that the later of two refusals is known.
    """

    def __init__(self, classes: EquivalenceClasses) -> None:
        self.plan_count = 0
        self._classes = classes
        self._recorded: dict[GangId, _Recorded] = {}
        self._reported: dict[GangId, _Reported] = {}

    def __getitem__(self, gang: GangId) -> Refusal:
        refusal = self._latest(gang)
        if refusal is None:
            raise KeyError(gang)
        return refusal if refusal.gang == gang else replace(refusal, gang=gang)

    def _latest(self, gang: GangId) -> Refusal | None:
        own, of_class = self._recorded.get(gang), self._classes.refusal_of(gang)
        if own is None:
            return of_class[1] if of_class is not None else None
        if of_class is None or of_class[0] <= own.plan_count:
            return own.refusal
        same = of_class[1].message == own.refusal.message  # its own may have remedies
        return own.refusal if same else of_class[1]

    def __iter__(self) -> Iterator[GangId]:
        yield from self._recorded
        for gang in self._classes.members():
            if gang not in self._recorded and self._latest(gang) is not None:
                yield gang

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._recorded) or next(iter(self), None) is not None

    def reasons(self) -> dict[Reason, int]:
        """Return the number of refused gangs by reason."""
        counts: dict[Reason, int] = {}
        for gang in self.gangs():
            refusal = self._latest(gang)
            if refusal is not None:
                counts[refusal.reason] = counts.get(refusal.reason, 0) + 1
        return counts

    def gangs(self) -> list[GangId]:
        """Return the gangs that may have a refusal."""
        return [*self._recorded, *(g for g in self._classes.members() if g not in self._recorded)]

    def record(self, gang: GangId, refusal: Refusal) -> None:
        """Record the refusal of a gang."""
        self._recorded[gang] = _Recorded(self.plan_count, refusal)

    def clear(self, gang: GangId) -> None:
        """Record that a gang is no longer refused."""
        self._recorded.pop(gang, None)
        self._reported.pop(gang, None)

    def mark_reported(self, gang: GangId, now_s: float) -> None:
        """Record that the refusal of a gang was reported."""
        self._reported[gang] = _Reported(now_s, self[gang])

    def last_reported(self, gang: GangId) -> Refusal | None:
        """Return the refusal of a gang that was reported last."""
        known = self._reported.get(gang)
        return known.refusal if known is not None else None

    def last_reported_s(self, gang: GangId) -> float:
        """Return when a refusal of a gang was reported last."""
        known = self._reported.get(gang)
        return known.at_s if known is not None else float("-inf")

    def report_change(self, gang: GangId) -> ReportChange:
        """Return what changed since the last report on a gang."""
        last, now = self._reported.get(gang), self._latest(gang)
        if now is None:
            return ReportChange.NONE
        if last is None or now.reason is not last.refusal.reason:
            return ReportChange.REASON
        return ReportChange.NONE if same_refusal(now, last.refusal) else ReportChange.DETAILS


def same_refusal(one: Refusal, other: Refusal) -> bool:
    """Return whether two refusals say the same, whatever their remedies."""
    return one.message == other.message and one.starts_s == other.starts_s
