"""Turns a pod's spec into the environment, command line and files of a process."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangsched.kube.decoding.quantities import quantity
from gangsched.local.agent.images import Image, entry_point

Json = dict[str, Any]

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.][-A-Za-z0-9_.]*)\)")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")


class PodError(Exception):
    """The pod cannot run as it is written; `reason` is that of the kubelet."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Objects:
    """The ConfigMaps and Secrets of a pod: (kind, name) -> object, or None if absent."""

    found: Mapping[tuple[str, str], Json | None]

    def data(self, kind: str, name: str, *, optional: bool) -> dict[str, bytes] | None:
        """Return an object's keys as bytes, or None if it is optional and absent.

        Raises:
            PodError: it does not exist.

        """
        body = self.found.get((kind, name))
        if body is None:
            if optional:
                return None
            raise PodError("CreateContainerConfigError", f"{kind.lower()} {name!r} not found")
        text = {key: str(value).encode() for key, value in (body.get("data") or {}).items()}
        if kind == "Secret":
            text = {key: base64.b64decode(value) for key, value in text.items()}
        binary = (body.get("binaryData") or {}).items()
        return text | {key: base64.b64decode(value) for key, value in binary}


def referenced(pod: Json) -> set[tuple[str, str]]:
    """Return the ConfigMaps and Secrets a pod refers to, as (kind, name)."""
    spec = pod["spec"]
    refs: set[tuple[str, str]] = set()
    for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
        for source in container.get("envFrom", []):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if field in source:
                    refs.add((kind, source[field]["name"]))
        for variable in container.get("env", []):
            origin = variable.get("valueFrom") or {}
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if field in origin:
                    refs.add((kind, origin[field]["name"]))
    for volume in spec.get("volumes", []):
        for source in (volume, *(volume.get("projected") or {}).get("sources", [])):
            if "configMap" in source:
                refs.add(("ConfigMap", source["configMap"]["name"]))
            if "secret" in source:
                secret = source["secret"]
                refs.add(("Secret", secret.get("secretName") or secret.get("name")))
    return refs


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace $(NAME) like the kubelet: unknown names stay, $$ is a dollar sign."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def container_environment(
    pod: Json, container: Json, objects: Objects, pod_ip: str
) -> dict[str, str]:
    """Return a container's environment, in the order of the kubelet.

    Raises:
        PodError: a reference leads nowhere.

    """
    result: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if field in source:
                reference = source[field]
                optional = bool(reference.get("optional"))
                data = objects.data(kind, reference["name"], optional=optional) or {}
                prefix = source.get("prefix", "")
                result |= {prefix + key: value.decode() for key, value in data.items()}
    for variable in container.get("env", []):
        value = (
            _value_from(variable["valueFrom"], pod, container, objects, pod_ip)
            if "valueFrom" in variable
            else expand(variable.get("value") or "", result)
        )
        if value is not None:
            result[variable["name"]] = value
    return result


def _value_from(
    origin: Json, pod: Json, container: Json, objects: Objects, pod_ip: str
) -> str | None:
    for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if field in origin:
            reference = origin[field]
            optional = bool(reference.get("optional"))
            data = objects.data(kind, reference["name"], optional=optional)
            if data is not None and reference["key"] in data:
                return data[reference["key"]].decode()
            if optional:
                return None
            raise PodError(
                "CreateContainerConfigError",
                f"couldn't find key {reference['key']} in {kind} {reference['name']}",
            )
    if "fieldRef" in origin:
        return pod_field(pod, origin["fieldRef"]["fieldPath"], pod_ip)
    if "resourceFieldRef" in origin:
        return _resource_field(container, origin["resourceFieldRef"])
    raise PodError("CreateContainerConfigError", f"valueFrom {sorted(origin)} is not supported")


