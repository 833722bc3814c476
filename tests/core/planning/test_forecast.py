"""Forecasts respect exclusive domains (`topology.exclusive`)."""

from dataclasses import replace

import pytest
from builders import an_engine, gang, needs, node, on, pod, templated

from gangsched.core import facts as f
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import GPU, MILLI
from gangsched.core.model.queues import Queue
from gangsched.core.model.topology import HOST
from gangsched.core.planning.forecast import Effort, forecast
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
ALONE = Constraints(exclusive=HOST)


def an_exclusive_queue(*nodes):
    engine = an_engine(*(node(name, labels={"kubernetes.io/hostname": name}) for name in nodes))
    engine.observe(f.QueueSeen(Queue("default", exclusive=HOST)), 0.0)
    return engine


def starts(snapshot):
    """Return when gangs are expected to start."""
    found = forecast(snapshot, POLICIES, 1.0, Effort(1))
    return {gang[3:]: one.start_s for gang, one in found.items()}


def test_a_gang_that_a_forecast_starts_has_its_domain_for_itself():
    engine = an_exclusive_queue("n0")
    alone = templated("a", 1, needs(2), constraints=ALONE, expected_runtime_s=100.0)
    engine.observe(f.GangSeen(alone), 0.0)
    engine.observe(f.GangSeen(templated("b", 1, needs(2), expected_runtime_s=10.0)), 1.0)
    assert starts(engine.view.snapshot_all(1.0)) == {"a": 1.0, "b": 101.0}


@pytest.mark.parametrize("leaves", [True, False])
def test_a_gang_keeps_its_domain_while_only_some_members_leave(leaves):
    engine = an_exclusive_queue("n0", "n1", "n2")
    alone = gang("run", 1, constraints=ALONE, expected_runtime_s=100.0)
    engine.observe(f.GangSeen(alone), 0.0)
    for index in range(2):
        there = {"node": NodeName(f"n{index}"), "started_s": 1.0}
        engine.observe(pod(f"run-{index}", "run", needs(2), **there), 1.0)
    engine.observe(f.GangSeen(gang("short", 1, expected_runtime_s=20.0)), 0.0)
    engine.observe(pod("short-0", "short", needs(8), node=NodeName("n2"), started_s=1.0), 1.0)
    urgent = templated("urgent", 1, needs(8, selector=(on("n1"),)), priority=5)
    engine.observe(f.GangSeen(urgent), 1.0)
    pinned = templated("b", 1, needs(3, selector=(on("n0"),)), expected_runtime_s=10.0)
    engine.observe(f.GangSeen(pinned), 1.0)
    snapshot = engine.view.snapshot_all(1.0)
    run = next(one for one in snapshot.running if one.gang.id == alone.id)
    if leaves:  # it does already; otherwise the urgent gang has it leave
        gone = (replace(run, places=run.places[1:], terminating=True),)
        stays = replace(run, places=run.places[:1])
        others = (one for one in snapshot.running if one is not run)
        snapshot = replace(snapshot, terminating=gone, running=(stays, *others))
    found = starts(snapshot)
    assert found == {"urgent": 1.0, "b": 101.0}


def test_a_gang_starts_once_its_user_holds_less():
    engine = an_engine(node("n0"))
    engine.observe(f.QueueSeen(Queue("default", user_limits=((GPU, 2 * MILLI),))), 0.0)
    engine.observe(f.GangSeen(gang("run", 1, user="ann", expected_runtime_s=100.0)), 0.0)
    engine.observe(pod("run-0", "run", needs(2), node=NodeName("n0"), started_s=1.0), 1.0)
    engine.observe(f.GangSeen(templated("a", 1, needs(2), user="ann")), 1.0)
    assert starts(engine.view.snapshot_all(1.0)) == {"a": 101.0}
