"""How long a gang will run: what its owner said, else what its like did before, else a default."""

from collections import deque
from dataclasses import dataclass, field
from statistics import quantiles

from gangsched.core.model import ASSUMED_S, Estimate, Gang, GangId, Source
from gangsched.core.queues import Queue

_KEPT = 20
_NEEDED = 2
_RATIOS_NEEDED = 5
_SPREAD = {"declared": (0.5, 1.0), "queue": (0.25, 2.0), "assumed": (0.1, 3.0)}
"""Where the 10th and 90th percentile lie, as factors, when there is no history to tell.
Owners declare too much rather than too little (Mu'alem and Feitelson, TPDS 2001)."""


def stem(gang: GangId) -> str:
    """Return a gang's name without what tells its runs apart: trailing numbers and hashes."""
    namespace, name = gang.split("/", 1)
    parts = name.split("-")
    while len(parts) > 1 and (parts[-1].isdigit() or _hash(parts[-1])):
        parts.pop()
    return f"{namespace}/{'-'.join(parts).rstrip('0123456789')}"


def _hash(part: str) -> bool:
    return len(part) >= 5 and any(c.isdigit() for c in part) and part.isalnum()


@dataclass(slots=True)
class History:
    """Run times of gangs that ended, by user and name.

    `ratios` are run times over what was declared, by user, and under "" of all users together.
    """

    runs: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    ratios: dict[str, deque[float]] = field(default_factory=dict)
    _ended: dict[str, int] = field(default_factory=dict)
    _all: int = 0

    def stamp(self, user: str) -> int:
        """Return a number that changes as a user's history does, now and then as that of all."""
        return self._ended.get(user, 0) + self._all // _KEPT

    def ended(self, gang: Gang, runtime_s: float) -> None:
        """Learn from a gang whose work is done."""
        self._ended[gang.user] = self._ended.get(gang.user, 0) + 1
        self._all += 1
        key = (gang.user, stem(gang.id))
        self.runs.setdefault(key, deque(maxlen=_KEPT)).append(max(runtime_s, 0.0))
        if gang.expected_runtime_s:
            for user in {gang.user, ""}:
                ratios = self.ratios.setdefault(user, deque(maxlen=_KEPT))
                ratios.append(max(runtime_s, 0.0) / gang.expected_runtime_s)

    def estimate(self, gang: Gang, queue: Queue | None = None) -> Estimate:
        """Say how long a gang will run, and how that is known."""
        if gang.expected_runtime_s is not None:
            return self._declared(gang.expected_runtime_s, gang.user)
        known = self.runs.get((gang.user, stem(gang.id)))
        if known is not None and len(known) >= _NEEDED:
            cuts = quantiles(known, n=10, method="inclusive")
            return Estimate(max(cuts[4], 1.0), max(cuts[0], 1.0), max(cuts[8], 1.0), Source.LEARNT)
        if queue is not None and queue.default_runtime_s is not None:
            return _spread(queue.default_runtime_s, Source.QUEUE)
        return _spread(ASSUMED_S, Source.ASSUMED)

    def _declared(self, runtime_s: float, user: str) -> Estimate:
        """Take the owner's word, within the range in which the owner was right before."""
        for known in (self.ratios.get(user), self.ratios.get("")):
            if known is not None and len(known) >= _RATIOS_NEEDED:
                cuts = quantiles(known, n=10, method="inclusive")
                low_s, high_s = cuts[0] * runtime_s, cuts[8] * runtime_s
                return Estimate(runtime_s, low_s, high_s, Source.DECLARED)
        return _spread(runtime_s, Source.DECLARED)


def _spread(runtime_s: float, source: Source) -> Estimate:
    low, high = _SPREAD[source.value]
    return Estimate(runtime_s, runtime_s * low, runtime_s * high, source)
