"""Records of gangs: how each ends, what is counted, and what a restart keeps."""

import pytest
from builders import an_engine, needs, node, plan, pod, templated

from gangsched.core.facts import GangGone, GangSeen, PodGone, PodSeen, PreemptionRestored, QueueSeen
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.queues import Queue
from gangsched.core.orders import Drain, DrainReason, Preempt
from gangsched.recording import gang_recorder
from gangsched.recording.gang_record import GangOutcome, GangRecord
from gangsched.recording.gang_recorder import GangRecorder

JOB = GangId("ns/job")
A, B = NodeName("a"), NodeName("b")
CREATED_S = 100.0


class Sink:
    """Takes records, as the file does."""

    def __init__(self, unended=()):
        self.unended = {record.key: record for record in unended}
        self.records: list[GangRecord] = []

    def write(self, record):
        self.unended.pop(record.key, None)
        self.records.append(record)

    def write_unended(self, record):
        self.unended[record.key] = record


class Recorded:
    """An engine and its recorder."""

    def __init__(self, sink=None, prices=None, price=None):
        """Take prices of GPUs, and a price of node a."""
        a, b = node("a", gpu_model="H100", price=price), node("b", gpu_model="A100")
        self.engine = an_engine(a, b)
        self.engine.observe(QueueSeen(Queue("q")), 0.0)
        self.sink = sink or Sink()
        self.recorder = GangRecorder(self.engine.view, self.sink, prices)

    def see(self, fact, at_s):
        self.recorder.before(fact, at_s)
        return self.engine.observe(fact, at_s)

    def declare(self, at_s=CREATED_S, pods=2, **more):
        more = {"created_s": CREATED_S, "user": "alice", "queue": "q", **more}
        self.see(GangSeen(templated("job", pods, needs(4), **more)), at_s)

    def pods(self, at_s, pods=2, **more):
        more = {"started_s": 110.0, "created_s": CREATED_S, **more}
        for number in range(pods):
            where = (A, B)[number % 2]
            fact = pod(f"job-worker-{number}", "job", needs(4), role="worker", node=where, **more)
            self.see(fact, at_s)

    def gone(self, at_s, pods=2):
        self.see(GangGone(JOB), at_s)
        for number in range(pods):
            self.see(PodGone(PodUid(f"job-worker-{number}")), at_s)

    def record(self, at_s=1000.0):
        self.recorder.tick(at_s)
        (record,) = self.sink.records
        return record


@pytest.fixture
def recorded():
    return Recorded()


