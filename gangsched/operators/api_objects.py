"""Functions on API objects: their owner, the later of two states, their path, deletion."""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Json
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, NotFound
from gangsched.kube.status.events import ObjectRef

NO_ENV: Mapping[str, str] = MappingProxyType({})

_MANAGERS = (None, "", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator")


def subject_of(body: Json, api_version: str, kind: str) -> ObjectRef:
    """Return the reference of an owner, with the user who created it."""
    metadata = body["metadata"]
    user = (metadata.get("annotations") or {}).get(names.USER_ANNOTATION, "")
    return ObjectRef(
        api_version, kind, metadata["namespace"], metadata["name"], metadata["uid"], user=user
    )


def owned_by(document: Json, subject: ObjectRef) -> Json:
    """Return a document as a part of its owner, created for the owner's user.

    The annotation of the user is set last: it is trusted, and a template may contain any value.
    """
    owner = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "name": subject.name,
        "uid": subject.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = document["metadata"] | {
        "namespace": subject.namespace,
        "ownerReferences": [owner],
    }
    user = {names.USER_ANNOTATION: subject.user} if subject.user else {}
    given = metadata.get("annotations") or {}
    if user or names.USER_ANNOTATION in given:
        rest = {key: value for key, value in given.items() if key != names.USER_ANNOTATION}
        metadata["annotations"] = rest | user
    return document | {"metadata": metadata}


def with_env(document: Json, env: Mapping[str, str | Json], unless: Collection[str] = ()) -> Json:
    """Return a pod, or a Job, with variables added to its containers; a mapping is a valueFrom.

    Variables of the containers take precedence. A container that sets one of `unless` gets none.
    Other documents are returned unchanged.
    """
    if not env or document.get("kind") not in ("Pod", "Job"):
        return document
    if document["kind"] == "Job":
        template = document["spec"]["template"]
        pod_spec = with_env({"kind": "Pod", "spec": template["spec"]}, env, unless)["spec"]
        return document | {"spec": document["spec"] | {"template": template | {"spec": pod_spec}}}
    spec = dict(document["spec"])
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [_with_env(container, env, unless) for container in spec[part]]
    return document | {"spec": spec}


def _with_env(container: Json, env: Mapping[str, str | Json], unless: Collection[str]) -> Json:
    own = container.get("env") or []
    known = {variable["name"] for variable in own}
    if known.intersection(unless):
        return container
    more = [
        {"name": name, "value" if isinstance(value, str) else "valueFrom": value}
        for name, value in env.items()
        if name not in known
    ]
    return container | {"env": [*own, *more]}


def has_ended(pod: Json) -> bool:
    """Return whether a pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def collection(api_version: str, kind: str, namespace: str) -> str:
    """Return the path of a namespace's objects of a kind."""
    root = "/apis" if "/" in api_version else "/api"
    return f"{root}/{api_version}/namespaces/{namespace}/{kind.lower()}s"


def owner_uid(body: Json) -> str:
    """Return the uid of an object's controller, or nothing."""
    owners: list[Any] = body["metadata"].get("ownerReferences") or []
    return next((str(o["uid"]) for o in owners if o.get("controller")), "")


def owner_name(body: Json) -> str:
    """Return the kind and name of an object's first owner, or "no owner"."""
    owners: list[Any] = body["metadata"].get("ownerReferences") or []
    return f"{owners[0]['kind']} {owners[0]['name']}" if owners else "no owner"


async def delete_object(
    client: KubeClient, path: str, uid: str, policy: str = "Background"
) -> None:
    """Delete the object with a uid, if it still exists."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
        "propagationPolicy": policy,
    }
    with suppress(NotFound, Conflict):
        await client.delete(path, body)


async def still_exists(client: KubeClient, path: str, uid: str) -> bool:
    """Return whether an owner still exists.

    Its deletion may be unreported: kopf lists again after a gap in its watch, and does not report
    objects that were deleted meanwhile.
    """
    try:
        body = msgspec.json.decode(await client.get(path))
    except NotFound:
        return False
    return bool(body["metadata"]["uid"] == uid)


def is_same_object(state: Json, other: Json) -> bool:
    """Return whether two states are of one object, not of two objects of one name."""
    return bool(state["metadata"]["uid"] == other["metadata"]["uid"])


def latest(known: Json, body: Json) -> Json:
    """Return the later of two states (versions count up, KEP-5504)."""
    old, new = (int(b["metadata"].get("resourceVersion") or 0) for b in (known, body))
    return body if new >= old else known


def merge_response(known: Json | None, answer: Json, deleted_uids: set[str]) -> Json | None:
    """Return the newest known state of an object, given the response to a call about it.

    Watches may have reported a later state or the deletion already.
    """
    if answer["metadata"]["uid"] in deleted_uids:
        return known
    return answer if known is None else latest(known, answer)


def uid_precondition(body: Json) -> Json:
    """Return the precondition that keeps a change from a successor of the same name."""
    return {"metadata": {"uid": body["metadata"]["uid"]}}


def clock() -> Clock:
    """Return the current time."""
    return Clock(time.time(), rfc3339())


def managed_elsewhere(body: Json) -> bool:
    """Return whether a job names another controller to run it (KEP-693)."""
    policy = (body.get("spec") or {}).get("runPolicy") or {}
    return policy.get("managedBy") not in _MANAGERS
