"""Search for settings that improve an objective, and measure the gain on held-out weeks.

Optuna proposes settings (TPE, Bergstra et al., NeurIPS 2011). Each proposal runs on the training
weeks. The best proposal and the unchanged scenario then run on weeks that no proposal has seen.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import optuna

from gangsched.config import ConfigError
from simulator.experiments.confidence import half_interval
from simulator.experiments.results import OBJECTIVES, came
from simulator.experiments.run import prepare, run
from simulator.scenarios.scenario import Scenario, load

_HELD_OUT = 0.25


@dataclass(frozen=True, slots=True)
class TunedParameter:
    """A field of a scenario and its possible values: `choices`, or a range of numbers."""

    field: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    """The field takes whole numbers alone."""

    def propose(self, trial: optuna.Trial) -> str:
        """Return a value for a trial."""
        if self.choices:
            return str(trial.suggest_categorical(self.field, self.choices))
        if self.whole:
            low, high = int(self.low), int(self.high)
            return str(trial.suggest_int(self.field, low, high, log=self.log))
        return f"{trial.suggest_float(self.field, self.low, self.high, log=self.log):.6g}"


def parameter(text: str) -> TunedParameter:
    """Read FIELD=A,B,C or FIELD=LOW:HIGH or FIELD=LOW:HIGH:log.

    Raises:
        ConfigError: the text has another form.

    """
    name, _, values = text.partition("=")
    low, colon, rest = values.partition(":")
    if name and values and not colon:
        return TunedParameter(name, tuple(values.split(",")))
    high, _, scale = rest.partition(":")
    try:
        result = TunedParameter(name, (), float(low), float(high), scale == "log")
    except ValueError:
        result = TunedParameter("")
    if not result.field or not result.low < result.high or scale not in ("", "log"):
        raise ConfigError(
            f"--parameter: {text!r} must be FIELD=A,B,C or FIELD=LOW:HIGH, with :log for a "
            f"logarithmic scale"
        )
    return result


@dataclass(frozen=True, slots=True)
class Gain:
    """An objective on one window of time, unchanged and with the best settings.

    The last two fields count the gangs that never started.
    """

    begin_s: float
    before: float
    after: float
    held_out: bool
    never_before: int = 0
    never_after: int = 0


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a search; `gain` is relative, with its 95 % confidence interval."""

    objective: str
    best: dict[str, str]
    trials: int
    gains: tuple[Gain, ...]

    def data(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        gain, half = self.gain(held_out=True)
        return asdict(self) | {
            "gain": {
                "held_out": gain,
                "held_out_half_interval": half,
                "learnt": self.gain(held_out=False)[0],
            }
        }

    def gain(self, *, held_out: bool) -> tuple[float, float]:
        """Return the mean relative gain and half its interval; nan if there is one window only."""
        sign, _ = OBJECTIVES[self.objective]
        gains = [
            sign * (gain.before - gain.after) / abs(gain.before)
            for gain in self.gains
            if gain.held_out == held_out and gain.before
        ]
        if not gains:
            return 0.0, math.nan
        if len(gains) == 1:
            return gains[0], math.nan
        return statistics.fmean(gains), half_interval(gains)


class Search:
    """Runs trials, and stores them in `out` so that an interrupted search can continue."""

    def __init__(
        self,
        path: Path,
        changes: Sequence[str],
        parameters: Sequence[TunedParameter],
        objective: str,
        out: Path,
        *,
        window_s: float = 7 * 86_400.0,
        processes: int = 1,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ConfigError(
                f"--objective: {objective!r} is no objective; use {', '.join(OBJECTIVES)}"
            )
        self._path = path
        self._changes = tuple(changes)
        self._objective = objective
        self._sign, _ = OBJECTIVES[objective]
        self._out = out
        self._processes = processes
        scenario = load(path, self._changes)
        for parameter in parameters:  # a wrong field or value fails here, before hours of trials
            for value in parameter.choices or (f"{parameter.low:g}", f"{parameter.high:g}"):
                load(path, (*self._changes, f"{parameter.field}={value}"))
        self._parameters = [replace(one, whole=self._is_whole(one)) for one in parameters]
        _, jobs, _ = prepare(scenario, scenario.seeds[0])
        span_s = jobs[-1].at_s
        count = max(math.ceil(span_s / window_s), 1)
        if count < 4:  # too short for weeks: quarters
            count, window_s = 4, span_s / 4
        self._starts = [number * window_s for number in range(count)]
        self._window_s = window_s
        self._held = max(round(count * _HELD_OUT), 1)

    def _is_whole(self, parameter: TunedParameter) -> bool:
        """Return whether the field of a range rejects fractions, such as a number of nodes."""
        if parameter.choices or not (parameter.low.is_integer() and parameter.high.is_integer()):
            return False
        fraction = (parameter.low + parameter.high) // 2 + 0.5
        try:
            load(self._path, (*self._changes, f"{parameter.field}={fraction}"))
        except ConfigError:
            return True
        return False

    def run(self, trials: int) -> Iterator[float]:
        """Run the remaining trials; after each, yield the best value so far."""
        self._out.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with ProcessPoolExecutor(self._processes) as pool:
            study = self._study()
            for number in range(len(study.get_trials(states=_DONE)), trials):
                study.sampler = optuna.samplers.TPESampler(seed=number)
                study.optimize(lambda trial: self._try(trial, pool), n_trials=1)
                yield study.best_value * self._sign

    def result(self) -> Tuned:
        """Run the best and the unchanged settings on every window, and write the result."""
        study = self._study()
        best = {name: _text(value) for name, value in study.best_params.items()}
        with ProcessPoolExecutor(self._processes) as pool:
            before = self._on(pool, (), self._starts)
            after = self._on(
                pool, [f"{name}={value}" for name, value in best.items()], self._starts
            )
        trained = len(self._starts) - self._held
        gains = tuple(
            Gain(start_s, value_before, value_after, number >= trained, never_before, never_after)
            for number, (
                start_s,
                (value_before, never_before),
                (value_after, never_after),
            ) in enumerate(zip(self._starts, before, after, strict=True))
        )
        tuned = Tuned(self._objective, best, len(study.get_trials(states=_DONE)), gains)
        (self._out / "tune.json").write_text(json.dumps(asdict(tuned), indent=1))
        return tuned

    def _study(self) -> optuna.Study:
        return optuna.create_study(
            storage=f"sqlite:///{self._out / 'study.db'}",
            study_name=" ".join(
                (self._objective, *(parameter.field for parameter in self._parameters))
            ),
            load_if_exists=True,
        )

    def _try(self, trial: optuna.Trial, pool: ProcessPoolExecutor) -> float:
        changes = [
            f"{parameter.field}={parameter.propose(trial)}" for parameter in self._parameters
        ]
        values = self._on(pool, changes, self._starts[: -self._held])
        return statistics.fmean(value for value, _ in values) * self._sign

    def _on(
        self, pool: ProcessPoolExecutor, changes: Sequence[str], starts: Sequence[float]
    ) -> list[tuple[float, int]]:
        """Return the objective for each window, and how many gangs never started."""
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
    result = run(scenario, scenario.seeds[0])
    _, value = OBJECTIVES[objective]
    return value(result), sum(job_outcome.started_s is None for job_outcome in came(result))
