"""Events, and the objects that they are about."""

from dataclasses import dataclass
from typing import Any

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.kube.client.client import KubeClient
from gangsched.kube.decoding.external import groups

MESSAGE_LETTERS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object of a gang: its status is written there, and its Events refer to it.

    An `owned` group belongs to a job, which reports itself that it runs.
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
    """Who asked for it, as its annotation has it."""

    @property
    def is_group(self) -> bool:
        """Return whether it is more than one of the gang's pods."""
        return self.has_status or self.external_kind is not None


async def post_event(
    client: KubeClient, subject: ObjectRef, kind: str, reason: str, message: str
) -> None:
    """Write a core/v1 Event about an object (`kind` is Normal or Warning).

    Those of objects without a namespace are in `default`, as Kubernetes wants it.
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
