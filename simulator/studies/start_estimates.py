"""Compares forecast ranges of starts with the real starts of pending gangs.

Each history has queues, priorities, backfill and preemption. Users declare run times that are wrong
by a habit of the user and by chance, or declare none. Jobs also arrive after a forecast.
"""

import math
import random
from dataclasses import dataclass, field, replace
from statistics import median

from gangsched.core.engine.engine import Limits
from gangsched.core.model.ids import GangId, PodUid
from gangsched.core.model.queues import Queue
from gangsched.core.planning.forecast import (
    Effort,
    Prediction,
    forecast,
    ranges,
    with_observed_ranges,
)
from gangsched.core.policy import Policies
from simulator.jobs import Job
from simulator.scenarios.histories import machine, random_tree
from simulator.virtual.job_run import JobRun

LAST_S = 86_400.0
"""How long jobs arrive. A start that takes more than twice as long again counts as missed."""

_USERS = ("ann", "bob", "cem", "dee")
_KINDS = ("train", "tune", "eval")
_INTERVAL_S = 1800.0


@dataclass(slots=True)
class Forecast:
    """One forecast for a gang at a time, and its real start (None: never)."""

    gang: GangId
    at_s: float
    first: bool
    prediction: Prediction
    started_s: float | None = None

    def holds(self) -> bool:
        """Return whether the real start lies in the range."""
        low_s, high_s = self._range()
        return self.started_s is not None and low_s <= self.started_s <= high_s

    def width(self) -> float:
        """Return the width of the range as a share of the expected wait."""
        low_s, high_s = self._range()
        assert self.prediction.start_s is not None, "a range has a middle"  # noqa: S101
        return (high_s - low_s) / max(self.prediction.start_s - self.at_s, 60.0)

    def _range(self) -> tuple[float, float]:
        low_s, high_s = self.prediction.low_s, self.prediction.high_s
        assert low_s is not None and high_s is not None  # noqa: S101, PT018 -- only such are kept
        return low_s, high_s

    def error(self) -> float | None:
        """Return the error of the expected start as a share of the expected wait."""
        if self.started_s is None or self.prediction.start_s is None:
            return None
        wait_s = max(self.prediction.start_s - self.at_s, 60.0)
        return abs(self.started_s - self.prediction.start_s) / wait_s


@dataclass(slots=True)
class Figures:
    """The forecasts of some histories; `silent` counts gangs beyond the forecast's reach."""

    forecasts: list[Forecast] = field(default_factory=list)
    silent: int = 0

    def flat(self) -> dict[str, float]:
        """Return flat figures."""
        first = [forecast for forecast in self.forecasts if forecast.first]
        errors = [error for forecast in self.forecasts if (error := forecast.error()) is not None]
        return {
            "start_estimates": float(len(self.forecasts)),
            "start_estimates_beyond_reach": float(self.silent),
            "start_estimates_inside_their_range": _share(self.forecasts),
            "start_estimates_first_inside_their_range": _share(first),
            "start_range_width_p50": median(forecast.width() for forecast in self.forecasts),
            "start_error_p50": median(errors),
        }


def _share(forecasts: list[Forecast]) -> float:
    return sum(forecast.holds() for forecast in forecasts) / max(len(forecasts), 1)


