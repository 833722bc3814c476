"""Pools in virtual time: whole purchases, shortages, spot nodes, budgets, and what is paid."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.config import ConfigError
from simulator.experiments.results import OBJECTIVES, pool_rows, queue_rows, run_figures
from simulator.experiments.run import RunResult, run
from simulator.scenarios.scenario import parse

PRICE = 100.0


def pool(name="p5", **more):
    return {"name": name, "nodes": 8, "gpus": 8, "price": PRICE, "boot": 300, "boot_spread": 0,
            **more}  # fmt: skip


def jobs(count=1, pods=4, every=1, runtime=3600, **more):
    return {"jobs": count, "every": every, "runtime": runtime, "spread": 0, "pods": {pods: 1},
            "gpus": {8: 1}, **more}  # fmt: skip


def simulated(pools, generators, *, seed=0, **more) -> RunResult:
    values = {"version": "gangsched.io/simulation/v1", "name": "test", "pools": pools, **more}
    values["workload"] = {"generators": generators, **more.get("workload", {})}
    return run(parse(values, "test", Path()), seed)


def test_a_gang_gets_all_its_nodes_and_pays_for_them():
    result = simulated([pool()], [jobs()])
    (outcome,) = result.outcomes
    assert outcome.wait_s == pytest.approx(2 + 10 + 300)  # seen, lacking nodes, and their boot
    (row,) = pool_rows(result)
    assert (row["nodes_bought"], row["nodes_max"], row["wasted_node_h"]) == (4, 4, 0.0)
    assert row["cost"] == pytest.approx(4 * PRICE * (300 + 3600) / 3600)
    figures = run_figures(result)
    assert figures["cost"] == OBJECTIVES["cost"][1](result) == row["cost"]
    assert figures["gpu_busy_all"] == pytest.approx(3600 / 3900)
    (queue,) = (one for one in queue_rows(result) if one["queue"] == "default")
    assert queue["cost"] == row["cost"]


def test_nodes_are_used_again_before_they_are_given_back():
    result = simulated([pool(nodes=4)], [jobs(3)])
    (row,) = pool_rows(result)
    assert row["nodes_bought"] == 4
    assert all(outcome.ended_s is not None for outcome in result.outcomes)


def test_idle_nodes_are_given_back():
    result = simulated([pool()], [jobs(2, every=20_000, runtime=60)])
    (row,) = pool_rows(result)
    assert row["nodes_bought"] == 8
    assert row["nodes_max"] == 4
    assert row["bought_node_h"] == pytest.approx((4 * (300 + 60 + 60) + 4 * 360) / 3600, abs=0.2)


def test_no_node_is_bought_for_a_gang_that_does_not_fit():
    result = simulated([pool(nodes=3)], [jobs()])
    (outcome,) = result.outcomes
    assert outcome.started_s is None
    assert outcome.job.id in result.never
    assert run_figures(result)["bought_node_h"] == 0.0


def test_a_pool_that_is_short_fails_the_whole_purchase():
    """The cheaper pool is always short: each purchase from it fails, until the other is tried."""
    short = pool("short", price=50.0, shortage_mtbf=0.001, shortage_repair=1e9)
    result = simulated([short, pool("p5", nodes=4)], [jobs()])
    first, second = pool_rows(result)
    assert first["purchase_failures"] >= 1
    assert (second["nodes_bought"], second["wasted_node_h"]) == (4, 0.0)
    assert first["wasted_node_h"] == pytest.approx(first["bought_node_h"])
    assert result.outcomes[0].ended_s is not None


def test_nodes_that_are_late_are_given_back():
    result = simulated(
        [pool("slow", price=1.0, boot=2000), pool("p5", nodes=4)], [jobs()], buying={"late": 600}
    )
    slow, _ = pool_rows(result)
    assert slow["purchase_failures"] == 1
    assert slow["bought_node_h"] == slow["wasted_node_h"] == pytest.approx(4 * 600 / 3600)


def test_spot_nodes_are_for_jobs_that_can_be_stopped_and_may_be_taken_back():
    spot = pool("spot", price=10.0, spot=True, reclaim_mtbf=3600)
    pools, saves = [spot, pool()], {"checkpoint": 60, "checkpoint_grace": 60}
    lasting = simulated(pools, [jobs(runtime=7200)])
    assert pool_rows(lasting)[0]["nodes_bought"] == 0
    stopped = simulated(pools, [jobs(runtime=7200)], workload=saves)
    row = pool_rows(stopped)[0]
    assert row["nodes_bought"] >= 4
    assert row["reclaimed_nodes"] >= 1
    assert stopped.outcomes[0].stopped >= 1
    assert stopped.outcomes[0].ended_s is not None


def test_a_queue_spends_no_more_than_it_may():
    queue = {"name": "default", "maxPricePerHour": 850}
    result = simulated([pool(nodes=64)], [jobs(6)], queues=[queue])
    assert max(counts["p5"] for _, counts in result.nodes_bought) == 8
    assert all(outcome.ended_s is not None for outcome in result.outcomes)


def test_a_restart_of_the_scheduler_neither_leaks_nor_repeats_purchases():
    faults = {"restart_mtbf": 120, "api_latency": 0.01}
    result = simulated([pool()], [jobs(8, runtime=1800, every=300)], faults=faults)
    assert all(outcome.ended_s is not None for outcome in result.outcomes)
    assert max(counts["p5"] for _, counts in result.nodes_bought) <= 8


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_with_shortages_and_reclaims_all_jobs_finish_within_the_limits(seed):
    """Every invariant of the scheduler is checked at each event of these runs."""
    pools = [
        pool("a", nodes=4, boot_spread=1.0, shortage_mtbf=3600, shortage_repair=1800),
        pool("b", nodes=6, price=30.0, spot=True, reclaim_mtbf=5400, boot_spread=0.5),
    ]
    sizes = jobs(15, every=400, runtime=900, spread=1.0) | {"pods": {1: 3, 2: 2, 4: 1}}
    work = {"checkpoint": 120, "checkpoint_grace": 60}
    result = simulated(pools, [sizes], seed=seed, workload=work)
    assert all(outcome.ended_s is not None for outcome in result.outcomes)
    for row in pool_rows(result):
        assert row["nodes_max"] <= row["nodes_limit"]
        assert 0 <= row["wasted_node_h"] <= row["bought_node_h"] + 1e-9


def test_a_seed_is_the_same_run_again():
    pools = [pool(boot_spread=1.0, shortage_mtbf=3600, shortage_repair=1800)]
    runs = [simulated(pools, [jobs(6, every=600)], seed=3) for _ in range(2)]
    assert runs[0].nodes_bought == runs[1].nodes_bought
    assert pool_rows(runs[0]) == pool_rows(runs[1])


def test_names_of_pools_and_groups_differ():
    node = {"name": "p5", "count": 1}
    with pytest.raises(ConfigError, match="the name 'p5' is there twice"):
        simulated([pool()], [jobs()], cluster={"nodes": [node]})
    with pytest.raises(ConfigError, match="there are no nodes"):
        simulated([], [jobs()])


def test_waiting_has_a_price():
    result = simulated([pool()], [jobs()], buying={"wait_price": 36.0})
    paid = OBJECTIVES["cost"][1](result)
    assert OBJECTIVES["cost_and_wait"][1](result) == pytest.approx(paid + 3.12)
