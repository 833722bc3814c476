"""What reads others' input, each as a function of bytes that must never raise.

Errors that say in a sentence what is wrong are an answer; anything else is a defect.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core.jobs.jobset_parts import EXCLUSIVE
from gangsched.core.jobs.kinds import FRAMEWORKS
from gangsched.core.jobs.model import Observed
from gangsched.core.jobs.reconcile import reconcile
from gangsched.core.jobs.step import Clock
from gangsched.core.jobs.tree import Owned
from gangsched.core.planner import make_plan
from gangsched.extender.server import Extender, _bind_args, _filter_args
from gangsched.kube import declarations, foreign, receivers
from gangsched.kube.quantities import DecodeError
from gangsched.kube.scheduler import Scheduler
from gangsched.metrics import Metrics
from gangsched.operators import jobset, trainjob
from gangsched.operators.parse import InvalidJobError, parse
from gangsched.operators.runtimes import Runtimes
from gangsched.operators.search import collect, ends, experiment, trial
from gangsched.plugins import load_policies
from simulator.scenario import load

ROOT = Path(__file__).parents[2]
CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
_PLANNED_EVERY = 25

Json = dict[str, Any]


def meta(name: str, **more: Any) -> Json:
    """Return an object's metadata."""
    return {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", **more}


TEMPLATE = {
    "spec": {
        "schedulerName": "gangsched",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "hostNetwork": True,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                }
            }
        },
        "containers": [
            {
                "name": "pytorch",
                "image": "x",
                "ports": [{"name": "p", "containerPort": 1, "hostPort": 2}],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                    "limits": {"nvidia.com/gpu": "1"},
                },
            }
        ],
    }
}
GANG = {
    "minMember": 2,
    "queue": "default",
    "scheduleTimeoutSeconds": 60,
    "roles": [{"name": "w", "count": 2, "minCount": 1, "template": TEMPLATE}],
    "topology": {"required": "rack", "slices": [{"level": "rack", "size": 2}]},
    "expectedRuntimeSeconds": 100,
}
SEEN: dict[str, tuple[Json, ...]] = {
    "Node": (
        {
            "metadata": meta("n", labels={"nvidia.com/gpu.product": "H100", "rack": "1"}),
            "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}},
        },
    ),
    "Pod": (
        {
            "metadata": meta("p", labels={"gangsched.io/pod-group": "g"}, annotations={}),
            **TEMPLATE,
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        },
        {
            "metadata": meta("q", annotations={"gpu-memory": "1000", "gangsched.io/devices": "0"}),
            "spec": {**TEMPLATE["spec"], "nodeName": "n", "workloadRef": {"name": "w"}},
        },
    ),
    "PodGroup": (
        {
            "metadata": meta("g", annotations={"gangsched.io/user": "u"}),
            "spec": GANG,
            "status": {"phase": "Reserved", "assignments": [{"pod": "p", "node": "n"}]},
        },
    ),
    "Queue": (
        {
            "metadata": meta("default"),
            "spec": {
                "parent": "",
                "weight": 1,
                "quotas": [{"resource": "nvidia.com/gpu", "nominal": 4, "borrowingLimit": 2}],
                "budgets": [{"gpuHours": 10, "periodHours": 1}],
                "userLimits": {"nvidia.com/gpu": 2},
                "preemption": {"reclaim": "Any"},
            },
            "status": {"decayed": [{"user": "u", "gpuSeconds": 1}]},
        },
    ),
    "Topology": (
        {
            "metadata": meta("default"),
            "spec": {"levels": [{"name": "rack", "nodeLabel": "rack"}]},
        },
    ),
    "Reservation": (
        {
            "metadata": meta("r"),
            "spec": {
                "start": "2030-01-01T00:00:00Z",
                "durationSeconds": 3600.0,
                "everySeconds": 86400.0,
                "until": "2030-02-01T00:00:00Z",
                "queues": ["default"],
                "nodes": ["n"],
            },
        },
    ),
    "PriorityClass": ({"metadata": meta("high"), "value": 10},),
    "Namespace": ({"metadata": meta("ns", labels={"a": "b"})},),
    "Workload": (
        {
            "metadata": meta("w"),
            "spec": {"podGroups": [{"name": "a", "policy": {"gang": {"minCount": 2}}}]},
        },
    ),
}
_SPECS: dict[str, Json] = {
    "scheduling.k8s.io": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    "raycluster": {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"replicas": 2, "minReplicas": 1, "numOfHosts": 2}],
    },
    "scheduling.volcano.sh": {
        "minMember": 2,
        "queue": "default",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
    },
    "scheduling.run.ai": {"minMember": 2, "topologyConstraint": {"topology": "default"}},
}
FOREIGN = {
    kind: {
        "metadata": meta("f", labels={"kueue.x-k8s.io/queue-name": "default"}),
        "spec": _SPECS.get(kind.whose, {"minMember": 2, "parallelism": 2, "template": TEMPLATE}),
    }
    for kind in foreign.KINDS
}


