"""JobSets as a pure function: stages, failure rules, order of creation; patches of TrainJobs."""

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.merge import merge
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.jobset import reconcile
from gangsched.jobs.jobset.stages import stages
from gangsched.jobs.trainer.runtimes import framework_of, resolve
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.jobset import jobset_kind
from gangsched.operators.search.expressions import matching

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")


def rjob(name, replicas=1, pods=1, after=None, **template) -> dict:
    """Return a replicated job."""
    pod = {"metadata": {}, "spec": {"containers": [{"name": "node"}]}}
    spec = {"parallelism": pods, "completions": pods, "template": pod}
    found = {"name": name, "replicas": replicas, "template": {"spec": spec, **template}}
    if after:
        found["dependsOn"] = [{"name": n, "status": s} for n, s in after.items()]
    return found


def spec(*jobs, **more) -> dict:
    """Return the spec of a JobSet."""
    return {"replicatedJobs": list(jobs), **more}


MISSHAPEN = {
    "replicatedJobs[a].template.metadata: expected object": spec(rjob("a", metadata="x")),
    "replicatedJobs[a].template.spec.parallelism: expected int": spec(rjob("a", pods="2")),
    "volumeClaimPolicies.templates: metadata: object missing required field name": spec(
        rjob("a"), volumeClaimPolicies=[{"templates": [{"metadata": {}, "spec": {}}]}]
    ),
}


@pytest.mark.parametrize(("sentence", "given"), MISSHAPEN.items())
def test_what_has_no_shape_is_named(sentence, given):
    body = {"metadata": {"name": "js", "namespace": "ns", "uid": "u"}, "spec": given}
    with pytest.raises(InvalidJobError) as error:
        jobset_kind("gangsched").step(Owned(body, {}), CLOCK)
    assert str(error.value).startswith(f"JobSet ns/js: spec.{sentence}")


def test_nothing_after_a_key_is_as_good_as_no_key():
    given = spec(rjob("a", metadata=None))
    given["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = None
    body = {"metadata": {"name": "js", "namespace": "ns", "uid": "u"}, "spec": given}
    steps = jobset_kind("gangsched").step(Owned(body, {}), CLOCK)
    assert {one["kind"] for one in steps.create} >= {"PodGroup", "Job"}


STAGES = {
    "all at once": (spec(rjob("a", 2, 3), rjob("b")), [("js", {"a", "b"}, 7)]),
    "after completion": (
        spec(rjob("data"), rjob("train", 1, 4, {"data": "Complete"})),
        [("js-data", {"data"}, 1), ("js", {"train"}, 4)],
    ),
    "once ready: in the gang, and not of its minimum": (
        spec(rjob("node", 1, 4), rjob("launcher", 1, 1, {"node": "Ready"})),
        [("js", {"node", "launcher"}, 4)],
    ),
    "ready after complete": (
        spec(
            rjob("data"),
            rjob("node", 1, 4, {"data": "Complete"}),
            rjob("launcher", 1, 1, {"node": "Ready"}),
        ),
        [("js-data", {"data"}, 1), ("js", {"node", "launcher"}, 4)],
    ),
    "two initializers side by side": (
        spec(
            rjob("data"),
            rjob("model"),
            rjob("node", 1, 2, {"data": "Complete", "model": "Complete"}),
        ),
        [("js-data", {"data", "model"}, 2), ("js", {"node"}, 2)],
    ),
    "in order": (
        spec(rjob("a", 1, 2), rjob("b", 1, 5), startupPolicy={"startupPolicyOrder": "InOrder"}),
        [("js", {"a", "b"}, 2)],
    ),
}


@pytest.mark.parametrize("case", STAGES)
def test_what_starts_together_is_a_gang(case):
    given, wanted = STAGES[case]
    found = stages("js", given)
    assert [(s.group, {j["name"] for j in s.jobs}, s.minimum) for s in found] == wanted


def owned(given, jobs=(), status=None, **parts) -> Owned:
    """Return a JobSet with some of its Jobs."""
    metadata = {"name": "js", "namespace": "ns", "uid": "u", "annotations": parts.pop("notes", {})}
    body = {"metadata": metadata, "spec": given, "status": status or {}}
    return Owned(body, {("Job", job["metadata"]["name"]): job for job in jobs})


def child(name, state="", reason="BackoffLimitExceeded", message="", attempt="0", at="1") -> dict:
    """Return a Job as the Job controller left it; `state` is Failed, Complete or nothing."""
    labels = {
        "jobset.sigs.k8s.io/restart-attempt": attempt,
        "jobset.sigs.k8s.io/replicatedjob-name": name.split("-")[1],
    }
    condition = {
        "type": state,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": f"2023-11-14T22:13:0{at}Z",
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "template": {"metadata": {"labels": {"gangsched.io/pod-group": "js"}}},
        },
        "status": {"conditions": [condition] if state else []},
    }


