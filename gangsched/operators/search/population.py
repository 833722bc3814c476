"""Katib's `pbt`: population based training, in generations of equal size.

A trial continues from the checkpoint of its parent, a trial of the generation before. The worst of
a generation are replaced: their successor continues from one of the best, with its parameters
changed. Between two generations no trial holds a GPU.

Source: Jaderberg et al., Population Based Training of Neural Networks, arXiv:1711.09846.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random

from gangsched.jobs.katib.experiment import Assignments, SuggestedPoint, TriedPoint
from gangsched.operators.search.search_space import Dimension
from gangsched.operators.search.suggestion_request import SuggestionRequest

_FACTORS = (0.8, 1.2)


def pbt(search: SuggestionRequest, count: int) -> list[SuggestedPoint]:
    """Return the members of the present generation that no trial is yet.

    A generation starts when all trials of the one before are over.
    """
    size = int(search.settings["n_population"])
    number = max((trial.generation for trial in search.tried), default=0)
    members = [trial for trial in search.tried if trial.generation == number]
    if len(members) >= size:
        if any(trial.state == "running" for trial in members):
            return []
        number, members = number + 1, []
    before = [trial for trial in search.tried if trial.generation == number - 1]
    known = Counter(_key(trial.assignments, trial.parent) for trial in members)
    missing: list[SuggestedPoint] = []
    for point in _generation(search, number, size, before):
        key = _key(point.assignments, point.parent)
        if known[key]:
            known[key] -= 1
        else:
            missing.append(point)
    # A trial that a user deleted may have changed the plan: only the size is fixed.
    return missing[: min(count, size - len(members))]


def _key(assignments: Assignments, parent: str) -> tuple[frozenset[tuple[str, str]], str]:
    return frozenset(assignments.items()), parent


def _generation(
    search: SuggestionRequest, number: int, size: int, before: list[TriedPoint]
) -> Iterator[SuggestedPoint]:
    """Yield the members of a generation, given the trials of the generation before."""
    ranked = search.best_first(before)[:size]
    threshold = float(search.settings["truncation_threshold"])
    replaced = min(int(len(ranked) * threshold), len(ranked) - 1)
    kept = ranked[: len(ranked) - max(replaced, 0)]
    best = ranked[: max(replaced, 1)]
    for index in range(size):
        if index < len(kept):
            yield SuggestedPoint(kept[index].assignments, number, kept[index].name)
        elif best:
            rng = search.rng(f"{number}/{index}")
            parent = rng.choice(best)
            point = _changed(search, rng, parent.assignments)
            yield SuggestedPoint(point, number, parent.name)
        else:
            yield SuggestedPoint(search.random_point(f"{number}/{index}"), number)


def _changed(search: SuggestionRequest, rng: Random, point: Assignments) -> Assignments:
    """Return a point near another one: resampled with a probability, if there is one."""
    probability = search.settings.get("resample_probability")
    changed: Assignments = {}
    for dimension in search.space.dimensions:
        value = point.get(dimension.name, dimension.at(0.5))
        if probability is None:
            changed[dimension.name] = _moved(dimension, rng, value)
        else:
            resampled = rng.random() < float(probability)
            changed[dimension.name] = dimension.at(rng.random()) if resampled else value
    return changed


def _moved(dimension: Dimension, rng: Random, value: str) -> str:
    """Return a value 20 % below or above another one, or beside it in a list."""
    try:
        read = dimension.read(value)
    except ValueError:
        return dimension.at(rng.random())
    if dimension.listed:
        index = dimension.listed.index(value) + rng.choice((-1, 1))
        return dimension.listed[min(max(index, 0), len(dimension.listed) - 1)]
    return dimension.nearest(float(read) * rng.choice(_FACTORS))
