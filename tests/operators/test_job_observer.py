"""What happens to jobs is counted once each, and under a bounded number of labels."""

import random

import pytest
from prometheus_client.exposition import generate_latest

from gangsched.core.bounds import METRIC_NAMESPACES, METRIC_QUEUES
from gangsched.job_metrics import OTHER
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.metrics import Metrics
from gangsched.operators.controllers.job_observer import JobObserver, queue_named_by
from gangsched.operators.controllers.pod_jobs import PodJobs
from gangsched.operators.controllers.reconciler import Reconciler

CREATED = "2026-01-01T00:00:00Z"
CREATED_S = 1_767_225_600.0
QUEUES = {"default", "vision"}


class Watched:
    """The metrics of one process, and the jobs that its watches report."""

    def __init__(self) -> None:
        self.now_s = CREATED_S
        self.metrics = Metrics()
        self.metrics.jobs.queue_exists = QUEUES.__contains__
        self.metrics.jobs.live._now_s = lambda: self.now_s
        self.observer = JobObserver(self.metrics.jobs, lambda: self.now_s)

    def sees(self, *states, kind="PyTorchJob", after_s=0.0, **names) -> None:
        self.now_s += after_s
        self.observer.seen(kind, job(*states, **names))

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def counted(self, what: str, kind="PyTorchJob", queue="vision", **labels) -> float | None:
        return self.value(f"gangsched_jobs_{what}_total", kind=kind, queue=queue, **labels)

    def live(self, state: str, kind="PyTorchJob", queue="vision") -> float | None:
        return self.value("gangsched_jobs", kind=kind, queue=queue, state=state)

    def upstream(self, what: str, namespace="team") -> float | None:
        name = f"training_operator_jobs_{what}_total"
        return self.value(name, job_namespace=namespace, framework="pytorch")

    def series(self) -> int:
        text = generate_latest(self.metrics.registry).decode()
        return sum(not line.startswith("#") for line in text.splitlines())


def job(*states, name="train", uid="u1", queue="vision", namespace="team", status=None, **more):
    """Return a job with true conditions; `!` before a type is a false one."""
    conditions = [
        {
            "type": state.strip("!"),
            "status": "False" if state[0] == "!" else "True",
            "lastTransitionTime": more.get("at", CREATED),
        }
        for state in states
    ]
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "creationTimestamp": CREATED,
        "labels": {"gangsched.io/queue-name": queue},
        "ownerReferences": more.get("owners", []),
    }
    own = ({"conditions": conditions} if conditions else {}) | (status or {})
    return {"metadata": metadata, "spec": more.get("spec", {}), "status": own}


@pytest.fixture
def watched():
    return Watched()


def test_a_job_is_counted_from_its_creation_to_its_end(watched):
    watched.sees()
    assert (watched.counted("created"), watched.live("Starting")) == (1, 1)
    watched.sees("Created", "!Scheduled", after_s=10)
    assert (watched.live("Waiting"), watched.live("Starting")) == (1, 0)
    watched.sees("Created", "Scheduled", after_s=20)
    watched.sees("Created", "Running", after_s=30)
    assert watched.live("Running") == 1
    assert watched.value("gangsched_job_start_seconds_sum", kind="PyTorchJob", queue="vision") == 60
    watched.sees("Created", "!Running", "Succeeded", after_s=100)
    labels = {"kind": "PyTorchJob", "queue": "vision", "outcome": "Succeeded"}
    assert watched.value("gangsched_job_end_seconds_sum", **labels) == 160
    assert watched.counted("ended", outcome="Succeeded") == 1
    assert watched.counted("ended", outcome="Failed") == 0
    assert watched.live("Running") == 0
    names = ("created", "successful", "failed", "restarted", "deleted")
    assert [watched.upstream(what) for what in names] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("states", [("Created",), ("Created", "Running"), ("Created", "Failed")])
def test_a_restart_of_the_process_counts_nothing_again(states):
    after = Watched()
    after.sees(*states, after_s=3600)
    assert after.counted("created") in (0, None)
    assert after.counted("ended", outcome="Failed") in (0, None)
    assert after.upstream("created") is None
    live = {state: after.live(state) for state in ("Starting", "Running")}
    assert {state for state, count in live.items() if count} == {
        ("Created",): {"Starting"},
        ("Created", "Running"): {"Running"},
        ("Created", "Failed"): set(),
    }[states]


def test_what_happens_after_a_restart_of_the_process_is_counted(watched):
    watched.sees("Created", after_s=50)
    watched.sees("Created", "Running", after_s=10)
    watched.sees("Created", "!Running", "Failed", after_s=10)
    assert watched.value("gangsched_job_start_seconds_sum", kind="PyTorchJob", queue="vision") == 60
    assert watched.counted("ended", outcome="Failed") == 1
    assert watched.counted("created") == 0


