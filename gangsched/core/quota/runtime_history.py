"""How long a gang will run: as declared, else as similar gangs ran before, else a default."""

from collections import Counter, deque
from dataclasses import dataclass, field
from json import dumps
from statistics import median, quantiles
from typing import TypeVar

from gangsched.core.bounds import HISTORY_LETTERS, RUN_TIMES
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Queue
from gangsched.core.model.runtime import RUNTIME_DEFAULT_S, Estimate, EstimateSource
from gangsched.core.quota.start_accuracy import StartRecord

Key = tuple[str, str]
"""User and name."""

K = TypeVar("K")
V = TypeVar("V")

_KEPT = 20
_DIGITS_S = 1
_DIGITS = 3
_NEEDED = 2
_RATIOS_NEEDED = 5
_SPREAD = {"declared": (0.5, 1.0), "queue": (0.25, 2.0), "assumed": (0.1, 3.0)}
"""The 10th and 90th percentile without a history, as factors of the run time.
Users declare too much rather than too little (Mu'alem and Feitelson, TPDS 2001)."""


def job_name_prefix(gang: GangId) -> str:
    """Return a gang's name without what distinguishes its runs: trailing numbers and hashes."""
    namespace, name = gang.split("/", 1)
    parts = name.split("-")
    while len(parts) > 1 and (parts[-1].isdigit() or _hash(parts[-1])):
        parts.pop()
    return f"{namespace}/{'-'.join(parts).rstrip('0123456789')}"


def _namespace(name: str) -> str:
    return name.split("/", 1)[0]


