"""How long a gang runs, as far as that is known, and run times drawn from it.

Run times are drawn from two log-normal halves that meet in the median; the 10th and 90th
percentile say how wide they are. So one run in ten comes out beyond either.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from statistics import NormalDist

RUNTIME_DEFAULT_S = 3600.0
"""The run time assumed for a gang without any estimate, in seconds; reports mark it as assumed."""

_NORMAL = NormalDist()
_TENTH = _NORMAL.inv_cdf(0.9)
_LEAST_S = 1.0
_SURE = 0.99
"""Of a gang that outlived so many of the runs that are known, nothing is known any more."""


class EstimateSource(StrEnum):
    """Where an estimate comes from."""

    DECLARED = "declared"
    LEARNED = "learnt"
    QUEUE = "queue"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A run time in seconds, its 10th and 90th percentile, and where they come from.

    Planners use `runtime_s`. It is never below the declared run time; where users declare too
    much, `middle_s` is the median.
    """

    runtime_s: float
    low_s: float
    high_s: float
    source: EstimateSource
    middle_s: float | None = None

    def left_s(self, elapsed_s: float) -> float:
        """Return what is left; a gang that outlived its estimate is late by as much again.

        Small steps at first (Tsafrir et al., TPDS 2007): a large step would let gangs
        start that delay a gang waiting for this gang's capacity.
        """
        return max(self.runtime_s - elapsed_s, elapsed_s - self.runtime_s, 1.0)

    def drawn_s(self, level: float) -> float:
        """Return the run time that so large a part of all runs do not exceed."""
        z = _NORMAL.inv_cdf(level)
        return max(self._median_s * exp(self._spread(above=z > 0) * abs(z)), _LEAST_S)

    def drawn_left_s(self, elapsed_s: float, level: float) -> float:
        """Return what is left of a run, in so large a part of all cases not exceeded."""
        outlived = self._outlived(elapsed_s)
        if outlived > _SURE:  # in the middle by two fifths of it, for lack of data
            return max(elapsed_s * (1 / sqrt(1 - level) - 1), _LEAST_S)
        return max(self.drawn_s(outlived + level * (1 - outlived)) - elapsed_s, _LEAST_S)

    @property
    def _median_s(self) -> float:
        return max(self.runtime_s if self.middle_s is None else self.middle_s, _LEAST_S)

    def _spread(self, *, above: bool) -> float:
        """Return the logarithm by which runs differ from the median, for one deviation."""
        edge_s = max(self.high_s, self._median_s) if above else min(self.low_s, self._median_s)
        return log(max(edge_s, _LEAST_S) / self._median_s) / _TENTH

    def _outlived(self, elapsed_s: float) -> float:
        """Return the part of all runs that are over by then."""
        if elapsed_s <= 0:
            return 0.0
        times = log(elapsed_s / self._median_s)
        spread = abs(self._spread(above=times > 0))
        return _NORMAL.cdf(times / spread) if spread else float(times > 0)