def test_watches_that_begin_again_count_a_job_without_status_once(watched):
    for _ in range(3):
        watched.observer.begin()
        watched.sees()
    assert (watched.counted("created"), watched.live("Starting")) == (1, 1)


def test_gauges_are_those_of_the_last_watches(watched):
    watched.sees("Created", "Running")
    watched.sees("Created", "Running", name="gone", uid="u2")
    assert watched.live("Running") == 2
    watched.observer.begin()  # and the second is never reported again
    watched.sees("Created", "Running")
    assert watched.live("Running") == 1


def test_a_job_whose_conditions_flap_is_counted_by_transition(watched):
    """A tenant with the right to write statuses makes no more than one end of each kind."""
    watched.sees()
    for second in range(100):
        at = f"2026-01-01T00:01:{second % 60:02}Z"
        watched.sees("Created", "Running")
        watched.sees("Created", "Restarting", at=at)
        watched.sees("Created", "Restarting", at=at)
        watched.sees("Created", "!Running", "Succeeded")
        watched.sees("Created", "!Running", "Failed")
    assert watched.counted("created") == 1
    assert watched.counted("ended", outcome="Succeeded") == 1
    assert watched.counted("ended", outcome="Failed") == 1
    assert watched.counted("restarted") == 100
    assert (
        watched.value("gangsched_job_start_seconds_count", kind="PyTorchJob", queue="vision") == 1
    )
    assert watched.live("Running") == 0


def test_a_status_that_claims_a_million_restarts_counts_as_one(watched):
    watched.sees(kind="JobSet")
    watched.sees(kind="JobSet", status={"restarts": 0})
    watched.sees(kind="JobSet", status={"restarts": 10**6})
    watched.sees(kind="JobSet", status={"restarts": 10**6})
    assert watched.counted("restarted", kind="JobSet") == 1


def test_a_job_deleted_while_it_runs_has_no_end(watched):
    watched.sees()
    watched.sees("Created", "Running")
    for _ in range(2):  # the step finds it gone, and then the watch reports it
        watched.observer.gone("PyTorchJob", job())
    assert (watched.live("Running"), watched.counted("deleted")) == (0, 1)
    assert watched.counted("ended", outcome="Succeeded") == 0
    watched.sees(uid="successor")
    assert watched.counted("created") == 2
    watched.observer.gone("PyTorchJob", job())  # late
    assert watched.live("Starting") == 1


def test_a_job_deleted_after_its_end_was_not_stopped(watched):
    watched.sees()
    watched.sees("Created", "Succeeded")
    watched.observer.gone("PyTorchJob", job())
    assert (watched.counted("deleted"), watched.upstream("deleted")) == (0, 1)


def test_ten_thousand_queues_that_do_not_exist_are_one(watched):
    """And ten thousand namespaces, of another tenant, are a hundred and `other`."""
    watched.sees()
    before = watched.series()
    for number in range(10_000):
        watched.sees(uid=f"q{number}", name=f"q{number}", queue=f"queue-{number}")
    assert watched.counted("created", queue=OTHER) == 10_000
    assert watched.live("Starting", queue=OTHER) == 10_000
    most = 100
    assert watched.series() - before < most
    for number in range(1_000):
        watched.sees(uid=f"n{number}", namespace=f"namespace-{number}")
    named = METRIC_NAMESPACES.most - 1
    assert watched.upstream("created", OTHER) == 1_000 - named
    for number in range(10_000):
        watched.observer.gone("PyTorchJob", job(uid=f"q{number}", name=f"q{number}"))
    assert watched.live("Starting", queue=OTHER) == 0
    assert len(watched.metrics.jobs.live._since) == 1


def test_administrators_say_which_namespaces_are_named(watched):
    watched.metrics.jobs.namespaces = ["team"]
    watched.sees()
    watched.sees(uid="u2", namespace="elsewhere")
    assert (watched.upstream("created"), watched.upstream("created", OTHER)) == (1, 1)
    assert watched.upstream("created", "elsewhere") is None


def test_queues_have_an_upper_bound_too(watched):
    watched.metrics.jobs.queue_exists = lambda _: True
    for number in range(METRIC_QUEUES.most + 10):
        watched.sees(uid=f"u{number}", name=f"n{number}", queue=f"queue-{number}")
    assert len(watched.metrics.jobs.pairs()) == METRIC_QUEUES.most + 1
    assert watched.counted("created", queue=OTHER) == 10


