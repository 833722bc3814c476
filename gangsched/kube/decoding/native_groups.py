"""Kubernetes' own PodGroups (scheduling.k8s.io): their fields and their condition.

| | 1.36 (v1alpha2) | 1.37 (v1beta1) |
|---|---|---|
| condition | PodGroupScheduled | PodGroupInitiallyScheduled |
| `disruptionMode` | Pod or PodGroup | `single: {}` or `all: {}` |
| `preemptionPolicy` | the pods have it, the group does not | Never or PreemptLowerPriority |

kube-scheduler reads the same versions. The Workloads of both versions are templates. Controllers
copy them into PodGroups, so gangsched does not read them. A Job of 1.37 has the same fields in
`spec.scheduling`.
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
"""The preemptionPolicy of groups and pods that preempt no other gang."""

_POLICIES = (NEVER, "PreemptLowerPriority")
_TOGETHER = {"Pod": False, "PodGroup": True, "single": False, "all": True}
"""Whether the pods of a group are evicted only all together, by the modes of both versions."""

_MOST = 2**31 - 1


# -- spec -----------------------------------------------------------------------------------------


def minimum(spec: Spec, _: Mapping[str, str], __: frozenset[str]) -> int:
    """Return how many pods of a group start together; without a gang policy, 1."""
    gang = _object(spec, "schedulingPolicy").get("gang")
    return int(gang["minCount"]) if gang else 1


def fields(spec: Spec, subject: str) -> dict[str, Any]:
    """Return the spec of a group as fields of our PodGroup.

    Raises:
        DialectError: the constraints are malformed.
        DecodeError: the group belongs to a tree of groups.

    """
    parent = spec.get("parentCompositePodGroupName")
    if parent:
        raise DecodeError(
            f"spec.parentCompositePodGroupName is {shown(parent)}; groups of groups are not "
            f"supported, so leave it out and the group starts by itself"
        )
    fields = dialects.from_upstream(_object(spec, "schedulingConstraints"), subject)
    if spec.get("priorityClassName") and spec.get("priority") is None:
        fields["priorityClassName"] = spec["priorityClassName"]
    return fields


def given(spec: Spec) -> dict[str, Any]:
    """Return the fields of the gang that our PodGroup does not have.

    Raises:
        DecodeError: a field has a value that is not allowed.

    """
    fields: dict[str, Any] = {"inseparable": _together(spec.get("disruptionMode"))}
    policy = spec.get("preemptionPolicy")
    if policy is not None:
        if policy not in _POLICIES:
            raise DecodeError(
                f"spec.preemptionPolicy is {shown(policy)}; it must be {' or '.join(_POLICIES)}"
            )
        fields["preempts"] = policy != NEVER
    priority = spec.get("priority")  # admission wrote the value of the class here
    if priority is not None:
        if not isinstance(priority, int) or abs(priority) > _MOST:
            raise DecodeError(f"spec.priority is {shown(priority)}; it must be a whole number")
        fields["priority"] = priority
    return fields


def scheduling(spec: Spec) -> Spec:
    """Return the field `spec.scheduling` of a Job of 1.37, which has the fields of a PodGroup.

    A Job controller that supports the field makes a PodGroup from it. Then the pods name that
    PodGroup, and this function is not called.

    Raises:
        DecodeError: the field is no object.

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
    value = spec.get(name) or {}
    if not isinstance(value, Mapping):
        raise DecodeError(f"spec.{name} is {shown(value)}; it must be an object")
    return value


def _together(mode: object) -> bool:
    if mode is None:
        return False
    modes = [mode] if isinstance(mode, str) else list(mode) if isinstance(mode, Mapping) else []
    flags = [_TOGETHER[name] for name in modes if name in _TOGETHER]
    if len(flags) != 1:
        raise DecodeError(
            f"spec.disruptionMode is {shown(mode)}; it must be single or all (in Kubernetes 1.36 "
            f"Pod or PodGroup)"
        )
    return flags[0]
