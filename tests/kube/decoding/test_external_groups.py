"""External objects as gangs: how many pods start together, and other requests."""

import asyncio
import json

import pytest
from waiting import until_async

from gangsched.core import facts as f
from gangsched.core.model.constraints import SliceRequest, Spread
from gangsched.kube.client.errors import KubeError
from gangsched.kube.decoding.external.groups import KINDS
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.membership import gang_of, implicit_gang
from gangsched.kube.decoding.metadata import ApiObject, decode_group
from gangsched.kube.decoding.pods import decode_pod, needs
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.informers.workloads import Workloads
from gangsched.metrics import Metrics
from gangsched.operators.work_queue import WorkQueue

OURS = frozenset({"gangsched", "volcano"})
BY_NAME = {kind.source: kind for kind in (*KINDS, *OWNERS)}


def read(whose: str, spec: dict, **metadata):
    """Read an object of a kind."""
    body = {"metadata": {"name": "g", "namespace": "ns", "uid": "u", **metadata}, "spec": spec}
    gangs = BY_NAME[whose].read(decode_group(json.dumps(body).encode()), {"high": 7}, OURS)
    return gangs[""][0]


def late(gang) -> dict[str, int]:
    """Return how many pods of each role are made only once the others run."""
    return {role.name: role.late for role in gang.roles if role.late}


def pods(scheduler="gangsched") -> dict:
    """Return a pod template."""
    return {"spec": {"schedulerName": scheduler}}


RUNS = {"spec": {"schedulerName": "gangsched", "containers": [{"name": "pytorch"}]}}


def workers(**fields) -> dict:
    """Return a RayCluster of a head and one group of workers."""
    return {"headGroupSpec": {"template": pods()}, "workerGroupSpecs": [fields]}


def replicated(name: str, replicas: int, parallelism: int, template=None, **fields) -> dict:
    """Return one of a JobSet's replicated jobs."""
    spec = {"parallelism": parallelism, "template": template or pods()}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
