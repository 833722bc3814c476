"""PodGroups of others: where each kind is listed, how it is read, how its status is written.

Status is written as the kind's own controller would, since operators wait for it: those that work
with Volcano create no pod before a group is Inqueue. `owners.py` has the kinds whose pods are a
gang without a group.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gangsched.api import dialects
from gangsched.api.podgroup import PodGroupSpec
from gangsched.core.model import Gang, GangId
from gangsched.core.queues import DEFAULT_QUEUE
from gangsched.kube import constraints
from gangsched.kube.membership import KAI, PLUGINS, UPSTREAM, VOLCANO, foreign_id
from gangsched.kube.quantities import DecodeError, UnknownClassError, seconds
from gangsched.kube.structs import GroupObject
from gangsched.kube.users import asked_by

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a gang stands, for whoever writes its status.

    `state` and `reason` are those of our reports; `pods` are running, succeeded, failed.
    """

    state: str
    reason: str
    message: str
    since: str
    refused: bool
    minimum: int
    pods: tuple[int, int, int]

    @property
    def done(self) -> bool:
        """Tell whether every pod there was has ended."""
        running, succeeded, failed = self.pods
        return not running and succeeded + failed > 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    `least` returns how many of its pods start together, by its spec, by its labels and annotations,
    and by the names of our scheduler.
    """

    whose: str
    api_version: str
    kind: str
    plural: str
    least: Callable[[Spec, Mapping[str, str], frozenset[str]], int]
    fields: Callable[[Spec, str], dict[str, Any]] = lambda _, __: {}
    status: Callable[[Standing], dict[str, Any]] | None = None
    templates: Callable[[Spec], Iterable[Any]] = lambda _: ()
    """Of its pods, where it has some."""

    @property
    def path(self) -> str:
        """Return where all of them are listed."""
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}/{self.plural}"

    def read(self, group: GroupObject, priorities: Mapping[str, int], ours: frozenset[str]) -> Gang:
        """Return the gang an object stands for.

        Raises:
            DecodeError: it is not understood.

        """
        metadata = group.metadata
        subject = f"{self.kind} {metadata.namespace}/{metadata.name}"
        try:
            minimum = self.least(group.spec, metadata.labels | metadata.annotations, ours)
            asked = dialects.from_annotations(metadata.annotations, subject)
            asked |= self.fields(group.spec, subject)
            spec = PodGroupSpec.model_validate({"minMember": max(minimum, 1), **asked})
            admitted = dialects.admitted_elsewhere(*map(_labels, self.templates(group.spec)))
        except dialects.DialectError as error:
            raise DecodeError(str(error)) from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise DecodeError(f"{subject}: {error}") from error
        name = spec.priorityClassName
        if name and name not in priorities:
            raise UnknownClassError(f"{subject}: spec.priorityClassName", name, priorities)
        queue = dialects.queue_of(metadata.labels, metadata.annotations, admitted=admitted)
        return Gang(
            foreign_id(metadata.namespace, self.whose, metadata.name),
            spec.minMember or 1,
            queue=queue or spec.queue or DEFAULT_QUEUE,
            priority=priorities.get(name) if name else None,
            created_s=seconds(metadata.creation_timestamp),
            schedule_timeout_s=spec.scheduleTimeoutSeconds,
            expected_runtime_s=spec.expectedRuntimeSeconds,
            constraints=constraints.constraints(spec),
            preemptible=spec.preemptible,
            user=asked_by(metadata.annotations, metadata.namespace),
        )


def _labels(template: Any) -> Mapping[str, str]:
    return ((template or {}).get("metadata") or {}).get("labels") or {}


# -- how many -----------------------------------------------------------------------------------


def _member(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    return int(spec.get("minMember") or 1)


def _upstream(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    return int(gang["minCount"]) if gang else 1


# -- what else they ask ---------------------------------------------------------------------------


def _volcano_fields(spec: Spec, subject: str) -> dict[str, Any]:
    found = dialects.from_volcano(spec.get("networkTopology") or {}, subject)
    found |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    return found


def _kai_fields(spec: Spec, subject: str) -> dict[str, Any]:
    found = dialects.from_kai(spec.get("topologyConstraint") or {}, subject)
    found |= {key: spec[key] for key in ("queue", "priorityClassName") if spec.get(key)}
    return found


def _plugin_fields(spec: Spec, _: str) -> dict[str, Any]:
    timeout = spec.get("scheduleTimeoutSeconds")
    return {"scheduleTimeoutSeconds": timeout} if timeout else {}


def _upstream_fields(spec: Spec, subject: str) -> dict[str, Any]:
    found = dialects.from_upstream(spec.get("schedulingConstraints") or {}, subject)
    if spec.get("priorityClassName"):
        found["priorityClassName"] = spec["priorityClassName"]
    return found


# -- what their controllers would write ---------------------------------------------------------


def _counts(standing: Standing) -> dict[str, int]:
    return dict(zip(("running", "succeeded", "failed"), standing.pods, strict=True))


def _volcano_status(standing: Standing) -> dict[str, Any]:
    """Pending -> Inqueue (pods may be created) -> Running -> Completed."""
    running, succeeded, _ = standing.pods
    phase = "Inqueue"
    if standing.state == "Placed":
        phase = "Completed" if standing.done else "Running"
        if not standing.done and running + succeeded < standing.minimum:
            phase = "Unknown"
    condition = {"status": "True", "transitionID": standing.since, "message": standing.message}
    condition["lastTransitionTime"] = standing.since
    if standing.refused:
        condition |= {"type": "Unschedulable", "reason": "NotEnoughResources"}
    elif standing.state == "Placed":
        condition |= {"type": "Scheduled", "reason": "tasks in gang are ready to be scheduled"}
    else:
        return {"phase": phase, **_counts(standing)}
    return {"phase": phase, "conditions": [condition], **_counts(standing)}


def _plugin_status(standing: Standing) -> dict[str, Any]:
    """Pending -> Scheduling -> Scheduled -> Running -> Finished | Failed."""
    running, succeeded, failed = standing.pods
    phase = "Scheduling" if standing.refused or standing.state == "Pending" else "Pending"
    if standing.state in ("Reserved", "Binding"):
        phase = "Scheduled"
    if standing.state == "Placed":
        phase = "Running" if running + succeeded >= standing.minimum else "Scheduled"
    if standing.state == "Placed" and standing.done:
        phase = "Failed" if failed else "Finished"
    return {"phase": phase, **_counts(standing)}


def _kai_status(standing: Standing) -> dict[str, Any]:
    phase = "Running" if standing.state == "Placed" else "Pending"
    found: dict[str, Any] = {"phase": phase, **_counts(standing), "schedulingConditions": []}
    if standing.refused:
        found["schedulingConditions"] = [
            {
                "type": "UnschedulableOnNodePool",
                "status": "True",
                "nodePool": "default",
                "reason": standing.reason,
                "message": standing.message,
                "transitionID": standing.since,
                "lastTransitionTime": standing.since,
            }
        ]
    return found


def _upstream_status(standing: Standing) -> dict[str, Any]:
    placed = standing.state == "Placed"
    condition = {
        "type": "PodGroupScheduled",
        "status": "True" if placed else "False",
        "reason": "Scheduled" if placed else "Unschedulable",
        "message": standing.message,
        "lastTransitionTime": standing.since,
    }
    return {"conditions": [condition]}


KINDS: tuple[Kind, ...] = (
    Kind(
        PLUGINS,
        f"{PLUGINS}/v1alpha1",
        "PodGroup",
        "podgroups",
        _member,
        _plugin_fields,
        _plugin_status,
    ),
    Kind(
        VOLCANO,
        f"{VOLCANO}/v1beta1",
        "PodGroup",
        "podgroups",
        _member,
        _volcano_fields,
        _volcano_status,
    ),
    Kind(KAI, f"{KAI}/v2alpha2", "PodGroup", "podgroups", _member, _kai_fields, _kai_status),
    *(
        Kind(
            UPSTREAM,
            f"{UPSTREAM}/{version}",
            "PodGroup",
            "podgroups",
            _upstream,
            _upstream_fields,
            _upstream_status,
        )
        for version in ("v1alpha2", "v1beta1")  # 1.36 and 1.37; no API server has both
    ),
)


def whose(gang: GangId) -> str:
    """Return which table a gang's id is of, or nothing for ours."""
    name = gang.split("/", 1)[1]
    return name.split(":", 1)[0] if ":" in name else ""
