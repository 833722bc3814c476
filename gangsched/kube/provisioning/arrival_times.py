"""How long nodes of pools take until they are there, learnt from those that came."""

import math
import statistics
from collections import defaultdict, deque
from dataclasses import dataclass, field

_KEPT = 200
_SPREAD_OF = 4
"""With fewer times the spread is unknown."""


@dataclass(slots=True)
class ArrivalTimes:
    """The last times of each pool, in seconds, as a log-normal distribution."""

    _times_s: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_KEPT))
    )

    def add(self, pool: str, took_s: float) -> None:
        """Take note of one node that came."""
        self._times_s[pool].append(max(took_s, 1.0))

    def learnt(self, pool: str, default_s: float) -> tuple[float, float]:
        """Return the median, and the spread: the standard deviation of the logarithms."""
        times_s = self._times_s.get(pool)
        if not times_s:
            return default_s, 0.0
        logarithms = [math.log(one) for one in times_s]
        spread = statistics.pstdev(logarithms) if len(times_s) >= _SPREAD_OF else 0.0
        return round(statistics.median(times_s), 1), round(spread, 2)
