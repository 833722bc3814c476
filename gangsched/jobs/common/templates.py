"""Parts of pods and groups the reconcile builds: what a scheduler reads, the pin, comparison."""

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
    """Return what a scheduler reads of a pod spec; the rest would only fatten the PodGroup."""
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
    """Return one role of a PodGroup's spec: what a scheduler reads of its pods."""
    part: Json = {"spec": scheduling_part(template["spec"])}
    annotations = template["metadata"].get("annotations") or {}
    shares = {key: value for key, value in annotations.items() if key.startswith("gpu-")}
    if shares:
        part["metadata"] = {"annotations": shares}
    found: Json = {
        "name": role.type,
        "count": role.replicas,
        "minCount": least,
        "template": part,
    }
    own = {"podName": role.pod, "topology": role.topology}
    return found | {key: value for key, value in own.items() if value}


def pin_to_node(spec: Json, node: str) -> None:
    """Require the node by name, in addition to the pod's own requirements."""
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        term | {"matchFields": [*term.get("matchFields", []), here]} for term in terms
    ]


def covers(current: Mapping[str, Any], wanted: Json) -> bool:
    """Return whether every wanted field is there with its value (the API adds defaults)."""
    text = json.dumps({key: current.get(key) for key in wanted}, sort_keys=True)
    return text == json.dumps(wanted, sort_keys=True)


def with_lower_minimum(current: Mapping[str, Any], wanted: Json) -> Json:
    """Return a group's wanted spec, asking for no more pods at once than it asks for now.

    A gang that runs and is given more pods would be below its new minimum until they run.
    """
    least = {role["name"]: role.get("minCount", role["count"]) for role in current.get("roles", ())}
    roles = [
        role | {"minCount": min(role["minCount"], least.get(role["name"], 0))}
        for role in wanted["roles"]
    ]
    minimum = min(wanted["minMember"], current.get("minMember", wanted["minMember"]))
    return wanted | {"roles": roles, "minMember": minimum}


def is_contained(wanted: Any, found: Any) -> bool:
    """Return whether all of a value is there; objects may have more, which the API filled in."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(is_contained(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(is_contained, wanted, found))
    return bool(wanted == found)
