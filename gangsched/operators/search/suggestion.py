"""Katib's algorithms: the points of a search space to try next.

Each call gets all earlier trials, and equal calls return equal points: there is no service and no
state. Optuna and scikit-optimize search; this module maps Katib's search space to theirs.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeAlias

from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.experiment import Assignments, SuggestedPoint, TriedPoint
from gangsched.operators.search.evolution import cmaes
from gangsched.operators.search.hyperband import hyperband
from gangsched.operators.search.population import pbt
from gangsched.operators.search.search_space import Dimension, Space, SpaceError
from gangsched.operators.search.suggestion_request import SuggestionRequest, library


def suggest(spec: Json, tried: list[TriedPoint], count: int, uid: str) -> list[SuggestedPoint]:
    """Return up to `count` points to try next; fewer points mean that there are no more.

    Raises:
        SpaceError: the algorithm cannot search this space.

    """
    name = spec["algorithm"]["algorithmName"]
    settings = {s["name"]: s["value"] for s in spec["algorithm"].get("algorithmSettings") or []}
    seed = int(settings.get("random_state") or zlib.crc32(uid.encode()))
    search = SuggestionRequest(
        Space(spec["parameters"]), tried, settings, seed, spec["objective"]["type"]
    )
    try:
        points = ALGORITHMS[name](search, count)
    except (ValueError, OverflowError) as error:
        raise SpaceError(f"{name} cannot search them: {error}") from error
    return [
        point if isinstance(point, SuggestedPoint) else SuggestedPoint(point) for point in points
    ]


def _random(search: SuggestionRequest, count: int) -> list[Assignments]:
    begun = len(search.tried)
    return [search.random_point(str(number)) for number in range(begun, begun + count)]


def _grid(search: SuggestionRequest, count: int) -> list[Assignments]:
    counts = []
    for dimension in search.space.dimensions:
        if dimension.count is None:
            raise SpaceError(
                f"parameter {dimension.name!r} is a double without a step, which a grid needs; "
                f"give feasibleSpace.step"
            )
        counts.append(dimension.count)
    done = {tuple(sorted(point.assignments.items())) for point in search.tried}
    points = (_grid_point(search.space, counts, index) for index in _count_to(math.prod(counts)))
    fresh = (point for point in points if tuple(sorted(point.items())) not in done)
    return list(itertools.islice(fresh, count))


def _count_to(bound: int) -> Iterator[int]:
    """Return the numbers below a bound that may be too large for `range`."""
    return itertools.takewhile(lambda number: number < bound, itertools.count())


def _grid_point(space: Space, counts: list[int], index: int) -> Assignments:
    """Return a point of a grid; the last dimension changes first."""
    point = {}
    for dimension, count in zip(reversed(space.dimensions), reversed(counts), strict=True):
        index, digit = divmod(index, count)
        point[dimension.name] = dimension.value(digit)
    return dict(reversed(point.items()))


def _optuna(
    sampler: Callable[[Any, SuggestionRequest, int], Any],
) -> Callable[[SuggestionRequest, int], list[Assignments]]:
    """Return a search by one of Optuna's samplers."""

    def search_by(search: SuggestionRequest, count: int) -> list[Assignments]:
        optuna = _quiet_optuna()
        space = search.space
        distributions = {
            dimension.name: _distribution(optuna, dimension) for dimension in space.dimensions
        }
        state = optuna.trial.TrialState
        states = {"running": state.RUNNING, "done": state.COMPLETE, "failed": state.FAIL}
        points: list[Assignments] = []
        for number in range(len(search.tried), len(search.tried) + count):
            study = optuna.create_study(
                direction="maximize" if search.maximizes else "minimize",
                sampler=sampler(optuna, search, search.seed_at(number)),
            )
            suggested = [TriedPoint(point, "running") for point in points]
            for tried in [*search.tried, *suggested]:
                if (params := space.read(tried.assignments)) is not None:
                    study.add_trial(
                        optuna.trial.create_trial(
                            params=params,
                            distributions=distributions,
                            value=tried.value,
                            state=states[tried.state],
                        )
                    )
            points.append(space.point(study.ask(distributions).params))
        return points

    return search_by


