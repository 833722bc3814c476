"""Events, and the objects that they refer to."""

from dataclasses import dataclass
from typing import Any

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.kube.client.client import KubeClient
from gangsched.kube.decoding.external import groups

MESSAGE_LETTERS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object of a gang: it has the gang's status, and the gang's Events refer to it.

    An `owned` group belongs to a job of ours; the job reports its own start.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    has_status: bool = False
    external_kind: groups.ExternalKind | None = None
    owned: bool = False
    user: str = ""
    """The user of the object, from its annotation."""

    @property
    def is_group(self) -> bool:
        """Return whether the object is a group, and not a pod of the gang."""
        return self.has_status or self.external_kind is not None


async def post_event(
    client: KubeClient, subject: ObjectRef, kind: str, reason: str, message: str
) -> None:
    """Write a core/v1 Event about an object (`kind` is Normal or Warning).

    Events about objects without a namespace are in `default`, as Kubernetes requires.
    """
    now, namespace = rfc3339(), subject.namespace or "default"
    event: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{subject.name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_LETTERS_MAX],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": names.REPORTER},
        "reportingComponent": names.REPORTER,
        "reportingInstance": names.REPORTER,
    }
    await client.create(f"/api/v1/namespaces/{namespace}/events", event)