def pod_field(pod: Json, path: str, pod_ip: str) -> str:
    """Return a field of the downward API.

    Raises:
        PodError: there is no such field.

    """
    metadata, spec = pod["metadata"], pod["spec"]
    match = _SUBSCRIPT.match(path)
    if match:
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    known = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": "127.0.0.1",
    }
    for kind in ("labels", "annotations"):
        if path == f"metadata.{kind}":
            lines = (f'{key}="{value}"' for key, value in (metadata.get(kind) or {}).items())
            return "\n".join(lines)
    if path not in known:
        raise PodError("CreateContainerConfigError", f"fieldPath {path!r} is not supported")
    return str(known[path] or "")


def _resource_field(container: Json, reference: Json) -> str:
    kind, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    value = (resources.get(kind) or resources.get("limits") or {}).get(name, "0")
    amount = quantity(name, value)
    divisor = quantity(name, reference.get("divisor") or "1") or 1
    return str(-(-amount // divisor))


def command_line(
    container: Json, variables: Mapping[str, str], image: Image | None = None
) -> list[str]:
    """Return the command to run.

    Raises:
        PodError: there is none; a process node has no image to take one from.

    """
    command = [expand(part, variables) for part in container.get("command") or []]
    arguments = [expand(part, variables) for part in container.get("args") or []]
    if not command:
        command = entry_point(container.get("image", ""), arguments, image)
        arguments = []
    if not command:
        raise PodError(
            "CreateContainerError",
            f"container {container['name']!r} has no command, and the process node has no image "
            f"{container.get('image', '')} with an entry point; set a command or load the image",
        )
    return command + arguments


def files(volume: Json, pod: Json, objects: Objects, pod_ip: str) -> dict[str, tuple[bytes, int]]:
    """Return the files of a volume made from API objects: path -> (content, mode).

    Raises:
        PodError: a reference leads nowhere.

    """
    result: dict[str, tuple[bytes, int]] = {}
    if "projected" in volume:
        for source in volume["projected"].get("sources", []):
            result |= _source_files(source, pod, objects, pod_ip)
        return result
    return _source_files(volume, pod, objects, pod_ip)


def downward_files(volume: Json, pod: Json, pod_ip: str) -> dict[str, bytes]:
    """Return the files of a volume that show fields of the pod: path -> content."""
    sources = (volume, *(volume.get("projected") or {}).get("sources", []))
    return {
        item["path"]: pod_field(pod, item["fieldRef"]["fieldPath"], pod_ip).encode()
        for source in sources
        for item in (source.get("downwardAPI") or {}).get("items", [])
        if "fieldRef" in item
    }


def _source_files(
    source: Json, pod: Json, objects: Objects, pod_ip: str
) -> dict[str, tuple[bytes, int]]:
    if "downwardAPI" in source:
        shown = downward_files(source, pod, pod_ip)
        return {path: (content, 0o644) for path, content in shown.items()}
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if field not in source:
            continue
        fields = source[field]
        name = fields.get("secretName") or fields["name"]
        data = objects.data(kind, name, optional=bool(fields.get("optional"))) or {}
        mode = fields.get("defaultMode", 0o644)
        if not fields.get("items"):
            return {key: (value, mode) for key, value in data.items()}
        missing = [item["key"] for item in fields["items"] if item["key"] not in data]
        if missing and not fields.get("optional"):
            raise PodError("FailedMount", f"{kind} {name!r} has no key {missing[0]!r}")
        return {
            item["path"]: (data[item["key"]], item.get("mode", mode))
            for item in fields["items"]
            if item["key"] in data
        }
    return {}


def unsupported_volumes(pod: Json) -> list[str]:
    """Return the volumes a process node cannot provide, as kind and name."""
    supported_sources = {"configMap", "secret", "projected", "downwardAPI"}
    known = supported_sources | {"emptyDir", "hostPath", "persistentVolumeClaim"}
    unsupported = []
    for volume in pod["spec"].get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= known:
            unsupported.append(f"{min(kinds - known)} {volume['name']!r}")
    return unsupported