def test_a_queue_that_is_deleted_leaves_no_series(watched):
    watched.sees()
    watched.sees("Created", "Running", after_s=1)
    watched.sees("Created", "Succeeded", after_s=1)
    watched.metrics.jobs.queue_exists = {"default"}.__contains__
    watched.metrics.jobs.refresh()
    assert 'queue="vision"' not in generate_latest(watched.metrics.registry).decode()


def test_how_long_the_oldest_job_has_its_state(watched):
    watched.sees("Created", after_s=100)
    watched.sees("Created", uid="u2", name="later", at="2026-01-01T00:01:00Z", after_s=100)
    watched.sees("Created", "Running", after_s=50)
    oldest = {"kind": "PyTorchJob", "queue": "vision"}
    watched.now_s += 7
    assert watched.value("gangsched_jobs_oldest_seconds", **oldest, state="Running") == 7
    assert watched.value("gangsched_jobs_oldest_seconds", **oldest, state="Starting") == 257


def test_a_job_set_of_a_train_job_is_counted_as_the_train_job(watched):
    owner = {"kind": "TrainJob", "uid": "t", "name": "train", "controller": True}
    child = {"kind": "JobSet", "uid": "s", "owners": [owner]}
    watched.sees(kind="TrainJob", uid="t")
    watched.sees(**child)
    watched.sees(**child, status={"restarts": 0, "replicatedJobsStatus": []})
    watched.sees(**child, status={"restarts": 1})
    assert watched.counted("created", kind="JobSet") is None
    assert watched.counted("created", kind="TrainJob") == 1
    assert watched.counted("restarted", kind="TrainJob") == 1
    watched.observer.group_seen("JobSet", "train", job(name="train-0"))
    watched.metrics.jobs.gang_preempted("team/train-0")
    assert watched.counted("preempted", kind="TrainJob") == 1
    watched.observer.group_gone(job(name="train-0"))
    watched.metrics.jobs.gang_preempted("team/train-0")
    assert watched.counted("preempted", kind="TrainJob") == 1


def test_a_job_set_runs_once_a_job_of_it_is_ready(watched):
    counts = {"replicatedJobsStatus": [{"name": "node", "ready": 1, "active": 1}]}
    watched.sees(kind="JobSet")
    watched.sees(kind="JobSet", status={"restarts": 0}, after_s=5)
    watched.sees(kind="JobSet", status=counts, after_s=5)
    assert watched.live("Running", kind="JobSet") == 1
    assert watched.value("gangsched_job_start_seconds_sum", kind="JobSet", queue="vision") == 10
    watched.sees("Completed", kind="JobSet", status=counts)
    assert watched.counted("ended", kind="JobSet", outcome="Succeeded") == 1


def test_a_resumed_job_starts_again(watched):
    watched.sees()
    watched.sees("Created", "Running", after_s=10)
    watched.sees("Created", "Suspended", after_s=10)
    assert watched.live("Suspended") == 1
    resumed = {"at": "2026-01-01T00:01:00Z"}
    watched.sees("Created", "!Suspended", after_s=40, **resumed)
    watched.sees("Created", "!Suspended", "Running", after_s=3, **resumed)
    labels = {"kind": "PyTorchJob", "queue": "vision"}
    assert watched.value("gangsched_job_start_seconds_sum", **labels) == 13
    assert watched.value("gangsched_job_start_seconds_count", **labels) == 2


def test_experiments_and_trials_are_not_jobs(watched):
    watched.sees(kind="Experiment", uid="e")
    watched.sees("Created", "Running", kind="Experiment", uid="e")
    for number, end in enumerate(("Succeeded", "EarlyStopped", "Killed")):
        trial = {"kind": "Trial", "uid": f"t{number}", "name": f"t{number}"}
        watched.sees(**trial)
        watched.sees("Created", "Running", **trial)
        watched.sees("Created", end, **trial)
        labels = {"queue": "vision", "outcome": end}
        assert watched.value("gangsched_trials_ended_total", **labels) == 1
    assert watched.value("gangsched_experiments", queue="vision", state="Running") == 1
    assert watched.value("gangsched_trials_created_total", queue="vision") == 3
    assert "gangsched_jobs{" not in generate_latest(watched.metrics.registry).decode()
    watched.sees("Created", "Succeeded", kind="Experiment", uid="e")
    watched.sees("Created", "Running", "!Succeeded", kind="Experiment", uid="e")  # more trials
    watched.sees("Created", "Succeeded", kind="Experiment", uid="e")
    ended = {"queue": "vision", "outcome": "Succeeded"}
    assert watched.value("gangsched_experiments_ended_total", **ended) == 2
    assert watched.value("gangsched_experiments_restarted_total", queue="vision") == 1


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_jobs_of_other_controllers_are_not_counted(watched, kind):
    spec = {"managedBy": "kueue.x-k8s.io/multikueue"}
    watched.sees(kind=kind, spec=spec)
    watched.observer.gone(kind, job(spec=spec))
    assert watched.counted("created", kind=kind) is None


