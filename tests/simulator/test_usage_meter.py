"""GPU use over time: no capacity is counted twice, and borrowed equals lent quota."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import needs, node
from effort import seeds

from gangsched.core import facts as f
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.pods import GpuShare, PodRequirements
from gangsched.core.model.queues import Queue, Quota
from simulator.experiments.results import queue_rows, run_figures, write
from simulator.experiments.run import run
from simulator.experiments.stories import details
from simulator.jobs import GPU, Job, gpus_of
from simulator.scenarios.scenario import load, parse
from simulator.virtual.usage_meter import Meter

UNKIND = Path(__file__).parents[2] / "examples" / "simulations" / "unkind.yaml"
CONTENDED = {
    "version": "gangsched.io/simulation/v1",
    "name": "contended",
    "cluster": {"nodes": [{"name": "node", "count": 4, "gpus": 8, "rack_size": 2}]},
    "queues": {"guarantee": "equal"},
    "workload": {
        "generators": [
            {
                "jobs": 60, "every": "2m", "runtime": "20m", "longest": "2h",
                "pods": {1: 2, 2: 1}, "gpus": {2: 1, 8: 1}, "queues": {"a": 3, "b": 1},
            }
        ],
        "grace": "3m",
    },
}  # fmt: skip


def most_at_once(starts, ends, amounts):
    """Return the most that intervals hold together; who ends makes room for who begins."""
    times = np.append(ends, starts)
    order = np.lexsort((np.arange(len(times)), times))
    return np.cumsum(np.append(-amounts, amounts)[order]).max(initial=0.0)


def check(result, folder):
    """Look at every output of a run."""
    stays, total = result.stays, sum(dict(one.allocatable)[GPU] for one in result.nodes)
    for number, one in enumerate(result.nodes):
        here = stays.node == number
        most = most_at_once(stays.start_s[here], stays.end_s[here], stays.gpus[here])
        assert most <= dict(one.allocatable)[GPU]
    for sample in result.samples:
        inside = (stays.start_s < sample.at_s) & (stays.end_s > sample.at_s)
        edge = (stays.start_s <= sample.at_s) & (stays.end_s >= sample.at_s)
        assert stays.gpus[inside].sum() <= sample.used <= stays.gpus[edge].sum()
        assert sample.used + sample.in_pieces <= sample.gpus <= total
    for _, picture in result.pictures:
        assert all(
            used <= dict(n.allocatable)[GPU] for used, n in zip(picture, result.nodes, strict=True)
        )
    assert np.max(details(result)["lane_busy"]) <= 1
    found, queues = run_figures(result), queue_rows(result)
    assert found["gpu_busy"] <= 1
    assert found["gpu_busy_all"] <= 1
    roots = sum(row["used_gpu_h"] for row in queues if row["depth"] == 0)
    assert roots * 3600 == pytest.approx(found["gpu_busy"] * total * result.last_s)
    borrowed, lent = (sum(r[f"{what}_gpu_h"] for r in queues) for what in ("borrowed", "lent"))
    assert lent <= borrowed + 1e-6  # what guarantees leave of a GPU is the parent's own
    assert borrowed <= lent + len(queues) * result.last_s / 3600
    assert all(row["guarantee_used"] is None or row["guarantee_used"] <= 1 for row in queues)
    write(result, folder, {})
    rows = pq.read_table(folder / "jobs.parquet").to_pylist()
    ran = [(r["start_s"], r["end_s"], row["all_gpus"]) for row in rows for r in row["runs"]]
    assert most_at_once(*np.array(ran).T) <= total


@pytest.mark.parametrize("seed", seeds(3))
def test_no_output_has_more_gpus_used_than_there_are(seed, tmp_path):
    result = run(parse(CONTENDED, "test", tmp_path), seed)
    assert result.preempted  # room is kept until others have left
    check(result, tmp_path / "out")


@pytest.mark.parametrize("seed", seeds(1))
def test_nor_has_any_where_nodes_and_calls_fail(seed, tmp_path):
    check(run(load(UNKIND, ("workload.generators.0.jobs=60",)), seed), tmp_path / "out")


# -- by hand ----------------------------------------------------------------------------------


class Hand:
    """A meter that is told who holds what."""

    def __init__(self, *queues):
        self.meter = Meter([node("n0", 64)], queues)
        self._uids = 0

    def holds(self, queue, gpus, since_s, until_s):
        """Have a gang of a queue hold GPUs for a time."""
        self._uids += 1
        name, uid = GangId(f"ns/{self._uids}"), PodUid(str(self._uids))
        return (
            (since_s, f.GangSeen(Gang(name, 1, (), queue=queue))),
            (since_s, f.PodSeen(uid, PodName("w"), needs(gpus), name, "w", NodeName("n0"))),
            (until_s, f.PodGone(uid)),
        )

    def quota_use(self, *stays, at_s=10.0):
        for when_s, fact in sorted((one for stay in stays for one in stay), key=lambda one: one[0]):
            self.meter.observe(fact, when_s)
        found = self.meter.quota_use(at_s)
        return {name: (one.own_s, one.borrowed_s, one.lent_s) for name, one in found.items()}


def queue(name, nominal, parent="", lending=None):
    lending = None if lending is None else lending * 1000
    return Queue(name, parent=parent, quotas=(Quota(GPU, nominal * 1000, lending=lending),))


def test_what_one_borrows_its_siblings_lend_by_what_lies_unused():
    hand = Hand(queue("all", 24), queue("a", 8, "all"), queue("b", 8, "all"), queue("c", 8, "all"))
    found = hand.quota_use(hand.holds("a", 14, 0, 10), hand.holds("b", 4, 0, 10))
    assert found["a"] == (80, 60, 0)
    assert found["b"] == (40, 0, 20)  # 4 of 12 lie unused here
    assert found["c"] == (0, 0, 40)
    assert found["all"] == (180, 0, 0)


def test_quota_that_a_parent_gave_to_no_child_is_lent_by_none():
    hand = Hand(queue("all", 24), queue("a", 8, "all"), queue("b", 8, "all"))
    found = hand.quota_use(hand.holds("a", 18, 2, 4))
    assert found["a"] == (16, 20, 0)
    assert found["b"] == (0, 0, 4)


def test_what_is_not_lent_is_kept_and_what_a_parent_borrows_its_siblings_lend():
    hand = Hand(
        queue("all", 24), queue("x", 8, "all"), queue("x1", 4, "x"), queue("x2", 4, "x", 1),
        queue("y", 16, "all"),
    )  # fmt: skip
    found = hand.quota_use(hand.holds("x1", 9, 0, 10))
    assert found["x1"] == (40, 50, 0)
    assert found["x2"] == (0, 0, 10)
    assert found["x"] == (80, 10, 0)
    assert found["y"] == (0, 0, 10)


def test_gpus_of_a_job_are_those_its_pods_ask_for():
    assert Job("a", 0, 1, 2, 4).all_gpus() == 8
    assert Job("b", 0, 1, 3, 0, needs=PodRequirements((), share=GpuShare(250))).all_gpus() == 0.75
    assert gpus_of(PodRequirements(((GPU, 2),))) == 2
