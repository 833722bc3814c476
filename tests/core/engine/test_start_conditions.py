"""Gangs that wait for gangs, and series with a limit."""

import pytest
from builders import an_engine, needs, node, plan, pod, templated

from gangsched.core import facts as f
from gangsched.core.model.dependencies import Dependency, DependencyCondition, Outcome, Series
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.refusal import Reason

OK = DependencyCondition.SUCCEEDED


def declared(name: str, *after: tuple[str, DependencyCondition], **more) -> Gang:
    """Return a gang of one pod that waits for others."""
    found = tuple(Dependency(other, condition) for other, condition in after)
    return templated(name, 1, dependencies=found, **more)


def state(engine, name: str) -> str:
    return engine.view.gangs[GangId(f"ns/{name}")].state.value


def reason(engine, name: str) -> Reason | None:
    refusal = engine.view.refusals.get(GangId(f"ns/{name}"))
    return refusal.reason if refusal is not None else None


def runs(engine, name: str, now_s: float) -> None:
    """Let the pod of an assigned gang run."""
    assert state(engine, name) == "Reserved", name
    own = f"{name}-worker-0"
    engine.observe(pod(own, name, needs(), role="worker"), now_s)
    engine.observe(f.Prepared(PodUid(own), NodeName("n0")), now_s)
    engine.observe(f.Bound(PodUid(own), NodeName("n0")), now_s)
    assert state(engine, name) == "Placed", name


def ends(engine, name: str, now_s: float, *, failed: bool = False) -> None:
    """End the pod of a running gang."""
    own = f"{name}-worker-0"
    more = {"node": NodeName("n0"), "ended": True, "failed": failed, "role": "worker"}
    engine.observe(pod(own, name, needs(), **more), now_s)
    if failed:
        engine.observe(f.GangGone(GangId(f"ns/{name}")), now_s)


def engine_with(*gangs: Gang):
    engine = an_engine(node("n0", 8))
    for one in gangs:
        engine.observe(f.GangSeen(one), 1.0)
    return engine


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("condition", list(DependencyCondition))
def test_it_starts_once_its_condition_holds(condition, failed):
    engine = engine_with(declared("b", ("a", condition)), declared("a"))
    plan(engine, 1.0)
    assert (state(engine, "a"), state(engine, "b")) == ("Reserved", "Pending")
    assert reason(engine, "b") is Reason.DEPENDENCY
    runs(engine, "a", 2.0)
    plan(engine, 2.0)
    assert (state(engine, "b") == "Reserved") == (condition is DependencyCondition.STARTED)
    ends(engine, "a", 3.0, failed=failed)
    engine.tick(30.0)
    plan(engine, 30.0)
    outcome = "Failed" if failed else "Succeeded"
    met = condition.value in ("Started", "Ended", outcome)
    assert (state(engine, "b") == "Reserved") == met
    assert reason(engine, "b") is (None if met else Reason.DEPENDENCY_NEVER_MET)


def test_a_failed_dependency_that_runs_again_is_waited_for():
    engine = engine_with(declared("a"), declared("b", ("a", OK)))
    plan(engine, 1.0)
    runs(engine, "a", 2.0)
    ends(engine, "a", 3.0, failed=True)
    engine.tick(30.0)
    assert reason(engine, "b") is Reason.DEPENDENCY_NEVER_MET
    engine.observe(f.PodGone(PodUid("a-worker-0")), 31.0)
    engine.observe(f.GangSeen(declared("a", created_s=31.0)), 31.0)
    assert reason(engine, "b") is Reason.DEPENDENCY


