"""How well predictions of starts came true, and ranges that are wide enough for that.

A forecast covers pending and running gangs, not later gangs or failures. The distance of real
starts from the drawn ranges shows their effect: ranges are stretched so that they would have held
nearly all of the latest starts (conformalized quantiles: Romano et al., NeurIPS 2019).
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from gangsched.core.model.ids import GangId

_KEPT = 200
_OPEN = 2000
"""The number of gangs with predictions to compare; those of other gangs are ignored."""

_EDGE_S = 30.0
"""Added to every wait, so that a few seconds do not count."""

_AGAIN_S = 60.0
_MISSED = 0.035
"""The fraction of starts that may lie before a range, and after it."""

_BELIEVED = ((0.5, 0.6, 0.8, 1.0, 1.0), (1.0, 1.0, 1.3, 1.8, 2.5))
"""Assumed early and late starts while few are known."""

_DIGITS = 3
_MOST = 1000.0


@dataclass(frozen=True, slots=True)
class StartAccuracy:
    """The factors by which the waits until the first and the last drawn start are stretched."""

    early: float = 1.0
    late: float = 1.0

    def range_s(self, now_s: float, low_s: float, high_s: float) -> tuple[float, float]:
        """Return the range to report for a range that was drawn."""
        first_s, last_s = (
            now_s + max((at_s - now_s + _EDGE_S) * times - _EDGE_S, 0.0)
            for at_s, times in ((low_s, self.early), (high_s, self.late))
        )
        return min(first_s, low_s), max(last_s, high_s)


@dataclass(frozen=True, slots=True)
class _Prediction:
    at_s: float
    low_s: float
    high_s: float

    def missed_by(self, start_s: float) -> tuple[float, float]:
        """Return the real wait as multiples of the drawn waits."""
        wait_s = start_s - self.at_s + _EDGE_S
        low_s, high_s = (max(at - self.at_s, 0.0) + _EDGE_S for at in (self.low_s, self.high_s))
        early, late = (round(min(wait_s / drawn_s, _MOST), _DIGITS) for drawn_s in (low_s, high_s))
        return early, late


@dataclass(slots=True)
class StartRecord:
    """The latest starts as multiples of the drawn waits, and the predictions for pending gangs."""

    early: deque[float] = field(default_factory=lambda: deque(_BELIEVED[0] * 4, maxlen=_KEPT))
    late: deque[float] = field(default_factory=lambda: deque(_BELIEVED[1] * 4, maxlen=_KEPT))
    _awaited: dict[GangId, list[_Prediction]] = field(default_factory=dict)

    def record_predictions(
        self,
        drawn: Iterable[tuple[GangId, float, float]],
        now_s: float,
        known: Container[GangId],
    ) -> None:
        """Record ranges that were drawn for gangs; predictions for unknown gangs are removed.

        A gang counts once more each time that its wait has doubled.
        """
        self._awaited = {
            gang: drawn_before for gang, drawn_before in self._awaited.items() if gang in known
        }
        for gang, low_s, high_s in drawn:
            before = self._awaited.get(gang)
            if before is None:
                if len(self._awaited) >= _OPEN:
                    continue
                before = self._awaited[gang] = []
            elif now_s - before[0].at_s < max(2 * (before[-1].at_s - before[0].at_s), _AGAIN_S):
                continue
            before.append(_Prediction(now_s, low_s, high_s))

    def record_start(self, gang: GangId, now_s: float) -> None:
        """Learn from a gang that started."""
        for prediction in self._awaited.pop(gang, ()):
            early, late = prediction.missed_by(now_s)
            self.early.append(early)
            self.late.append(late)

    def load(self, early: Iterable[float], late: Iterable[float]) -> None:
        """Restore the multiples of an earlier process."""
        self.early = deque((min(multiple, _MOST) for multiple in early), maxlen=_KEPT) or self.early
        self.late = deque((min(multiple, _MOST) for multiple in late), maxlen=_KEPT) or self.late

    def punctuality(self, now_s: float) -> StartAccuracy:
        """Return by how much to stretch ranges now.

        A gang that is late already counts with its wait so far.
        """
        awaited = (
            prediction.missed_by(now_s)[1]
            for predictions in self._awaited.values()
            for prediction in predictions
        )
        late = sorted((*self.late, *(multiple for multiple in awaited if multiple > 1)))
        early = sorted(self.early)
        return StartAccuracy(
            min(early[int(len(early) * _MISSED)], 1.0),
            max(late[min(int(len(late) * (1 - _MISSED)), len(late) - 1)], 1.0),
        )