def test_a_gang_that_completes(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.pods(160.0, ended=True)
    record = recorded.record(160.0)
    assert record.outcome is GangOutcome.COMPLETED
    assert (record.namespace, record.name) == ("ns", "job")
    assert (record.queue, record.user, record.pods, record.gpus_per_pod) == ("q", "alice", 2, 4.0)
    assert (record.submitted_s, record.started_s, record.ended_s) == (100.0, 110.0, 160.0)
    assert (record.wait_s, record.ran_s, record.runs) == (10.0, 50.0, 1)
    assert record.gpu_s == {"H100": 200.0, "A100": 200.0}
    assert record.nodes == ("a", "b")
    assert recorded.sink.unended == {}
    recorded.gone(500.0)
    recorded.recorder.tick(501.0)
    assert len(recorded.sink.records) == 1  # its deletion later is no other end


def test_a_gang_costs_what_its_gpus_cost():
    for prices, cost in (({"H100": 3.6, "A": 9.0, "A100": 1.8}, 0.3), ({"H100": 3.6}, 0.2)):
        recorded = Recorded(prices=prices)
        recorded.declare()
        recorded.pods(110.0)
        recorded.pods(160.0, ended=True)
        assert recorded.record(160.0).cost == pytest.approx(cost)


@pytest.mark.parametrize(
    ("prices", "cost"),
    [({}, 50 / 3600 * 36.0), ({"H100": 99.0, "A100": 1.8}, 50 / 3600 * (36.0 + 4 * 1.8))],
)
def test_a_node_with_a_price_is_paid_by_its_share(prices, cost):
    recorded = Recorded(prices=prices, price=72.0)
    recorded.declare()
    recorded.pods(110.0)
    recorded.pods(160.0, ended=True)
    assert recorded.record(160.0).cost == pytest.approx(cost)


def test_the_cost_until_a_restart_is_kept():
    recorded = Recorded(price=72.0)
    recorded.declare()
    recorded.pods(110.0)
    recorded.pods(130.0, pods=1, ended=True)
    later = Recorded(Sink(recorded.sink.unended.values()), price=72.0)
    later.declare(200.0)
    later.pods(200.0, started_s=200.0)
    later.pods(300.0, ended=True)
    assert later.record(300.0).cost >= 100 / 3600 * 36.0


def test_a_gang_that_never_ran_costs_nothing():
    recorded = Recorded(prices={"H100": 3.6})
    recorded.declare()
    recorded.gone(160.0)
    assert recorded.record(160.0).cost == 0.0


def test_without_prices_no_cost_is_known(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.pods(160.0, ended=True)
    assert recorded.record(160.0).cost is None


def test_pods_that_end_earlier_use_less(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.pods(130.0, pods=1, ended=True)
    recorded.pods(160.0, ended=True)
    record = recorded.record()
    assert record.gpu_s == {"H100": 80.0, "A100": 200.0}
    assert record.pods == 2
    assert record.nodes == ("a", "b")


def test_a_gang_whose_pods_fail_is_recorded_at_once(recorded):
    recorded.declare(pods=1)
    recorded.pods(110.0, pods=1)
    recorded.pods(120.0, pods=1, ended=True, failed=True)
    assert recorded.record(121.0).outcome is GangOutcome.FAILED


def test_a_job_that_starts_again_after_a_failure_is_one_record(recorded):
    recorded.declare(pods=1)
    recorded.pods(110.0, pods=1)
    recorded.pods(120.0, pods=1, ended=True, failed=True)
    recorded.see(PodGone(PodUid("job-worker-0")), 121.0)
    recorded.see(
        pod("job-worker-0", "job", needs(4), role="worker", node=A, uid="again", started_s=130.0),
        130.0,
    )
    recorded.see(
        pod(
            "job-worker-0", "job", needs(4), role="worker", node=A, uid="again", ended=True,
            started_s=130.0,
        ),
        150.0,
    )  # fmt: skip
    recorded.recorder.tick(150.0)
    first, last = recorded.sink.records
    assert (first.outcome, first.runs) == (GangOutcome.FAILED, 1)
    assert (last.outcome, last.runs, last.key) == (GangOutcome.COMPLETED, 2, first.key)
    assert last.ran_s == 30.0
    assert last.started_s == 110.0


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ((), GangOutcome.CANCELLED),
        (({"ended": True},), GangOutcome.COMPLETED),
        (({"ended": True, "failed": True},), GangOutcome.FAILED),
    ],
)
def test_a_running_gang_that_is_deleted(recorded, facts, outcome):
    recorded.declare()
    recorded.pods(110.0)
    for more in facts:
        recorded.pods(120.0, pods=1, **more)
    recorded.gone(130.0)
    assert recorded.record().outcome is outcome


def test_a_gang_that_never_starts(recorded):
    recorded.declare(pods=5, queue="default")
    plan(recorded.engine, 100.0)
    recorded.recorder.tick(101.0)
    for at_s in (110.0, 112.0, 120.0):
        recorded.recorder.tick(at_s)
    recorded.gone(130.0, pods=0)
    record = recorded.record()
    assert (record.outcome, record.started_s) == (GangOutcome.CANCELLED, None)
    assert (record.wait_s, record.ran_s, record.pods, record.gpu_s) == (30.0, 0.0, 5, {})
    (reason,) = record.reasons
    assert reason == "LargerThanCluster"
    assert 15.0 <= record.reasons[reason] <= 20.0


def test_a_preempted_gang_counts_what_it_lost(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.recorder.order(Preempt(JOB, GangId("ns/other"), (), "priority", 123.0))
    recorded.recorder.order(Preempt(JOB, GangId("ns/other"), ("one",), "surplus", 5.0))
    recorded.gone(130.0)
    record = recorded.record()
    assert (record.outcome, record.preemptions) == (GangOutcome.PREEMPTED, 1)
    assert record.lost_gpu_s == 123.0


def test_a_drained_gang_counts_as_preempted(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.recorder.order(Drain(JOB, DrainReason.QUEUE, "q", 7.0))
    recorded.gone(130.0)
    assert recorded.record().lost_gpu_s == 7.0


def test_a_gang_that_runs_for_too_long(recorded):
    recorded.declare(max_runtime_s=20.0)
    recorded.pods(110.0)
    recorded.recorder.tick(111.0)
    recorded.engine.tick(140.0)
    recorded.gone(140.0)
    assert recorded.record(140.0).outcome is GangOutcome.TIMEOUT


def test_a_restart_goes_on_with_the_record(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.recorder.order(Preempt(JOB, GangId("ns/other"), (), "priority", 9.0))
    recorded.recorder.tick(111.0)
    stored = tuple(recorded.sink.unended.values())
    assert [record.runs for record in stored] == [0]
    later = Recorded(Sink(stored))
    later.declare(at_s=130.0)
    later.pods(130.0)
    later.see(PreemptionRestored(JOB, GangId("ns/other"), 105.0), 130.0)
    later.pods(160.0, ended=True)
    record = later.record(160.0)
    assert (record.started_s, record.ran_s, record.runs) == (110.0, 50.0, 1)
    assert record.preemptions == 1


def test_a_gang_that_ended_while_no_scheduler_ran(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.recorder.tick(111.0)
    later = Recorded(Sink(tuple(recorded.sink.unended.values())))
    later.declare(at_s=160.0)
    later.pods(160.0, ended=True)
    record = later.record(160.0)
    assert (record.outcome, record.started_s, record.ran_s) == (GangOutcome.COMPLETED, 110.0, 50.0)


def test_a_gang_that_an_earlier_process_recorded_is_not_recorded_again():
    later = Recorded()
    later.declare(at_s=160.0)
    later.pods(160.0, ended=True)
    later.gone(200.0)
    later.recorder.tick(201.0)
    assert later.sink.records == []


def test_a_gang_that_was_deleted_while_no_scheduler_ran(recorded):
    recorded.declare()
    recorded.pods(110.0)
    recorded.recorder.tick(111.0)
    later = Recorded(Sink(tuple(recorded.sink.unended.values())))
    record = later.record(160.0)
    assert (record.outcome, record.started_s, record.ran_s) == (GangOutcome.CANCELLED, 110.0, 50.0)
    later.recorder.tick(170.0)
    assert len(later.sink.records) == 1


def test_another_gang_of_the_same_name_has_a_record_of_its_own(recorded):
    recorded.declare(pods=1)
    recorded.pods(110.0, pods=1)
    recorded.pods(120.0, pods=1, ended=True)
    recorded.gone(121.0, pods=1)
    recorded.declare(at_s=200.0, pods=1, created_s=200.0)
    recorded.pods(210.0, pods=1, uid="new", created_s=200.0, started_s=210.0)
    recorded.pods(220.0, pods=1, uid="new", created_s=200.0, started_s=210.0, ended=True)
    recorded.recorder.tick(221.0)
    assert [(r.created_s, r.ran_s) for r in recorded.sink.records] == [(100.0, 10.0), (200.0, 10.0)]


def test_pods_without_a_gang_are_no_records(recorded):
    recorded.see(pod("alone", None, node=A), 100.0)
    recorded.see(PodGone(PodUid("alone")), 110.0)
    recorded.recorder.tick(120.0)
    assert recorded.sink.records == []


def test_nodes_are_bounded(recorded, monkeypatch):
    monkeypatch.setattr(gang_recorder, "_NODES", 1)
    recorded.declare()
    recorded.pods(110.0)
    recorded.pods(160.0, ended=True)
    assert recorded.record().nodes == ("a",)


def test_the_recorder_forgets_gangs_that_are_gone(recorded):
    for number in range(50):
        name = f"g{number}"
        recorded.see(GangSeen(templated(name, 1, created_s=1.0)), 1.0)
        fact = PodSeen(PodUid(name), f"ns/{name}", needs(), GangId(f"ns/{name}"), node=A)
        recorded.see(fact, 2.0)
        recorded.see(GangGone(GangId(f"ns/{name}")), 3.0)
        recorded.see(PodGone(PodUid(name)), 3.0)
    recorded.recorder.tick(4.0)
    assert not recorded.recorder._open
    assert not recorded.recorder._over
    assert len(recorded.sink.records) == 50