def test_a_job_that_failed_and_stays_is_not_waited_for():
    waiting = [
        declared("b", ("a", DependencyCondition.FAILED)),
        declared("c", ("a", DependencyCondition.SUCCEEDED)),
    ]
    engine = engine_with(declared("a"), *waiting)
    plan(engine, 1.0)
    runs(engine, "a", 2.0)
    failed = {"node": NodeName("n0"), "ended": True, "failed": True, "role": "worker"}
    engine.observe(pod("a-worker-0", "a", needs(), **failed), 3.0)
    engine.tick(300.0)
    plan(engine, 300.0)
    assert [reason(engine, name) for name in "bc"] == [Reason.DEPENDENCY] * 2, "it may start again"
    for _ in range(2):  # each change of the job's status says so
        engine.observe(f.JobEnded(GangId("ns/a"), Outcome.FAILED), 301.0)
    plan(engine, 301.0)
    assert state(engine, "b") == "Reserved"
    assert reason(engine, "c") is Reason.DEPENDENCY_NEVER_MET
    engine.observe(f.GangGone(GangId("ns/a")), 302.0)
    engine.observe(f.PodGone(PodUid("a-worker-0")), 302.0)
    engine.observe(f.GangSeen(declared("a")), 303.0)  # another job of that name
    engine.observe(f.GangSeen(declared("d", ("a", OK))), 303.0)
    assert [reason(engine, name) for name in "cd"] == [Reason.DEPENDENCY] * 2


def test_a_job_that_says_it_succeeded_is_believed():
    """A Job may be complete although some of its pods failed."""
    engine = engine_with(declared("a"), declared("b", ("a", OK)))
    plan(engine, 1.0)
    runs(engine, "a", 2.0)
    engine.observe(f.JobEnded(GangId("ns/a"), Outcome.SUCCEEDED), 3.0)
    engine.observe(f.JobEnded(GangId("ns/unknown"), Outcome.SUCCEEDED), 3.0)
    plan(engine, 3.0)
    assert state(engine, "b") == "Reserved"


def test_a_gang_that_restarts_does_not_count_as_failed():
    engine = engine_with(declared("a"), declared("b", ("a", DependencyCondition.FAILED)))
    plan(engine, 1.0)
    runs(engine, "a", 2.0)
    ends(engine, "a", 3.0, failed=True)
    engine.observe(f.PodGone(PodUid("a-worker-0")), 3.5)
    engine.observe(f.GangSeen(declared("a", created_s=4.0)), 4.0)
    engine.tick(30.0)
    plan(engine, 30.0)
    assert state(engine, "b") == "Pending"


def test_a_dependency_that_does_not_exist_is_named():
    engine = engine_with(declared("b", ("nothing", OK)))
    plan(engine, 1.0)
    refusal = engine.view.refusals[GangId("ns/b")]
    assert refusal.reason is Reason.DEPENDENCY
    assert "no job or PodGroup nothing in its namespace" in refusal.message


def test_a_cycle_is_named():
    engine = engine_with(
        declared("a", ("b", OK)), declared("b", ("c", OK)), declared("c", ("a", OK))
    )
    engine.tick(20.0)
    plan(engine, 20.0)
    for name in "abc":
        refusal = engine.view.refusals[GangId(f"ns/{name}")]
        assert refusal.reason is Reason.DEPENDENCY_NEVER_MET
        around = {"a": "a -> b -> c -> a", "b": "b -> c -> a -> b", "c": "c -> a -> b -> c"}
        assert f"gangs wait for each other: {around[name]};" in refusal.message


def test_an_end_outlives_a_restart():
    engine = engine_with(declared("a"))
    plan(engine, 1.0)
    runs(engine, "a", 2.0)
    ends(engine, "a", 3.0)
    past = [one for one in engine.view.past() if isinstance(one, f.EndRestored)]
    assert past == [f.EndRestored(GangId("ns/a"), Outcome.SUCCEEDED, 3.0)]
    later = engine_with(declared("b", ("a", OK)))
    later.observe(past[0], 5.0)
    plan(later, 5.0)
    assert state(later, "b") == "Reserved"


def test_a_series_runs_as_many_as_its_limit():
    names = [f"t{index}" for index in range(5)]
    series = Series("sweep", 2)
    engine = engine_with(*(declared(name, series=series) for name in names))
    started: list[str] = []
    for now_s in range(2, 7):
        plan(engine, float(now_s))
        reserved = [name for name in names if state(engine, name) == "Reserved"]
        for name in reserved:
            runs(engine, name, float(now_s))
        started += reserved
        running = [
            name for name in started if engine.view.gangs[GangId(f"ns/{name}")].holds_nodes()
        ]
        assert len(running) <= 2
        waits = [name for name in names if name not in started]
        assert all(reason(engine, name) is Reason.SERIES_FULL for name in waits)
        ends(engine, running[0], now_s + 0.5)
    assert started == names
