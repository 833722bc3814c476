"""`gangsched support-bundle`: one file for support, without private data.

Secrets are never read. Of users' objects the bundle has only the fields that a scheduler reads: no
environment, command, image or volume, and only labels and annotations of gangsched. Nodes have no
addresses. With `--pseudonyms-names`, names are digests.
"""

import io
import json
import re
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from gangsched import __version__
from gangsched.api import names
from gangsched.cli.doctor import HOME, run_checks, show
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.json_depth import decode_bounded
from gangsched.local.plane import Plane, serving
from gangsched.recording.anonymize import Pseudonyms

Json = dict[str, Any]

_LOG_LINES = 2000
_LOG_BYTES = 2**20
_OBJECTS_MAX = 1000
"""Largest number of objects of one kind in a bundle."""

_GROUP = f"/apis/{names.GROUP}/{names.VERSION}"
_JOBS = {
    **{f"jobs/{kind.lower()}s": f"/apis/kubeflow.org/v1/{kind.lower()}s" for kind in FRAMEWORKS},
    "jobs/trainjobs": "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
    "jobs/jobsets": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "jobs/experiments": "/apis/kubeflow.org/v1beta1/experiments",
}
_LISTS = {
    "queues": f"{_GROUP}/queues",
    "topologies": f"{_GROUP}/topologies",
    "reservations": f"{_GROUP}/reservations",
    "podgroups": f"{_GROUP}/podgroups",
    "nodes": "/api/v1/nodes",
    "events": "/api/v1/namespaces/{home}/events",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{home}/leases",
    "deployments": "/apis/apps/v1/namespaces/{home}/deployments",
    **_JOBS,
}
_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|(?i:bearer )\S+")
_REMOVED = frozenset(
    {"managedFields", "env", "envFrom", "command", "args", "data", "stringData"},
)
"""Fields that are removed at any depth."""

