"""Valid documents of every external kind, as seeds of the fuzzers."""

import json
from typing import Any

from annotations import ASKED, LABELS, OF_PODS

from gangsched.jobs.jobset.objects import EXCLUSIVE
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.decoding.external import groups
from gangsched.kube.decoding.external.owners import OWNERS

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
                "command": ["mpirun", "-np", "2", "python"],
                "args": ["train.py"],
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "m", "optional": True}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "ports": [{"name": "p", "containerPort": 1, "hostPort": 2}],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                    "limits": {"nvidia.com/gpu": "1"},
                },
            }
        ],
        "initContainers": [{"name": "first", "image": "x", "restartPolicy": "Always"}],
        "volumes": [
            {"name": "v", "configMap": {"name": "m"}},
            {"name": "w", "projected": {"sources": [{"configMap": {"name": "m"}}]}},
        ],
        "priorityClassName": "high",
        "restartPolicy": "OnFailure",
    }
}
ELASTIC = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "rdzvBackend": "c10d",
    "rdzvPort": 29400,
    "rdzvConf": [{"key": "timeout", "value": "9"}],
    "nProcPerNode": 2,
    "maxRestarts": 3,
    "metrics": [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 9}},
        }
    ],
}
JOBS: dict[str, Json] = {
    "PyTorchJob": {"elasticPolicy": ELASTIC, "nprocPerNode": "auto"},
    "TFJob": {"successPolicy": "AllWorkers", "enableDynamicWorker": True},
    "MPIJob": {
        "slotsPerWorker": 2,
        "mainContainer": "pytorch",
        "runLauncherAsWorker": True,
        "sshAuthMountPath": "/ssh",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiImplementation": "OpenMPI",
    },
    "PaddleJob": {"elasticPolicy": ELASTIC},
}
RUN = {
    "backoffLimit": 1,
    "cleanPodPolicy": "Running",
    "ttlSecondsAfterFinished": 9,
    "activeDeadlineSeconds": 9,
    "suspend": False,
    "schedulingPolicy": {
        "minAvailable": 1,
        "queue": "q",
        "minResources": {"cpu": 1},
        "priorityClass": "high",
        "scheduleTimeoutSeconds": 9,
    },
}
GANG = {
    "minMember": 2,
    "queue": "default",
    "scheduleTimeoutSeconds": 60,
    "roles": [{"name": "w", "count": 2, "minCount": 1, "template": TEMPLATE}],
    "topology": {"required": "rack", "slices": [{"level": "rack", "size": 2}]},
    "expectedRuntimeSeconds": 100,
}


def _annotated(said: dict[str, str]) -> Json:
    return {"metadata": {"annotations": said}, **TEMPLATE}


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
            "metadata": meta("q", annotations={"gpu-memory": "1000"}),
            "spec": {**TEMPLATE["spec"], "nodeName": "n", "workloadRef": {"name": "w"}},
        },
        *(
            {
                "metadata": meta(f"p{index}-{number}", labels=labels, annotations=said),
                "spec": {**TEMPLATE["spec"], **({"nodeName": "n"} if index % 2 else {})},
            }
            for index, said in enumerate((*ASKED, *OF_PODS))
            for number, labels in enumerate(LABELS)
        ),
    ),
    "PodGroup": (
        {
            "metadata": meta("g", annotations={"gangsched.io/user": "u"}),
            "spec": GANG,
            "status": {"phase": "Reserved", "assignments": [{"pod": "p", "node": "n"}]},
        },
        *(
            {
                "metadata": meta(f"a{number}", annotations=said),
                "spec": {"roles": [{"name": "w", "count": 2, "template": _annotated(said)}]},
            }
            for number, said in enumerate(ASKED)
        ),
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
} | {
    kind.kind.lower(): {
        kind.specs: {"Worker": {"replicas": 2, "template": TEMPLATE}},
        "elasticPolicy": {"minReplicas": 1},
        "runPolicy": {"schedulingPolicy": {"queue": "default", "scheduleTimeoutSeconds": 60}},
    }
    for kind in FRAMEWORKS.values()
}
FOREIGN = {
    kind: tuple(
        {
            "metadata": meta(
                "f",
                labels={"kueue.x-k8s.io/queue-name": "default"},
                annotations={"kueue.x-k8s.io/job-min-parallelism": "2", **said},
            ),
            "spec": _SPECS.get(
                kind.source, {"minMember": 2, "parallelism": 2, "template": TEMPLATE}
            ),
        }
        for said in ASKED
    )
    for kind in (*groups.KINDS, *OWNERS)
}


PAST = {"runs": [["u", "train", 10.0, 20.0]], "ratios": [["u", 0.5], ["", 0.9]]}
"""What was learnt of run times, as it is kept."""

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


def jobsets() -> tuple[Json, ...]:
    """Return JobSets with every field that is walked through."""
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
    plain = tuple({"metadata": meta("s"), "spec": spec} for spec in specs)
    return (
        *plain,
        *({"metadata": meta("s", annotations=said), "spec": specs[0]} for said in ASKED),
    )
