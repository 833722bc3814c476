"""A reconcile of a large job is small; a job that is too large is refused first."""

import json

import pytest

from gangsched.core.bounds import (
    BYTES_A_STEP,
    CLAIMS_OF_JOBSET,
    DOCUMENTS_A_STEP,
    JOBS_OF_JOBSET,
    PATTERNS,
    PODS_OF_GANG,
    VARIABLE_BYTES,
)
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.containers import merge_variables
from gangsched.jobs.common.merge import merge
from gangsched.jobs.common.model import GroupView, Observed, PodView
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.kubeflow.framework import listed_bytes
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.jobset import jobset_kind
from gangsched.operators.kinds.training_job import parse
from gangsched.operators.kinds.trainjob import trainjob_kind as trainjobs
from gangsched.operators.runtime_watch import Runtimes

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
STAMP = {"lastTransitionTime": CLOCK.now, "status": "True"}


def jobset(*replicas: int, variables: int = 0, **more) -> Owned:
    """Return a JobSet with replicated jobs of so many Jobs."""
    env = [{"name": f"E{i}", "value": "x" * 20} for i in range(variables)]
    pod = {"spec": {"containers": [{"name": "c", "image": "x", "env": env}]}}
    template = {"spec": {"template": pod}}
    jobs = [{"name": f"r{i}", "replicas": n, "template": template} for i, n in enumerate(replicas)]
    metadata = {"namespace": "ns", "name": "j", "uid": "u"}
    return Owned({"metadata": metadata, "spec": {"replicatedJobs": jobs, **more}}, {})


def whole(owned: Owned, most: int) -> list[int]:
    """Return how many objects each step creates until nothing more is wanted."""
    body, parts, sizes = owned.body, {}, []
    for _ in range(most):
        steps = jobset_kind("gangsched").step(Owned(body, parts), CLOCK)
        body = body | {"status": steps.status or body.get("status")}
        for one in steps.create:
            parts[one["kind"], one["metadata"]["name"]] = one
        sizes.append(len(steps.create))
        if steps.requeue_in_s is None:
            return sizes
        assert steps.requeue_in_s == 0.0
    raise AssertionError(sizes)


def test_the_jobs_of_a_jobset_are_built_a_portion_a_step():
    sizes = whole(jobset(700, 600), 10)
    assert sum(sizes) == 1300 + len(["Service", "PodGroup"])
    assert max(sizes) <= DOCUMENTS_A_STEP.most + 2
    assert len(sizes) <= 4


def test_large_jobs_are_fewer_a_step():
    sizes = whole(jobset(300, variables=1000), 30)
    assert sum(sizes) == 302
    assert max(sizes[1:]) * 40_000 <= BYTES_A_STEP.most + 40_000


def test_jobs_are_resumed_and_deleted_a_portion_a_step():
    names = [f"j-r0-{i}" for i in range(1000)]
    labels = {"jobset.sigs.k8s.io/restart-attempt": "0"}
    labels |= {"jobset.sigs.k8s.io/replicatedjob-name": "r0"}
    template = {"spec": {"containers": []}}
    parts = {
        ("Job", name): {
            "metadata": {"name": name, "labels": labels},
            "spec": {"suspend": True, "template": template},
        }
        for name in names
    }
    owned = jobset(1000)
    group = {"metadata": {"name": "j", "labels": {"jobset.sigs.k8s.io/restart-attempt": "0"}}}
    resumed = jobset_kind("gangsched").step(
        Owned(owned.body, parts | {("PodGroup", "j"): group}), CLOCK
    )
    assert len(resumed.patch) == DOCUMENTS_A_STEP.most
    assert resumed.requeue_in_s == 0.0
    over = owned.body | {"status": {"terminalState": "Completed"}}
    deleted = jobset_kind("gangsched").step(Owned(over, parts), CLOCK)
    assert len(deleted.delete) == DOCUMENTS_A_STEP.most
    assert deleted.requeue_in_s == 0.0


CLAIMS = [{"templates": [{"metadata": {"name": f"c{i}"}, "spec": {}} for i in range(100)]}]
RULES = [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["a"] * (PATTERNS.most + 1)}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            jobset(JOBS_OF_JOBSET.most, 1),
            f"spec.replicatedJobs needs {JOBS_OF_JOBSET.most + 1}; at most",
        ),
        (
            jobset(1, volumeClaimPolicies=CLAIMS),
            f"100; at most {CLAIMS_OF_JOBSET.most} are allowed",
        ),
        (jobset(1, failurePolicy={"rules": RULES}), f"at most {PATTERNS.most} are allowed"),
    ],
)
def test_jobsets_that_are_too_large_are_refused_first(given, said):
    with pytest.raises(InvalidJobError) as error:
        jobset_kind("gangsched").step(given, CLOCK)
    assert str(error.value).startswith("JobSet ns/j: spec.")
    assert said in str(error.value)