def _fitting(entries: dict[Key, list[object]]) -> list[list[object]]:
    """Return as many entries as may be stored."""
    letters = {key: len(dumps(entry)) for key, entry in entries.items()}
    beyond = _beyond(letters, HISTORY_LETTERS.most // 2)
    return [entry for key, entry in entries.items() if key not in beyond]


def _beyond(sizes: dict[Key, int], most: int) -> set[Key]:
    """Return the entries beyond a limit: the oldest of the namespace that has most."""
    total = sum(sizes.values())
    if total <= most:
        return set()
    held: Counter[str] = Counter()
    oldest: dict[str, deque[Key]] = {}
    for key, size in sizes.items():
        held[_namespace(key[1])] += size
        oldest.setdefault(_namespace(key[1]), deque()).append(key)
    forgotten = set()
    while total > most:
        largest = max(held, key=lambda namespace: (held[namespace], namespace))
        key = oldest[largest].popleft()
        forgotten.add(key)
        held[largest] -= sizes[key]
        total -= sizes[key]
    return forgotten


def _last(kept: dict[K, V], key: K, value: V) -> None:
    """Put a value at the end, so that the oldest is at the beginning."""
    kept.pop(key, None)
    kept[key] = value


def _hash(part: str) -> bool:
    return len(part) >= 5 and any(c.isdigit() for c in part) and part.isalnum()


@dataclass(slots=True)
class RuntimeHistory:
    """Run times of gangs that ended, by user and name.

    `ratios` are run times divided by declared run times, by user, and under "" for all users.
    `starts` records how well predictions of starts came true.
    """

    runs: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    ratios: dict[str, deque[float]] = field(default_factory=dict)
    starts: StartRecord = field(default_factory=StartRecord)
    _last_recorded: dict[str, int] = field(default_factory=dict)
    _recorded: int = 0

    def version(self, user: str) -> tuple[int, int]:
        """Return a version that changes with the history of a user, or at times with all."""
        return self._last_recorded.get(user, 0), self._recorded // _KEPT

    def record(self, gang: Gang, runtime_s: float) -> None:
        """Learn from a gang that finished."""
        self._recorded += 1
        _last(self._last_recorded, gang.user, self._recorded)
        key = (gang.user, job_name_prefix(gang.id))
        known = self.runs.get(key) or deque(maxlen=_KEPT)
        runtime_s = round(max(runtime_s, 0.0), _DIGITS_S)  # as it is stored for the next process
        known.append(runtime_s)
        _last(self.runs, key, known)
        if gang.expected_runtime_s:
            for user in sorted({gang.user, ""}):
                ratios = self.ratios.get(user) or deque(maxlen=_KEPT)
                ratios.append(round(runtime_s / gang.expected_runtime_s, _DIGITS))
                _last(self.ratios, user, ratios)
        self._forget()

    def _forget(self) -> None:
        """Remove entries beyond the bounds: the oldest of the namespace that has most."""
        for key in _beyond(dict.fromkeys(self.runs, 1), RUN_TIMES.most):
            del self.runs[key]
        for users in (self.ratios, self._last_recorded):
            while len(users) > RUN_TIMES.most:
                del users[next(user for user in users if user)]

    def to_json(self) -> dict[str, list[list[object]]]:
        """Return as many entries as may be stored as JSON values, the oldest first."""
        runs: dict[Key, list[object]] = {
            key: [*key, *(round(run_s, _DIGITS_S) for run_s in some)]
            for key, some in self.runs.items()
        }
        ratios: dict[Key, list[object]] = {
            ("", user): [user, *(round(ratio, _DIGITS) for ratio in some)]
            for user, some in self.ratios.items()
        }
        starts: list[list[object]] = [["early", *self.starts.early], ["late", *self.starts.late]]
        return {"runs": _fitting(runs), "ratios": _fitting(ratios), "starts": starts}

    def merge_json(self, data: object) -> None:
        """Add what `to_json` returned; entries of this process count as the latest.

        Raises:
            ValueError: the values are not of that form.

        """
        try:
            runs = {(str(u), str(name)): _numbers(some) for u, name, *some in _lists(data, "runs")}
            ratios = {str(user): _numbers(some) for user, *some in _lists(data, "ratios")}
            starts = {str(end): _floats(some) for end, *some in _lists(data, "starts")}
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a history of run times: {error}") from error
        for key, known in self.runs.items():
            runs[key] = deque([*runs.pop(key, ()), *known], maxlen=_KEPT)
        for user, some in self.ratios.items():
            ratios[user] = deque([*ratios.get(user, ()), *some], maxlen=_KEPT)
        self.runs, self.ratios = runs, ratios
        self.starts.load(starts.get("early", []), starts.get("late", []))
        self._forget()

    def estimate(self, gang: Gang, queue: Queue | None = None) -> Estimate:
        """Return how long a gang is expected to run, and from which source that is known."""
        if gang.expected_runtime_s is not None:
            return self._declared(gang.expected_runtime_s, gang.user)
        known = self.runs.get((gang.user, job_name_prefix(gang.id)))
        if known is not None and len(known) >= _NEEDED:
            cuts = quantiles(known, n=10, method="inclusive")
            return Estimate(
                max(cuts[4], 1.0), max(cuts[0], 1.0), max(cuts[8], 1.0), EstimateSource.LEARNED
            )
        if queue is not None and queue.default_runtime_s is not None:
            return _spread(queue.default_runtime_s, EstimateSource.QUEUE)
        return _spread(RUNTIME_DEFAULT_S, EstimateSource.ASSUMED)

    def _declared(self, declared_s: float, user: str) -> Estimate:
        """Return the declared run time, with the range of the user's earlier ratios.

        A user who declared too little before is expected to do so again: backfill relies on it.
        """
        runtime_s = declared_s * self.factor(user)
        for known in (self.ratios.get(user), self.ratios.get("")):
            if known is not None and len(known) >= _RATIOS_NEEDED:
                cuts = quantiles(known, n=10, method="inclusive")
                low_s, middle_s, high_s = (cuts[at] * declared_s for at in (0, 4, 8))
                return Estimate(runtime_s, low_s, high_s, EstimateSource.DECLARED, middle_s)
        return _spread(runtime_s, EstimateSource.DECLARED)

    def factor(self, user: str) -> float:
        """Return the median of run time over declared run time of a user; at least 1."""
        known = self.ratios.get(user, ())
        return max(median(known), 1.0) if len(known) >= _RATIOS_NEEDED else 1.0


def _lists(data: object, name: str) -> list[list[object]]:
    if not isinstance(data, dict):
        raise TypeError(f"{type(data).__name__} in place of an object")
    rows = data.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise TypeError(f"{name} is not a list of lists")
    return rows


def _numbers(values: list[object]) -> deque[float]:
    return deque(_floats(values), maxlen=_KEPT)


def _floats(values: list[object]) -> list[float]:
    if not values or not all(isinstance(value, int | float) and value >= 0 for value in values):
        raise ValueError(f"{values} in place of run times")
    return [float(str(value)) for value in values]


def _spread(runtime_s: float, source: EstimateSource) -> Estimate:
    low, high = _SPREAD[source.value]
    return Estimate(runtime_s, runtime_s * low, runtime_s * high, source)
