"""The data cache of a TrainJob: replicated jobs of its runtime that serve the data set.

A runtime has a cache if its replicated jobs have the steps data-cache-head and data-cache-worker.
The trainer's containers get the address of the head. Nothing but the pods of the job gets the key
that each call to the cache needs.
"""

from typing import Any

from gangsched.core.bounds import CACHE_WORKERS
from gangsched.core.model.text import shown
from gangsched.jobs.common.containers import put_variables
from gangsched.jobs.common.merge import merge
from gangsched.jobs.common.model import Json

HEAD, WORKER = "data-cache-head", "data-cache-worker"
"""The steps of a cache."""

KEY_TYPE = "gangsched.io/cache-key"
KEY = "key"
PORT = 50051
"""The port of head and workers; gangsched.datacache has the same."""

SCHEME = "cache://"
LOCATION = "METADATA_LOC"
"""The variable of Kubeflow's SDK that says where the rows of a cache come from."""

_SIZE = "CLUSTER_SIZE"
_DIGITS = 9


def variable(job: Json, name: str) -> str:
    """Return a plain variable of the job's dataset initializer, or an empty string."""
    dataset = (job["spec"].get("initializer") or {}).get("dataset") or {}
    for item in dataset.get("env") or []:
        if item.get("name") == name and isinstance(item.get("value"), str):
            return str(item["value"])
    return ""


def size_error(job: Json) -> str:
    """Return what is wrong with the number of pods of a cache; or an empty string."""
    text = variable(job, _SIZE)
    if not text or _size(text) is not None:
        return ""
    return (
        f"spec.initializer.dataset.env has {_SIZE} {shown(text)}; 2 to {CACHE_WORKERS.most + 1} is "
        "allowed: the head of the data cache, and its workers"
    )


def workers_error(worker: Json) -> str:
    """Return what is wrong with the number of workers in a runtime, patches included."""
    count = worker["template"]["spec"].get("parallelism", 1)
    if type(count) is int and 1 <= count <= CACHE_WORKERS.most:
        return ""
    return (
        f"the replicated job {worker['name']!r} has parallelism {shown(str(count))}; 1 to "
        f"{CACHE_WORKERS.most} workers of a data cache are allowed"
    )


def configure(job: Json, head: Json, worker: Json, readers: list[Json]) -> str:
    """Set size, resources and variables of a cache; return the name of the Secret with its key."""
    name = job["metadata"]["name"]
    size = _size(variable(job, _SIZE))
    spec = worker["template"]["spec"]
    count = int(spec.get("parallelism", 1)) if size is None else size - 1
    for rjob, pods, part in ((head, 1, "HEAD"), (worker, count, "WORKER")):
        rjob["replicas"] = 1
        rjob["template"]["spec"] |= {"parallelism": pods, "completions": pods}
        amounts = {
            resource: amount
            for resource, variable_part in (("cpu", "CPU"), ("memory", "MEM"))
            if (amount := variable(job, f"{part}_{variable_part}"))
        }
        for container in _containers(rjob):
            if amounts:
                resources = {"requests": amounts, "limits": amounts}
                container["resources"] = merge(container.get("resources") or {}, resources)
    secret = f"{name}-cache-key"
    shared: dict[str, Any] = {
        "CACHE_ADDRESS": f"{name}-{head['name']}-0-0.{name}:{PORT}",
        "CACHE_KEY": {"secretKeyRef": {"name": secret, "key": KEY}},
    }
    stem = f"{name}-{worker['name']}-0"
    addresses = ",".join(f"{stem}-{index}.{name}:{PORT}" for index in range(count))
    for container in readers:
        put_variables(container, shared)
    for container in (*_containers(head), *_containers(worker)):
        put_variables(container, shared | {"CACHE_WORKERS": addresses})
    return secret


def key_secret(name: str) -> Json:
    """Return the Secret of a cache; the adapter that creates it adds a key."""
    metadata = {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": KEY_TYPE,
        "metadata": metadata,
        "immutable": True,
    }


def _size(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        return None
    return int(text) if 2 <= int(text) <= CACHE_WORKERS.most + 1 else None


def _containers(rjob: Json) -> list[Json]:
    pod = rjob["template"]["spec"]["template"].get("spec") or {}
    containers: list[Json] = pod.get("containers") or []
    return containers
