"""Timers agree with a scan of all gangs, over random changes."""

import random

import pytest
from builders import an_engine, node, plan, pod, templated

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.model.ids import GangId, NodeName, PodUid

GANGS = [GangId(f"ns/g{index}") for index in range(6)]


@pytest.mark.parametrize("seed", range(40))
def test_due_gangs_are_found_in_time(seed):
    rng = random.Random(seed)
    due_s: dict[GangId, float] = {}
    timers = Timers(due_s.get)
    now_s = 0.0
    for _ in range(300):
        gang = rng.choice(GANGS)
        change = rng.choice(("watched", "later", "never", "gone", "time", "time"))
        if change == "watched":
            due_s[gang] = now_s + rng.choice((1.0, 2.0, 5.0, 5.0, 20.0))
            timers.watch(gang)
        elif change == "later" and gang in due_s:
            due_s[gang] += rng.choice((0.5, 3.0))  # nobody says so
        elif change == "never":
            due_s.pop(gang, None)
        elif change == "gone":
            due_s.pop(gang, None)
            timers.forget(gang)
        else:
            now_s += rng.choice((0.0, 0.5, 4.0))
            expected = {one for one in GANGS if due_s.get(one, float("inf")) <= now_s}
            found = timers.due(now_s)
            assert set(found) == expected
            assert len(found) == len(expected)
            for one in found:
                del due_s[one]
        assert timers.next_s() == min(due_s.values(), default=None)


def test_who_is_due_at_once_is_found_by_name():
    due_s = dict.fromkeys(reversed(GANGS), 1.0)
    timers = Timers(due_s.get)
    for gang in due_s:
        timers.watch(gang)
    assert timers.due(0.9) == []
    assert timers.due(1.0) == GANGS


@pytest.mark.parametrize("bound", ["ready_timeout_s", "max_runtime_s"])
def test_a_gang_that_starts_over_is_not_due_for_what_bounded_its_run(bound):
    """All its pods go at once: it waits again, and neither bound of the old run holds for it."""
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 2, **{bound: 6.0})), 0.0)
    plan(engine)
    for name in ("g-worker-0", "g-worker-1"):
        engine.observe(pod(name, "g", node=NodeName("n"), started_s=1.0, ready=False), 1.0)
    gang = engine.view.gangs[GangId("ns/g")]
    assert gang.state is State.PLACED
    assert engine.next_deadline_s() == 7.0
    for uid in ("g-worker-0", "g-worker-1"):
        engine.observe(f.PodGone(PodUid(uid)), 2.0)
    assert gang.state is State.PENDING
    assert engine.next_deadline_s() is None
    plan(engine, 3.0)
    orders = engine.tick(8.0)
    assert gang.state is State.RESERVED
    assert not [one for one in orders if isinstance(one, o.Evict | o.Release)]
