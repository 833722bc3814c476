"""Katib's `cmaes`: the covariance matrix adaptation evolution strategy, by the library cmaes.

A generation is searched by trials that may run at the same time. The next generation starts when
all trials of the generation are over, because it is drawn from their values.
"""

from typing import Any

from gangsched.jobs.katib.experiment import Assignments, TriedPoint
from gangsched.operators.search.search_space import Dimension, SpaceError
from gangsched.operators.search.suggestion_request import SuggestionRequest, TriedPoints, library

_LEAST_DIMENSIONS = 2
_SIGMA = "0.166"
"""First standard deviation, as a share of each range: nearly all first points are inside it."""

_GROWTH = 2
"""Factor of the population at each restart (IPOP)."""

_LARGEST_POPULATION = 256


def cmaes(search: SuggestionRequest, count: int) -> list[Assignments]:
    """Return the points of the present generation that no trial tries yet.

    Raises:
        SpaceError: there are fewer than two numbers to search.

    """
    searched = [dimension for dimension in search.space.dimensions if _is_number(dimension)]
    if len(searched) < _LEAST_DIMENSIONS:
        raise SpaceError(
            f"cmaes needs {_LEAST_DIMENSIONS} parameters that are numbers of more than one value; "
            f"there are {len(searched)}"
        )
    trials = TriedPoints(search.tried)
    optimizer = _optimizer(search, len(searched), 0)
    restarts = generation = 0
    while True:
        asked = [optimizer.ask() for _ in range(optimizer.population_size)]
        points = [
            _point(search, searched, shares, f"{generation}/{index}")
            for index, shares in enumerate(asked)
        ]
        taken = [trials.take(point) for point in points]
        missing = [point for point, trial in zip(points, taken, strict=True) if trial is None]
        if missing:
            return missing[:count]
        known = [trial for trial in taken if trial is not None]
        if any(trial.state == "running" for trial in known):
            return []
        optimizer.tell(list(zip(asked, _losses(search, known), strict=True)))
        generation += 1
        if search.settings.get("restart_strategy") == "ipop" and optimizer.should_stop():
            restarts += 1
            optimizer = _optimizer(search, len(searched), restarts)


def _optimizer(search: SuggestionRequest, dimensions: int, restarts: int) -> Any:
    """Return the optimizer after some restarts; it searches shares of ranges, from 0 to 1."""
    numpy = library("numpy")
    library_cmaes = library("cmaes")
    sigma = float(search.settings.get("sigma") or _SIGMA)
    seed = search.seed_at(restarts)
    mean = numpy.full(dimensions, 0.5)
    if restarts:
        mean = numpy.random.default_rng(seed).random(dimensions)
    bounds = numpy.tile([0.0, 1.0], (dimensions, 1))
    first = library_cmaes.CMA(mean=mean, sigma=sigma, bounds=bounds, seed=seed)
    population = min(first.population_size * _GROWTH**restarts, _LARGEST_POPULATION)
    return library_cmaes.CMA(
        mean=mean, sigma=sigma, bounds=bounds, seed=seed, population_size=population
    )


def _is_number(dimension: Dimension) -> bool:
    return dimension.kind != "categorical" and dimension.count != 1 and not dimension.is_point


def _point(
    search: SuggestionRequest, searched: list[Dimension], shares: Any, name: str
) -> Assignments:
    """Return a point: searched parameters by their share, others at random, as goptuna does."""
    point = search.random_point(name)
    for dimension, share in zip(searched, shares, strict=True):
        point[dimension.name] = dimension.at(float(share))
    return point


def _losses(search: SuggestionRequest, trials: list[TriedPoint]) -> list[float]:
    """Return what to minimize for each trial; a trial without a value counts as the worst."""
    sign = -1.0 if search.maximizes else 1.0
    values = [None if trial.value is None else sign * trial.value for trial in trials]
    worst = max((value for value in values if value is not None), default=0.0)
    return [worst if value is None else value for value in values]