@cache
def _quiet_optuna() -> Any:
    optuna = library("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    import_module("warnings").filterwarnings("ignore", module="optuna")
    return optuna


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    if dimension.listed:
        return optuna.distributions.CategoricalDistribution(dimension.listed)
    # Optuna allows either a step or a logarithm: the step is applied to the drawn values.
    log = dimension.logarithmic
    if dimension.kind == "int":
        step = 1 if log else int(dimension.step or 1)
        return optuna.distributions.IntDistribution(
            int(dimension.low), int(dimension.high), log, step
        )
    step_of = None if log or dimension.step is None else float(dimension.step)
    return optuna.distributions.FloatDistribution(
        float(dimension.low), float(dimension.high), log, step_of
    )


def _tpe(optuna: Any, search: SuggestionRequest, seed: int, *, multivariate: bool = False) -> Any:
    return optuna.samplers.TPESampler(
        seed=seed,
        constant_liar=True,
        multivariate=multivariate,
        n_startup_trials=search.whole("n_startup_trials", 10),
        n_ei_candidates=search.whole("n_ei_candidates", 24),
    )


def _sobol(search: SuggestionRequest, count: int) -> list[Assignments]:
    qmc = library("scipy.stats").qmc
    begun = len(search.tried)
    sequence = qmc.Sobol(len(search.space.dimensions), scramble=True, seed=search.seed_at(0))
    if begun:
        sequence.fast_forward(begun)
    return [
        search.space.at([float(share) for share in shares]) for shares in sequence.random(count)
    ]


def _bayesian(search: SuggestionRequest, count: int) -> list[Assignments]:
    """Return points by a Gaussian process of scikit-optimize, as Katib does.

    Katib searches every double by its logarithm, which fails for a range with 0 (katib#1430). Here
    only parameters with a logarithmic `distribution` are searched so.
    """
    skopt = library("skopt")
    space = search.space
    optimizer = skopt.Optimizer(
        [_dimension(skopt, dimension) for dimension in space.dimensions],
        base_estimator=search.settings.get("base_estimator", "GP"),
        n_initial_points=search.whole("n_initial_points", 10),
        acq_func=search.settings.get("acq_func", "gp_hedge"),
        acq_optimizer=search.settings.get("acq_optimizer", "auto"),
        random_state=search.seed_at(len(search.tried)),
    )
    sign = -1.0 if search.maximizes else 1.0
    known = [sign * point.value for point in search.tried if point.value is not None]
    if known:
        # Running points count as average and failed ones as worst, so neither is tried again.
        guessed = {"running": sum(known) / len(known), "failed": max(known)}
        tried = [(space.read(point.assignments), point) for point in search.tried]
        observed = [
            (list(at.values()), guessed[point.state] if point.value is None else sign * point.value)
            for at, point in tried
            if at is not None
        ]
        if observed:
            optimizer.tell(*(list(column) for column in zip(*observed, strict=True)))
    names = [dimension.name for dimension in space.dimensions]
    drawn = optimizer.ask(n_points=count)
    return [space.point(dict(zip(names, values, strict=True))) for values in drawn]


def _dimension(skopt: Any, dimension: Dimension) -> Any:
    if dimension.listed:
        return skopt.space.Categorical(dimension.listed, name=dimension.name)
    number = int if dimension.kind == "int" else float
    low, high = number(dimension.low), number(dimension.high)
    if low == high:
        return skopt.space.Categorical([low], name=dimension.name)
    kind_of = skopt.space.Integer if dimension.kind == "int" else skopt.space.Real
    return kind_of(
        low, high, prior="log-uniform" if dimension.logarithmic else "uniform", name=dimension.name
    )


Algorithm: TypeAlias = Callable[
    [SuggestionRequest, int], Sequence[Assignments] | Sequence[SuggestedPoint]
]
"""Returns the next points of a search, given the request and a count."""

ALGORITHMS: dict[str, Algorithm] = {
    "random": _random,
    "grid": _grid,
    "sobol": _sobol,
    "tpe": _optuna(_tpe),
    "multivariate-tpe": _optuna(partial(_tpe, multivariate=True)),
    "bayesianoptimization": _bayesian,
    "cmaes": cmaes,
    "hyperband": hyperband,
    "pbt": pbt,
}
"""The algorithms by Katib's names."""