EXCLUSIVE = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}
LWS = {"leaderWorkerTemplate": {"size": 4, "workerTemplate": pods()}}
LATE = {
    "workers wait for their leader": ("lws", LWS | {"startupPolicy": "LeaderReady"}, {"": 3}),
    "they do not": ("lws", LWS | {"startupPolicy": "LeaderCreated"}, {}),
    "workers follow their leader into its domain": (
        "lws",
        LWS,
        {"": 3},
        {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}},
    ),
    "a launcher waits for its workers": (
        "mpijob",
        {
            "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        {"": 1},
    ),
    "a submitter waits for its cluster": (
        "rayjob",
        {"rayClusterSpec": workers(replicas=2, template=pods()), "submitterPodTemplate": pods()},
        {"": 1},
    ),
    "jobs wait for those before them": (
        "jobset",
        {"replicatedJobs": [replicated("a", 1, 2), replicated("b", 2, 2)], **IN_ORDER},
        {"b": 4},
    ),
    "the first of those before them is another scheduler's": (
        "jobset",
        {"replicatedJobs": [replicated("a", 1, 2, pods("x")), replicated("b", 2, 2)], **IN_ORDER},
        {},
    ),
    "a job waits until another is ready": (
        "jobset",
        {
            "replicatedJobs": [
                replicated("a", 1, 2),
                replicated("b", 1, 3, dependsOn=[{"name": "a", "status": "Ready"}]),
            ]
        },
        {"b": 3},
    ),
    "pods of a job follow the first into its domain": (
        "jobset",
        {"replicatedJobs": [replicated("a", 2, 3)]},
        {"a": 4},
        EXCLUSIVE,
    ),
    "an administrator labelled the domains": (
        "jobset",
        {"replicatedJobs": [replicated("a", 2, 3)]},
        {},
        {"annotations": EXCLUSIVE["annotations"] | {"alpha.jobset.sigs.k8s.io/node-selector": "x"}},
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_which_pods_are_made_only_once_the_others_run(case):
    whose, spec, wanted, *metadata = LATE[case]
    assert late(read(whose, spec, **(metadata[0] if metadata else {}))) == wanted


def test_pods_that_come_late_ask_for_what_the_api_server_will_write_into_them():
    """The planner counts pods that ask for the same; of several kinds it has to search."""
    states = ("not-ready", "unreachable")
    given = [
        {"key": f"node.kubernetes.io/{one}", "operator": "Exists", "effect": "NoExecute"}
        for one in states
    ]
    body = pods()["spec"] | {"tolerations": [{"key": "gpu", "operator": "Exists"}, *given]}
    made = decode_pod(json.dumps({"metadata": {"name": "p"}, "spec": body}).encode())
    template = {"spec": pods()["spec"] | {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    spec = {"leaderWorkerTemplate": {"size": 4, "workerTemplate": template}}
    gang = read("lws", spec | {"startupPolicy": "LeaderReady"})
    assert gang.roles[0].needs == needs(made.spec)


def test_every_job_of_an_exclusive_jobset_has_a_domain_of_its_own():
    gang = read("jobset", {"replicatedJobs": [replicated("a", 2, 3)]}, **EXCLUSIVE)
    assert gang.roles[0].near.slices == (SliceRequest("rack", 3),)
    assert (gang.constraints.exclusive, gang.constraints.spread) == ("rack", (Spread("rack", 3),))


@pytest.mark.parametrize(
    ("whose", "spec", "key"),
    [
        (
            "jobset",
            {"replicatedJobs": [replicated("a", 2, 3)]},
            "alpha.jobset.sigs.k8s.io/exclusive-topology",
        ),
        ("lws", LWS, "leaderworkerset.sigs.k8s.io/exclusive-topology"),
    ],
)
def test_a_domain_is_named_by_no_more_letters_than_a_node_label_has(whose, spec, key):
    with pytest.raises(DecodeError, match="316"):
        read(whose, spec, annotations={key: "x" * 317})


def test_a_queue_may_be_named_by_templates_alone():
    template = pods() | {"metadata": {"labels": {"gangsched.io/queue-name": "team"}}}
    spec = {"leaderWorkerTemplate": {"size": 4, "workerTemplate": template}}
    assert read("lws", spec).queue == "team"
    said = {"labels": {"gangsched.io/queue-name": "mine"}}
    assert read("lws", spec, **said).queue == "mine"


@pytest.mark.parametrize("count", [200_000, 10**12])
def test_no_object_has_more_pods_planned_than_a_gang_may_have(count):
    spec = {"leaderWorkerTemplate": {"size": count, "workerTemplate": pods()}}
    with pytest.raises(DecodeError, match=r"LeaderWorkerSet ns/g: there are \d+ pods of a gang"):
        read("lws", spec | {"startupPolicy": "LeaderReady"})


LEAST = {
    "a gang of Kubernetes 1.36": (
        "scheduling.k8s.io",
        {"schedulingPolicy": {"gang": {"minCount": 4}}},
        4,
    ),
    "a basic group": ("scheduling.k8s.io", {"schedulingPolicy": {"basic": {}}}, 1),
    "ray": ("raycluster", workers(replicas=3, minReplicas=1, numOfHosts=2, template=pods()), 7),
    "ray that scales by itself": (
        "raycluster",
        workers(replicas=3, minReplicas=1, template=pods()) | {"enableInTreeAutoscaling": True},
        2,
    ),
    "ray with fewer replicas than asked for": (
        "raycluster",
        workers(replicas=5, maxReplicas=3, template=pods()),
        4,
    ),
    "ray with more replicas than asked for": (
        "raycluster",
        workers(replicas=0, minReplicas=2, template=pods()),
        3,
    ),
    "ray with a suspended group": (
        "raycluster",
        workers(replicas=2, minReplicas=2, suspend=True, template=pods()),
        1,
    ),
    "ray that scales a suspended group": (
        "raycluster",
        workers(minReplicas=2, suspend=True, template=pods()) | {"enableInTreeAutoscaling": True},
        1,
    ),
    "ray whose operator names us in the pods alone": (
        "raycluster",
        {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [{"replicas": 2}]},
        3,
    ),
    "ray whose head is another scheduler's": (
        "raycluster",
        workers(replicas=3, template=pods()) | {"headGroupSpec": {"template": pods("x")}},
        3,
    ),
    "a job": ("job", {"parallelism": 4, "template": pods("volcano")}, 4),
    "a job with less left": ("job", {"parallelism": 4, "completions": 2, "template": pods()}, 2),
    "a job that may begin with fewer": (
        "job",
        {"parallelism": 4, "template": pods()},
        2,
        {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}},
    ),
    "in order": ("statefulset", {"replicas": 4, "template": pods()}, 1),
    "torch": ("pytorchjob", {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}}, 4),
    "torch that begins with fewer": (
        "pytorchjob",
        {
            "pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": RUNS}},
            "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
        },
        2,
    ),
    "torch that says how many": (
        "pytorchjob",
        {
            "pytorchReplicaSpecs": {"Worker": {"replicas": 4}},
            "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
        },
        3,
    ),
    "tensorflow of which some is another scheduler's": (
        "tfjob",
        {
            "tfReplicaSpecs": {
                "PS": {"replicas": 2, "template": pods("x")},
                "Worker": {"replicas": 3, "template": pods()},
            }
        },
        3,
    ),
    "mpi": ("mpijob", {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}}, 3),
    "mpi whose launcher is made last": (
        "mpijob",
        {
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        3,
    ),
    "a job of ray and its submitter": (
        "rayjob",
        {"rayClusterSpec": workers(replicas=2, template=pods()), "submitterPodTemplate": pods()},
        4,
    ),
    "a job of ray whose submitter is another scheduler's": (
        "rayjob",
        {"rayClusterSpec": workers(replicas=2, template=pods())},
        3,
    ),
    "a job of ray that is submitted without a pod": (
        "rayjob",
        {
            "rayClusterSpec": workers(replicas=2, template=pods()),
            "submitterPodTemplate": pods(),
            "submissionMode": "HTTPMode",
        },
        3,
    ),
    "a leader and its workers": (
        "lws",
        {"leaderWorkerTemplate": {"size": 4, "workerTemplate": pods()}},
        4,
    ),
    "workers of another scheduler's leader": (
        "lws",
        {
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": pods("x"),
                "workerTemplate": pods(),
            }
        },
        3,
    ),
    "a jobset": (
        "jobset",
        {"replicatedJobs": [replicated("driver", 1, 1), replicated("w", 2, 2)]},
        5,
    ),
    "a jobset whose driver is another scheduler's": (
        "jobset",
        {"replicatedJobs": [replicated("driver", 1, 1, pods("x")), replicated("w", 2, 2)]},
        4,
    ),
}


