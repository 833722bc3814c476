"""Katib's algorithms: which points of a search space to try next.

Each is asked anew with everything that was tried, and says the same when asked the same: there is
no service that has to be kept alive, and nothing to lose with it. Optuna and scikit-optimize do
the searching; what is ours is the space, as Katib declares it.
"""

import itertools
import math
import random
import zlib
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any

from gangsched.core.jobs.experiment import Assignments, Tried
from gangsched.core.jobs.model import Json

_GRID_MAX = 1_000_000
"""Points of a grid that are looked through."""


class SpaceError(Exception):
    """A search space that an algorithm cannot search; the message names the parameter."""


class Space:
    """A search space: for each parameter its values, or its bounds."""

    def __init__(self, parameters: list[Json]) -> None:
        self.parameters = parameters

    def values(self, parameter: Json) -> list[str] | None:
        """Return the values of a parameter where they can be counted, else None."""
        space, kind = parameter["feasibleSpace"], parameter["parameterType"]
        if kind in ("categorical", "discrete"):
            return list(space["list"])
        low, high = Decimal(space["min"]), Decimal(space["max"])
        step = Decimal(space["step"]) if space.get("step") else Decimal(1)
        if kind == "double" and not space.get("step"):
            return None
        count = int((high - low) / step) + 1
        return [written(low + step * index, kind) for index in range(count)]

    def nearest(self, parameter: Json, value: float) -> str:
        """Return a number as one of a parameter's values."""
        space, kind = parameter["feasibleSpace"], parameter["parameterType"]
        low, high = Decimal(space["min"]), Decimal(space["max"])
        found = min(max(Decimal(repr(float(value))), low), high)
        if space.get("step") or kind == "int":
            step = Decimal(space.get("step") or 1)
            most = int((high - low) / step)
            found = low + step * min(int(((found - low) / step).to_integral_value()), most)
        return written(found, kind)

    def logarithmic(self, parameter: Json) -> bool:
        """Tell whether a parameter is searched by its logarithm."""
        named = parameter["feasibleSpace"].get("distribution")
        return named in ("logUniform", "logNormal")


def written(value: Decimal, kind: str) -> str:
    """Return a number as trials are told it."""
    return str(int(value)) if kind == "int" else f"{value.normalize():f}"


def suggest(spec: Json, tried: list[Tried], count: int, uid: str) -> list[Assignments]:
    """Return up to `count` points to try next; fewer mean that there are no more.

    Raises:
        SpaceError: the algorithm cannot search this space.

    """
    name = spec["algorithm"]["algorithmName"]
    settings = {s["name"]: s["value"] for s in spec["algorithm"].get("algorithmSettings") or []}
    seed = int(settings.get("random_state") or zlib.crc32(uid.encode()))
    search = ALGORITHMS[name]
    return search(Search(spec, Space(spec["parameters"]), tried, settings, seed), count)


class Search:
    """What an algorithm is asked with."""

    def __init__(
        self,
        spec: Json,
        space: Space,
        tried: list[Tried],
        settings: dict[str, str],
        seed: int,
    ) -> None:
        self.spec, self.space, self.tried = spec, space, tried
        self.settings, self.seed = settings, seed

    @property
    def maximizes(self) -> bool:
        """Tell whether larger is better."""
        return bool(self.spec["objective"]["type"] == "maximize")


def _random(search: Search, count: int) -> list[Assignments]:
    points = []
    for number in range(len(search.tried), len(search.tried) + count):
        rng = random.Random(f"{search.seed}/{number}")  # noqa: S311
        points.append(_at(search, [rng.random() for _ in search.space.parameters]))
    return points


def _grid(search: Search, count: int) -> list[Assignments]:
    axes = []
    for one in search.space.parameters:
        values = search.space.values(one)
        if values is None:
            raise SpaceError(
                f"parameter {one['name']!r} is a double without a step, which a grid needs; "
                f"give feasibleSpace.step"
            )
        axes.append([(one["name"], value) for value in values])
    done = {tuple(sorted(one.assignments.items())) for one in search.tried}
    points = (dict(pairs) for pairs in itertools.islice(itertools.product(*axes), _GRID_MAX))
    fresh = (point for point in points if tuple(sorted(point.items())) not in done)
    return list(itertools.islice(fresh, count))


def _optuna(
    sampler: Callable[[Any, Search, int], Any],
) -> Callable[[Search, int], list[Assignments]]:
    """Return a search by one of Optuna's samplers."""

    def search_by(search: Search, count: int) -> list[Assignments]:
        optuna = _quiet_optuna()
        distributions = {
            one["name"]: _distribution(optuna, search, one) for one in search.space.parameters
        }
        told = optuna.trial.TrialState
        states = {"running": told.RUNNING, "done": told.COMPLETE, "failed": told.FAIL}
        points: list[Assignments] = []
        for number in range(len(search.tried), len(search.tried) + count):
            study = optuna.create_study(
                direction="maximize" if search.maximizes else "minimize",
                sampler=sampler(optuna, search, search.seed + number),
            )
            asked = [Tried(point, "running") for point in points]
            for one in [*search.tried, *asked]:
                params = {
                    name: _read(search, name, value)
                    for name, value in one.assignments.items()
                    if name in distributions
                }
                study.add_trial(
                    optuna.trial.create_trial(
                        params=params,
                        distributions={name: distributions[name] for name in params},
                        value=one.value,
                        state=states[one.state],
                    )
                )
            drawn = study.ask(distributions).params
            points.append(_point(search, drawn))
        return points

    return search_by


