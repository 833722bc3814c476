"""The administrator's objects in a cluster with a hostile tenant, and helpers for objects."""

import json
from collections.abc import Iterable

from gangsched.api import names
from gangsched.core.model.ids import GangId
from simulator.hostile.objects import NAMESPACE, VICTIM
from simulator.hostile.templates import GPU, NODES, Json
from simulator.hostile.truth import ALLOCATABLE, GPU_MIB

LIMIT_NODES = 1
"""The hostile tenant's quota, as the amounts of so many nodes."""

LEVELS = [{"name": "dc", "nodeLabel": "dc"}, {"name": "rack", "nodeLabel": "rack"}]
CLASSES = {"high": 1_000, "system-node-critical": 2_000_001_000}

CONTAINER: Json = {
    "name": "c",
    "image": "none",
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: "1"}},
}


def declared(*, borrowing: bool) -> Iterable[tuple[str, Json]]:
    """Yield the administrator's objects: classes, namespaces, queues, a topology, nodes."""
    for name, value in CLASSES.items():
        yield "PriorityClass", {"metadata": _meta(name), "value": value}
    for name in (NAMESPACE, VICTIM):
        yield "Namespace", {"metadata": _meta(name)}
    yield "Topology", {"metadata": _meta("default"), "spec": {"levels": LEVELS}}
    shares = {"all": len(NODES), NAMESPACE: LIMIT_NODES, VICTIM: len(NODES) - LIMIT_NODES}
    for name, nodes in shares.items():
        quotas = []
        for resource, each in ALLOCATABLE.items():
            limit = f"{each * nodes}m" if resource == "cpu" else each * nodes
            quotas.append({"resource": resource, "nominal": limit})
            if name == NAMESPACE and not borrowing:
                quotas[-1]["borrowingLimit"] = 0
        parent = {} if name == "all" else {"parent": "all", "namespaces": [name]}
        yield "Queue", {"metadata": _meta(name), "spec": {"quotas": quotas, **parent}}
    own = {"parent": NAMESPACE, "namespaces": [NAMESPACE]}
    yield "Queue", {"metadata": _meta("default"), "spec": own}  # for objects without a queue
    for index, node in enumerate(NODES):
        labels = {"kubernetes.io/hostname": node, "dc": "d", "rack": f"r{index // 4}"}
        labels |= {"nvidia.com/gpu.memory": str(GPU_MIB), "nvidia.com/gpu.product": "H100"}
        allocatable = {
            key: f"{limit}m" if key == "cpu" else str(limit) for key, limit in ALLOCATABLE.items()
        }
        status = {"allocatable": allocatable}
        yield "Node", {"metadata": _meta(node) | {"labels": labels}, "status": status}


def _meta(name: str) -> Json:
    return {"name": name, "uid": f"of-{name}", "resourceVersion": "1"}


def raw(document: Json) -> bytes:
    """Return an object as the bytes of a watch."""
    return json.dumps(document).encode()


def namespace(document: Json) -> str:
    """Return the namespace of an object."""
    return str(document["metadata"].get("namespace", ""))


def key_of(document: Json) -> tuple[str, str, str, str]:
    """Return the unique key of an object."""
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], namespace(document), metadata["name"]


def group_of(document: Json) -> GangId:
    """Return the gang id of our PodGroup, "" for any other object."""
    is_group = document["kind"] == "PodGroup" and document["apiVersion"].startswith(names.GROUP)
    return GangId(f"{namespace(document)}/{document['metadata']['name']}" if is_group else "")


_SHARES = ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices")


def says_gpus(document: Json) -> bool:
    """Return whether admission rejects a new object: a pod that chooses its shared GPUs."""
    return _ours(document) and names.DEVICES_ANNOTATION in _annotations(document)


def keeping_gpus(document: Json, before: Json) -> Json:
    """Return a changed pod with the GPU annotations that admission keeps from changing."""
    if not _ours(document):
        return document
    fixed = {names.DEVICES_ANNOTATION, *(_SHARES if before["spec"].get("nodeName") else ())}
    annotations = {key: value for key, value in _annotations(document).items() if key not in fixed}
    annotations |= {key: value for key, value in _annotations(before).items() if key in fixed}
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


def _ours(document: Json) -> bool:
    scheduled: bool = document["spec"].get("schedulerName") == "gangsched"
    return document["kind"] == "Pod" and scheduled


def _annotations(document: Json) -> dict[str, str]:
    return document["metadata"].get("annotations") or {}
