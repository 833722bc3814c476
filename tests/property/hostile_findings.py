"""Attacks of a tenant that once worked, each as a history."""

from typing import Any

from simulator.hostile.templates import GPU, NODES, distinct_spec

Json = dict[str, Any]

_HEAD = {"apiVersion": "gangsched.io/v1beta1", "kind": "PodGroup"}
SERVE, PLAN, RESTART, THINK = ({"do": word} for word in ("serve", "plan", "restart", "think"))


def _asks(**amounts: str) -> Json:
    said = {{"gpu": GPU}.get(key, key): value for key, value in amounts.items()}
    limits = {key: value for key, value in said.items() if "/" in key}
    return {"name": "c", "image": "none", "resources": {"requests": said, "limits": limits}}


def _spec(*containers: Json, **more: Any) -> Json:
    return {"schedulerName": "gangsched", "containers": list(containers), **more}


def _group(name: str, *roles: Json, annotations: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": name, "annotations": annotations or {}}
    listed = {"roles": list(roles)} if roles else {}
    return {**_HEAD, "metadata": metadata, "spec": {"queue": "hostile", **listed, **spec}}


def _role(name: str, count: int, spec: Json | None, **more: Any) -> Json:
    template = {} if spec is None else {"template": {"spec": spec}}
    return {"name": name, "count": count, **template, **more}


def _pod(name: str, spec: Json, *, node: str = "", labels: Json | None = None, **said: str) -> Json:
    metadata = {"name": name, "labels": labels or {}, "annotations": said}
    placed = {**spec, "nodeName": node} if node else spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": placed}


def _create(*documents: Json, **more: Any) -> Json:
    return {"do": "create", "documents": list(documents), **more}


def _edit(name: str, **fields: Json) -> Json:
    return {"do": "edit", "name": name, **fields}


def _history(*steps: Json, **more: bool) -> Json:
    return {**more, "steps": list(steps)}


_SMALL = _spec(_asks(cpu="1m"))
_GPU = _spec(_asks(cpu="1", gpu="1"))
_WHOLE_NODE = _spec(_asks(cpu="1", gpu="8"))
_MEMBERS = {"gangsched.io/pod-group": "g"}


_SHARE = {"gpu-memory": "64", "gangsched.io/gpu-devices": "0,1"}
"""Of GPUs that nobody gave: whoever creates a pod may write all of its annotations."""


def _job(kind: str, version: str, spec: Json, name: str = "j") -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


_BATCH = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": _SMALL}}}


def _jobset(replicas: int, **spec: Any) -> Json:
    job = {"name": "w", "replicas": replicas, "template": {"spec": {"template": {"spec": _SMALL}}}}
    return _job("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [job], **spec})


def _experiment(argument: str, algorithm: str = "random", **settings: str) -> Json:
    listed = [{"name": key, "value": value} for key, value in settings.items()]
    space = {"min": "0", "max": "1"}
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": algorithm, "algorithmSettings": listed},
        "parameters": [{"name": "p0", "parameterType": "double", "feasibleSpace": space}],
        "trialTemplate": {
            "trialParameters": [{"name": "at", "reference": "p0"}],
            "trialSpec": {**_BATCH, "x": [argument]},
        },
    }
    return _job("Experiment", "kubeflow.org/v1beta1", spec)


def _trial(name: str, **spec: Any) -> Json:
    objective = {"type": "minimize", "objectiveMetricName": "loss"}
    whole = {"objective": objective, "parameterAssignments": [], "runSpec": _BATCH, **spec}
    return _job("Trial", "kubeflow.org/v1beta1", whole, name)


def _names(group: int, count: int) -> Json:
    return _spec(_asks(**{f"a.b/g{group}r{index:x}": "1" for index in range(count)}))


def _keys(group: int, count: int) -> Json:
    return {**_SMALL, "nodeSelector": {f"k{group}.{index:x}": "1" for index in range(count)}}


FINDINGS: dict[str, Json] = {
    "roles that all differ": _history(
        _create(_group("g", *(_role(f"r{index}", 1, distinct_spec(index)) for index in range(64)))),
        SERVE,
        THINK,
    ),
    "roles that all differ, two pods each": _history(
        _create(_group("g", *(_role(f"r{index}", 2, distinct_spec(index)) for index in range(40)))),
        SERVE,
        THINK,
    ),
    "bare pods that all differ": _history(
        _create(
            *(
                _pod(
                    f"p{i}", distinct_spec(i), labels={**_MEMBERS, "gangsched.io/min-member": "500"}
                )
                for i in range(500)
            )
        ),
        SERVE,
        THINK,
    ),
    "a pattern that backtracks": _history(
        _create(
            _jobset(
                1,
                failurePolicy={
                    "maxRestarts": 3,
                    "rules": [
                        {
                            "name": "r",
                            "action": "FailJobSet",
                            "onJobFailureMessagePatterns": ["^([A-Za-z ]+)+#$"],
                        }
                    ],
                },
            )
        )
    ),
    "references that never end": _history(_create(_experiment("${trialSpec." * 13_000))),
    "a condition that doubles": _history(
        _create(_trial("t", failureCondition="|".join(["[@this,@this]"] * 40) + "|@tostr"))
    ),
    "shares of a million GPUs": _history(
        _create(
            _pod(
                "p",
                {**_SMALL, "schedulerName": "default-scheduler"},
                node="n0",
                **{"gpu-fraction": "0.5", "gpu-fraction-num-devices": "30000000"},
            )
        ),
        SERVE,
    ),
    "a pod's amounts beyond 64 bits": _history(
        _create(_pod("p", _spec(*[_asks(memory="1Pi")] * 8192))), SERVE
    ),
    "a group's amounts beyond 64 bits": _history(
        _create(_group("g", _role("w", 2, _spec(*[_asks(memory="1Pi")] * 8192)))), SERVE
    ),
    "amounts on a node beyond 64 bits": _history(
        *(_create(_pod(f"p{i}", _spec(*[_asks(memory="1Pi")] * 8000), node="n0")) for i in (1, 2)),
        SERVE,
    ),
    "a gang's amounts beyond 64 bits": _history(
        _create(_group("g", _role("w", 1_000, _spec(*[_asks(memory="1Pi")] * 8000)))), SERVE
    ),
    "resources that nobody has": _history(
        *(_create(_group(f"g{group}", _role("w", 1, _names(group, 2_000)))) for group in range(6)),
        SERVE,
    ),
    "labels that no node has": _history(
        *(
            step
            for group in range(40)
            for step in (
                _create(_group(f"g{group}", _role("w", 1, _keys(group, 10_000)))),
                PLAN,
                {"do": "delete", "name": f"g{group}"},
            )
        ),
        SERVE,
    ),
    "a role without template hides the others": _history(
        _create(
            _group(
                "g",
                *(_role(f"r{i}", 100_000, _SMALL, minCount=0) for i in range(6)),
                _role("z", 1, None),
                minMember=1,
            )
        ),
        SERVE,
    ),
    "a JobSet of a hundred thousand Jobs": _history(_create(_jobset(100_000)), SERVE),
    "a search among four billion candidates": _history(
        _create(
            _experiment(
                "${trialParameters.at}", "tpe", n_ei_candidates="4294967295", n_startup_trials="1"
            )
        )
    ),
    **{
        f"a filter that is slow on log {name}": _history(
            _create(
                _trial(
                    name,
                    metricsCollector={"source": {"filter": {"metricsFormat": [r"(a)(?:a*(b))?"]}}},
                )
            )
        )
        for name in ("t0", "t1", "t6")
    },
    "pods larger than their template": _history(
        _create(_group("g", _role("w", 4, _SMALL)), larger={"cpu": "1", GPU: "8"}),
        PLAN,
        PLAN,
        SERVE,
    ),
    "bound pods that are not understood": _history(
        _create(
            _pod("a", _GPU, node="n0", labels={**_MEMBERS, "gangsched.io/min-member": "x"}),
            _pod(
                "b",
                _GPU,
                node="n1",
                labels={"kueue.x-k8s.io/pod-group-name": "k"},
                **{"kueue.x-k8s.io/pod-group-total-count": "x"},
            ),
            _pod("c", _spec(_asks(cpu="1", gpu="1", **{"a.b/c": "2Pi"})), node="n2"),
        ),
        SERVE,
    ),
    "a label changes before another leads": _history(
        _create(_group("g", minMember=1)),
        _create(_pod("p", _WHOLE_NODE, labels=dict(_MEMBERS))),
        PLAN,
        _edit("p", metadata={"labels": {**_MEMBERS, "gangsched.io/min-member": "x"}}),
        RESTART,
        SERVE,
    ),
    "a pod changes its gang": _history(
        _create(_group("g", minMember=1)),
        _create(_pod("p", _GPU, labels=dict(_MEMBERS))),
        PLAN,
        _edit("p", metadata={"labels": {"gangsched.io/pod-group": "other"}}),
        SERVE,
    ),
    "a waiting pod changes its gang": _history(
        _create(_pod("p", _GPU, labels={**_MEMBERS, "gangsched.io/min-member": "2"})),
        PLAN,
        _edit("p", metadata={"labels": {"gangsched.io/pod-group": "other"}}),
        SERVE,
    ),
    **{
        f"a running gang moves to queue {queue}": _history(
            _create(_group("g", _role("w", 1, _WHOLE_NODE))),
            PLAN,
            PLAN,
            _edit("g", spec={"queue": queue}),
            _create(_group("h", _role("w", 1, _WHOLE_NODE))),
            PLAN,
            SERVE,
        )
        for queue in ("victim", "nowhere")
    },
    **{
        f"a loan that cannot be taken back: {word}": _history(
            _create(_group("g", _role("w", 8, _WHOLE_NODE), **spec)),
            PLAN,
            PLAN,
            *deleted,
            {"do": "serve", "cycles": cycles},
            loans=True,
        )
        for word, spec, deleted, cycles in (
            ("not preemptible", {"preemptible": False}, (), 40),
            ("it has just begun", {"minRuntimeSeconds": 10**12}, (), 3_700),
            ("its group is gone", {}, ({"do": "delete", "name": "g"},), 40),
        )
    },
    "a data centre for a thousandth of a core": _history(
        _create(_group("g", _role("w", 1, _SMALL), topology={"exclusive": "dc"})),
        PLAN,
        PLAN,
        SERVE,
    ),
    "exclusive once it runs": _history(
        SERVE,
        _create(_group("g", _role("w", 1, _SMALL))),
        PLAN,
        PLAN,
        _edit("g", spec={"topology": {"exclusive": "dc"}}),
        RESTART,
        SERVE,
    ),
    "room kept for pods that never come": _history(
        _create(_group("g", _role("w", 8, _WHOLE_NODE), scheduleTimeoutSeconds=86_400), pods=False),
        PLAN,
        {"do": "serve", "cycles": 700},
        loans=True,
    ),
    "GPUs by their numbers": _history(
        _create(
            *(
                _pod(
                    f"p{index}",
                    {**_SMALL, "schedulerName": "default-scheduler"},
                    node=node,
                    **{
                        "gpu-fraction": "0.5",
                        "gpu-fraction-num-devices": "1000",
                        "gangsched.io/gpu-devices": ",".join(map(str, range(1000))),
                    },
                )
                for index, node in enumerate(NODES)
            )
        ),
        SERVE,
    ),
    "a pod that took its node, in another's queue": _history(
        SERVE,
        _create(
            _pod(
                "p",
                _GPU,
                node="n0",
                labels={
                    **_MEMBERS,
                    "gangsched.io/min-member": "1",
                    "gangsched.io/queue-name": "victim",
                },
            )
        ),
        SERVE,
    ),
    "parts of more GPUs than there are, in a gang that nobody declared": _history(
        _create(
            _pod(
                "p",
                _SMALL,
                node="n0",
                labels={"scheduling.x-k8s.io/pod-group": "g"},
                **_SHARE | {"gpu-fraction-num-devices": "64"},
            )
        ),
        SERVE,
        admission=False,
    ),
    "parts of more GPUs than there are, in a gang that is not complete": _history(
        _create(
            _pod(
                "p",
                _SMALL,
                node="n0",
                labels={**_MEMBERS, "gangsched.io/min-member": "64"},
                **_SHARE | {"gpu-fraction-num-devices": "64"},
            )
        ),
        SERVE,
        admission=False,
    ),
    "a part of a GPU that is not said any more": _history(
        _create(
            _pod(
                "p",
                {**_SMALL, "nodeSelector": {"kubernetes.io/hostname": "n0"}},
                **{"gpu-fraction": "0.5"},
            )
        ),
        PLAN,
        PLAN,
        _edit("p", metadata={"annotations": {}}),
        RESTART,
        SERVE,
    ),
    "a part of a GPU that no node has": _history(
        *(
            _create(
                _pod(
                    f"p{index}",
                    _SMALL,
                    node="n0",
                    **{"gpu-fraction": part, "gangsched.io/gpu-devices": "0"},
                )
            )
            for index, part in enumerate(["0.9"] * 12 + ["0.5"])
        ),
        PLAN,
        *({"do": "delete", "name": f"p{index}"} for index in range(12)),
        _create(
            _pod(
                "q",
                {**_SMALL, "nodeSelector": {"kubernetes.io/hostname": "n0"}},
                **{"gpu-fraction": "0.5"},
            )
        ),
        PLAN,
        PLAN,
        SERVE,
        admission=False,
    ),
    "three halves of one GPU": _history(
        *(
            _create(
                _pod(
                    f"p{index}",
                    {**_SMALL, "nodeSelector": {"kubernetes.io/hostname": "n0"}},
                    **{"gpu-fraction": "0.5", "gangsched.io/gpu-devices": "0"},
                )
            )
            for index in range(20)
        ),
        PLAN,
        PLAN,
        SERVE,
        admission=False,
    ),
    "a launcher without workers": _history(
        _create(
            _job(
                "MPIJob",
                "kubeflow.org/v1",
                {
                    "mpiReplicaSpecs": {
                        "Launcher": {
                            "replicas": 1,
                            "template": {
                                "spec": {
                                    "serviceAccountName": "prod-deployer",
                                    "containers": [{"name": "mpi", "image": "x"}],
                                }
                            },
                        }
                    }
                },
            )
        )
    ),
    "a pod that shrinks, and has not yet": _history(
        _create(_group("g", minMember=1)),
        _create(
            _pod(
                "p",
                {**_spec(_asks(cpu="64")), "nodeSelector": {"kubernetes.io/hostname": "n0"}},
                labels=dict(_MEMBERS),
            )
        ),
        PLAN,
        PLAN,
        _edit(
            "p",
            spec={"containers": [_asks(cpu="1m")]},
            metadata={"generation": 2},
            status={
                "containerStatuses": [
                    {
                        "name": "c",
                        "allocatedResources": {"cpu": "64"},
                        "resources": {"requests": {"cpu": "64"}},
                    }
                ],
            },
        ),
        SERVE,
    ),
    "two sidecars on one port": _history(
        *(
            _create(
                _pod(
                    f"p{index}",
                    {
                        **_SMALL,
                        "nodeSelector": {"kubernetes.io/hostname": "n0"},
                        "initContainers": [
                            {
                                **_asks(cpu="1m"),
                                "restartPolicy": "Always",
                                "ports": [{"containerPort": 80, "hostPort": 8080}],
                            }
                        ],
                    },
                )
            )
            for index in range(2)
        ),
        PLAN,
        PLAN,
        SERVE,
    ),
}