@pytest.mark.parametrize("case", LEAST)
def test_how_many_start_together(case):
    whose, spec, wanted, *metadata = LEAST[case]
    assert read(whose, spec, **(metadata[0] if metadata else {})).min_member == wanted


def test_queue_and_priority_are_the_groups():
    spec = {"minMember": 2, "queue": "team", "priorityClassName": "high"}
    gang = read("scheduling.volcano.sh", spec)
    assert (gang.id, gang.queue, gang.priority) == ("ns/scheduling.volcano.sh:g", "team", 7)


QUEUED = {"kueue.x-k8s.io/queue-name": "user-queue"}
STARTED = {"kueue.x-k8s.io/podset": "main"}
"""What a running Kueue writes into the pods of a job as it starts it."""


@pytest.mark.parametrize(
    ("labels", "of_pods", "wanted"),
    [
        (QUEUED, {}, "user-queue"),
        (QUEUED, STARTED, "default"),
        (QUEUED | {"gangsched.io/queue-name": "own"}, STARTED, "own"),
    ],
)
@pytest.mark.parametrize("whose", ["job", "pytorchjob", "raycluster"])
def test_what_kueue_admitted_is_in_no_queue_of_that_name(whose, labels, of_pods, wanted):
    template = pods() | {"metadata": {"labels": of_pods}}
    spec = {
        "template": template,
        "pytorchReplicaSpecs": {"Worker": {"template": template}},
        "headGroupSpec": {"template": template},
    }
    assert read(whose, spec, labels=labels).queue == wanted


@pytest.mark.parametrize(
    ("managed", "wanted"), [({}, "user-queue"), ({"managed": "true"}, "default")]
)
def test_plain_pods_that_kueue_manages_are_in_no_queue_of_that_name(managed, wanted):
    labels = QUEUED | {f"kueue.x-k8s.io/{key}": value for key, value in managed.items()}
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": labels}
    pod = decode_pod(json.dumps({"metadata": metadata, "spec": {}}).encode())
    assert implicit_gang(pod).queue == wanted