@cache
def _quiet_optuna() -> Any:
    optuna = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    import_module("warnings").filterwarnings("ignore", module="optuna")
    return optuna


def _distribution(optuna: Any, search: Search, parameter: Json) -> Any:
    space, kind = parameter["feasibleSpace"], parameter["parameterType"]
    if kind in ("categorical", "discrete"):
        return optuna.distributions.CategoricalDistribution(space["list"])
    log = search.space.logarithmic(parameter)
    # A step and a logarithm exclude each other there: the step is laid over what is drawn.
    if kind == "int":
        step = 1 if log else int(space.get("step") or 1)
        return optuna.distributions.IntDistribution(int(space["min"]), int(space["max"]), log, step)
    step_of = None if log or not space.get("step") else float(space["step"])
    return optuna.distributions.FloatDistribution(
        float(space["min"]), float(space["max"]), log, step_of
    )


def _read(search: Search, name: str, value: str) -> Any:
    kind = next(p["parameterType"] for p in search.space.parameters if p["name"] == name)
    return {"int": int, "double": float}.get(kind, str)(value)


def _point(search: Search, drawn: dict[str, Any]) -> Assignments:
    point = {}
    for one in search.space.parameters:
        value = drawn[one["name"]]
        numeric = one["parameterType"] in ("int", "double")
        point[one["name"]] = search.space.nearest(one, value) if numeric else str(value)
    return point


def _tpe(optuna: Any, _: Search, seed: int) -> Any:
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


def _multivariate_tpe(optuna: Any, _: Search, seed: int) -> Any:
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True)


def _sobol(search: Search, count: int) -> list[Assignments]:
    qmc = import_module("scipy.stats").qmc
    begun = len(search.tried)
    sequence = qmc.Sobol(len(search.space.parameters), scramble=True, seed=search.seed)
    if begun:
        sequence.fast_forward(begun)
    return [_at(search, shares) for shares in sequence.random(count)]


def _at(search: Search, shares: Iterable[float]) -> Assignments:
    """Return the point at some share of each parameter's range."""
    point = {}
    for one, share in zip(search.space.parameters, shares, strict=True):
        values = search.space.values(one)
        if values is not None and not search.space.logarithmic(one):
            point[one["name"]] = values[min(int(share * len(values)), len(values) - 1)]
            continue
        low, high = (float(one["feasibleSpace"][key]) for key in ("min", "max"))
        if search.space.logarithmic(one):
            drawn = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            drawn = low + share * (high - low)
        point[one["name"]] = search.space.nearest(one, drawn)
    return point


def _bayesian(search: Search, count: int) -> list[Assignments]:
    """A Gaussian process by scikit-optimize, the library Katib has behind this name.

    Katib searches every double by its logarithm, which a range with 0 in it does not have
    (katib#1430); here that is only done where `distribution` asks for it.
    """
    skopt = import_module("skopt")
    dimensions: list[Any] = []
    for one in search.space.parameters:
        space, kind = one["feasibleSpace"], one["parameterType"]
        prior = "log-uniform" if search.space.logarithmic(one) else "uniform"
        if kind in ("categorical", "discrete"):
            dimensions.append(skopt.space.Categorical(space["list"], name=one["name"]))
        elif kind == "int":
            bounds = (int(space["min"]), int(space["max"]))
            dimensions.append(skopt.space.Integer(*bounds, prior=prior, name=one["name"]))
        else:
            low, high = float(space["min"]), float(space["max"])
            dimensions.append(skopt.space.Real(low, high, prior=prior, name=one["name"]))
    optimizer = skopt.Optimizer(
        dimensions,
        base_estimator=search.settings.get("base_estimator", "GP"),
        n_initial_points=int(search.settings.get("n_initial_points") or 10),
        acq_func=search.settings.get("acq_func", "gp_hedge"),
        acq_optimizer=search.settings.get("acq_optimizer", "auto"),
        random_state=search.seed + len(search.tried),
    )
    sign = -1.0 if search.maximizes else 1.0
    names = [one["name"] for one in search.space.parameters]
    known = [sign * one.value for one in search.tried if one.value is not None]
    if known:
        # What runs is taken for middling, and what failed for the worst: neither is tried again.
        guessed = {"running": sum(known) / len(known), "failed": max(known)}
        points = [[_read(search, n, one.assignments[n]) for n in names] for one in search.tried]
        costs = [
            guessed[one.state] if one.value is None else sign * one.value for one in search.tried
        ]
        optimizer.tell(points, costs)
    drawn = optimizer.ask(n_points=count)
    return [_point(search, dict(zip(names, one, strict=True))) for one in drawn]


ALGORITHMS: dict[str, Callable[[Search, int], list[Assignments]]] = {
    "random": _random,
    "grid": _grid,
    "sobol": _sobol,
    "tpe": _optuna(_tpe),
    "multivariate-tpe": _optuna(_multivariate_tpe),
    "bayesianoptimization": _bayesian,
}
"""By the names that Katib gives them."""
