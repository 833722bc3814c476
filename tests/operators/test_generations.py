"""Algorithms of generations: cmaes, hyperband, pbt. Each call follows from the trials alone."""

import random
from collections import Counter

import pytest
from test_suggestion import BATCH, DEPTH, DROP, NAME, WIDE, spec

from gangsched.jobs.katib.experiment import SuggestedPoint, TriedPoint
from gangsched.operators.search.search_space import SpaceError
from gangsched.operators.search.suggestion import suggest

BOWL = [(name, "double", {"min": "-5", "max": "5"}) for name in ("x", "y")]
EPOCHS = ("epochs", "int", {"min": "1", "max": "1"})
BAND = {"r_l": "9", "eta": "3", "resource_name": "epochs"}
POPULATION = {"n_population": "5", "truncation_threshold": "0.2"}


class Trials:
    """The trials of a search; they end with the value that a function gives."""

    def __init__(self, asked: dict, value) -> None:
        self.asked, self.value = asked, value
        self.tried: list[TriedPoint] = []

    def start(self, count: int) -> list[SuggestedPoint]:
        points = suggest(self.asked, self.tried, count, "u")
        assert points == suggest(self.asked, random.sample(self.tried, len(self.tried)), count, "u")
        self.tried += [
            TriedPoint(p.assignments, "running", None, self.name(i), p.generation, p.parent)
            for i, p in enumerate(points)
        ]
        return points

    def name(self, index: int) -> str:
        return f"t{len(self.tried) + index}"

    def end(self, state="done", count: int | None = None) -> None:
        """End the oldest trials that run."""
        running = [i for i, one in enumerate(self.tried) if one.state == "running"]
        for i in running[:count]:
            one = self.tried[i]
            value = self.value(one) if state == "done" else None
            self.tried[i] = TriedPoint(
                one.assignments, state, value, one.name, one.generation, one.parent
            )

    def run(self, trials: int, at_once: int) -> float:
        """Run the search; return the best value."""
        while len(self.tried) < trials and self.start(min(at_once, trials - len(self.tried))):
            self.end()
        return max(one.value for one in self.tried)


def bowl(trial: TriedPoint) -> float:
    point = trial.assignments
    return -((float(point["x"]) - 2) ** 2) - (float(point["y"]) + 1) ** 2


@pytest.mark.parametrize("settings", [{}, {"restart_strategy": "ipop"}, {"sigma": "0.3"}])
def test_cmaes_comes_closer_than_chance(settings):
    best = Trials(spec("cmaes", *BOWL, random_state="7", **settings), bowl).run(48, 3)
    assert best > Trials(spec("random", *BOWL, random_state="7"), bowl).run(48, 3)
    assert best > -0.3


def test_cmaes_minimizes_too():
    asked = spec("cmaes", *BOWL, kind="minimize", random_state="7")
    search = Trials(asked, lambda trial: -bowl(trial))
    search.run(48, 4)
    assert min(one.value for one in search.tried) < 0.3


def test_a_generation_of_cmaes_waits_for_its_last_trial():
    search = Trials(spec("cmaes", *BOWL), bowl)
    first = search.start(100)
    assert len(first) == 6  # 4 + 3 ln 2
    assert not search.start(1)
    search.end(count=5)
    assert not search.start(1)
    search.end()
    second = search.start(2)
    assert len(second) == 2
    assert not {tuple(p.assignments.values()) for p in first} & {
        tuple(p.assignments.values()) for p in second
    }


def test_failed_trials_count_as_the_worst():
    search = Trials(spec("cmaes", *BOWL, random_state="1"), bowl)
    for _ in range(8):
        search.start(6)
        search.end("failed", 2)
        search.end()
    assert max(one.value for one in search.tried if one.value is not None) > -1
    lost = Trials(spec("cmaes", *BOWL), bowl)
    lost.start(6)
    lost.end("failed")
    assert len(lost.start(6)) == 6


def test_cmaes_draws_what_is_no_number_and_restarts():
    asked = spec("cmaes", BATCH, DROP, DEPTH, WIDE, NAME, restart_strategy="ipop")
    search = Trials(asked, lambda _: 1.0)  # all are equal: it stops, and begins anew
    search.run(120, 16)
    drawn = Counter(one.assignments["name"] for one in search.tried)
    assert set(drawn) == {"adam", "sgd", "rmsprop"}
    assert {one.assignments["depth"] for one in search.tried} == {"1", "2", "5"}
    assert all(int(one.assignments["batch"]) % 16 == 0 for one in search.tried)
    assert all(0.0 <= float(one.assignments["drop"]) <= 0.5 for one in search.tried)


def test_cmaes_needs_two_numbers():
    single = ("single", "double", {"min": "1", "max": "1"})
    with pytest.raises(SpaceError, match="needs 2 parameters that are numbers"):
        suggest(spec("cmaes", DROP, NAME, single), [], 1, "u")


def learning(trial: TriedPoint) -> float:
    """More epochs are better; near the optimum too."""
    point = trial.assignments
    return int(point["epochs"]) - abs(float(point["x"]) - 2)