ENDED = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}
OBJECTIVE = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.1}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": TEMPLATE, "x": ["${at}"]}}
SEARCH = {
    "metadata": meta("e"),
    "spec": {
        "objective": OBJECTIVE,
        "algorithm": {
            "algorithmName": "random",
            "algorithmSettings": [{"name": "random_state", "value": "1"}],
        },
        "earlyStopping": {"algorithmName": "medianstop"},
        "parameters": [
            {
                "name": "lr",
                "parameterType": "double",
                "feasibleSpace": {"min": "0.1", "max": "0.5", "step": "0.1"},
            },
            {"name": "n", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "9"}},
            {"name": "c", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
        ],
        "trialTemplate": {
            "trialParameters": [{"name": "at", "reference": "lr"}],
            "trialSpec": json.loads(json.dumps(JOB).replace("${at}", "${trialParameters.at}")),
            "successCondition": 'status.conditions.#(type=="Complete")#|#(status=="True")#',
            "failureCondition": "status.[@this].#(failed>=1)",
        },
    },
}
TRIAL = {
    "metadata": meta("t", annotations={"gangsched.io/first-steps": "2"}),
    "spec": {
        "objective": OBJECTIVE,
        "parameterAssignments": [{"name": "lr", "value": "0.1"}],
        "runSpec": JOB,
        "successCondition": "status.[@this].#(succeeded==1)",
        "metricsCollector": {"source": {"filter": {"metricsFormat": ["(\\w+)=(\\S+)"]}}},
        "earlyStoppingRules": [
            {"name": "loss", "value": "0.2", "comparison": "greater", "startStep": 1}
        ],
    },
}


class Cluster:
    """A scheduler that is told of everything and may change nothing; it plans now and then."""

    def __init__(self) -> None:
        config = SchedulerConfig()
        self._policies = load_policies(config)
        self.scheduler = Scheduler(None, config, self._policies, Metrics(), look_only=True)  # type: ignore[arg-type]
        self.scheduler.binding = Extender(self.scheduler, 1.0)
        made = self.scheduler
        self.readers: dict[str, receivers.Receiver] = {
            "Node": receivers.Nodes(made),
            "Pod": receivers.PodsSeen(made),
            "PodGroup": receivers.PodGroups(made),
            "Queue": made._queue_receiver,
            "Topology": declarations.Topologies(made),
            "Reservation": declarations.Reservations(made),
            "PriorityClass": declarations.PriorityClasses(made),
            "Namespace": declarations.Namespaces(made),
            "Workload": made.workloads,
        }
        self.others = {kind: receivers.Foreign(made, kind) for kind in foreign.KINDS}
        for name, documents in SEEN.items():
            for document in documents:
                self.readers[name].seen(json.dumps(document).encode())
        self._count = 0

    def hear(self, reader: receivers.Receiver, raw: bytes) -> None:
        """Hear of an object, as a watch tells it."""
        uid = msgspec.json.decode(raw)["metadata"]["uid"]
        try:
            reader.take(raw)
        except DecodeError as error:
            reader.malformed(raw, str(error))
        self._count += 1
        if self._count % _PLANNED_EVERY == 0:
            engine = self.scheduler.engine
            plan = make_plan(engine.snapshot(1.0), self._policies, 1.0)
            engine.accept(plan, 1.0)
            engine.tick(1.0)
        if self._count % 7 == 0:
            reader.gone(uid, raw)


def _job(kind: str) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        try:
            job = parse(json.loads(raw), "gangsched", kind)
        except InvalidJobError:
            return
        reconcile(job, Observed(), CLOCK)

    return target


def _owner(step: Callable[[Owned, Clock], Any]) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        try:
            step(Owned(json.loads(raw), {}), CLOCK)
        except InvalidJobError:
            return

    return target


