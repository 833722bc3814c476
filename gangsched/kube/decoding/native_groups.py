"""Kubernetes' own PodGroups (scheduling.k8s.io): what they ask, and what is written of them.

| | 1.36 (v1alpha2) | 1.37 (v1beta1) |
|---|---|---|
| condition | PodGroupScheduled | PodGroupInitiallyScheduled |
| `disruptionMode` | Pod or PodGroup | `single: {}` or `all: {}` |
| `preemptionPolicy` | none; that of the pods | Never or PreemptLowerPriority |

kube-scheduler reads the same versions. Workloads of both are templates, which controllers copy
into PodGroups: they say nothing more. A Job of 1.37 has the same fields as `spec.scheduling`.
"""

from collections.abc import Mapping
from typing import Any

from gangsched.api import dialects
from gangsched.core.model.text import shown
from gangsched.kube.decoding.quantities import DecodeError

Spec = Mapping[str, Any]

VERSIONS = {"v1alpha2": "PodGroupScheduled", "v1beta1": "PodGroupInitiallyScheduled"}
"""The condition of a started group, by version; no API server serves both."""

NEVER = "Never"
"""The preemptionPolicy of groups and pods that others are not stopped for."""

_POLICIES = (NEVER, "PreemptLowerPriority")
_TOGETHER = {"Pod": False, "PodGroup": True, "single": False, "all": True}
"""Whether pods are stopped only all at once, by the disruption modes of both versions."""

_MOST = 2**31 - 1


# -- what is asked --------------------------------------------------------------------------------


def minimum(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    """Return how many pods of a group start together: without a gang each by itself."""
    gang = _object(spec, "schedulingPolicy").get("gang")
    return int(gang["minCount"]) if gang else 1


def fields(spec: Spec, subject: str) -> dict[str, Any]:
    """Return what a group asks, as fields of our PodGroup.

    Raises:
        DialectError: its constraints are not understood.
        DecodeError: it is a part of a tree of groups.

    """
    parent = spec.get("parentCompositePodGroupName")
    if parent:
        raise DecodeError(
            f"spec.parentCompositePodGroupName is {shown(parent)}; groups of groups are not "
            f"supported, so leave it out and the group starts by itself"
        )
    found = dialects.from_upstream(_object(spec, "schedulingConstraints"), subject)
    if spec.get("priorityClassName") and spec.get("priority") is None:
        found["priorityClassName"] = spec["priorityClassName"]
    return found


def given(spec: Spec) -> dict[str, Any]:
    """Return what a group asks and our PodGroup cannot, as fields of the gang.

    Raises:
        DecodeError: a field has no value that is allowed.

    """
    found: dict[str, Any] = {"inseparable": _together(spec.get("disruptionMode"))}
    policy = spec.get("preemptionPolicy")
    if policy is not None:
        if policy not in _POLICIES:
            raise DecodeError(
                f"spec.preemptionPolicy is {shown(policy)}; it must be {' or '.join(_POLICIES)}"
            )
        found["preempts"] = policy != NEVER
    priority = spec.get("priority")  # admission wrote what the class stands for
    if priority is not None:
        if not isinstance(priority, int) or abs(priority) > _MOST:
            raise DecodeError(f"spec.priority is {shown(priority)}; it must be a whole number")
        found["priority"] = priority
    return found


def scheduling(spec: Spec) -> Spec:
    """Return what a Job of 1.37 says of its scheduling; it is named as a PodGroup names it.

    Where the Job's controller knows the field too, it makes a PodGroup of it, and the pods name
    that.

    Raises:
        DecodeError: it is no object.

    """
    return _object(spec, "scheduling")


def least_of(spec: Spec, default: int) -> int:
    """Return how many pods of a Job start together, by its `spec.scheduling`."""
    policy = scheduling(spec).get("schedulingPolicy")
    if not policy:
        return default
    if "gang" not in policy:
        return 1
    return int((policy["gang"] or {}).get("minCount") or default)


def _object(spec: Spec, name: str) -> Mapping[str, Any]:
    found = spec.get(name) or {}
    if not isinstance(found, Mapping):
        raise DecodeError(f"spec.{name} is {shown(found)}; it must be an object")
    return found


def _together(mode: object) -> bool:
    if mode is None:
        return False
    said = [mode] if isinstance(mode, str) else list(mode) if isinstance(mode, Mapping) else []
    found = [_TOGETHER[one] for one in said if one in _TOGETHER]
    if len(found) != 1:
        raise DecodeError(
            f"spec.disruptionMode is {shown(mode)}; it must be single or all (in Kubernetes 1.36 "
            f"Pod or PodGroup)"
        )
    return found[0]
