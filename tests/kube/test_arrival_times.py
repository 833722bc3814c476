"""How long nodes take until they are there, learnt from those that came."""

import math
import random
from statistics import median

import pytest

from gangsched.core.model.node_pools import NodePool
from gangsched.kube.provisioning.arrival_times import ArrivalTimes
from gangsched.kube.provisioning.karpenter.pools import paused


def learnt(*times_s, default_s=300.0):
    times = ArrivalTimes()
    for took_s in times_s:
        times.add("p5", took_s)
    return times.learnt("p5", default_s)


def test_the_setting_counts_until_nodes_came():
    assert learnt() == (300.0, 0.0)
    assert learnt(120.0) == (120.0, 0.0)


def test_the_spread_is_that_of_the_logarithms():
    assert learnt(100.0, 100.0 * math.e**2, 100.0, 100.0 * math.e**2)[1] == 1.0
    assert learnt(-5.0, 0.0, 0.0, 0.0) == (1.0, 0.0)  # clocks of two machines differ


def test_old_times_are_forgotten():
    assert learnt(*[100.0] * 1000, *[300.0] * 200) == (300.0, 0.0)


def test_the_last_of_many_nodes_is_later():
    one = NodePool("p5", None, 16, arrival_s=300.0, arrival_spread=0.2)
    assert one.arrival_of(1) == pytest.approx(300.0)
    assert 300.0 < one.arrival_of(4) < one.arrival_of(64) < 600.0
    assert NodePool("p5", None, 16, arrival_s=300.0).arrival_of(64) == 300.0


def test_the_median_of_the_last_is_that_of_drawn_times():
    rng = random.Random(1)
    one = NodePool("p5", None, 16, arrival_s=300.0, arrival_spread=0.2)
    last = [max(300.0 * math.exp(rng.gauss(0.0, 0.2)) for _ in range(16)) for _ in range(2000)]
    assert one.arrival_of(16) == pytest.approx(median(last), rel=0.02)


def test_a_pool_that_failed_has_nodes_later():
    pool = NodePool("p5", None, 7)
    assert paused(pool, None) is pool
    assert (paused(pool, 90.0).nodes_left, paused(pool, 90.0).nodes_later) == (0, 7)
