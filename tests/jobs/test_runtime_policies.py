"""What a TrainJob overrides in its runtime's pods, and what the runtime requests of its gang."""

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.trainer import reconcile as trainjobs
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds import jobset, trainjob
from gangsched.operators.runtime_watch import Runtimes

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtime(**policy) -> dict:
    """Return a runtime of one replicated job; `policy` is its podGroupPolicy."""
    pod = {
        "metadata": {"labels": {"kept": "yes"}},
        "spec": {"containers": [{"name": "node", "image": "x"}], "nodeSelector": {"disk": "ssd"}},
    }
    node = {
        "name": "node",
        "replicas": 1,
        "template": {"metadata": {"labels": {STEP: "trainer"}}, "spec": {"template": pod}},
    }
    return {
        "metadata": {"name": "torch", "uid": "r"},
        "spec": {
            "mlPolicy": {"numNodes": 2, "torch": {}},
            "podGroupPolicy": policy,
            "template": {"spec": {"replicatedJobs": [node]}},
        },
    }


def made(given: dict, annotations: dict | None = None, **spec) -> dict:
    """Return the JobSet of a TrainJob on a runtime."""
    runtimes = Runtimes()
    runtimes.seen(given)
    metadata = {"name": "t", "namespace": "ns", "uid": "u", "annotations": annotations or {}}
    body = {"metadata": metadata, "spec": {"runtimeRef": {"name": "torch"}, **spec}}
    steps = trainjob.trainjob_kind(runtimes).step(Owned(body, {}), CLOCK)
    return next(one for one in steps.create if one["kind"] == "JobSet")


def group(document: dict) -> dict:
    """Return the spec of the PodGroup of a JobSet."""
    metadata = document["metadata"] | {"namespace": "ns", "uid": "s"}
    body = document | {"metadata": metadata}
    steps = jobset.jobset_kind("gangsched").step(Owned(body, {}), CLOCK)
    return next(one for one in steps.create if one["kind"] == "PodGroup")["spec"]


def test_overrides_of_2_1_reach_metadata_and_pods_of_their_jobs_alone():
    override = {
        "targetJobs": [{"name": "node"}],
        "metadata": {"labels": {"team": "x"}, "annotations": {"a": "b"}},
        "spec": {
            "serviceAccountName": "robot",
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "initContainers": [{"name": "fetch", "image": "y"}],
            "containers": [
                {"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
            ],
            "schedulingGates": [{"name": "wait"}],
            "imagePullSecrets": [{"name": "key"}],
            "affinity": {"nodeAffinity": {}},
        },
    }
    (node,) = made(runtime(), podTemplateOverrides=[override])["spec"]["replicatedJobs"]
    template = node["template"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"kept": "yes", "team": "x"}
    assert template["metadata"]["annotations"] == {"a": "b"}
    spec = template["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert spec["serviceAccountName"] == "robot"
    assert spec["containers"][0]["image"] == "x"
    assert spec["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    for key in ("tolerations", "volumes", "initContainers", "schedulingGates", "affinity"):
        assert spec[key] == override["spec"][key]
    assert "targetJobs" not in template


def test_an_override_of_a_missing_job_is_reported():
    override = {"targetJobs": [{"name": "worker"}], "spec": {"nodeSelector": {"zone": "a"}}}
    with pytest.raises(InvalidJobError, match="names the replicated job 'worker'"):
        made(runtime(), podTemplateOverrides=[override])


def test_an_override_of_no_job_is_reported():
    with pytest.raises(InvalidJobError, match="podTemplateOverrides"):
        made(runtime(), podTemplateOverrides=[{"spec": {}}])


@pytest.mark.parametrize(
    ("network", "topology"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, {"required": "tier-2"}),
        ({"mode": "soft", "highestTierAllowed": 1}, {"preferred": "tier-1"}),
        ({"highestTierName": "rack"}, {"required": "rack"}),
        ({"mode": "soft"}, None),
    ],
)
def test_the_network_topology_of_a_runtime_reaches_the_gang(network, topology):
    document = made(runtime(volcano={"networkTopology": network}))
    assert group(document).get("topology") == topology


def test_the_timeout_of_a_runtime_reaches_the_gang():
    document = made(runtime(coscheduling={"scheduleTimeoutSeconds": 300}))
    assert group(document)["scheduleTimeoutSeconds"] == 300


def test_what_a_job_says_itself_wins_over_its_runtime():
    policy = {
        "coscheduling": {"scheduleTimeoutSeconds": 300},
        "volcano": {"networkTopology": {"highestTierAllowed": 2}},
    }
    said = {
        "gangsched.io/schedule-timeout-seconds": "30",
        "kueue.x-k8s.io/podset-required-topology": "block",
    }
    spec = group(made(runtime(**policy), said))
    assert spec["scheduleTimeoutSeconds"] == 30
    assert spec["topology"] == {"required": "block"}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"coscheduling": {"scheduleTimeoutSeconds": 0}}, "scheduleTimeoutSeconds"),
        ({"volcano": {"networkTopology": {"mode": "near"}}}, "mode"),
        ({"volcano": {"networkTopology": {"highestTierAllowed": "x"}}}, "highestTierAllowed"),
        ({"volcano": 3}, "volcano"),
    ],
)
def test_a_wrong_policy_is_reported_by_its_field(policy, words):
    with pytest.raises(InvalidJobError, match=f"runtime 'torch': spec.podGroupPolicy.*{words}"):
        made(runtime(**policy))


def stepped(document: dict | None, given: dict, **spec):
    """Return what is done of a TrainJob that has a JobSet."""
    runtimes = Runtimes()
    runtimes.seen(given)
    metadata = {"name": "t", "namespace": "ns", "uid": "u"}
    body = {"metadata": metadata, "spec": {"runtimeRef": {"name": "torch"}, **spec}}
    parts = {} if document is None else {("JobSet", "t"): document}
    return trainjob.trainjob_kind(runtimes).step(Owned(body, parts), CLOCK)


def test_an_ineffective_edit_is_reported_until_it_is_reverted():
    before = {"trainer": {"numNodes": 2}}
    document = made(runtime(), **before)
    assert not stepped(document, runtime(), **before).events
    (event,) = stepped(document, runtime(), trainer={"numNodes": 4}).events
    assert (event.type, event.reason) == ("Warning", "EditNotTaken")
    assert event.message.startswith("spec.trainer changed after the JobSet was created")
    assert "suspend and resume the job" in event.message
    (event,) = stepped(document, runtime(), labels={"a": "b"}, **before).events
    assert event.message.endswith("delete the job and create it again.")


def test_an_edit_of_a_suspended_job_counts_when_it_is_resumed():
    document = made(runtime(), trainer={"numNodes": 2}, suspend=True)
    waits = stepped(document, runtime(), trainer={"numNodes": 4}, suspend=True)
    assert not [one for one in waits.events if one.reason == "EditNotTaken"]
    resumed = stepped(document, runtime(), trainer={"numNodes": 4}, suspend=False)
    ((_, change),) = resumed.patch
    document["metadata"]["annotations"] |= change["metadata"]["annotations"]
    document["spec"] |= change["spec"]
    after = stepped(document, runtime(), trainer={"numNodes": 4}, suspend=False)
    assert not [one for one in after.events if one.reason == "EditNotTaken"]


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "[" * 5000, '{"x": ' * 400])
def test_a_jobset_without_valid_digests_reports_no_edit(text):
    document = made(runtime())
    document["metadata"]["annotations"][trainjobs.MADE_FROM] = text
    assert not stepped(document, runtime(), trainer={"numNodes": 4}).events
