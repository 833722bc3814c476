"""The objects of a hostile tenant: every kind that an API server lets it create."""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from gangsched.api import dialects, names
from gangsched.kube.decoding.external import groups as foreign
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.membership import JOB, RAY, STATEFUL
from simulator.hostile import jobs
from simulator.hostile.templates import (
    ABSURD,
    LARGE,
    LEVELS,
    NODES,
    Json,
    count,
    distinct_spec,
    pod_spec,
    random_label,
    text,
)

NAMESPACE, VICTIM = "hostile", "victim"
QUEUES = (NAMESPACE, NAMESPACE, NAMESPACE, VICTIM, "default", "nowhere", "q" * 253)
CLASSES = ("", "", "high", "system-node-critical", "no-such-class")

OBJECT_BYTES = 1_500_000
"""The largest request of etcd."""

_ANNOTATION_BYTES = 256 * 1024
_LABEL_LETTERS = 63

_WHOLE = ("0", "1", "2", "7", "64", "100000", "999999999", "-1", "x", "1e9", "", "9" * 30)
_SAID: Mapping[str, tuple[str, ...]] = {
    "preemptible": ("true", "false", "maybe"),
    "movable": ("true", "false"),
    "preemptibility": ("preemptible", "non-preemptible", "x"),
    "preemptable": ("true", "false"),
    "network-topology-mode": ("hard", "soft", "x"),
    "checkpoint-at": ("2030-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "soon"),
    "gpu-kinds": ("H100", "A100,H100", ",", ",".join(["H"] * 1000)),
    "avoid-nodes": (",".join(NODES), "n0", ",".join(f"m{index}" for index in range(20_000))),
    "spread": ("rack=1", "dc=100000,rack=1", "host=0", ",".join(["rack=1"] * 3_000)),
    "slices": (
        '[{"level": "rack", "size": 2}]',
        '[{"level": "dc", "size": 100000}, {"level": "host", "size": 1}]',
        "[" * 5_000,
        '[{"level": "rack", "size": 1e999}]',
    ),
    "podset-slice-required-topology-constraints": ('[{"topology": "rack", "size": 2}]', "{}"),
}


def accepted(document: Json) -> bool:
    """Return whether an API server accepts an object of this size."""
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    return (
        sum(len(key) + len(value) for key, value in annotations.items()) <= _ANNOTATION_BYTES
        and all(len(value) <= _LABEL_LETTERS for value in labels.values())
        and len(json.dumps(document)) <= OBJECT_BYTES
    )


def asked(rng: random.Random, scale: int) -> dict[str, str]:
    """Return annotations about nodes and run time of a gang, in any scheduler's dialect."""
    annotations = {}
    for key in rng.sample(sorted(dialects.KEYS), rng.choice((0, 0, 1, 2, 4))):
        word = key.rsplit("/", 1)[-1]
        if word in _SAID:
            annotations[key] = rng.choice(_SAID[word])
        elif word.endswith(("seconds", "size", "tier")):
            annotations[key] = rng.choice(_WHOLE)
        else:
            annotations[key] = rng.choice(LEVELS) if rng.random() < 0.8 else text(rng, scale)
    return annotations


def shares(rng: random.Random) -> dict[str, str]:
    """Return annotations about shared GPUs."""
    annotations = {}
    if rng.random() < 0.7:
        annotations["gpu-fraction"] = rng.choice(
            ("0.5", "0.001", "0.999", "1e-9", "nan", "2", "0.25")
        )
    else:
        annotations["gpu-memory"] = rng.choice(("1", "40000", "79999", "80001", *_WHOLE))
    if rng.random() < 0.6:
        annotations["gpu-fraction-num-devices"] = rng.choice(_WHOLE)
    if rng.random() < 0.5:
        listed = (("0",), ("0", "1"), ("99",), ("0", "0", "0"), tuple(map(str, range(1000))))
        annotations[names.DEVICES_ANNOTATION] = ",".join(rng.choice(listed))
    return annotations


def _metadata(rng: random.Random, name: str, scale: int) -> Json:
    metadata: Json = {"name": name, "namespace": NAMESPACE, "labels": {}}
    metadata["annotations"] = asked(rng, scale)
    if rng.random() < 0.5:
        metadata["labels"][rng.choice(names.QUEUE_LABELS)] = rng.choice(QUEUES[:-1])
    if rng.random() < 0.3:
        user = rng.choice((VICTIM, f"user-{rng.randrange(10**6)}", text(rng, scale)))
        metadata["annotations"][names.USER_ANNOTATION] = user
    return metadata


# -- PodGroups -----------------------------------------------------------------------------------


def random_pod_group(rng: random.Random, name: str, scale: int) -> list[Json]:
    """Return a PodGroup with roles and every constraint."""
    spec: Json = {}
    if rng.random() < 0.8:
        spec["roles"] = _roles(rng, scale)
    if rng.random() < 0.5:
        spec["minMember"] = min(count(rng, scale), 100_000)
    for key, value in _wishes(rng, scale).items():
        if rng.random() < 0.3:
            spec[key] = value
    spec.setdefault("queue", NAMESPACE if rng.random() < 0.7 else rng.choice(QUEUES))
    group = {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "PodGroup",
        "metadata": _metadata(rng, name, scale),
        "spec": spec,
    }
    return [group]


def _wishes(rng: random.Random, scale: int) -> Json:
    level = rng.choice(LEVELS) or "rack"
    topology: Json = {
        "name": rng.choice(("", "default", "nowhere")),
        rng.choice(("required", "preferred", "exclusive")): level,
        "slices": [{"level": level, "size": count(rng, scale)} for _ in range(rng.randint(0, 4))],
        "spread": [
            {"level": level, "maxPods": count(rng, scale)} for _ in range(rng.randint(0, 8))
        ],
    }
    return {
        "topology": topology,
        "priorityClassName": rng.choice(CLASSES),
        "user": rng.choice((VICTIM, f"user-{rng.randrange(10**6)}", "u" * 253)),
        "expectedRuntimeSeconds": rng.choice((1, 3600, 315_360_000)),
        "scheduleTimeoutSeconds": rng.choice((1, 60, 86_400)),
        "maxRuntimeSeconds": rng.choice((1e-300, 1.0, 1e308)),
        "readyTimeoutSeconds": rng.choice((1e-300, 1.0, 1e308)),
        "minRuntimeSeconds": rng.choice((0, 60, 2**31, 2**62)),
        "preemptible": rng.random() < 0.3,
        "movable": rng.random() < 0.5,
        "checkpointAt": rng.choice(("2030-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "soon")),
        "gpuKinds": ["H"] * min(count(rng, scale), 16),
        "avoidNodes": [*NODES, *(f"m{index}" for index in range(min(count(rng, scale), 900)))],
    }


def _roles(rng: random.Random, scale: int) -> list[Json]:
    """Return roles with equal or different requirements, with or without a template."""
    number = rng.choice((1, 1, 2, 4)) if scale < LARGE else rng.choice((1, 8, 40, 64))
    shared_spec = None if rng.random() < 0.4 else pod_spec(rng, scale if number < 8 else 0)
    most = (3, 30, 100_000)[scale]
    roles = []
    for index in range(number):
        pods = rng.choice((1, 1, 2, min(count(rng, scale), most), most))
        role: Json = {"name": f"r{index}", "count": pods}
        if rng.random() < 0.4:
            role["minCount"] = rng.choice((0, 1, pods))
        if rng.random() < 0.9:
            metadata = {"annotations": shares(rng) if rng.random() < 0.1 else {}}
            role["template"] = {"metadata": metadata, "spec": shared_spec or distinct_spec(index)}
        roles.append(role)
    return roles


# -- pods ----------------------------------------------------------------------------------------


def random_pods(rng: random.Random, name: str, scale: int) -> list[Json]:
    """Return pods of one group or of none; some of them name their own node."""
    number = min(count(rng, scale), (2, 30, 300)[scale])
    each = pod_spec(rng, scale if number < 4 else min(scale, LARGE), _scheduler(rng))
    differ = number > 1 and rng.random() < 0.5
    membership = rng.choice(_MEMBERSHIPS)
    taken = rng.choice((*NODES, "nowhere")) if rng.random() < 0.3 else ""
    pods = []
    for index in range(number):
        metadata = _metadata(rng, f"{name}-{index}" if number > 1 else name, min(scale, LARGE))
        membership(metadata, rng, name, number)
        if rng.random() < 0.3:
            metadata["annotations"] |= shares(rng)
        spec = distinct_spec(index) if differ else dict(each)
        if taken:
            spec["nodeName"] = taken
            spec.pop("schedulingGates", None)
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return pods


def _scheduler(rng: random.Random) -> str:
    return rng.choice(("gangsched", "gangsched", "gangsched", "default-scheduler"))


def _labelled(metadata: Json, rng: random.Random, name: str, number: int) -> None:
    metadata["labels"][names.POD_GROUP_LABEL] = name
    if rng.random() < 0.6:
        metadata["labels"][names.MIN_MEMBER_LABEL] = rng.choice((str(number), random_label(rng)))
    metadata["labels"][rng.choice((names.ROLE_LABEL, *names.INDEX_LABELS))] = random_label(rng)


def _kueue(metadata: Json, rng: random.Random, name: str, number: int) -> None:
    metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = name
    total = rng.choice((str(number), *_WHOLE))
    metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = total


def _lws(metadata: Json, rng: random.Random, name: str, number: int) -> None:
    metadata["labels"]["leaderworkerset.sigs.k8s.io/name"] = name
    size = rng.choice((str(number), *_WHOLE))
    metadata["annotations"]["leaderworkerset.sigs.k8s.io/size"] = size


def _named(metadata: Json, rng: random.Random, name: str, number: int) -> None:
    key = rng.choice(
        ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "pod-group-name")
    )
    metadata["annotations"][key] = name
    if rng.random() < 0.3:
        metadata["labels"][names.COSCHEDULING_LABEL] = name


_OWNING = (
    ("batch/v1", "Job"),
    ("apps/v1", "StatefulSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v1", "TFJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
)


def _owned(metadata: Json, rng: random.Random, name: str, number: int) -> None:
    version, kind = rng.choice(_OWNING)
    if kind == "MPIJob":
        metadata["labels"]["training.kubeflow.org/operator-name"] = "mpi-operator"
        metadata["labels"]["training.kubeflow.org/job-name"] = name
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "o", "controller": True}
    metadata["ownerReferences"] = [owner]


def _alone(metadata: Json, rng: random.Random, name: str, number: int) -> None:
    """Leave a pod without a group, as a gang by itself."""


_MEMBERSHIPS = (_labelled, _labelled, _kueue, _lws, _named, _owned, _alone)


# -- other kinds ---------------------------------------------------------------------------------


_THEIRS = (*foreign.KINDS, *(one for one in OWNERS if one.source in (JOB, STATEFUL, RAY)))


def theirs(rng: random.Random, name: str, scale: int) -> list[Json]:
    """Return an object of another scheduler that declares a gang."""
    kind = rng.choice(_THEIRS)
    most = count(rng, scale)
    spec: Json = {"minMember": most, "queue": rng.choice(QUEUES)}
    template = {"spec": pod_spec(rng, min(scale, LARGE))}
    match kind.kind:
        case "Job":
            spec = {"parallelism": most, "completions": count(rng, scale), "template": template}
        case "StatefulSet":
            spec = {"replicas": most, "podManagementPolicy": "Parallel", "template": template}
        case "RayCluster":
            groups = [{"replicas": most, "numOfHosts": count(rng, scale)}] * rng.choice((1, 3, 50))
            spec = {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}
    if kind.source == "scheduling.k8s.io":
        keys = [{"key": rng.choice(LEVELS)}] * rng.choice((0, 1, 2))
        spec = {"schedulingPolicy": {"gang": {"minCount": most}}}
        spec["schedulingConstraints"] = {"topology": keys}
    if kind.source == "scheduling.volcano.sh":
        spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": rng.choice((0, 1, 10**9))}
        spec["priorityClassName"] = rng.choice(CLASSES)
    if kind.source == "scheduling.run.ai":
        spec["topologyConstraint"] = {"requiredTopologyLevel": rng.choice(LEVELS)}
    metadata = _metadata(rng, name, min(scale, LARGE))
    metadata["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = rng.choice(_WHOLE)
    return [{"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}]


Maker = Callable[[random.Random, str, int], list[Json]]

KINDS: Mapping[str, Maker] = {
    "PodGroup": random_pod_group,
    "Pod": random_pods,
    "theirs": theirs,
    **{kind: jobs.maker(kind, _metadata) for kind in jobs.KINDS},
}
"""What the tenant may create, by name."""

OFTEN = ("PodGroup", "PodGroup", "PodGroup", "Pod", "Pod", "Pod", "theirs", "theirs", *jobs.KINDS)
"""The same names; those that reach the scheduler are repeated."""

SCALES = (0, 0, 0, 0, LARGE, LARGE, ABSURD)


def made(kind: str, name: str, seed: int, scale: int) -> list[Json]:
    """Return the objects of a kind, name, seed and scale that an API server accepts."""
    rng = random.Random(f"{kind} {seed} {scale}")  # noqa: S311 -- tests, no secrets
    return [body for body in KINDS[kind](rng, name, scale) if accepted(body)]


def retouched(known: Mapping[str, Any], seed: int, scale: int) -> Json:
    """Return a later version of an object; of a pod, only mutable fields differ."""
    kind = known["kind"] if known["apiVersion"] in _OURS else "theirs"
    others = made(kind, known["metadata"]["name"], seed, scale)
    fresh = next((other for other in others if other["kind"] == known["kind"]), None)
    if fresh is None:
        return dict(known)
    keys = {key: fresh["metadata"].get(key, {}) for key in ("labels", "annotations")}
    changed = {**known, "metadata": {**known["metadata"], **keys}}
    if known["kind"] != "Pod":
        changed["spec"] = fresh["spec"]
    return changed if accepted(changed) else dict(known)


_OURS = frozenset({"v1", f"{names.GROUP}/{names.VERSION}", *jobs.VERSIONS.values()})
