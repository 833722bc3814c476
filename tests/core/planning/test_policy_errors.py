"""A placer that breaks its contract or fails delays one gang only."""

from dataclasses import replace

import pytest
from builders import POLICIES, an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core.engine.engine import State
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.placement import Placement
from gangsched.core.orders import Report
from gangsched.core.planning.forecast import forecast
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import PolicyError
from policies.batch import Batch
from policies.pack import Pack

BAD, GOOD = GangId("ns/bad"), GangId("ns/good")
A, B = PodName("ns/bad-0"), PodName("ns/bad-1")
N = NodeName("n")


class Scripted:
    """Places one gang as it is told, and all others well."""

    def __init__(self, *nodes: tuple[PodName, NodeName]) -> None:
        self.nodes = nodes

    def place(self, waiting, snapshot):
        """Return what was scripted."""
        if waiting.gang.id == BAD:
            return Placement(self.nodes)
        return Pack().place(waiting, snapshot)


class Raising:
    """Cannot place any gang."""

    def place(self, waiting, snapshot):
        """Raise, as a defect would."""
        raise KeyError("x")


WRONG = {
    "nobody": (Scripted(), "0 placed, fewer than its minimum"),
    "too few": (Scripted((A, N)), "1 placed, fewer than its minimum"),
    "one twice": (Scripted((A, N), (A, N)), "a member was placed twice, or is none of its own"),
    "a stranger": (
        Scripted((A, N), (PodName("ns/other"), N)),
        "a member was placed twice, or is none of its own",
    ),
    "nowhere": (
        Scripted((A, N), (B, NodeName("m"))),
        "placed on m, which does not exist",
    ),
    "too many on a node": (Scripted((A, N), (B, N)), "n would be over-committed"),
    "an exception": (Raising(), "KeyError: 'x'"),
}


def two_gangs():
    """Return an engine with a gang of two and one of one that wait, and room for one pod each."""
    engine = an_engine(node("n", 8), node("o", 8))
    engine.observe(f.GangSeen(gang("bad", 2)), 0.0)
    for name in ("bad-0", "bad-1"):
        engine.observe(pod(name, "bad", needs(8)), 0.0)
    engine.observe(f.GangSeen(gang("good", 1)), 1.0)
    engine.observe(pod("good-0", "good", needs(8)), 1.0)
    return engine


@pytest.mark.parametrize("case", WRONG)
def test_an_error_of_a_placer_is_reported(case):
    placer, problem = WRONG[case]
    with pytest.raises(PolicyError) as error:
        make_plan(two_gangs().begin_cycle(1.0), replace(POLICIES, placer=placer), 1.0)
    assert (error.value.gang, error.value.problem) == (BAD, problem)


class RaisingForOne(Scripted):
    """Cannot place one gang."""

    def place(self, waiting, snapshot):
        """Raise for it, as a defect would."""
        if waiting.gang.id == BAD:
            raise KeyError("x")
        return super().place(waiting, snapshot)


def test_of_gangs_that_are_planned_together_the_one_that_fails_is_named():
    engine = an_engine(node("n", 16))
    for name, at_s in (("good", 0.0), ("bad", 1.0)):
        engine.observe(f.GangSeen(templated(name, 1, created_s=at_s)), at_s)
    policies = replace(POLICIES, order=Batch(), placer=RaisingForOne())
    with pytest.raises(PolicyError) as error:
        make_plan(engine.begin_cycle(2.0), policies, 2.0)
    assert (error.value.gang, error.value.problem) == (BAD, "KeyError: 'x'")


def test_the_gang_is_set_aside_and_the_others_start():
    engine, policies = two_gangs(), replace(POLICIES, placer=Scripted())
    orders = engine.observe(f.PlanFailed(BAD, "it is wrong"), 1.0)
    (report,) = [order for order in orders if isinstance(order, Report)]
    assert report.reason == "PlanFailed"
    wait_s = engine.limits.backoff_s
    assert report.message == (
        f"Planning of gang ns/bad failed (it is wrong); the scheduler tries again in {wait_s:g} s."
    )
    engine.accept(make_plan(engine.begin_cycle(1.0), policies, 1.0), 1.0)
    assert engine.view.gangs[GOOD].state is State.RESERVED
    assert not engine.has_pending_work()
    engine.tick(1.0 + wait_s)
    assert engine.has_pending_work()
    engine.accept(make_plan(engine.begin_cycle(3.0), POLICIES, 3.0), 3.0)
    assert engine.view.refusals[BAD].reason == "NotEnoughFree"


def test_a_forecast_goes_on_without_it():
    snapshot = two_gangs().view.snapshot_all(1.0)
    found = forecast(snapshot, replace(POLICIES, placer=Scripted()), 1.0)
    assert found[GOOD].start_s == 1.0
    assert BAD not in found or found[BAD].start_s is None


def test_a_gang_may_fail_for_years():
    engine = two_gangs()
    for attempt in range(2_000):
        engine.observe(f.PlanFailed(BAD, "it is wrong"), float(attempt))
    assert f"again in {engine.limits.backoff_max_s:g} s" in engine.view.refusals[BAD].message


def test_a_failure_of_a_gang_that_is_gone_is_nothing():
    assert not an_engine(node("n")).observe(f.PlanFailed(BAD, "it is wrong"), 1.0)
