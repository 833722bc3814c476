"""Forecasts of gangs that wait for other gangs."""

import time

from builders import POLICIES, an_engine, node, plan, templated

from gangsched.core import facts as f
from gangsched.core.model.dependencies import Dependency, DependencyCondition, Series
from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Effort, forecast


def predicted(*gangs):
    """Return the forecast starts of gangs in an empty cluster, by name."""
    engine = an_engine(node("n0", 8))
    for one in gangs:
        engine.observe(f.GangSeen(one), 0.0)
    plan(engine, 0.0)
    snapshot = engine.view.snapshot_all(0.0)
    found = forecast(snapshot, POLICIES, 0.0, Effort(1, 200))
    return {str(gang).partition("/")[2]: one.start_s for gang, one in found.items()}


def after(name, other, condition=DependencyCondition.SUCCEEDED):
    return templated(
        name, 1, expected_runtime_s=100.0, dependencies=(Dependency(other, condition),)
    )


def test_a_dependent_gang_starts_after_the_end_of_its_dependency():
    starts = predicted(
        templated("a", 1, expected_runtime_s=100.0),
        after("b", "a"),
        after("c", "b"),
        after("d", "b", DependencyCondition.STARTED),
    )
    assert starts["b"] >= 100.0
    assert starts["c"] >= starts["b"] + 100.0
    assert starts["d"] == starts["b"]


def test_what_may_never_start_has_no_start():
    starts = predicted(
        templated("a", 1), after("b", "a", DependencyCondition.FAILED), after("c", "nothing")
    )
    assert starts == {}


def test_a_series_is_forecast_with_its_limit():
    series = Series("sweep", 2)
    gangs = [templated(f"t{n}", 1, expected_runtime_s=100.0, series=series) for n in range(6)]
    starts = predicted(*gangs)
    assert [starts[f"t{n}"] for n in range(2, 6)] == [100.0, 100.0, 200.0, 200.0]


def test_a_chain_of_a_hundred_is_fast():
    gangs = [templated("g0", 1, expected_runtime_s=100.0)]
    gangs += [after(f"g{n}", f"g{n - 1}") for n in range(1, 100)]
    begun_s = time.process_time()
    starts = predicted(*gangs)
    assert time.process_time() - begun_s < 20.0
    assert starts["g99"] >= 9900.0
    assert GangId("ns/g0") not in starts