_REMOVED_FROM_USERS = _REMOVED | {
    *("image", "imagePullSecrets", "initializer", "serviceAccountName", "volumeMounts", "volumes")
}
_POD_FIELDS = frozenset(
    {
        *("affinity", "containers", "initContainers", "nodeName", "nodeSelector", "overhead"),
        *("preemptionPolicy", "priority", "priorityClassName", "resourceClaims", "resources"),
        *("restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "tolerations"),
        *("terminationGracePeriodSeconds", "topologySpreadConstraints"),
    }
)
"""Fields of a user's pod spec that stay."""

_CONTAINER_FIELDS = frozenset({"name", "ports", "resources", "restartPolicy"})
_NODE_FIELDS = {
    "metadata": ("name", "labels", "annotations", "creationTimestamp", "deletionTimestamp"),
    "spec": ("taints", "unschedulable"),
    "status": ("allocatable", "capacity", "conditions"),
}


async def write(
    client: KubeClient, out: Path, pseudonyms: Pseudonyms | None, home: str = HOME
) -> int:
    """Write the bundle; return how many files it has. `home` is the namespace of gangsched."""
    count = 0
    with tarfile.open(out, "x:gz") as archive:
        async for name, text in _files(client, home, pseudonyms):
            clean = _TOKEN.sub("<token>", text)
            content = (pseudonyms.text(clean) if pseudonyms is not None else clean).encode()
            entry = tarfile.TarInfo(f"gangsched/{name}")
            entry.size, entry.mtime = len(content), int(time.time())
            archive.addfile(entry, io.BytesIO(content))
            count += 1
    return count


async def _files(
    client: KubeClient, home: str, pseudonyms: Pseudonyms | None
) -> AsyncIterator[tuple[str, str]]:
    listed = {name: await _list_objects(client, name, home) for name in _LISTS}
    if pseudonyms is not None:  # jobs without a gang have names that no fact has
        pseudonyms.learn_names(_names_of_jobs(listed))
    yield "version.txt", f"gangsched {__version__}\n"
    page = Console(file=io.StringIO(), width=100)
    show(await run_checks(client, home), page)
    yield "doctor.txt", page.file.getvalue()  # type: ignore[attr-defined]
    for name, (objects, remark) in listed.items():
        if remark:
            yield f"{name}.txt", f"{remark}\n"
        if objects is not None and (objects or name not in _JOBS):
            bodies = [_redacted_object(name, body) for body in objects]
            yield f"{name}.json", json.dumps(bodies, indent=1)
    pods = f"/api/v1/namespaces/{home}/pods"
    for pod in msgspec.json.decode(await client.get(pods))["items"]:
        own = pod["metadata"]["name"]
        yield f"pods/{own}.json", json.dumps(without_private_fields(pod), indent=1)
        for suffix, previous in (("log", "false"), ("previous.log", "true")):
            lines = str(_LOG_LINES)
            try:
                log = await client.get(f"{pods}/{own}/log", tailLines=lines, previous=previous)
            except KubeError:
                continue  # the container has not run, or not before
            yield f"pods/{own}.{suffix}", log.decode(errors="replace")
    plane = serving(client.server)
    if plane is not None:
        for file in _local_plane_files(plane, all_logs=pseudonyms is None):
            yield file


async def _list_objects(client: KubeClient, name: str, home: str) -> tuple[list[Json] | None, str]:
    """Return the objects of a kind, and a remark if some are missing."""
    path = _LISTS[name].format(home=home)
    try:
        page = decode_bounded(msgspec.json.decode, await client.get(path, limit=str(_OBJECTS_MAX)))
    except KubeError as error:
        absent = isinstance(error, NotFound) and name in _JOBS
        return None, "" if absent else f"{path}: {error}"
    more = (page.get("metadata") or {}).get("continue")
    return page["items"], f"{path}: only the first {_OBJECTS_MAX} objects" if more else ""


def _names_of_jobs(listed: dict[str, tuple[list[Json] | None, str]]) -> Iterator[str]:
    """Return the namespaces, names and users of jobs."""
    for name in _JOBS:
        for body in listed[name][0] or []:
            metadata = body["metadata"]
            user = (metadata.get("annotations") or {}).get(names.USER_ANNOTATION) or ""
            yield from (metadata["namespace"], metadata["name"], user)


def _local_plane_files(plane: Plane, *, all_logs: bool) -> Iterator[tuple[str, str]]:
    """Return the programs of a local control plane, and the ends of their logs.

    Logs of programs other than gangsched have names of deleted objects, which `--hide-names`
    cannot replace: only `all_logs` includes them.
    """
    ended = set(plane.programs.ended())
    programs = [program.name for program in plane.programs.all()]
    info = plane.info()
    lines = [f"Kubernetes {info.get('kubernetes')}, binding {info.get('binding')}"]
    lines += [f"{name}: {'ended' if name in ended else 'runs'}" for name in programs]
    yield "plane.txt", "\n".join(lines) + "\n"
    for name in programs:
        if all_logs or name.startswith("gangsched"):
            text = plane.programs.tail(name, _LOG_LINES, _LOG_BYTES)
            text = text.replace(str(plane.folder), "<plane>").replace(str(Path.home()), "~")
            yield f"plane/{name}.log", f"{text}\n"


def _redacted_object(name: str, value: Json) -> Any:
    if name == "nodes":
        parts = {part: value.get(part) or {} for part in _NODE_FIELDS}
        value = {
            part: {k: parts[part][k] for k in keys if k in parts[part]}
            for part, keys in _NODE_FIELDS.items()
        }
    return without_private_fields(value, of_users=name == "podgroups" or name in _JOBS)


def without_private_fields(value: Any, *, of_users: bool = False) -> Any:
    """Return a JSON value without private fields, and only with annotations of gangsched.

    With `of_users`, more is removed: pod specs keep only the fields that a scheduler reads.
    """
    if isinstance(value, list):
        return [without_private_fields(part, of_users=of_users) for part in value]
    if not isinstance(value, dict):
        return value
    if of_users and isinstance(value.get("containers"), list):
        value = _pod_spec(value)
    removed = _REMOVED_FROM_USERS if of_users else _REMOVED
    kept = {
        key: without_private_fields(part, of_users=of_users)
        for key, part in value.items()
        if key not in removed
    }
    for field in ("annotations", "labels") if of_users else ("annotations",):
        if isinstance(kept.get(field), dict):
            kept[field] = {key: text for key, text in kept[field].items() if _ours(key)}
    return kept


def _ours(key: str) -> bool:
    return names.GROUP in key or key in names.QUEUE_LABELS


def _pod_spec(spec: Json) -> Json:
    kept = {key: value for key, value in spec.items() if key in _POD_FIELDS}
    for field in ("containers", "initContainers"):
        if isinstance(kept.get(field), list):
            kept[field] = [
                {key: value for key, value in container.items() if key in _CONTAINER_FIELDS}
                for container in kept[field]
                if isinstance(container, dict)
            ]
    return kept