class ForecastRun(JobRun):
    """A history with forecasts for all pending gangs at random times."""

    def __init__(
        self,
        seed: int,
        policies: Policies,
        effort: Effort | None = None,
        *,
        last_s: float = LAST_S,
    ) -> None:
        self.figures = Figures()
        self._rng = rng = random.Random(seed)  # noqa: S311 -- a seed is to be the same again
        self._effort = effort
        self._by = policies
        self._last_s = last_s
        self._open: dict[GangId, list[Forecast]] = {}
        nodes = [machine(index) for index in range(rng.randint(3, 6))]
        queues = random_tree(rng, 8 * len(nodes))
        arrivals = wrongly_estimated(rng, queues, 8 * len(nodes), last_s)
        super().__init__(
            nodes, arrivals, policies, queues, checked=False, limits=Limits(retry_interval_s=600.0)
        )
        self.at(3600.0, self._forecast)

    def measure(self) -> Figures:
        """Run the history; return its forecasts with the real starts."""
        self.run(3 * self._last_s)
        return self.figures

    def _forecast(self) -> None:
        if self.now_s > self._last_s:
            return
        self.at(self.now_s + self._rng.uniform(0.5, 1.5) * _INTERVAL_S, self._forecast)
        snapshot = self.engine.view.snapshot_all(self.now_s)
        starts = self.engine.history.starts
        drawn = forecast(snapshot, self._by, self.now_s, self._effort)
        predictions = with_observed_ranges(drawn, starts.punctuality(self.now_s), self.now_s)
        starts.record_predictions(ranges(drawn), self.now_s, self.engine.view.gangs)
        for gang, prediction in predictions.items():
            if prediction.start_s is None:
                self.figures.silent += 1
                continue
            kept = Forecast(gang, self.now_s, gang not in self._open, prediction)
            self._open.setdefault(gang, []).append(kept)
            self.figures.forecasts.append(kept)

    def _over(self, gang: GangId, pods: tuple[PodUid, ...]) -> None:
        for uid in pods:
            known = self.engine.view.pod(uid)
            if known is not None:
                self.observe(replace(known, ended=True))
        super()._over(gang, pods)

    def _starts(self, gang: GangId) -> None:
        super()._starts(gang)
        for kept in self._open.pop(gang, ()):
            kept.started_s = self.now_s


def wrongly_estimated(
    rng: random.Random, queues: list[Queue], gpus: int, last_s: float
) -> list[Job]:
    """Return jobs of all sizes with wrong or no declared run times."""
    choices = _gpus_max(queues, gpus) or [("", gpus // 2)]
    habits = {user: math.exp(rng.gauss(0.3, 0.6)) for user in _USERS}
    typical_s = {
        (user, kind): 1800.0 * math.exp(rng.gauss(0.0, 0.8)) for user in _USERS for kind in _KINDS
    }
    load = rng.uniform(0.5, 0.9)
    arrivals: list[Job] = []
    at_s = 0.0
    while at_s < last_s:
        at_s += rng.expovariate(gpus * load / 17_000.0)
        queue, gpus_max = rng.choice(choices)
        user, kind = rng.choice(_USERS), rng.choice(_KINDS)
        size = min(rng.choice((1, 2, 4, 8)), gpus_max)
        pods = min(rng.choice((1, 1, 1, 2, 2, 4)), gpus_max // size)
        runtime_s = typical_s[user, kind] * math.exp(rng.gauss(0.0, 0.4))
        declared_s = runtime_s * habits[user] * math.exp(rng.gauss(0.0, 0.5))
        arrivals.append(
            Job(
                f"{user}-{kind}-{len(arrivals):04}",
                at_s,
                runtime_s,
                pods,
                size,
                queue,
                user,
                rng.choice((0, 0, 0, 10, 20)),
                rng.choice((None, declared_s, declared_s)),
                rng.choice((None, 600.0)),
                preemptible=rng.random() < 0.9,
                grace_s=rng.choice((0.0, 5.0, 30.0)),
            )
        )
    return arrivals


def _gpus_max(queues: list[Queue], gpus: int) -> list[tuple[str, int]]:
    """Return the queues for jobs, with the largest number of GPUs that a job may request there."""
    by_name = {queue.name: queue for queue in queues}
    parents = {queue.parent for queue in queues}
    limits = []
    for queue in queues:
        gpus_max, ancestor = gpus // 2, queue
        while ancestor.parent:
            for quota in ancestor.quotas:
                if quota.borrowing is not None:
                    gpus_max = min(gpus_max, (quota.nominal + quota.borrowing) // 1000)
            ancestor = by_name[ancestor.parent]
        if gpus_max and queue.name not in parents:
            limits.append((queue.name, gpus_max))
    return limits