@pytest.mark.parametrize(
    ("kind", "spec", "queue"),
    [
        ("PyTorchJob", {}, "vision"),
        ("PyTorchJob", {"runPolicy": {"schedulingPolicy": {"queue": "speech"}}}, "speech"),
        ("PyTorchJob", {"runPolicy": {"schedulingPolicy": {"queue": ["x"]}}}, "vision"),
        ("PyTorchJob", {"runPolicy": 3}, "vision"),
        ("Trial", {}, "vision"),
    ],
)
def test_the_queue_of_a_job(kind, spec, queue):
    assert queue_named_by(kind, job(spec=spec)) == queue


def test_what_a_running_kueue_admitted_is_in_no_queue_of_gangsched():
    body = job()
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "vision"}
    assert queue_named_by("PyTorchJob", body) == "vision"
    template = {"metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}}}
    body["spec"] = {"pytorchReplicaSpecs": {"Worker": {"template": template}}}
    assert queue_named_by("PyTorchJob", body) == "default"
    body["spec"] = {"replicatedJobs": [{"template": {"spec": {"template": template}}}]}
    assert queue_named_by("JobSet", body) == "default"


def test_no_status_that_a_tenant_may_write_raises(watched):
    """Values of any type in any place; the seed makes the run the same each time."""
    chance = random.Random(28)
    plain = [None, True, 3, -1, 1e300, "", "True", "Running", "nan", "9" * 400, CREATED, [], {}]
    keys = ["type", "status", "lastTransitionTime", "ready", "x"]
    fields = ["conditions", "restarts", "gangRestarts", "startTime", "replicatedJobsStatus"]

    def value(depth: int) -> object:
        if depth == 0 or chance.random() < 0.4:
            return chance.choice(plain)
        if chance.random() < 0.5:
            return [value(depth - 1) for _ in range(3)]
        return {key: value(depth - 1) for key in keys}

    for _ in range(1_000):
        body = job(spec=value(3))
        body["status"] = {field: value(3) for field in fields}
        for kind in ("PyTorchJob", "JobSet", "TrainJob", "Experiment"):
            body["metadata"]["uid"] = kind
            watched.observer.seen(kind, body)
    assert watched.series() > 0


def controller(watched, kind="PyTorchJob"):
    family = PodJobs("gangsched", FRAMEWORKS[kind])
    return Reconciler(None, family, watched.observer)


def test_a_successor_of_the_same_name_is_another_job(watched):
    """The watch of a job may never report that the first one is gone."""
    jobs = controller(watched)
    jobs.job_seen(job("Created", "Running"))
    jobs.job_seen(job(uid="successor"))
    assert (watched.counted("created"), watched.counted("deleted")) == (1, 1)
    assert (watched.live("Running"), watched.live("Starting")) == (0, 1)


def test_a_job_that_names_another_controller_is_counted_there(watched):
    jobs = controller(watched)
    body = job(spec={"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
    jobs.job_seen(body)
    jobs.job_gone(body)
    assert watched.counted("created") is None
    assert watched.upstream("deleted") is None


def test_an_older_state_that_arrives_late_is_no_transition(watched):
    jobs = controller(watched)
    for version, states in enumerate((("Created",), ("Running",), ("Restarting",)), 1):
        body = job(*states)
        body["metadata"]["resourceVersion"] = str(version)
        jobs.job_seen(body)
    late = job("Created", "Running")
    late["metadata"]["resourceVersion"] = "2"
    jobs.job_seen(late)
    assert watched.live("Restarting") == 1
    assert watched.counted("restarted") == 1


def test_a_preempted_gang_counts_for_the_job_that_owns_its_group(watched):
    jobs = controller(watched)
    jobs.job_seen(job("Created", "Running"))
    jobs.part_seen("PodGroup", job(name="train", uid="g"), "train")
    watched.metrics.jobs.gang_preempted("team/train")
    watched.metrics.jobs.gang_preempted("team/another")
    assert watched.counted("preempted") == 1
    jobs.part_gone("PodGroup", job(name="train", uid="g"), "train")
    watched.metrics.jobs.gang_preempted("team/train")
    assert watched.counted("preempted") == 1