def test_hyperband_halves_and_ends():
    """R = 9, eta = 3: brackets of 9, 5 and 3 trials (Li et al., table 1; Katib rounds up)."""
    search = Trials(spec("hyperband", BOWL[0], EPOCHS, **BAND), learning)
    while search.start(4):
        search.end()
    rungs = Counter((one.generation, one.assignments["epochs"]) for one in search.tried)
    assert rungs == {
        (0, "1"): 9, (1, "3"): 3, (2, "9"): 1,  # the first bracket
        (0, "3"): 5, (1, "9"): 2,
        (0, "9"): 3,
    }  # fmt: skip
    by_name = {one.name: one for one in search.tried}
    assert len(by_name) == len(search.tried)
    children = [one for one in search.tried if one.parent]
    for child in children:
        parent = by_name[child.parent]
        assert parent.assignments["x"] == child.assignments["x"]
        assert parent.generation == child.generation - 1
    first = [one for one in search.tried if (one.generation, one.assignments["epochs"]) == (0, "1")]
    ranked = sorted(first, key=learning, reverse=True)
    promoted = {one.parent for one in children if one.assignments["epochs"] == "3"}
    assert promoted == {one.name for one in ranked[:3]}


def test_hyperband_starts_the_next_bracket_while_a_rung_waits():
    search = Trials(spec("hyperband", BOWL[0], EPOCHS, **BAND), learning)
    search.start(9)
    search.end(count=8)
    more = search.start(4)
    assert [p.assignments["epochs"] for p in more] == ["3"] * 4
    search.end(count=1)
    assert [(p.generation, p.assignments["epochs"]) for p in search.start(3)] == [(1, "3")] * 3


def test_hyperband_promotes_no_failed_trial():
    search = Trials(spec("hyperband", BOWL[0], EPOCHS, **BAND), learning)
    search.start(9)
    search.end("failed", 8)
    search.end()
    assert [p.parent for p in search.start(1)] == ["t8"]
    lost = Trials(spec("hyperband", BOWL[0], EPOCHS, **BAND), learning)
    while lost.start(16):
        lost.end("failed")
    assert len(lost.tried) == 9 + 5 + 3  # no rung has a successor, and the search ends


def test_a_huge_bracket_is_counted_and_not_listed():
    settings = {"r_l": "1000000000", "eta": "2", "resource_name": "epochs"}
    search = Trials(spec("hyperband", BOWL[0], EPOCHS, **settings), learning)
    assert len(search.start(16)) == 16
    search.end()
    assert len(search.start(16)) == 16


def grows(trials: dict[str, float]):
    """Return a training that continues its parent: it grows as fast as its parameter is good."""

    def value(trial: TriedPoint) -> float:
        reached = trials.get(trial.parent, 0.0)
        trials[trial.name] = reached + 1 / (1 + abs(float(trial.assignments["x"]) - 2))
        return trials[trial.name]

    return value


def test_pbt_continues_the_best_and_replaces_the_worst():
    search = Trials(spec("pbt", BOWL[0], DEPTH, NAME, **POPULATION), grows({}))
    assert len(search.start(3)) == 3
    assert len(search.start(3)) == 2
    assert not search.start(3)
    search.end()
    first = sorted(search.tried, key=lambda one: one.value, reverse=True)
    second = search.start(10)
    assert [p.generation for p in second] == [1] * 5
    assert [p.parent for p in second[:4]] == [one.name for one in first[:4]]
    assert [p.assignments for p in second[:4]] == [one.assignments for one in first[:4]]
    replaced = second[4]
    assert replaced.parent == first[0].name
    factor = float(replaced.assignments["x"]) / float(first[0].assignments["x"])
    assert factor == pytest.approx(0.8) or factor == pytest.approx(1.2)
    assert abs(("1", "2", "5").index(replaced.assignments["depth"])
               - ("1", "2", "5").index(first[0].assignments["depth"])) <= 1  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"resample_probability": "0.5"}])
def test_pbt_comes_further_than_chance(settings):
    """Twenty generations of ten: the sum of what each generation gains."""
    given = {"n_population": "10", "truncation_threshold": "0.3", "random_state": "3", **settings}
    best = Trials(spec("pbt", BOWL[0], **given), grows({})).run(200, 10)
    alone = given | {"truncation_threshold": "0"}  # the best of the first ten, continued
    chance = Trials(spec("pbt", BOWL[0], **alone), grows({})).run(200, 10)
    assert best > chance


def test_a_generation_of_failures_begins_anew():
    search = Trials(spec("pbt", BOWL[0], **POPULATION), grows({}))
    search.start(5)
    search.end("failed")
    points = search.start(5)
    assert [(p.generation, p.parent) for p in points] == [(1, "")] * 5
    search.end("failed", 4)
    search.end()
    assert len({p.parent for p in search.start(5)}) == 1  # of the one that has a value


def test_a_deleted_trial_of_a_population_is_replaced_once():
    search = Trials(spec("pbt", BOWL[0], **POPULATION), grows({}))
    search.start(5)
    search.end()
    search.start(5)
    del search.tried[6]
    assert len(search.start(5)) == 1
    del search.tried[0]  # of the generation before: the present one stays as it is
    assert not search.start(5)


def test_a_label_of_a_user_is_no_harm():
    far = TriedPoint({"x": "1"}, "done", 1.0, "t", 1000, "nobody")
    points = suggest(spec("pbt", BOWL[0], **POPULATION), [far], 9, "u")
    assert len(points) == 4
    odd = TriedPoint({"x": "out of range"}, "done", 1.0, "t", 0, "")
    assert suggest(
        spec("pbt", BOWL[0], n_population="5", truncation_threshold="1"), [odd] * 5, 9, "u"
    )
