"""Rows of jobs from objects, and lists of nodes, without a cluster."""

import pytest

from gangsched.submission.pod.hosts import compressed, expanded
from gangsched.submission.pod.script import filled
from gangsched.userjobs.finding import UserJob
from gangsched.userjobs.hostlist import hostlist
from gangsched.userjobs.job_kinds import USER_JOB_KINDS
from gangsched.userjobs.listing import NamespaceObjects, holdings, job_rows

KINDS = {kind.kind: kind for kind in USER_JOB_KINDS}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["n7"], "n7"),
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["n08", "n09", "n10"], "n10,n[08-09]"),
        (["b-1", "a-2", "a-1", "x"], "a-[1-2],b-1,x"),
        (["gke-pool-1a", "gke-pool-1b"], "gke-pool-1a,gke-pool-1b"),
    ],
)
def test_nodes_are_listed_with_ranges(names, text):
    assert hostlist(names) == text


@pytest.mark.parametrize(
    "hosts",
    [
        ["j-nodes-0-0.j"],
        [f"j-nodes-0-{n}.j" for n in range(12)],
        ["j-nodes-0-0.j", "j-nodes-0-2.j"],
        ["a", "b"],
    ],
)
def test_hosts_of_a_job_come_back(hosts):
    assert expanded(compressed(hosts)) == hosts


def test_ranges_of_hosts_are_expanded():
    assert expanded("n[01-03,7],x") == ["n01", "n02", "n03", "n7", "x"]


def test_patterns_of_files_are_filled():
    values = {"j": "12", "x": "train", "a": "3"}
    assert filled("logs/%x-%j_%4a.out", values) == "logs/train-12_0003.out"
    assert filled("100%% %q %j", values) == "100% %q 12"


def body(kind, name, uid, owner=None, **more):
    metadata = {"name": name, "namespace": "ns", "uid": uid, **more.pop("metadata", {})}
    if owner is not None:
        api, kind_of_owner, name_of_owner, uid_of_owner = owner
        metadata["ownerReferences"] = [
            {"apiVersion": api, "kind": kind_of_owner, "name": name_of_owner,
             "uid": uid_of_owner, "controller": True}
        ]  # fmt: skip
    return {"kind": kind, "metadata": metadata, **more}


def pod(name, owner, phase="Running", node="n1", **more):
    status = {"phase": phase, "startTime": "2026-01-01T00:00:00Z"}
    container = {"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "500m"}}}
    spec = {"nodeName": node, "schedulerName": "gangsched", "containers": [container]}
    return body("Pod", name, f"u-{name}", owner, spec=spec, status=status, **more)


TRAIN = ("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", "u-t")
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet", "t", "u-js")
JOB = ("batch/v1", "Job", "t-node-0", "u-job")


def tree():
    """A TrainJob with its JobSet, Job, PodGroup and two pods."""
    jobs = (
        UserJob(KINDS["TrainJob"], body("TrainJob", "t", "u-t", spec={})),
        UserJob(KINDS["JobSet"], body("JobSet", "t", "u-js", TRAIN, spec={})),
        UserJob(KINDS["Job"], body("Job", "t-node-0", "u-job", JOBSET, spec={})),
    )
    spec = {"minMember": 2, "queue": "vision"}
    group = body("PodGroup", "t", "u-pg", JOBSET, spec=spec, status={"phase": "Placed"})
    return jobs, group, (pod("t-0", JOB), pod("t-1", JOB, node="n2"))


def test_a_tree_of_objects_is_one_row():
    jobs, group, pods = tree()
    read = NamespaceObjects(jobs, (group,), pods)
    (row,) = job_rows(read)
    assert (row.kind, row.name, row.state, row.queue) == ("TrainJob", "t", "R", "vision")
    assert (row.nodes, row.pods) == ({"n1", "n2"}, 2)
    (held,) = holdings(read)
    assert (held["pods"], held["nodes"], held["gpus"], held["cores"]) == (2, 2, 4, 1.0)


def test_a_pending_gang_has_its_reason_and_its_start():
    jobs, group, _ = tree()
    group["status"] = {
        "phase": "Pending", "message": "4 GPUs are free.",
        "refusal": {"reason": "NotEnoughFree"}, "start": {"expected": "2026-01-01T01:00:00Z"},
    }  # fmt: skip
    (row,) = job_rows(NamespaceObjects(jobs, (group,), ()))
    assert (row.state, row.reason, row.message) == ("PD", "NotEnoughFree", "4 GPUs are free.")
    assert row.expected_start == "2026-01-01T01:00:00Z"
    assert row.data(0.0)["nodes"] == []


def test_states_are_read_from_conditions_and_pods():
    ended = body("JobSet", "done", "u-1", spec={}, status={
        "conditions": [{"type": "Completed", "status": "True"}]})  # fmt: skip
    failed = body("PyTorchJob", "bad", "u-2", spec={}, status={
        "conditions": [{"type": "Failed", "status": "True"}]})  # fmt: skip
    held = body("PyTorchJob", "held", "u-3", spec={"runPolicy": {"suspend": True}})
    other = body("Job", "other", "u-4", spec={"template": {"spec": {"schedulerName": "else"}}})
    leaves = pod("leaves", None, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    jobs = tuple(UserJob(KINDS[b["kind"]], b) for b in (ended, failed, held, other))
    rows = {row.name: row for row in job_rows(NamespaceObjects(jobs, (), (leaves,)))}
    states = {name: (row.state, row.reason) for name, row in rows.items()}
    assert states == {
        "done": ("CD", ""), "bad": ("F", ""), "held": ("PD", "JobHeldUser"), "leaves": ("CG", ""),
    }  # fmt: skip


def test_an_event_says_why_pods_without_a_group_wait():
    waits = pod("p", None, phase="Pending", node=None)
    event = {"involvedObject": {"uid": "u-p"}, "reason": "NotEnoughFree", "message": "It waits.",
             "lastTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    (row,) = job_rows(NamespaceObjects((), (), (waits,), (event,)))
    assert (row.state, row.reason, row.message) == ("PD", "NotEnoughFree", "It waits.")