def test_a_jobset_of_too_many_pods_is_refused_first():
    owned = jobset(2)
    owned.body["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = PODS_OF_GANG.most
    with pytest.raises(InvalidJobError, match=f"needs {2 * PODS_OF_GANG.most}; at most"):
        jobset_kind("gangsched").step(owned, CLOCK)


@pytest.mark.parametrize("pattern", ["(a+)+\\1", "(", "a" * 1001])
def test_a_pattern_that_re2_does_not_take_is_refused(pattern):
    rules = [{"action": "FailJobSet", "onJobFailureMessagePatterns": [pattern]}]
    with pytest.raises(
        InvalidJobError, match=r"onJobFailureMessagePatterns: .*(not an expression|1000 are)"
    ):
        jobset_kind("gangsched").step(jobset(1, failurePolicy={"rules": rules}), CLOCK)


def training(framework: str, **replicas: int):
    """Return a job of kubeflow.org/v1."""
    words = FRAMEWORKS[framework]
    template = {"spec": {"containers": [{"name": words.container, "image": "x"}]}}
    specs = {role: {"replicas": n, "template": template} for role, n in replicas.items()}
    metadata = {"namespace": "ns", "name": "j", "uid": "u"}
    return parse({"metadata": metadata, "spec": {words.specs: specs}}, "gangsched", framework)


def placed(job, there: int = 0) -> Observed:
    """Return a job whose gang has its nodes, and of whose workers some are there."""
    worker = job.role("Worker")
    places = {job.pod_name(role, i): "n" for role in job.roles for i in range(role.replicas)}
    pods = tuple(
        PodView(job.pod_name(worker, i), f"u{i}", "worker", "Pending") for i in range(there)
    )
    return Observed(pods=pods, group=GroupView("g", "Reserved", "", places))


@pytest.mark.parametrize("framework", ["PyTorchJob", "XGBoostJob", "TFJob"])
def test_pods_are_built_a_portion_a_step(framework):
    first = "Chief" if framework == "TFJob" else "Master"
    job = training(framework, **{first: 1, "Worker": 1200})
    actions = reconcile(job, placed(job), CLOCK)
    made = actions.create_pods
    assert 16 <= len(made) <= DOCUMENTS_A_STEP.most
    assert (
        len(json.dumps(made[1:])) <= BYTES_A_STEP.most + len(json.dumps(made[-1])) + len(made) * 2
    )
    assert len(actions.create_services) == len(made)
    assert actions.requeue_in_s == 0.0
    rest = reconcile(job, placed(job, there=1195), CLOCK)
    assert len(rest.create_pods) == 6
    assert rest.requeue_in_s is None


@pytest.mark.parametrize("framework", ["XGBoostJob", "TFJob", "MPIJob", "PyTorchJob"])
def test_jobs_that_are_too_large_are_refused_first(framework):
    first = {"TFJob": "Chief", "MPIJob": "Launcher"}.get(framework, "Master")
    with pytest.raises(InvalidJobError) as error:
        training(framework, **{first: 1, "Worker": 100_000})
    assert str(error.value).startswith(f"{framework} ns/j: spec.{FRAMEWORKS[framework].specs}")
    assert "at most" in str(error.value)


@pytest.mark.parametrize("framework", ["XGBoostJob", "TFJob"])
def test_no_variable_is_longer_than_a_program_may_be_given(framework):
    first = "Chief" if framework == "TFJob" else "Master"
    fits, refused = 1, 100_000
    while refused - fits > 1:
        middle = (fits + refused) // 2
        try:
            training(framework, **{first: 1, "Worker": middle})
        except InvalidJobError:
            refused = middle
        else:
            fits = middle
    job = training(framework, **{first: 1, "Worker": fits})
    pod = reconcile(job, placed(job), CLOCK).create_pods[1]
    longest = max(len(one["value"]) for one in pod["spec"]["containers"][0]["env"])
    assert VARIABLE_BYTES.most - 200 <= longest <= VARIABLE_BYTES.most + 100


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 101, 12_345])
def test_the_length_of_a_list_is_known_without_it(count):
    assert listed_bytes("job-worker", count, 1) == sum(
        len(f"job-worker-{index},") for index in range(count)
    )


def test_long_lists_are_merged_by_what_they_hold():
    old = [{"key": str(i), "operator": "Exists"} for i in range(3000)]
    new = [{"operator": "Exists", "key": str(i)} for i in range(2999, 6000)]
    merged = merge({"tolerations": old}, {"tolerations": new})["tolerations"]
    assert [one["key"] for one in merged] == [str(i) for i in range(6000)]
    variables = [{"name": "a", "value": "1"}, {"name": "b", "value": "1"}]
    merge_variables(
        variables, [{"name": "b", "value": "2"}, {"name": "c"}, {"name": "c", "value": "3"}]
    )
    assert variables == [
        {"name": "a", "value": "1"},
        {"name": "b", "value": "2"},
        {"name": "c", "value": "3"},
    ]


RUNTIMES = {
    "spec.trainer.numNodes is 100000: the host file would have": {"mpi": {}},
    "runtime 'r' injects variables into 100 targets; at most 64": {
        "torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": []}] * 100}}
    },
}


@pytest.mark.parametrize(("said", "policy"), RUNTIMES.items())
def test_trainjobs_that_are_too_large_are_refused_first(said, policy):
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    template = {"spec": {"replicatedJobs": [job]}}
    runtimes = Runtimes()
    runtimes.seen(
        {"metadata": {"name": "r", "uid": "r"}, "spec": {"mlPolicy": policy, "template": template}}
    )
    spec = {"runtimeRef": {"name": "r"}, "trainer": {"numNodes": 100_000}}
    body = {"metadata": {"namespace": "ns", "name": "t", "uid": "u"}, "spec": spec}
    with pytest.raises(InvalidJobError) as error:
        trainjobs(runtimes).step(Owned(body, {}), CLOCK)
    assert said in str(error.value)