def _jobsets() -> tuple[dict[str, Any], ...]:
    job = {"completions": 2, "parallelism": 2, "template": TEMPLATE}
    near = {"annotations": {EXCLUSIVE: "rack"}, "labels": {"a": "b"}}
    first = {"name": "a", "replicas": 2, "template": {"metadata": near, "spec": job}}
    after = {**first, "name": "b", "dependsOn": [{"name": "a", "status": "Complete"}]}
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    whole = {
        "replicatedJobs": [first, {**first, "name": "b"}],
        "network": {"enableDNSHostnames": True, "subdomain": "s"},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["a"]},
        "failurePolicy": {"maxRestarts": 1, "rules": [{"name": "r", "action": "FailJobSet"}]},
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "coordinator": {"replicatedJob": "a", "jobIndex": 0, "podIndex": 0},
        "volumeClaimPolicies": [{"templates": [claim]}],
        "ttlSecondsAfterFinished": 9,
    }
    specs = ({"replicatedJobs": [first, after]}, whole)
    return tuple({"metadata": meta("s"), "spec": spec} for spec in specs)


def _trial(raw: bytes) -> None:
    body = json.loads(raw)
    try:
        spec = trial.checked(Owned(body, {}))
        job = {**spec["runSpec"], "metadata": meta("t"), "status": ENDED}
        ended = ends.ended(spec, job)
        series = collect.read("loss=0.5\nloss=0.1", ["loss"], trial.filters(spec))
        owned = Owned(body, {(job["kind"], "t"): job}, {"ended": ended, "series": series})
        trial.kind().step(owned, CLOCK)
    except (InvalidJobError, collect.FilterError, ends.ConditionError):
        return


def _scenario(folder: Path) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        path = folder / "scenario.yaml"
        path.write_bytes(raw)
        try:
            load(path)
        except ConfigError:
            return

    return target


def _extender(cluster: Cluster) -> Callable[[bytes], None]:
    extender = cluster.scheduler.binding
    assert isinstance(extender, Extender)
    cluster.scheduler.ready.set()

    async def look(raw: bytes) -> None:
        args = _filter_args.decode(raw)
        extender._look_up(args.Pod.metadata.uid, args.NodeNames)  # type: ignore[arg-type]

    def target(raw: bytes) -> None:
        for decode in (lambda r: asyncio.run(look(r)), _bind_args.decode):
            try:
                decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue

    return target


Target = tuple[Callable[[bytes], None], tuple[Any, ...]]
"""What reads bytes, and good documents to begin with."""

FREE = ("scenario", "extender")
"""Targets that read bytes of anybody; all others read what an API server has taken."""


def targets(folder: Path) -> dict[str, Target]:
    """Return every target by name; some write into a folder."""
    cluster = Cluster()
    found: dict[str, Target] = {}
    for name, documents in SEEN.items():
        reader = cluster.readers[name]
        found[name] = (lambda raw, reader=reader: cluster.hear(reader, raw), documents)
    for kind, document in FOREIGN.items():
        reader = cluster.others[kind]
        name = f"{kind.kind}.{kind.api_version}"
        found[name] = (lambda raw, reader=reader: cluster.hear(reader, raw), (document,))
    for kind, framework in FRAMEWORKS.items():
        template = json.loads(json.dumps(TEMPLATE).replace("pytorch", framework.container))
        roles = {role: {"replicas": 1, "template": template} for role in framework.roles[:2]}
        policy = {"backoffLimit": 1, "schedulingPolicy": {"minAvailable": 1}}
        body = {"metadata": meta("j"), "spec": {framework.specs: roles, "runPolicy": policy}}
        found[kind] = (_job(kind), (body,))
    found["JobSet"] = (_owner(jobset.kind("gangsched").step), _jobsets())
    runtimes = Runtimes()
    for one in yaml.safe_load_all((ROOT / "manifests/runtimes/runtimes.yaml").read_text()):
        runtimes.seen(one)
    trainer = {"numNodes": 2, "command": ["x"], "resourcesPerNode": {"limits": {"cpu": "2"}}}
    specs = [
        {"runtimeRef": {"name": name}, "trainer": trainer}
        for name in ("torch-distributed", "deepspeed-distributed", "jax-distributed")
    ]
    bodies = tuple({"metadata": meta("t"), "spec": spec} for spec in specs)
    found["TrainJob"] = (_owner(trainjob.kind(runtimes).step), bodies)
    found["Experiment"] = (_owner(experiment.kind().step), (SEARCH,))
    found["Trial"] = (_trial, (TRIAL,))
    scenarios = tuple(
        yaml.safe_load(path.read_text())
        for path in sorted((ROOT / "examples" / "simulations").glob("*.yaml"))
    )
    found["scenario"] = (_scenario(folder), scenarios)
    asked = {"Pod": {"metadata": {"uid": "p"}}, "NodeNames": ["n"]}
    bound = {"PodName": "p", "PodNamespace": "ns", "PodUID": "p", "Node": "n"}
    found["extender"] = (_extender(cluster), (asked, bound))
    return found
