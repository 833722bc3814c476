"""Katib's `hyperband`: brackets of successive halving over a resource such as epochs.

A bracket starts many trials with little of the resource. A rung of it starts the best of them again
with `eta` times as much. A trial that is not promoted gives its GPUs back at the end of its rung.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gangsched.jobs.katib.experiment import Assignments, SuggestedPoint, TriedPoint
from gangsched.operators.search.suggestion_request import SuggestionRequest, TriedPoints

_ETA = 3


def hyperband(search: SuggestionRequest, count: int) -> list[SuggestedPoint]:
    """Return the points that may start now, of the first brackets that have any.

    While a rung waits for its last trials, the next bracket starts: it does not depend on them.
    Katib starts a bracket after the end of the one before.
    """
    trials = TriedPoints(search.tried)
    points: list[SuggestedPoint] = []
    for bracket in _brackets(search):
        points += bracket.next_points(search, trials, count - len(points))
        if len(points) >= count:
            break
    return points


@dataclass(frozen=True, slots=True)
class _Bracket:
    """One bracket: `trials` points at first, and the resource of each rung."""

    number: int
    trials: int
    amounts: tuple[int, ...]
    eta: int
    resource: str

    def next_points(
        self, search: SuggestionRequest, trials: TriedPoints, count: int
    ) -> list[SuggestedPoint]:
        """Return up to `count` points of the first rung that is not over."""
        number_of_trials, parents = self.trials, list[TriedPoint]()
        for rung, amount in enumerate(self.amounts):
            members: list[TriedPoint] = []
            missing: list[SuggestedPoint] = []
            for point in self._rung(search, rung, amount, number_of_trials, parents):
                trial = trials.take(point.assignments)
                if trial is not None:
                    members.append(trial)
                    continue
                missing.append(point)
                if len(missing) >= count:
                    break
            if missing or any(trial.state == "running" for trial in members):
                return missing
            number_of_trials = -(-len(members) // self.eta)
            parents = search.best_first(members)[:number_of_trials]
        return []

    def _rung(
        self,
        search: SuggestionRequest,
        rung: int,
        amount: int,
        trials: int,
        parents: list[TriedPoint],
    ) -> Iterator[SuggestedPoint]:
        given = {self.resource: str(amount)}
        if rung == 0:
            for index in range(trials):
                point: Assignments = search.random_point(f"{self.number}/{index}")
                yield SuggestedPoint(point | given)
        for parent in parents:
            yield SuggestedPoint(parent.assignments | given, rung, parent.name)


def _brackets(search: SuggestionRequest) -> Iterator[_Bracket]:
    """Yield the brackets, with the most and shortest trials first."""
    largest, eta = float(search.settings["r_l"]), search.whole("eta", _ETA)
    deepest = 0
    while eta ** (deepest + 1) <= largest:
        deepest += 1
    for number in range(deepest, -1, -1):
        trials = -(-(deepest + 1) * eta**number // (number + 1))
        amounts = (max(int(largest / eta ** (number - rung)), 1) for rung in range(number + 1))
        yield _Bracket(number, trials, tuple(amounts), eta, search.settings["resource_name"])
