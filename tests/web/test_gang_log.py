"""What the log of gangs keeps: sentences and runs, bounded."""

import pytest
from builders import an_engine, needs, node, pod, templated

from gangsched.core.facts import BindFailed, GangGone, GangSeen, PlanFailed, PodGone
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.web import gang_log
from gangsched.web.gang_log import GangLog

GANG = GangId("ns/job")
A, B = NodeName("a"), NodeName("b")


class Followed:
    """An engine and its log."""

    def __init__(self):
        self.engine = an_engine(node("a"), node("b"))
        self.log = GangLog(self.engine.view)

    def see(self, fact, at_s):
        self.log.before(fact, at_s)
        self.engine.observe(fact, at_s)

    def runs(self, name="job", at_s=10.0, pods=2):
        self.see(GangSeen(templated(name, pods, needs(2))), at_s)
        for number in range(pods):
            self.see(self.pod(name, number), at_s)

    def pod(self, name, number, **more):
        more.setdefault("started_s", 10.0)
        return pod(
            f"{name}-worker-{number}",
            name,
            needs(2),
            role="worker",
            node=(A, B)[number % 2],
            **more,
        )

    def texts(self, gang="ns/job"):
        self.log.settle()
        return [line.text for line in self.log.story(gang)]


@pytest.fixture
def followed():
    return Followed()


def test_a_run_and_its_end_are_kept(followed):
    followed.runs()
    for number in range(2):
        followed.see(followed.pod("job", number, ended=True), 50.0 + number)
    followed.see(GangGone(GANG), 60.0)
    for number in range(2):
        followed.see(PodGone(PodUid(f"job-worker-{number}")), 61.0)
    followed.log.settle()
    (run,) = followed.log.runs
    assert (run.gang, run.queue, run.gpus) == ("ns/job", "default", 4.0)
    assert (run.started_s, run.ended_s, run.outcome) == (10.0, 51.0, "ended")
    assert followed.texts() == [
        "2 pods ended.",
        "2 pods run on a, b.",
        "The gang waits to be placed: 2 pods.",
    ]
    assert followed.log.runs_until(50.0) == ()
    assert followed.log.runs_until(51.0) == (run,)


def test_a_run_that_is_stopped_is_kept_as_stopped(followed):
    followed.runs()
    for number in range(2):
        followed.see(PodGone(PodUid(f"job-worker-{number}")), 30.0)
    followed.log.settle()
    assert [(run.ended_s, run.outcome) for run in followed.log.runs] == [(30.0, "stopped")]


def test_failures_are_named(followed):
    followed.runs()
    followed.see(followed.pod("job", 0, ended=True, failed=True), 20.0)
    followed.see(BindFailed(PodUid("job-worker-1"), B, "it is full"), 21.0)
    followed.see(PlanFailed(GANG, "the policy is slow"), 22.0)
    texts = followed.texts()
    assert "Pod ns/job-worker-0 failed on node a." in texts
    assert "Pod ns/job-worker-1 cannot use node b: it is full" in texts
    assert "It cannot be planned: the policy is slow" in texts


def test_plans_and_new_reasons_are_kept(followed):
    followed.see(GangSeen(templated("job", 2)), 1.0)
    refusal = Refusal(GANG, Reason.NOT_ENOUGH_FREE, "4 GPUs are free.")
    for at_s in (2.0, 3.0):
        followed.log.refused({GANG: refusal}, at_s)
    assert followed.texts().count("It waits: 4 GPUs are free.") == 1
    nodes = tuple((PodName(f"p{n}"), NodeName(f"n{n // 2}")) for n in range(12))
    followed.log.assigned({GANG: Placement(nodes)}, 4.0)
    assert followed.texts()[0] == (
        "The plan assigns 12 pods to n0 x2, n1 x2, n2 x2, n3 x2 and 2 more nodes."
    )
    followed.see(GangSeen(templated("job", 2, queue="other")), 5.0)
    assert (
        followed.texts()[0] == "The declaration changed: now in queue other with at least 2 pods."
    )


def test_a_story_ends_at_the_moment_that_is_shown(followed):
    followed.runs(at_s=10.0)
    followed.see(followed.pod("job", 0, ended=True, failed=True), 20.0)
    followed.log.settle()
    assert all(line.at_s <= 15.0 for line in followed.log.story("ns/job", 15.0))
    assert followed.log.story("ns/job", 15.0)
    assert followed.log.changes_beside(15.0) == (10.0, None)
    assert followed.log.changes_beside(5.0) == (None, 10.0)


def test_the_log_is_bounded(followed, monkeypatch):
    monkeypatch.setattr(gang_log, "_GANGS", 3)
    for number in range(10):
        followed.see(PlanFailed(GangId(f"ns/g{number}"), "it is slow"), float(number))
    assert [len(followed.log.story(f"ns/g{n}")) for n in range(10)] == [0] * 7 + [1] * 3
    for number in range(1000):
        followed.see(PlanFailed(GANG, f"try {number}"), 20.0 + number)
    lines = followed.log.story("ns/job")
    assert (len(lines), lines[0].text) == (200, "It cannot be planned: try 999")
    monkeypatch.setattr(gang_log, "_LINES", 100)
    followed.see(PlanFailed(GangId("ns/last"), "it is slow"), 2000.0)
    assert sum(len(followed.log.story(g)) for g in ("ns/job", "ns/last")) <= 100


def test_a_restart_of_the_scheduler_goes_on(followed):
    followed.runs()
    followed.log.settle()
    other = Followed()
    followed.log.follow(other.engine.view)
    followed.engine = other.engine
    followed.runs(at_s=40.0)
    for number in range(2):
        followed.see(followed.pod("job", number, ended=True), 50.0)
    followed.log.settle()
    assert [(run.started_s, run.ended_s) for run in followed.log.runs] == [(10.0, 50.0)]
