"""The pending gangs of a queue as Kueue's API `visibility.kueue.x-k8s.io/v1beta2` lists them.

A Queue is both a ClusterQueue and, for each namespace that may use it, a LocalQueue of the same
name. Source: apis/visibility/v1beta2/types.go of Kueue.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangsched.api.timestamps import rfc3339
from gangsched.web.model import GangRow, PageModel

GROUP, VERSION = "visibility.kueue.x-k8s.io", "v1beta2"
API = f"{GROUP}/{VERSION}"
LIMIT_DEFAULT, LIMIT_MAX = 1000, 10_000
_KINDS = (("clusterqueues", "ClusterQueue", False), ("localqueues", "LocalQueue", True))


class PendingQueryError(Exception):
    """A request cannot be answered; the message is for its client. `code` is that of HTTP."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """Which pending gangs are asked for; without a `namespace`, those of the whole queue."""

    queue: str
    namespace: str | None
    offset: int = 0
    limit: int = LIMIT_DEFAULT


def pending_query(queue: str, namespace: str | None, options: Mapping[str, str]) -> PendingQuery:
    """Return what a request asks for.

    Raises:
        PendingQueryError: `offset` or `limit` is not a number from 0 on.

    """
    limit = _number(options, "limit") or LIMIT_DEFAULT
    return PendingQuery(queue, namespace, _number(options, "offset"), min(limit, LIMIT_MAX))


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        sentence = f"{name}={text[:100]!r} must be a whole number from 0 on."
        raise PendingQueryError(400, "BadRequest", sentence)
    return int(text)


class PendingWorkloads:
    """The pending gangs of one queue in the order in which they are planned."""

    def __init__(self, model: PageModel, queue: str) -> None:
        self._row = next((row for row in model.queues if row.name == queue), None)
        self._items = list(_in_order(model, queue)) if self._row is not None else []

    def summary(self, query: PendingQuery) -> dict[str, Any]:
        """Return a PendingWorkloadsSummary.

        Raises:
            PendingQueryError: there is no such queue, or the namespace may not use it.

        """
        if not self._is_usable(query.namespace):
            resource = "clusterqueues" if query.namespace is None else "localqueues"
            sentence = f'{resource}.{GROUP} "{query.queue}" not found'
            raise PendingQueryError(404, "NotFound", sentence)
        found = [
            item
            for item in self._items
            if query.namespace is None or item["metadata"]["namespace"] == query.namespace
        ]
        return {
            "kind": "PendingWorkloadsSummary",
            "apiVersion": API,
            "metadata": {},
            "items": found[query.offset : query.offset + query.limit],
        }

    def _is_usable(self, namespace: str | None) -> bool:
        if self._row is None:
            return False
        namespaces = self._row.namespaces
        return namespace is None or namespaces is None or namespace in namespaces


def _in_order(model: PageModel, queue: str) -> Iterator[dict[str, Any]]:
    waiting = [row for row in model.gangs.values() if row.queue == queue and row.waits]
    waiting.sort(key=lambda row: row.turn)
    of_namespace: dict[str, int] = {}
    for position, row in enumerate(waiting):
        in_local = of_namespace.get(row.namespace, 0)
        of_namespace[row.namespace] = in_local + 1
        yield _pending_workload(row, position, in_local)


def _pending_workload(row: GangRow, position: int, in_local: int) -> dict[str, Any]:
    since_s = row.queued_since_s
    created = None if since_s is None else rfc3339(since_s)
    return {
        "metadata": {
            "name": row.id.partition("/")[2],
            "namespace": row.namespace,
            "creationTimestamp": created,
        },
        "priority": row.priority,
        "localQueueName": row.queue,
        "positionInClusterQueue": position,
        "positionInLocalQueue": in_local,
    }


def group_list() -> dict[str, Any]:
    """Return the APIGroupList of the server."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> dict[str, Any]:
    """Return the APIGroup."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def _group() -> dict[str, Any]:
    version = {"groupVersion": API, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def resource_list() -> dict[str, Any]:
    """Return the APIResourceList."""
    resources: list[dict[str, Any]] = []
    for name, kind, namespaced in _KINDS:
        known = {"singularName": "", "namespaced": namespaced}
        resources += [
            {"name": name, "kind": kind, "verbs": [], **known},
            {
                "name": f"{name}/pendingworkloads",
                "kind": "PendingWorkloadsSummary",
                "verbs": ["get"],
                **known,
            },
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API,
        "resources": resources,
    }


def failure_status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return a Status of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
