"""Placeholder pods: what we write, and what a list of them says.

A placeholder looks to an autoscaler like a pod of the gang that no node takes. No scheduler serves
its scheduler name, so it never runs. It is in a namespace of gangsched, beyond the reach and the
quota of the gang's owner.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from gangsched.api import dialects, names
from gangsched.core.model.ids import GangId
from gangsched.kube.decoding.schemas import Metadata, Struct
from gangsched.kube.provisioning.templates import reduced_pod
from gangsched.kube.provisioning.wire import ListMetadata, ObjectCondition, seconds_of

SCHEDULER = "gangsched-placeholder"

_NAME = re.compile(r"(gangsched-[0-9a-f]{20})-([1-9][0-9]{0,3})-(0|[1-9][0-9]{0,3})")
_LEFT_OUT = ("priority", "priorityClassName", "preemptionPolicy", "volumes")
"""A placeholder preempts nothing, and claims are in the namespace of the gang."""

GroupKey = tuple[str, int]
"""The base of the gang's demand, and the number of the attempt."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder that exists: number `index` of `total` for its gang.

    Autoscalers see it once it is `marked` as unschedulable.
    """

    name: str
    uid: str
    gang: GangId
    base: str
    attempt: int
    index: int
    total: int
    created_s: float
    marked: bool

    @property
    def key(self) -> GroupKey:
        """Return what the placeholders of one attempt share."""
        return self.base, self.attempt


def placeholder_body(
    gang: GangId, key: GroupKey, index: int, total: int, pod: dict[str, Any]
) -> dict[str, Any]:
    """Return the placeholder for a pod like this one.

    Raises:
        PodTemplateError: the pod asks for devices by claims, or is too large.

    """
    reduced = reduced_pod(pod)
    spec = {name: value for name, value in reduced["spec"].items() if name not in _LEFT_OUT}
    labels = (reduced.get("metadata") or {}).get("labels") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{key[0]}-{key[1]}-{index}",
            "labels": {
                **{name: one for name, one in labels.items() if not name.startswith(dialects.OURS)},
                names.PLACEHOLDER_LABEL: "true",
            },
            "annotations": {
                names.PROVISIONED_GANG_ANNOTATION: gang,
                names.PLACEHOLDERS_ANNOTATION: str(total),
            },
        },
        "spec": {
            **spec,
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
        },
    }


def unschedulable(gang: GangId, now: str) -> dict[str, Any]:
    """Return the status that makes an autoscaler look at a placeholder."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"It asks for a node for gang {gang}.",
        "lastTransitionTime": now,
    }
    return {"status": {"conditions": [condition]}}


class _Spec(Struct):
    scheduler_name: str = ""


class _Status(Struct):
    conditions: list[ObjectCondition] = msgspec.field(default_factory=list)


class _Pod(Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(Struct):
    items: list[_Pod]
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


_decoder = msgspec.json.Decoder(_Pods)


def decode_placeholders(content: bytes) -> tuple[list[Placeholder], str]:
    """Return the placeholders of a list of pods, and where the list continues."""
    page = _decoder.decode(content)
    found = (_decode(item) for item in page.items if item.metadata.deletion_timestamp is None)
    return [one for one in found if one is not None], page.metadata.continue_


def _decode(item: _Pod) -> Placeholder | None:
    metadata = item.metadata
    match = _NAME.fullmatch(metadata.name)
    total = metadata.annotations.get(names.PLACEHOLDERS_ANNOTATION, "")
    if match is None or item.spec.scheduler_name != SCHEDULER or not total.isdecimal():
        return None
    return Placeholder(
        metadata.name,
        metadata.uid,
        GangId(metadata.annotations.get(names.PROVISIONED_GANG_ANNOTATION, "")),
        match[1],
        int(match[2]),
        int(match[3]),
        int(total[:6]),
        seconds_of(metadata.creation_timestamp),
        any(one.type == "PodScheduled" for one in item.status.conditions),
    )
