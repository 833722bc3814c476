"""How long a gang will run: what its owner said, else what its like did before, else a default."""

from collections import deque
from dataclasses import dataclass, field
from statistics import quantiles

from gangsched.core.model import ASSUMED_S, Estimate, Gang, GangId, Source
from gangsched.core.queues import Queue

_KEPT = 20
_NAMES_KEPT = 5_000
"""Names of gangs whose run times are kept: about half of what fits into a ConfigMap."""

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
        known = self.runs.pop(key, None) or deque(maxlen=_KEPT)
        known.append(max(runtime_s, 0.0))
        self.runs[key] = known  # last in the dict: the first is who ended longest ago
        if len(self.runs) > _NAMES_KEPT:
            del self.runs[next(iter(self.runs))]
        if gang.expected_runtime_s:
            for user in {gang.user, ""}:
                ratios = self.ratios.setdefault(user, deque(maxlen=_KEPT))
                ratios.append(max(runtime_s, 0.0) / gang.expected_runtime_s)

    def data(self) -> dict[str, list[list[object]]]:
        """Return everything as JSON values, the longest ago first."""
        runs = ([*key, *(round(run_s, 1) for run_s in some)] for key, some in self.runs.items())
        ratios = ([user, *(round(one, 3) for one in some)] for user, some in self.ratios.items())
        return {"runs": list(runs), "ratios": list(ratios)}

    def load(self, data: object) -> None:
        """Take over what `data` returned, with what is known already as the latest.

        Raises:
            ValueError: the values are not of that form.

        """
        try:
            runs = {(str(u), str(name)): _numbers(some) for u, name, *some in _lists(data, "runs")}
            ratios = {str(user): _numbers(some) for user, *some in _lists(data, "ratios")}
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a history of run times: {error}") from error
        for key, known in self.runs.items():
            runs[key] = deque([*runs.pop(key, ()), *known], maxlen=_KEPT)
        for user, some in self.ratios.items():
            ratios[user] = deque([*ratios.get(user, ()), *some], maxlen=_KEPT)
        self.runs, self.ratios = runs, ratios

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


def _lists(data: object, name: str) -> list[list[object]]:
    if not isinstance(data, dict):
        raise TypeError(f"{type(data).__name__} in place of an object")
    found = data.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, list) for one in found):
        raise TypeError(f"{name} is not a list of lists")
    return found


def _numbers(values: list[object]) -> deque[float]:
    if not values or not all(isinstance(one, int | float) and one >= 0 for one in values):
        raise ValueError(f"{values} in place of run times")
    return deque((float(str(one)) for one in values), maxlen=_KEPT)


def _spread(runtime_s: float, source: Source) -> Estimate:
    low, high = _SPREAD[source.value]
    return Estimate(runtime_s, runtime_s * low, runtime_s * high, source)
