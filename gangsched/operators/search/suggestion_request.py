"""The input of a search algorithm, and the trials that match the points of an earlier call."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from threadpoolctl import threadpool_limits

from gangsched.jobs.katib.experiment import Assignments, TriedPoint
from gangsched.operators.search.search_space import Space


@cache
def library(name: str) -> Any:
    """Import a search library. Its matrices are small, and faster without threads."""
    module = import_module(name)
    threadpool_limits(1)
    return module


@dataclass(frozen=True, slots=True)
class SuggestionRequest:
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
        """Return the whole number of a setting."""
        return int(self.settings.get(setting) or default)

    def seed_at(self, number: int) -> int:
        """Return the seed for the point of a number, in the range of numpy's seeds."""
        return (self.seed + number) % 2**32

    def rng(self, name: str) -> random.Random:
        """Return the random numbers of a name: equal for equal seeds."""
        return random.Random(f"{self.seed}/{name}")  # noqa: S311 -- no secret

    def random_point(self, name: str) -> Assignments:
        """Return the random point of a name."""
        rng = self.rng(name)
        return self.space.at([rng.random() for _ in self.space.dimensions])

    def best_first(self, points: Iterable[TriedPoint]) -> list[TriedPoint]:
        """Return the points that have a value, the best first."""
        sign = -1.0 if self.maximizes else 1.0
        valued = [(sign * point.value, point) for point in points if point.value is not None]
        return [point for _, point in sorted(valued, key=_value_and_name)]


def _value_and_name(pair: tuple[float, TriedPoint]) -> tuple[float, str]:
    return pair[0], pair[1].name


class TriedPoints:
    """The trials of a search by their points; each trial is taken once.

    An algorithm of generations has no state of its own. Each call computes the points of all
    generations again, and takes the trials that tried them.
    """

    _ORDER = ("done", "failed", "running")

    def __init__(self, tried: Iterable[TriedPoint]) -> None:
        self._left: dict[frozenset[tuple[str, str]], list[TriedPoint]] = {}
        for point in sorted(tried, key=self._order, reverse=True):
            self._left.setdefault(frozenset(point.assignments.items()), []).append(point)

    def take(self, point: Assignments) -> TriedPoint | None:
        """Return a trial of a point that was not taken before, or None."""
        trials = self._left.get(frozenset(point.items()))
        return trials.pop() if trials else None

    def _order(self, point: TriedPoint) -> tuple[int, str]:
        return self._ORDER.index(point.state), point.name
