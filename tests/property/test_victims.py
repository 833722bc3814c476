"""The cheapest set of victims against all sets, on small instances."""

import random
from itertools import combinations

import pytest
from builders import GPU, an_engine, needs, node, pod, templated

from gangsched.core.facts import GangSeen, QueueSeen
from gangsched.core.model.queues import Preemption, Queue, Quota, Reclaim, Within
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
NOW_S = 10_000.0
NODES, GPUS = 4, 8


def price(started_s: float, gpus: int) -> int:
    """Return what the documentation says a gang costs: its work, a minute again, and a minute."""
    return round((NOW_S - started_s + 60.0) * gpus + 60.0)


@pytest.mark.parametrize("seed", range(60))
def test_no_set_of_victims_is_cheaper(seed):
    rng = random.Random(seed)
    quota = rng.choice((None, 24, 28))  # with a quota, stopping must free that as well
    engine = an_engine(*(node(f"n{index}") for index in range(NODES)))
    quotas = (Quota(GPU, quota * 1000),) if quota else ()
    rules = Preemption(Within.LOWER, Reclaim.NEVER)
    engine.observe(QueueSeen(Queue("q", quotas=quotas, preemption=rules)), 0.0)
    free, held, gangs = [GPUS] * NODES, 0, []
    for index in range(9):
        each, pods = rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 3))
        seats = [n for n in range(NODES) for _ in range(free[n] // each)]
        if len(seats) < pods or (quota and held + pods * each > quota):
            continue
        seats = rng.sample(seats, pods)
        started_s = rng.uniform(0, NOW_S - 1)
        group = templated(f"low-{index}", pods, needs(each), queue="q", created_s=started_s)
        engine.observe(GangSeen(group), started_s)
        for at, where in enumerate(seats):
            free[where] -= each
            name = f"low-{index}-worker-{at}"
            fact = pod(
                name, f"low-{index}", needs(each), node=f"n{where}", role="worker",
                started_s=started_s,
            )  # fmt: skip
            engine.observe(fact, started_s)
        held += pods * each
        gangs.append((group.id, each, seats, price(started_s, each * pods)))
    each, pods = rng.choice((2, 4, 8)), rng.choice((1, 2, 3))

    def fits(gone) -> bool:
        left, used = list(free), held
        for _, size, seats, _ in gone:
            used -= size * len(seats)
            for where in seats:
                left[where] += size
        room = sum(one // each for one in left) >= pods
        return room and (not quota or used + each * pods <= quota)

    sets = [one for n in range(len(gangs) + 1) for one in combinations(gangs, n) if fits(one)]
    best = min((sum(cost for *_, cost in one) for one in sets), default=None)
    engine.observe(
        GangSeen(templated("high", pods, needs(each), queue="q", priority=10, created_s=NOW_S)),
        NOW_S,
    )
    plan = make_plan(engine.begin_cycle(NOW_S), POLICIES, NOW_S)
    if best is None:
        assert not plan.placements
        return
    (planned,) = plan.placements
    named = {one.gang for one in planned.placement.evicts}
    assert sum(cost for gang, *_, cost in gangs if gang in named) == best


def test_a_necessary_victim_is_found_behind_hundreds_of_cheaper_ones():
    """On each of 64 nodes seven cheap gangs and a dear one: for a whole node that has to go."""
    nodes = 64
    engine = an_engine(*(node(f"n{index}") for index in range(nodes)))
    rules = Preemption(Within.LOWER, Reclaim.NEVER)
    engine.observe(QueueSeen(Queue("q", preemption=rules)), 0.0)
    for index in range(nodes * GPUS):
        where, dear = index // GPUS, index % GPUS == 0
        started_s = 10.0 + where if dear else NOW_S - 100.0
        group = templated(f"low-{index}", 1, needs(1), queue="q", created_s=started_s)
        engine.observe(GangSeen(group), started_s)
        fact = pod(
            f"low-{index}-worker-0", f"low-{index}", needs(1), node=f"n{where}", role="worker",
            started_s=started_s,
        )  # fmt: skip
        engine.observe(fact, started_s)
    engine.observe(GangSeen(templated("high", 1, needs(8), queue="q", priority=9)), NOW_S)
    plan = make_plan(engine.begin_cycle(now_s=NOW_S), POLICIES, NOW_S)
    (planned,) = plan.placements
    (where,) = {name for _, name in planned.placement.nodes}
    assert where == f"n{nodes - 1}"  # there the dear one has run for the shortest time
    first = (nodes - 1) * GPUS
    gone = {eviction.gang for eviction in planned.placement.evicts}
    assert gone == {f"ns/low-{index}" for index in range(first, first + GPUS)}