WRONG = {
    "a class that is not there": ({"minMember": 1, "priorityClassName": "low"}, "'low' does not"),
    "no number": ({"minMember": "few"}, "'few'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_names_the_object(case):
    spec, words = WRONG[case]
    with pytest.raises(DecodeError, match=words) as caught:
        read("scheduling.volcano.sh", spec)
    assert str(caught.value).startswith("PodGroup ns/g")


async def test_one_object_that_cannot_be_worked_on_does_not_stop_the_others():
    worked = []

    async def step(key) -> None:
        worked.append(key[1])
        if key[1] == "bad":
            raise KeyError("template")

    queue = WorkQueue(step)
    running = asyncio.create_task(queue.run())
    queue.wake(("ns", "bad"))
    await until_async(lambda: "bad" in worked, "work on the bad one")
    queue.wake(("ns", "good"))
    await until_async(lambda: "good" in worked or running.done(), "work on the good one")
    assert not running.done()
    running.cancel()


async def test_a_repeated_failure_is_reported_once(monkeypatch, caplog):
    monkeypatch.setattr("gangsched.operators.work_queue._RETRY_S", 0.001)
    answers = ["no quota", "no quota", "no quota", "no such class", "", "no quota"]

    async def step(_) -> None:
        answer = answers.pop(0) if answers else "no quota"
        if answer:
            raise KubeError(403, answer)
        queue.wake(("ns", "job"))  # its next failure is news again

    queue = WorkQueue(step)
    with caplog.at_level("WARNING"):
        running = asyncio.create_task(queue.run())
        queue.wake(("ns", "job"))
        await until_async(lambda: not answers or running.done(), "a step for each of the answers")
        running.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "ns/job: no quota",
        "ns/job: no such class",
        "ns/job: no quota",
    ]


class Heard:
    """Stands for the scheduler: what it was told."""

    def __init__(self) -> None:
        self.facts: list = []
        self.informer = Workloads(self, self, Metrics())

    def observe(self, fact) -> None:
        self.facts.append(fact)

    def declare(self, gang) -> None:
        self.observe(f.GangSeen(gang))

    def subject(self, *_) -> None:
        """Ignore who events are about."""


def workload_pod(key: str):
    """Return a pod of Kubernetes 1.35 that names a pod group, and which replica of it."""
    named = {"name": "w", "podGroup": "workers", "podGroupReplicaKey": key}
    metadata = {"name": f"p{key}", "namespace": "ns", "uid": f"u{key}"}
    return decode_pod(json.dumps({"metadata": metadata, "spec": {"workloadRef": named}}).encode())


WORKLOAD = {
    "metadata": {"name": "w", "namespace": "ns", "uid": "w"},
    "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 4}}}]},
}


@pytest.mark.parametrize("pods_first", [True, False])
def test_each_replica_key_of_a_workloads_group_is_a_gang(pods_first):
    heard = Heard()
    workloads = heard.informer
    pods = [workload_pod("0"), workload_pod("1")]
    steps = [lambda: [workloads.pod(one) for one in pods]]
    steps.insert(
        pods_first, lambda: workloads.decode_and_apply(ApiObject(json.dumps(WORKLOAD).encode()))
    )
    for step in steps:
        step()
    told = {fact.gang.id: fact.gang.min_member for fact in heard.facts}
    assert told == {"ns/workload:w_workers_0": 4, "ns/workload:w_workers_1": 4}
    assert [gang_of(one) for one in pods] == list(told)


def test_a_recreated_workload_is_not_gone():
    heard = Heard()
    workloads = heard.informer
    workloads.decode_and_apply(ApiObject(json.dumps(WORKLOAD).encode()))
    metadata = WORKLOAD["metadata"] | {"uid": "another"}
    workloads.decode_and_apply(ApiObject(json.dumps(WORKLOAD | {"metadata": metadata}).encode()))
    workloads.on_delete("w", None)
    workloads.pod(workload_pod("0"))
    assert [fact.gang.min_member for fact in heard.facts] == [4]


def test_a_workload_that_is_wrong_names_itself():
    spec = {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": "few"}}}]}
    with pytest.raises(DecodeError, match=r"Workload ns/w: spec\.podGroups: .*few"):
        Heard().informer.decode_and_apply(ApiObject(json.dumps(WORKLOAD | {"spec": spec}).encode()))


def test_annotations_say_what_a_gang_of_others_allows():
    keys = {
        "movable": "true",
        "min-runtime-seconds": "60",
        "checkpoint-grace-seconds": "30",
        "checkpoint-at": "1970-01-01T00:01:00Z",
        "max-price-per-hour": "9",
        "max-wait-seconds": "90",
        "preemptible": "false",
    }
    annotations = {f"gangsched.io/{key}": value for key, value in keys.items()}
    gang = read("statefulset", {"replicas": 4, "template": pods()}, annotations=annotations)
    assert (gang.movable, gang.min_runtime_s, gang.checkpoint_grace_s) == (True, 60, 30)
    assert (gang.price_max, gang.wait_max_s) == (9, 90)
    assert (gang.preemptible, gang.checkpoint_s) == (False, 60.0)
