"""Katib's algorithms: inside the space, deterministic, better than chance."""

import math
import tracemalloc

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gangsched.jobs.katib.experiment import TriedPoint
from gangsched.operators.search import suggestion
from gangsched.operators.search.search_space import SpaceError
from gangsched.operators.search.suggestion import ALGORITHMS
from gangsched.operators.search.suggestion_request import library


def spec(algorithm: str, *parameters, kind="maximize", **settings) -> dict:
    return {
        "objective": {"type": kind, "objectiveMetricName": "m"},
        "algorithm": {
            "algorithmName": algorithm,
            "algorithmSettings": [{"name": k, "value": v} for k, v in settings.items()],
        },
        "parameters": [
            {"name": name, "parameterType": kind, "feasibleSpace": space}
            for name, kind, space in parameters
        ],
    }


def suggest(*call) -> list[dict[str, str]]:
    """Return the parameters of the next points."""
    return [point.assignments for point in suggestion.suggest(*call)]


RATE = ("rate", "double", {"min": "0.0001", "max": "0.1", "step": "0.0001"})
BATCH = ("batch", "int", {"min": "16", "max": "256", "step": "16"})
DROP = ("drop", "double", {"min": "0.0", "max": "0.5"})
NAME = ("name", "categorical", {"list": ["adam", "sgd", "rmsprop"]})
DEPTH = ("depth", "discrete", {"list": ["1", "2", "5"]})
WIDE = ("wide", "double", {"min": "0.000001", "max": "1", "distribution": "logUniform"})
REQUIRED = {
    "hyperband": {"r_l": "9", "resource_name": "a"},
    "pbt": {"n_population": "5", "truncation_threshold": "0.2"},
}
SEARCHES = [name for name in ALGORITHMS if name not in ("grid", "cmaes", "hyperband", "pbt")]


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_points_are_in_the_space_and_on_its_steps(algorithm):
    asked = spec(algorithm, RATE, BATCH, DROP, NAME, DEPTH, WIDE)
    tried: list[TriedPoint] = []
    for count in (4, 4, 4, 1):  # the last costs: it follows from what was learnt
        points = suggest(asked, tried, count, "u")
        assert len(points) == count
        if count == 1 or not tried:  # the first follow from the uid, the last from what was learnt
            assert points == suggest(asked, tried, count, "u")
        for point in points:
            assert list(point) == ["rate", "batch", "drop", "name", "depth", "wide"]
            steps = float(point["rate"]) / 0.0001
            assert math.isclose(steps, round(steps), rel_tol=1e-6)
            assert 0.0001 <= float(point["rate"]) <= 0.1
            assert "e" not in point["rate"]
            assert int(point["batch"]) in range(16, 257, 16)
            assert 0.0 <= float(point["drop"]) <= 0.5
            assert point["name"] in ("adam", "sgd", "rmsprop")
            assert point["depth"] in ("1", "2", "5")
            assert 1e-6 <= float(point["wide"]) <= 1
        states = ("done", "running", "failed", "done")
        for point, state in zip(points, states, strict=False):
            value = float(point["drop"]) if state == "done" else None
            tried.append(TriedPoint(point, state, value))
    assert len({tuple(one.assignments.values()) for one in tried}) == len(tried)


def test_another_uid_is_another_search_and_a_seed_fixes_it():
    one, other = (suggest(spec("random", DROP), [], 3, uid) for uid in ("a", "b"))
    assert one != other
    fixed = spec("random", DROP, random_state="42")
    assert suggest(fixed, [], 3, "a") == suggest(fixed, [], 3, "b")


def test_a_grid_ends():
    asked = spec("grid", ("n", "int", {"min": "1", "max": "3"}), NAME)
    points = suggest(asked, [], 100, "u")
    assert len(points) == 9
    tried = [TriedPoint(point, "done", 0.0) for point in points[:8]]
    assert suggest(asked, tried, 5, "u") == points[8:]
    assert not suggest(asked, [TriedPoint(point, "done", 0.0) for point in points], 5, "u")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_range_is_counted_and_not_listed(algorithm):
    """A billion values a parameter take no memory, and no time."""
    huge = {"min": "0", "max": "1000000000"}
    given = REQUIRED.get(algorithm, {})
    asked = spec(algorithm, *((name, "int", huge) for name in "abcdefg"), **given)
    tracemalloc.start()
    points = suggest(asked, [], 2, "u")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(points) == 2
    assert all(0 <= int(value) <= 10**9 for point in points for value in point.values())
    assert peak_bytes < 64 * 2**20


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_spaces_at_the_edge_of_numbers(algorithm):
    """One value alone, the largest numbers, a seed at numpy's end, points of another space."""
    asked = spec(
        algorithm,
        ("one", "double", {"min": "0.5", "max": "0.5"}),
        ("only", "int", {"min": "3", "max": "3"}),
        ("twice", "categorical", {"list": ["a", "a", "b"], "distribution": "logUniform"}),
        ("far", "int", {"min": "-9223372036854775807", "max": "9223372036854775807"}),
        ("tiny", "double", {"min": "1e-300", "max": "1e-299"}),
        random_state=str(2**32 - 1),
    )
    other = [TriedPoint({"one": "0.7"}, "done", 1.0)] * 12
    for point in suggest(asked, other, 3, "u"):
        assert (point["one"], point["only"]) == ("0.5", "3")
        assert point["twice"] in ("a", "b")
        assert abs(int(point["far"])) < 2**63
        assert 1e-300 <= float(point["tiny"]) <= 1e-299


def test_their_algebra_leaves_the_other_cores_alone():
    library.cache_clear()
    with threadpool_limits(4):
        suggest(spec("bayesianoptimization", DROP), [], 1, "u")
        pools = threadpool_info()
        assert pools
        assert {pool["num_threads"] for pool in pools} == {1}


def test_what_a_library_refuses_is_said():
    asked = spec("bayesianoptimization", DROP, acq_optimizer="lbfgs", base_estimator="RF")
    with pytest.raises(SpaceError, match="bayesianoptimization cannot search them: "):
        suggest(asked, [], 1, "u")


def test_a_grid_needs_steps():
    with pytest.raises(SpaceError, match="parameter 'drop' is a double without a step"):
        suggest(spec("grid", DROP), [], 1, "u")


@pytest.mark.parametrize(
    ("algorithm", "rounds"), [("tpe", 12), ("multivariate-tpe", 12), ("bayesianoptimization", 7)]
)
@pytest.mark.parametrize("kind", ["maximize", "minimize"])
def test_what_learns_comes_closer_than_chance(algorithm, rounds, kind):
    """Two dozen points of a bowl in two dimensions, and fewer of what takes a second for each."""

    def best(name: str) -> float:
        parameters = [(n, "double", {"min": "-5", "max": "5"}) for n in ("x", "y")]
        asked = spec(name, *parameters, kind=kind, random_state="7")
        tried: list[TriedPoint] = []
        for _ in range(rounds):
            for point in suggest(asked, tried, 2, "u"):
                off = (float(point["x"]) - 2) ** 2 + (float(point["y"]) + 1) ** 2
                tried.append(TriedPoint(point, "done", off if kind == "minimize" else -off))
        return min(abs(one.value) for one in tried)

    assert best(algorithm) < best("random")
