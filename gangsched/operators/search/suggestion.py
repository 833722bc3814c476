"""Katib's algorithms: which points of a search space to try next.

Each call gets all earlier trials, and equal calls return equal points: no service has to stay
alive, and no state can be lost. Optuna and scikit-optimize search; this module maps the space, as
Katib declares it.
"""

import itertools
import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from threadpoolctl import threadpool_limits

from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.experiment import Assignments, TriedPoint
from gangsched.operators.search.search_space import Dimension, Space, SpaceError


def suggest(spec: Json, tried: list[TriedPoint], count: int, uid: str) -> list[Assignments]:
    """Return up to `count` points to try next; fewer mean that there are no more.

    Raises:
        SpaceError: the algorithm cannot search this space.

    """
    name = spec["algorithm"]["algorithmName"]
    settings = {s["name"]: s["value"] for s in spec["algorithm"].get("algorithmSettings") or []}
    seed = int(settings.get("random_state") or zlib.crc32(uid.encode()))
    search = Search(Space(spec["parameters"]), tried, settings, seed, spec["objective"]["type"])
    try:
        return ALGORITHMS[name](search, count)
    except (ValueError, OverflowError) as error:
        raise SpaceError(f"{name} cannot search them: {error}") from error


@dataclass(frozen=True, slots=True)
class Search:
    """The input of an algorithm."""

    space: Space
    tried: list[TriedPoint]
    settings: Mapping[str, str]
    seed: int
    sense: str

    @property
    def maximizes(self) -> bool:
        """Return whether larger is better."""
        return self.sense == "maximize"

    def whole(self, setting: str, default: int) -> int:
        """Return a setting that is a whole number."""
        return int(self.settings.get(setting) or default)

    def seed_at(self, number: int) -> int:
        """Return the seed for the point of a number, as numpy takes one."""
        return (self.seed + number) % 2**32


def _random(search: Search, count: int) -> list[Assignments]:
    points = []
    for number in range(len(search.tried), len(search.tried) + count):
        rng = random.Random(f"{search.seed}/{number}")  # noqa: S311
        points.append(search.space.at([rng.random() for _ in search.space.dimensions]))
    return points


def _grid(search: Search, count: int) -> list[Assignments]:
    counts = []
    for one in search.space.dimensions:
        if one.count is None:
            raise SpaceError(
                f"parameter {one.name!r} is a double without a step, which a grid needs; "
                f"give feasibleSpace.step"
            )
        counts.append(one.count)
    done = {tuple(sorted(one.assignments.items())) for one in search.tried}
    points = (_grid_point(search.space, counts, index) for index in _count_to(math.prod(counts)))
    fresh = (point for point in points if tuple(sorted(point.items())) not in done)
    return list(itertools.islice(fresh, count))


def _count_to(bound: int) -> Iterator[int]:
    """Return the numbers below one that `range` may not hold."""
    return itertools.takewhile(lambda number: number < bound, itertools.count())


def _grid_point(space: Space, counts: list[int], index: int) -> Assignments:
    """Return a point of a grid, of which the last dimension changes first."""
    point = {}
    for one, count in zip(reversed(space.dimensions), reversed(counts), strict=True):
        index, digit = divmod(index, count)
        point[one.name] = one.value(digit)
    return dict(reversed(point.items()))


def _optuna(
    sampler: Callable[[Any, Search, int], Any],
) -> Callable[[Search, int], list[Assignments]]:
    """Return a search by one of Optuna's samplers."""

    def search_by(search: Search, count: int) -> list[Assignments]:
        optuna = _quiet_optuna()
        space = search.space
        distributions = {one.name: _distribution(optuna, one) for one in space.dimensions}
        told = optuna.trial.TrialState
        states = {"running": told.RUNNING, "done": told.COMPLETE, "failed": told.FAIL}
        points: list[Assignments] = []
        for number in range(len(search.tried), len(search.tried) + count):
            study = optuna.create_study(
                direction="maximize" if search.maximizes else "minimize",
                sampler=sampler(optuna, search, search.seed_at(number)),
            )
            asked = [TriedPoint(point, "running") for point in points]
            for one in [*search.tried, *asked]:
                if (params := space.read(one.assignments)) is not None:
                    study.add_trial(
                        optuna.trial.create_trial(
                            params=params,
                            distributions=distributions,
                            value=one.value,
                            state=states[one.state],
                        )
                    )
            points.append(space.point(study.ask(distributions).params))
        return points

    return search_by


