"""The states of a gang: the legal changes, and that all of them and no others happen."""

import itertools

import pytest
from builders import an_engine, gang, node, plan, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.transition import LEGAL, Cause, Transition
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.queues import Queue, Stop

G = GangId("ns/g")
ILLEGAL = sorted(set(itertools.product(State, State)) - LEGAL)


@pytest.fixture
def edges(monkeypatch):
    """Return every change of state that was made, in order."""
    made = []
    move = Lifecycle.move

    def noted(self, gang, transition, now_s):
        made.append((gang.state, transition.to))
        return move(self, gang, transition, now_s)

    monkeypatch.setattr(Lifecycle, "move", noted)
    return made


@pytest.mark.parametrize(("state", "to"), ILLEGAL)
def test_no_other_change_of_state_is_made(state, to):
    engine = an_engine()
    engine.observe(f.GangSeen(gang("g", 1)), 0.0)
    engine.view.gangs[G].state = state
    with pytest.raises(AssertionError, match=f"ns/g: no way from {state} to {to}"):
        engine.parts.lifecycle.move(engine.view.gangs[G], Transition(to, Cause.FAILED), 0.0)


def answered(engine, orders, now_s=1.0):
    """Answer every Prepare and every Bind."""
    for order in orders:
        if isinstance(order, o.Prepare):
            answered(engine, engine.observe(f.Prepared(order.uid, order.node), now_s), now_s)
        elif isinstance(order, o.Bind):
            answered(engine, engine.observe(f.Bound(order.uid, order.node), now_s), now_s)


def pods_first(engine, count=2, **more):
    """Declare a gang of two, and have so many of its pods come."""
    engine.observe(f.GangSeen(gang("g", 2)), 0.0)
    for index in range(count):
        engine.observe(pod(f"p{index}", "g", **more), 0.0)


def it_starts_and_every_pod_goes(engine):
    pods_first(engine)
    answered(engine, plan(engine))
    engine.observe(f.PodGone(PodUid("p0")), 3.0)
    engine.observe(f.PodGone(PodUid("p1")), 3.0)


def it_starts_and_its_queue_is_drained(engine):
    pods_first(engine)
    answered(engine, plan(engine))
    engine.observe(f.QueueSeen(Queue("default", stop=Stop.DRAIN)), 3.0)
    engine.tick(3.0)
    engine.observe(f.PodGone(PodUid("p0")), 4.0)
    engine.observe(f.PodGone(PodUid("p1")), 4.0)


def a_pending_pod_goes(engine):
    pods_first(engine)
    engine.observe(f.PodGone(PodUid("p0")), 1.0)


def a_reserved_pod_goes(engine):
    pods_first(engine)
    plan(engine)
    engine.observe(f.PodGone(PodUid("p0")), 1.0)


def its_pods_run_already(engine):
    pods_first(engine, node=NodeName("n"))


def its_pending_pods_are_bound_by_others(engine):
    pods_first(engine)
    engine.observe(pod("p0", "g", node=NodeName("n")), 1.0)
    engine.observe(pod("p1", "g", node=NodeName("n")), 1.0)


def its_reserved_pods_are_bound_by_others(engine):
    pods_first(engine)
    plan(engine)
    engine.observe(pod("p0", "g", node=NodeName("n")), 1.0)
    engine.observe(pod("p1", "g", node=NodeName("n")), 1.0)


def a_bind_fails(engine):
    pods_first(engine)
    binds = []
    for order in plan(engine):
        if isinstance(order, o.Prepare):
            binds += engine.observe(f.Prepared(order.uid, order.node), 1.0)
    (first, *_) = (order for order in binds if isinstance(order, o.Bind))
    engine.observe(f.BindFailed(first.uid, first.node, "no"), 2.0)


def too_few_run_for_too_long(engine):
    pods_first(engine, 1, node=NodeName("n"))
    engine.tick(999.0)


def too_few_run_of_a_gang_that_could_start(engine):
    engine.observe(f.GangSeen(templated("g", 2)), 0.0)
    engine.observe(pod("g-worker-0", "g", node=NodeName("n")), 0.0)
    engine.tick(999.0)


HISTORIES = (
    it_starts_and_every_pod_goes,
    it_starts_and_its_queue_is_drained,
    a_pending_pod_goes,
    a_reserved_pod_goes,
    its_pods_run_already,
    its_pending_pods_are_bound_by_others,
    its_reserved_pods_are_bound_by_others,
    a_bind_fails,
    too_few_run_for_too_long,
    too_few_run_of_a_gang_that_could_start,
)


def test_every_legal_change_of_state_happens(edges):
    for history in HISTORIES:
        history(an_engine(node("n")))
    assert set(edges) == LEGAL