def step(*args, **more):
    """Reconcile once."""
    whole = owned(*args, **more)
    rules = (whole.body["spec"].get("failurePolicy") or {}).get("rules") or []
    patterns = [one for rule in rules for one in rule.get("onJobFailureMessagePatterns") or []]
    found = matching(patterns, reconcile.messages(whole))
    return reconcile.reconcile(whole, CLOCK, "gangsched", {}, found)


RULES = {
    "no rule: restart": ({"maxRestarts": 2}, "restart", True),
    "no restarts left": ({"maxRestarts": 0}, "ReachedMaxRestarts", None),
    "fail at once": (
        {"maxRestarts": 2, "rules": [{"action": "FailJobSet"}]},
        "FailJobSetFailurePolicyAction",
        None,
    ),
    "another reason": (
        {
            "maxRestarts": 2,
            "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}],
        },
        "restart",
        True,
    ),
    "by its message": (
        {
            "maxRestarts": 2,
            "rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["^NVLink.*down$"]}],
        },
        "FailJobSetFailurePolicyAction",
        None,
    ),
    "of another job": (
        {
            "maxRestarts": 2,
            "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["driver"]}],
        },
        "restart",
        True,
    ),
    "restarts that do not count": (
        {"maxRestarts": 0, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]},
        "restart",
        False,
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_what_a_failed_job_leads_to(case):
    policy, wanted, counted = RULES[case]
    failed = child("js-a-0", "Failed", message="NVLink 3 is down")
    steps = step(spec(rjob("a", 2), failurePolicy=policy), [failed, child("js-a-1")])
    if wanted == "restart":
        assert steps.status["restarts"] == 1
        assert steps.status.get("restartsCountTowardsMax", 0) == int(counted)
        assert "terminalState" not in steps.status
    else:
        assert steps.status["terminalState"] == "Failed"
        (condition,) = steps.status["conditions"]
        assert condition["reason"] == wanted
        assert condition["message"].endswith("(first failed job: js-a-0)")


def test_one_job_alone_is_recreated():
    rules = [{"action": "RestartJob"}]
    policy = {"maxRestarts": 1, "rules": rules}
    failed = child("js-a-0", "Failed")
    steps = step(spec(rjob("a", 2), failurePolicy=policy), [failed, child("js-a-1")])
    assert steps.delete == [("Job", "js-a-0")]
    assert steps.status["restarts"] == 0
    assert steps.status["restartsCountTowardsMax"] == 1


def test_the_first_that_failed_is_named():
    jobs = [child("js-a-0", "Failed", at="5"), child("js-a-1", "Failed", at="2")]
    steps = step(spec(rjob("a", 2)), jobs)
    assert "js-a-1" in steps.status["conditions"][0]["message"]


def test_jobs_of_an_earlier_attempt_go_before_a_new_gang_comes():
    old = child("js-a-0", attempt="0")
    steps = step(spec(rjob("a")), [old], {"restarts": 1})
    assert steps.delete == [("Job", "js-a-0")]
    assert [one["kind"] for one in steps.create] == ["Service"]


SUCCESSES = {
    "all": ({}, ("Complete", "Complete"), True),
    "not all": ({}, ("Complete", ""), False),
    "any": ({"operator": "Any"}, ("Complete", ""), True),
    "the one that counts": ({"targetReplicatedJobs": ["a"]}, ("Complete", ""), True),
    "not the one that counts": ({"targetReplicatedJobs": ["a"]}, ("", "Complete"), False),
}


@pytest.mark.parametrize("case", SUCCESSES)
def test_when_the_whole_has_succeeded(case):
    policy, states, wanted = SUCCESSES[case]
    jobs = [child("js-a-0", states[0]), child("js-b-0", states[1])]
    steps = step(spec(rjob("a"), rjob("b"), successPolicy=policy), jobs)
    assert (steps.status.get("terminalState") == "Completed") == wanted


def test_exclusive_topology_gives_each_job_a_domain():
    notes = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    steps = step(spec(rjob("a", 3, 4)), notes=notes)
    group = next(one for one in steps.create if one["kind"] == "PodGroup")
    assert group["spec"]["topology"] == {
        "exclusive": "rack",
        "spread": [{"level": "rack", "maxPods": 4}],
    }
    (role,) = group["spec"]["roles"]
    assert role["topology"] == {"slices": [{"level": "rack", "size": 4}]}
    ranks = [
        job["spec"]["template"]["metadata"]["labels"]["gangsched.io/first-rank"]
        for job in steps.create
        if job["kind"] == "Job"
    ]
    assert ranks == ["0", "4", "8"]


def test_a_second_step_on_the_same_world_asks_for_nothing_new():
    given = spec(rjob("a", 2))
    first = step(given)
    parts = {(one["kind"], one["metadata"]["name"]): one for one in first.create}
    body = owned(given).body | {"status": first.status}
    again = reconcile.reconcile(Owned(body, parts), CLOCK, "gangsched", {}, {})
    assert (again.create, again.delete, again.patch, again.status) == ([], [], [], None)


# -- TrainJobs ------------------------------------------------------------------------------------


def test_a_patch_changes_what_it_names_and_keeps_the_rest():
    base = {
        "containers": [
            {"name": "node", "image": "a", "env": [{"name": "X", "value": "1"}]},
            {"name": "other"},
        ],
        "nodeSelector": {"a": "1"},
        "tolerations": [{"key": "x"}],
    }
    patch = {
        "containers": [{"name": "node", "env": [{"name": "Y", "value": "2"}]}],
        "nodeSelector": {"b": "2"},
        "tolerations": [{"key": "y"}],
        "serviceAccountName": "s",
    }
    found = merge(base, patch)
    assert [one["name"] for one in found["containers"]] == ["node", "other"]
    assert [one["name"] for one in found["containers"][0]["env"]] == ["X", "Y"]
    assert found["containers"][0]["image"] == "a"
    assert found["nodeSelector"] == {"a": "1", "b": "2"}
    assert found["tolerations"] == [{"key": "x"}, {"key": "y"}]


def runtime(name="r", policy=None, jobs=None, **labels) -> dict:
    """Return a training runtime."""
    node = rjob(
        "node", metadata={"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    )
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "mlPolicy": policy or {"torch": {}},
            "template": {"spec": {"replicatedJobs": jobs or [node]}},
        },
    }


FRAMEWORKS = {
    "torch-distributed": ({"torch": {}}, "torch"),
    "mine": ({"jax": {}}, "jax"),
    "deepspeed-distributed": ({"mpi": {}}, "deepspeed"),
    "mpi-distributed": ({"mpi": {}}, "mpi"),
    "torchtune-llama3.2-1b": ({"torch": {}}, "torchtune"),
    "plain": ({"numNodes": 2}, "custom"),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_framework_a_runtime_lacks_a_label_for(name):
    policy, wanted = FRAMEWORKS[name]
    assert framework_of(runtime(name, policy)) == wanted


def trainjob(**fields) -> dict:
    """Return a TrainJob."""
    return {"metadata": {"name": "t", "namespace": "ns"}, "spec": fields}


def mpi() -> dict:
    """Return a runtime of mpirun whose launcher is a node."""
    step_label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    launcher = rjob("launcher", after={"node": "Ready"}, metadata={"labels": step_label})
    policy = {"mpi": {"runLauncherAsNode": True, "sshAuthMountPath": "/home/mpiuser/.ssh"}}
    return runtime("deepspeed", policy, [rjob("node"), launcher])


def test_mpi_with_the_launcher_as_a_node():
    plan = resolve(trainjob(trainer={"numNodes": 3, "numProcPerNode": 2}), mpi())
    node, launcher = plan.jobset["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["parallelism"] == 2
    assert launcher["template"]["spec"]["parallelism"] == 1
    assert plan.hostfile["data"]["hostfile"].splitlines() == [
        "t-launcher-0-0.t slots=2",
        "t-node-0-0.t slots=2",
        "t-node-0-1.t slots=2",
    ]
    assert plan.keys == "t-mpi-ssh-auth"
    (container,) = launcher["template"]["spec"]["template"]["spec"]["containers"]
    names = {one["name"]: one["value"] for one in container["env"]}
    assert names["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert names["OMPI_MCA_orte_set_default_slots"] == "2"
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/etc/mpi",
        "/home/mpiuser/.ssh",
    }


def test_a_slot_for_each_gpu_where_nothing_is_said():
    asked = {"limits": {"nvidia.com/gpu": "4"}}
    plan = resolve(trainjob(trainer={"numNodes": 2, "resourcesPerNode": asked}), mpi())
    assert plan.hostfile["data"]["hostfile"].count("slots=4") == 2


def test_overrides_of_2_0_reach_their_jobs_alone():
    overrides = [{"targetJobs": [{"name": "node"}], "nodeSelector": {"zone": "a"}}]
    labels = {"team": "x"}
    plan = resolve(trainjob(podSpecOverrides=overrides, labels=labels), runtime())
    (node,) = plan.jobset["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert plan.jobset["metadata"]["labels"] == labels


def test_variables_for_further_containers():
    policy = {
        "torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["check"]}]}}
    }
    given = runtime(policy=policy)
    (node,) = given["spec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "check"}]
    (made,) = resolve(trainjob(), given).jobset["spec"]["replicatedJobs"]
    (check,) = made["template"]["spec"]["template"]["spec"]["initContainers"]
    assert {one["name"] for one in check["env"]} >= {"PET_MASTER_ADDR", "PET_NNODES"}
    assert "env" not in node["template"]["spec"]["template"]["spec"]["initContainers"][0]
