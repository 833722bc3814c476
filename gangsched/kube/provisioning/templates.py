"""The pod templates of a request: what an autoscaler needs to know of a pod, and no more."""

import json
from typing import Any

_MAX_BYTES = 64 * 1024
_IMAGE = "none"
_KEPT = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "overhead",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "runtimeClassName",
    "hostNetwork",
)
_OWN_PODS = ("podAffinity", "podAntiAffinity")


class PodTemplateError(Exception):
    """A pod cannot be described to an autoscaler; the message says why."""


def pod_template(name: str, pod: dict[str, Any], owner: dict[str, str]) -> dict[str, Any]:
    """Return the PodTemplate for pods like this one, which is deleted with its owner.

    Raises:
        PodTemplateError: the pod asks for devices by claims, or is too large.

    """
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "template": reduced_pod(pod),
    }


def reduced_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod, and its labels if it refers to pods like itself.

    The variables, commands and volumes of containers are left out: they may be secret or differ
    between equal pods, and no autoscaler reads them.

    Raises:
        PodTemplateError: the pod asks for devices by claims, or is too large.

    """
    spec = _mapping(pod, "spec")
    if spec.get("resourceClaims"):
        raise PodTemplateError("its pods ask for devices by resourceClaims")
    reduced: dict[str, Any] = {key: spec[key] for key in _KEPT if spec.get(key) is not None}
    for key in ("containers", "initContainers"):
        containers = [_container(at, one) for at, one in enumerate(_list(spec, key))]
        if containers:
            reduced[key] = containers
    claims = [volume for volume in _list(spec, "volumes") if "persistentVolumeClaim" in volume]
    if claims:
        reduced["volumes"] = claims
    template: dict[str, Any] = {"spec": reduced}
    affinity = _mapping(spec, "affinity")
    if "topologySpreadConstraints" in reduced or any(affinity.get(key) for key in _OWN_PODS):
        template["metadata"] = {"labels": _mapping(_mapping(pod, "metadata"), "labels")}
    if len(json.dumps(template)) > _MAX_BYTES:
        raise PodTemplateError(f"what its pods ask for takes more than {_MAX_BYTES} bytes")
    return template


def _container(at: int, container: dict[str, Any]) -> dict[str, Any]:
    """Return a container with its amounts and ports."""
    name = container.get("name") or f"c{at}"
    reduced: dict[str, Any] = {"name": name, "image": _IMAGE}
    resources = _mapping(container, "resources")
    reduced["resources"] = {k: resources[k] for k in ("requests", "limits") if resources.get(k)}
    ports = [port for port in _list(container, "ports") if port.get("hostPort")]
    if ports:
        reduced["ports"] = ports
    if container.get("restartPolicy"):  # of a sidecar
        reduced["restartPolicy"] = container["restartPolicy"]
    return reduced


def _mapping(value: dict[str, Any], key: str) -> dict[str, Any]:
    inner = value.get(key) or {}
    if not isinstance(inner, dict):
        raise PodTemplateError(f"field {key} of its template is no mapping")
    return inner


def _list(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    inner = value.get(key) or []
    if not isinstance(inner, list) or not all(isinstance(one, dict) for one in inner):
        raise PodTemplateError(f"field {key} of its template is no list of mappings")
    return inner
