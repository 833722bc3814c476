"""The data cache of Kubeflow Trainer: a LeaderWorkerSet that the initializer creates.

Source: kubeflow/trainer v2.3, pkg/initializers/dataset/cache.py. Beyond it, the pods are a gang of
gangsched in the queue of their TrainJob, a restarted initializer continues, and an error ends it
with an exit code, so that no node trains without data.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

from gangsched.core.bounds import CACHE_WORKERS, INITIALIZER_S
from gangsched.initializers.kubernetes import Api
from gangsched.initializers.source import StorageError

QUEUE_LABELS = ("gangsched.io/queue-name", "kueue.x-k8s.io/queue-name")

_PORT, _HEALTH_PORT = 50051, 8080
_POLL_S = 2.0
_DEFAULTS = {
    "HEAD_CPU": "1",
    "HEAD_MEM": "1Gi",
    "WORKER_CPU": "2",
    "WORKER_MEM": "2Gi",
    "CLUSTER_SIZE": "3",
    "READINESS_INITIAL_DELAY_SECONDS": "5",
    "READINESS_PERIOD_SECONDS": "10",
    "READINESS_TIMEOUT_SECONDS": "5",
    "READINESS_FAILURE_THRESHOLD": "3",
}
_NUMBERS = {"CLUSTER_SIZE": (2, CACHE_WORKERS.most + 1)}
_SECONDS = (0, 3_600)

log = logging.getLogger("initializer")


def create_cache(variables: Mapping[str, str], api: Api) -> str:
    """Create the cache of a TrainJob and wait until it is ready; return its name.

    Raises:
        StorageError: it cannot be created, or does not become ready.

    """
    given = {**_DEFAULTS, **{key: value for key, value in variables.items() if value}}
    job = given.get("TRAIN_JOB_NAME")
    if not job:
        raise StorageError("TRAIN_JOB_NAME is not set; the runtime sets it to the job's name")
    home = f"/namespaces/{api.namespace}"
    body = api.get(
        f"/apis/trainer.kubeflow.org/v1alpha1{home}/trainjobs/{job}",
        f"TrainJob {job} cannot be read",
    )
    name = f"{job}-cache"
    metadata = {"ownerReferences": [_owner(body)]}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata
        | {
            "name": name,
            "annotations": {
                "eks.amazonaws.com/sts-regional-endpoints": "true",
                "eks.amazonaws.com/role-arn": given.get("IAM_ROLE", ""),
            },
        },
    }
    labels = body["metadata"].get("labels") or {}
    queue = {key: labels[key] for key in QUEUE_LABELS if key in labels}
    group = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata | {"name": name, "labels": queue},
        "spec": {"replicas": 1, "leaderWorkerTemplate": _templates(name, queue, given)},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | {"name": f"{name}-service"},
        "spec": {
            "selector": {"app": f"{name}-head"},
            "ports": [{"protocol": "TCP", "port": _PORT, "targetPort": _PORT}],
        },
    }
    groups = f"/apis/leaderworkerset.x-k8s.io/v1{home}/leaderworkersets"
    for path, document in (
        (f"/api/v1{home}/serviceaccounts", account),
        (groups, group),
        (f"/api/v1{home}/services", service),
    ):
        kind = f"{document['kind']} {document['metadata']['name']}"  # type: ignore[index]
        api.create(path, document, kind)
        log.info("%s is there", kind)
    _wait(api, f"{groups}/{name}", name)
    return name


def _wait(api: Api, path: str, name: str) -> None:
    """Wait until a LeaderWorkerSet is available."""
    end_s = time.monotonic() + INITIALIZER_S.most
    while time.monotonic() < end_s:
        status = api.get(path, f"LeaderWorkerSet {name} cannot be read").get("status") or {}
        for condition in status.get("conditions") or []:
            if (condition.get("type"), condition.get("status")) == ("Available", "True"):
                return
        time.sleep(_POLL_S)
    raise StorageError(f"LeaderWorkerSet {name} is not available within {INITIALIZER_S.most} s")


def _owner(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _templates(name: str, queue: Mapping[str, str], given: Mapping[str, str]) -> dict[str, Any]:
    """Return size and templates of the group: a head, and workers."""
    schema, _, table = given["STORAGE_URI"].partition("://")[2].partition("/")
    data = {"METADATA_LOC": given.get("METADATA_LOC"), "TABLE_NAME": table, "SCHEMA_NAME": schema}
    env = [{"name": key, "value": value} for key, value in data.items() if value]

    def template(role: str, labels: Mapping[str, str]) -> dict[str, Any]:
        part = role.upper()
        amounts = {"cpu": given[f"{part}_CPU"], "memory": given[f"{part}_MEM"]}
        container = {
            "name": role,
            "image": given["CACHE_IMAGE"],
            "command": [role],
            "args": ["0.0.0.0", str(_PORT)],
            "resources": {"limits": amounts, "requests": amounts},
            "env": env,
            "ports": [
                {"containerPort": _PORT, "name": "grpc"},
                {"containerPort": _HEALTH_PORT, "name": "health"},
            ],
            "readinessProbe": {
                "httpGet": {"path": "/ready", "port": _HEALTH_PORT},
                "initialDelaySeconds": _number(given, "READINESS_INITIAL_DELAY_SECONDS"),
                "periodSeconds": _number(given, "READINESS_PERIOD_SECONDS"),
                "timeoutSeconds": _number(given, "READINESS_TIMEOUT_SECONDS"),
                "failureThreshold": _number(given, "READINESS_FAILURE_THRESHOLD"),
            },
        }
        spec: dict[str, Any] = {
            "schedulerName": given.get("CACHE_SCHEDULER") or "gangsched",
            "serviceAccountName": name,
            "containers": [container],
        }
        return {"metadata": {"labels": {**queue, **labels}}, "spec": spec}

    return {
        "size": _number(given, "CLUSTER_SIZE"),
        "leaderTemplate": template("head", {"app": f"{name}-head"}),
        "workerTemplate": template("worker", {}),
    }


def _number(given: Mapping[str, str], name: str) -> int:
    text = given[name]
    least, most = _NUMBERS.get(name, _SECONDS)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise StorageError(f"{name} is {text[:40]!r}; {least} to {most} is allowed")
    return int(text)