@cache
def _library(name: str) -> Any:
    """Import what searches. Its matrices are small, and their algebra is faster without threads."""
    found = import_module(name)
    threadpool_limits(1)
    return found


@cache
def _quiet_optuna() -> Any:
    optuna = _library("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    import_module("warnings").filterwarnings("ignore", module="optuna")
    return optuna


def _distribution(optuna: Any, one: Dimension) -> Any:
    if one.listed:
        return optuna.distributions.CategoricalDistribution(one.listed)
    # A step and a logarithm exclude each other there: the step is laid over what is drawn.
    log = one.logarithmic
    if one.kind == "int":
        step = 1 if log else int(one.step or 1)
        return optuna.distributions.IntDistribution(int(one.low), int(one.high), log, step)
    step_of = None if log or one.step is None else float(one.step)
    return optuna.distributions.FloatDistribution(float(one.low), float(one.high), log, step_of)


def _tpe(optuna: Any, search: Search, seed: int, *, multivariate: bool = False) -> Any:
    return optuna.samplers.TPESampler(
        seed=seed,
        constant_liar=True,
        multivariate=multivariate,
        n_startup_trials=search.whole("n_startup_trials", 10),
        n_ei_candidates=search.whole("n_ei_candidates", 24),
    )


def _sobol(search: Search, count: int) -> list[Assignments]:
    qmc = _library("scipy.stats").qmc
    begun = len(search.tried)
    sequence = qmc.Sobol(len(search.space.dimensions), scramble=True, seed=search.seed_at(0))
    if begun:
        sequence.fast_forward(begun)
    return [search.space.at([float(share) for share in one]) for one in sequence.random(count)]


def _bayesian(search: Search, count: int) -> list[Assignments]:
    """A Gaussian process by scikit-optimize, the library Katib has behind this name.

    Katib searches every double by its logarithm, which a range with 0 in it does not have
    (katib#1430); here that is only done where `distribution` asks for it.
    """
    skopt = _library("skopt")
    space = search.space
    optimizer = skopt.Optimizer(
        [_dimension(skopt, one) for one in space.dimensions],
        base_estimator=search.settings.get("base_estimator", "GP"),
        n_initial_points=search.whole("n_initial_points", 10),
        acq_func=search.settings.get("acq_func", "gp_hedge"),
        acq_optimizer=search.settings.get("acq_optimizer", "auto"),
        random_state=search.seed_at(len(search.tried)),
    )
    sign = -1.0 if search.maximizes else 1.0
    known = [sign * one.value for one in search.tried if one.value is not None]
    if known:
        # What runs is taken for middling, and what failed for the worst: neither is tried again.
        guessed = {"running": sum(known) / len(known), "failed": max(known)}
        read = [(space.read(one.assignments), one) for one in search.tried]
        told = [
            (list(at.values()), guessed[one.state] if one.value is None else sign * one.value)
            for at, one in read
            if at is not None
        ]
        if told:
            optimizer.tell(*(list(column) for column in zip(*told, strict=True)))
    names = [one.name for one in space.dimensions]
    drawn = optimizer.ask(n_points=count)
    return [space.point(dict(zip(names, one, strict=True))) for one in drawn]


def _dimension(skopt: Any, one: Dimension) -> Any:
    if one.listed:
        return skopt.space.Categorical(one.listed, name=one.name)
    number = int if one.kind == "int" else float
    low, high = number(one.low), number(one.high)
    if low == high:
        return skopt.space.Categorical([low], name=one.name)
    made = skopt.space.Integer if one.kind == "int" else skopt.space.Real
    return made(low, high, prior="log-uniform" if one.logarithmic else "uniform", name=one.name)


ALGORITHMS: dict[str, Callable[[Search, int], list[Assignments]]] = {
    "random": _random,
    "grid": _grid,
    "sobol": _sobol,
    "tpe": _optuna(_tpe),
    "multivariate-tpe": _optuna(partial(_tpe, multivariate=True)),
    "bayesianoptimization": _bayesian,
}
"""By the names that Katib gives them."""
