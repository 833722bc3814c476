"""Parts of pods and PodGroups: the fields that a scheduler reads, the pin to a node, comparison."""

import json
from collections.abc import Mapping
from typing import Any

from gangsched.jobs.common.model import JobRole, Json

_SCHEDULING_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "priorityClassName",
    "overhead",
    "resources",
    "topologySpreadConstraints",
    "resourceClaims",
    "hostNetwork",
    "schedulerName",
)


def scheduling_part(spec: Json) -> Json:
    """Return the fields of a pod spec that a scheduler reads, to keep the PodGroup small."""
    part: Json = {key: spec[key] for key in _SCHEDULING_FIELDS if key in spec}
    for field in ("containers", "initContainers"):
        if spec.get(field):
            part[field] = [
                {key: c[key] for key in ("name", "resources", "ports", "restartPolicy") if key in c}
                for c in spec[field]
            ]
    kinds = ("persistentVolumeClaim", "ephemeral", "csi")
    volumes = [v for v in spec.get("volumes", []) if any(kind in v for kind in kinds)]
    return part | ({"volumes": volumes} if volumes else {})


def gang_role(role: JobRole, least: int, template: Json) -> Json:
    """Return one role of a PodGroup's spec, with the fields of pods that a scheduler reads."""
    part: Json = {"spec": scheduling_part(template["spec"])}
    annotations = template["metadata"].get("annotations") or {}
    shares = {key: value for key, value in annotations.items() if key.startswith("gpu-")}
    if shares:
        part["metadata"] = {"annotations": shares}
    fields: Json = {
        "name": role.type,
        "count": role.replicas,
        "minCount": least,
        "template": part,
    }
    optional = {"podName": role.pod, "topology": role.topology}
    return fields | {key: value for key, value in optional.items() if value}


def pin_to_node(spec: Json, node: str) -> None:
    """Require the node by name, in addition to the pod's own requirements."""
    is_node = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        term | {"matchFields": [*term.get("matchFields", []), is_node]} for term in terms
    ]


def covers(current: Mapping[str, Any], wanted: Json) -> bool:
    """Return whether every wanted field has its value (the API server adds defaults)."""
    text = json.dumps({key: current.get(key) for key in wanted}, sort_keys=True)
    return text == json.dumps(wanted, sort_keys=True)


def with_lower_minimum(current: Mapping[str, Any], wanted: Json) -> Json:
    """Return a group's wanted spec, with minimums that are not above the current ones.

    A running gang that gets more pods would be below a higher minimum until they run.
    """
    least = {role["name"]: role.get("minCount", role["count"]) for role in current.get("roles", ())}
    roles = [
        role | {"minCount": min(role["minCount"], least.get(role["name"], 0))}
        for role in wanted["roles"]
    ]
    minimum = min(wanted["minMember"], current.get("minMember", wanted["minMember"]))
    return wanted | {"roles": roles, "minMember": minimum}


def is_contained(wanted: Any, current: Any) -> bool:
    """Return whether a value has all wanted parts; mappings may have more (API defaults)."""
    if isinstance(wanted, dict) and isinstance(current, dict):
        return all(is_contained(value, current.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(current, list):
        return len(wanted) == len(current) and all(map(is_contained, wanted, current))
    return bool(wanted == current)
