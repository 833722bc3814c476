"""Look for settings that serve a stated objective better, and prove them on weeks held out.

Optuna proposes (TPE, Bergstra et al., NeurIPS 2011); each proposal runs on the weeks to learn from.
The best is then run, beside the scenario as it is, on weeks that no proposal has seen.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from scipy import stats

from gangsched.config import ConfigError
from simulator.experiments.results import OBJECTIVES, came
from simulator.experiments.run import prepare, run
from simulator.scenarios.scenario import Scenario, load

_HELD_OUT = 0.25


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of a scenario and what it may be: one of `choices`, or between two numbers."""

    field: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    def propose(self, trial: optuna.Trial) -> str:
        """Return the value a trial is to try."""
        if self.choices:
            return str(trial.suggest_categorical(self.field, self.choices))
        return f"{trial.suggest_float(self.field, self.low, self.high, log=self.log):.6g}"


def parameter(text: str) -> Parameter:
    """Read FIELD=A,B,C or FIELD=LOW:HIGH or FIELD=LOW:HIGH:log.

    Raises:
        ConfigError: it is neither.

    """
    name, _, values = text.partition("=")
    low, colon, rest = values.partition(":")
    if name and values and not colon:
        return Parameter(name, tuple(values.split(",")))
    high, _, scale = rest.partition(":")
    try:
        found = Parameter(name, (), float(low), float(high), scale == "log")
    except ValueError:
        found = Parameter("")
    if not found.field or not found.low < found.high or scale not in ("", "log"):
        raise ConfigError(
            f"--parameter: {text!r} must be FIELD=A,B,C or FIELD=LOW:HIGH, with :log for a "
            f"logarithmic scale"
        )
    return found


@dataclass(frozen=True, slots=True)
class Gain:
    """An objective on one window of time: as the scenario is, and with the best settings.

    Beside it stands how many gangs never started.
    """

    begin_s: float
    before: float
    after: float
    held_out: bool
    never_before: int = 0
    never_after: int = 0


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of a search; `gain` is relative, on held-out windows, with its 95 % interval."""

    objective: str
    best: dict[str, str]
    trials: int
    gains: tuple[Gain, ...]

    def data(self) -> dict[str, Any]:
        """Return it as JSON values."""
        gain, half = self.gain(held_out=True)
        return asdict(self) | {
            "gain": {
                "held_out": gain,
                "held_out_half_interval": half,
                "learnt": self.gain(held_out=False)[0],
            }
        }

    def gain(self, *, held_out: bool) -> tuple[float, float]:
        """Return the mean relative gain and half its interval; nan where one window tells none."""
        sign, _ = OBJECTIVES[self.objective]
        parts = [
            sign * (one.before - one.after) / abs(one.before)
            for one in self.gains
            if one.held_out == held_out and one.before
        ]
        if not parts:
            return 0.0, math.nan
        if len(parts) == 1:
            return parts[0], math.nan
        error = statistics.stdev(parts) / math.sqrt(len(parts))
        return statistics.fmean(parts), error * float(stats.t.ppf(0.975, len(parts) - 1))


class Search:
    """Runs trials, and keeps them in `out` so that a search goes on where it stopped."""

    def __init__(
        self,
        path: Path,
        changes: Sequence[str],
        parameters: Sequence[Parameter],
        objective: str,
        out: Path,
        *,
        window_s: float = 7 * 86_400.0,
        processes: int = 1,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ConfigError(
                f"--objective: {objective!r} cannot be sought; use {', '.join(OBJECTIVES)}"
            )
        self._path = path
        self._changes = tuple(changes)
        self._parameters = parameters
        self._objective = objective
        self._sign, _ = OBJECTIVES[objective]
        self._out = out
        self._processes = processes
        scenario = load(path, self._changes)
        for one in parameters:  # a wrong field or value is told before hours of trials
            for value in one.choices or (f"{one.low:g}", f"{one.high:g}"):
                load(path, (*self._changes, f"{one.field}={value}"))
        _, jobs, _ = prepare(scenario, scenario.seeds[0])
        span_s = jobs[-1].at_s
        count = max(math.ceil(span_s / window_s), 1)
        if count < 4:  # too short for weeks: quarters
            count, window_s = 4, span_s / 4
        self._starts = [number * window_s for number in range(count)]
        self._window_s = window_s
        self._held = max(round(count * _HELD_OUT), 1)

    def run(self, trials: int) -> Iterator[float]:
        """Yield the best value so far after each trial that is still to be done."""
        self._out.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with ProcessPoolExecutor(self._processes) as pool:
            study = self._study()
            for number in range(len(study.get_trials(states=_DONE)), trials):
                study.sampler = optuna.samplers.TPESampler(seed=number)
                study.optimize(lambda trial: self._try(trial, pool), n_trials=1)
                yield study.best_value * self._sign

    def result(self) -> Tuned:
        """Run the best on every window, beside the scenario as it is, and write what came of it."""
        study = self._study()
        best = {name: _text(value) for name, value in study.best_params.items()}
        with ProcessPoolExecutor(self._processes) as pool:
            before = self._on(pool, (), self._starts)
            after = self._on(
                pool, [f"{name}={value}" for name, value in best.items()], self._starts
            )
        learnt = len(self._starts) - self._held
        gains = tuple(
            Gain(start_s, one, other, number >= learnt, never, never_other)
            for number, (start_s, (one, never), (other, never_other)) in enumerate(
                zip(self._starts, before, after, strict=True)
            )
        )
        found = Tuned(self._objective, best, len(study.get_trials(states=_DONE)), gains)
        (self._out / "tune.json").write_text(json.dumps(asdict(found), indent=1))
        return found

    def _study(self) -> optuna.Study:
        return optuna.create_study(
            storage=f"sqlite:///{self._out / 'study.db'}",
            study_name=" ".join((self._objective, *(one.field for one in self._parameters))),
            load_if_exists=True,
        )

    def _try(self, trial: optuna.Trial, pool: ProcessPoolExecutor) -> float:
        changes = [f"{one.field}={one.propose(trial)}" for one in self._parameters]
        values = self._on(pool, changes, self._starts[: -self._held])
        return statistics.fmean(value for value, _ in values) * self._sign

    def _on(
        self, pool: ProcessPoolExecutor, changes: Sequence[str], starts: Sequence[float]
    ) -> list[tuple[float, int]]:
        """Return the objective on some windows, and how many gangs never started."""
        scenarios = [
            load(
                self._path,
                (
                    *self._changes,
                    *changes,
                    f"workload.begin={start_s}",
                    f"workload.end={start_s + self._window_s}",
                ),
            )
            for start_s in starts
        ]
        value: Callable[[Scenario, str], tuple[float, int]] = _value
        return list(pool.map(value, scenarios, [self._objective] * len(scenarios)))


_DONE = (optuna.trial.TrialState.COMPLETE,)


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _value(scenario: Scenario, objective: str) -> tuple[float, int]:
    outcome = run(scenario, scenario.seeds[0])
    _, value = OBJECTIVES[objective]
    return value(outcome), sum(one.started_s is None for one in came(outcome))
