"""What-if ends and starts of gangs change all dimensions of cluster and quota together."""

import pytest
from builders import an_engine, gang, needs, node, pod

from gangsched.core import facts as f
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.pods import GPU, GpuShare
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.model.topology import HOST
from gangsched.core.what_if import WhatIf, left_free, without_gangs

RUN = GangId("ns/run")
PORT = ("", "TCP", 8080)


@pytest.fixture
def snapshot():
    """Return a view of a gang that cannot be preempted and uses all that can be used."""
    engine = an_engine(node("n0", gpus=4), node("n1", gpus=4))
    quotas = (Quota(GPU, 8_000),)
    engine.observe(
        f.QueueSeen(Queue("default", quotas=quotas, exclusive=HOST, user_limits=((GPU, 8_000),))),
        0.0,
    )
    alone = Constraints(exclusive=HOST)
    run = gang("run", 1, user="ann", preemptible=False, constraints=alone)
    engine.observe(f.GangSeen(run), 0.0)
    wants = {
        "run-0": needs(2, host_ports=(PORT,)),
        "run-1": needs(0, share=GpuShare(milli=400)),
    }
    for at, (name, asked) in enumerate(wants.items()):
        there = {"node": NodeName(f"n{at}"), "started_s": 1.0}
        engine.observe(pod(name, "run", asked, **there), 1.0)
    return engine.begin_cycle(2.0)


def state(snapshot):
    """Return all that a gang can take of cluster and quota."""
    cluster, usage = snapshot.cluster, snapshot.usage
    return {
        "used": cluster.used.tolist(),
        "shared": [cluster.shared.of(row) for row in range(2)],
        "holders": {row: held for row, held in cluster.gangs_by_row.items() if held},
        "exclusive": cluster.exclusive_domains,
        "port": cluster.fits(0, needs(0, host_ports=(PORT,))),
        "quota": usage.used("default", (GPU, "")),
        "firm": {key: n for key, n in usage.firm.get("default", {}).items() if n},
        "ann": {key: n for key, n in snapshot.rules.users.get(("default", "ann"), {}).items() if n},
    }


def test_a_gang_that_ends_leaves_nothing_behind(snapshot):
    before = state(snapshot)
    after = state(without_gangs(snapshot, {RUN}))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == set(before)
    assert not any(map(any, after["used"]))
    assert after["exclusive"] == {}
    assert after["firm"] == after["ann"] == {}
    assert state(snapshot) == before


def test_a_gang_that_runs_again_takes_the_same(snapshot):
    (run,) = snapshot.running
    what_if = WhatIf(snapshot)
    what_if.release(run)
    again = what_if.hold(run)
    assert again.places == run.places
    assert state(what_if.snapshot()) == state(snapshot)


def test_capacity_alone_comes_free_while_queues_stay_charged(snapshot):
    before, after = state(snapshot), state(left_free(snapshot, {RUN}))
    assert {name for name in before if before[name] == after[name]} == {"quota", "firm", "ann"}
