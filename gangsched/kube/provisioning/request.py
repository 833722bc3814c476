"""ProvisioningRequests of autoscaling.x-k8s.io/v1: what we write, and what the answers say."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.core.model.gangs import Member, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.text import shown
from gangsched.core.quota.charges import split_required_optional
from gangsched.kube.decoding.schemas import Metadata
from gangsched.kube.provisioning.wire import ListMetadata, ObjectCondition, seconds_of

GROUP = "autoscaling.x-k8s.io"
API = f"/apis/{GROUP}/v1"
CONSUMED = f"{GROUP}/consume-provisioning-request"
CLASS = f"{GROUP}/provisioning-class-name"
"""Annotations of a pod that uses the nodes of a request."""

POD_SETS_MAX = 32
"""The API accepts no more in one request."""

_NAME = re.compile(r"(gangsched-[0-9a-f]{20})-([1-9][0-9]{0,3})")


class Phase(StrEnum):
    """How far a request has come; the last three are its ends."""

    WAITING = "Waiting"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    EXPIRED = "BookingExpired"
    REVOKED = "CapacityRevoked"

    @property
    def over(self) -> bool:
        """True once the autoscaler does nothing more for the request."""
        return self in _ENDS


_ENDS = (Phase.REVOKED, Phase.EXPIRED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of a gang that must start: how many, and one of them."""

    count: int
    sample: Member


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request that exists. `base` and `attempt` are the parts of its name."""

    namespace: str
    name: str
    uid: str
    gang: GangId
    base: str
    attempt: int
    class_name: str
    phase: Phase
    since_s: float = 0.0
    message: str = ""

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations of pods that use its nodes."""
        return consuming(self.name, self.class_name)


def consuming(name: str, class_name: str) -> dict[str, str]:
    """Return the annotations of pods that use the nodes of a request."""
    return {CONSUMED: name, CLASS: class_name}


def required_sets(pending: PendingGang) -> tuple[PodSet, ...]:
    """Return the members that must start, as sets of equal pods in an order that never changes."""
    samples: dict[tuple[str, PodRequirements], Member] = {}
    counts: Counter[tuple[str, PodRequirements]] = Counter()
    for member in split_required_optional(pending)[0]:
        key = member.role, member.needs
        samples.setdefault(key, member)
        counts[key] += 1
    sets = [PodSet(count, samples[key]) for key, count in counts.items()]
    return tuple(sorted(sets, key=_written))


def base_name(gang: GangId, created_s: float, sets: Sequence[PodSet]) -> str:
    """Return the beginning of the names of a gang's requests.

    A gang that asks for something else, or a new gang of the same name, gets another one.
    """
    text = "\n".join([gang, f"{created_s:.3f}", *map(_written, sets)])
    return f"gangsched-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _written(pods: PodSet) -> str:
    needs = pods.sample.needs
    asked = needs.requests, needs.selector, needs.required, needs.tolerations, needs.host_ports
    return repr((pods.sample.role, pods.count, asked))


def request_body(
    gang: GangId, name: str, sets: Sequence[PodSet], class_name: str, parameters: dict[str, str]
) -> dict[str, Any]:
    """Return the request for all pods of a gang."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": name,
            "labels": {names.PROVISIONING_LABEL: "true"},
            "annotations": {names.PROVISIONED_GANG_ANNOTATION: gang},
        },
        "spec": {
            "provisioningClassName": class_name,
            "parameters": parameters,
            "podSets": [
                {"podTemplateRef": {"name": template_name(name, at)}, "count": pods.count}
                for at, pods in enumerate(sets)
            ],
        },
    }


def template_name(request: str, at: int) -> str:
    """Return the name of the PodTemplate of one pod set."""
    return f"{request}-{at}"


# -- answers ----------------------------------------------------------------------------------


class _Spec(msgspec.Struct, rename="camel"):
    provisioning_class_name: str = ""


class _Status(msgspec.Struct):
    conditions: list[ObjectCondition] = []


class _Request(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Requests(msgspec.Struct):
    items: list[_Request]
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


_decoder = msgspec.json.Decoder(_Requests)


def decode_requests(content: bytes) -> tuple[list[NodeRequest], str]:
    """Return the requests of a list that have names of ours, and where the list continues.

    A user may write such an object too. It can name gangs of its own namespace alone.
    """
    page = _decoder.decode(content)
    found = (_decode(item) for item in page.items if item.metadata.deletion_timestamp is None)
    return [request for request in found if request is not None], page.metadata.continue_


def _decode(item: _Request) -> NodeRequest | None:
    metadata = item.metadata
    gang = metadata.annotations.get(names.PROVISIONED_GANG_ANNOTATION, "")
    match = _NAME.fullmatch(metadata.name)
    if match is None or gang.partition("/")[0] != metadata.namespace:
        return None
    holding = {one.type: one for one in item.status.conditions if one.status == "True"}
    phase = next((phase for phase in (*_ENDS, Phase.PROVISIONED) if phase in holding), None)
    condition = holding[phase] if phase is not None else ObjectCondition()
    return NodeRequest(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        GangId(gang),
        match[1],
        int(match[2]),
        item.spec.provisioning_class_name,
        phase or Phase.WAITING,
        seconds_of(condition.last_transition_time),
        shown(condition.message) if condition.message else "",
    )
