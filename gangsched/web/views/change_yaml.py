"""The change of a what-if as YAML, to be made with kubectl."""

import yaml

from gangsched.api.names import GROUP, VERSION
from gangsched.api.timestamps import rfc3339
from gangsched.core.model.pods import GPU
from gangsched.web.what_if import WhatIfChange


def change_yaml(change: WhatIfChange, now_s: float) -> str:
    """Return the documents, with a comment on how to apply each."""
    parts = []
    if change.quota:
        queue, _, rest = change.quota.partition(":")
        resource, _, amount = rest.rpartition("=")
        quota: dict[str, str] = {"resource": resource, "nominal": amount}
        if resource.startswith(f"{GPU}/"):
            quota |= {"resource": GPU, "gpuKind": resource.removeprefix(f"{GPU}/")}
        text = "kubectl apply --server-side --force-conflicts -f FILE changes this quota alone."
        parts.append(_document(text, _object("Queue", queue, {"quotas": [quota]})))
    if change.book:
        count, after, hours = change.book.split(":")
        spec = {
            "start": rfc3339(now_s + float(after) * 3600),
            "durationSeconds": float(hours) * 3600,
            "count": int(count),
        }
        text = "kubectl create -f FILE reserves the nodes. Name the queues that may use them."
        parts.append(_document(text, _object("Reservation", "what-if", spec)))
    if change.priority:
        gang, _, number = change.priority.rpartition("=")
        parts.append(f"# The job of {gang} needs a priorityClassName with the value {number}.\n")
    if change.order:
        text = "This part of the settings file needs a restart of gangsched."
        parts.append(_document(text, {"order": change.order}))
    if change.nodes:
        count, _, node = change.nodes.partition(":")
        parts.append(f"# {count} nodes like {node} have to join the cluster.\n")
    if change.pool:
        pool, _, count = change.pool.rpartition("=")
        parts.append(f"# The limit of pool {pool} has to allow {count} nodes more.\n")
    return "---\n".join(parts)


def _object(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _document(comment: str, value: dict[str, object]) -> str:
    return f"# {comment}\n{yaml.safe_dump(value, sort_keys=False)}"
