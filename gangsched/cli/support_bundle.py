"""`gangsched support-bundle`: one file for whoever helps, without what is nobody's business.

Secrets are never read. Of what users write only what a scheduler reads is kept: no environment, no
command, no image, no volume, no label or annotation but ours; of nodes no addresses. With hidden
names even those are digests.
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
from gangsched.cli.doctor import HOME, examine, show
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.json_depth import bounded
from gangsched.local.plane import Plane, serving
from gangsched.recording.anonymize import Pseudonyms

Json = dict[str, Any]

_LOG_LINES = 2000
_LOG_BYTES = 2**20
_MOST = 1000
"""How many objects of one kind there are in a bundle at most."""

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
_GONE = frozenset(
    {"managedFields", "env", "envFrom", "command", "args", "data", "stringData"},
)
"""Fields of objects that are left out, wherever they stand."""

_GONE_OF_USERS = _GONE | {
    *("image", "imagePullSecrets", "initializer", "serviceAccountName", "volumeMounts", "volumes")
}
_OF_PODS = frozenset(
    {
        *("affinity", "containers", "initContainers", "nodeName", "nodeSelector", "overhead"),
        *("preemptionPolicy", "priority", "priorityClassName", "resourceClaims", "resources"),
        *("restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "tolerations"),
        *("terminationGracePeriodSeconds", "topologySpreadConstraints"),
    }
)
"""What is kept of a pod's spec that a user wrote."""

_OF_CONTAINERS = frozenset({"name", "ports", "resources", "restartPolicy"})
_OF_NODES = {
    "metadata": ("name", "labels", "annotations", "creationTimestamp", "deletionTimestamp"),
    "spec": ("taints", "unschedulable"),
    "status": ("allocatable", "capacity", "conditions"),
}


async def write(client: KubeClient, out: Path, hide: Pseudonyms | None, home: str = HOME) -> int:
    """Write the bundle; return how many files it has. `home` is the namespace of gangsched."""
    count = 0
    with tarfile.open(out, "x:gz") as archive:
        async for name, text in _files(client, home, hide):
            clean = _TOKEN.sub("<token>", text)
            content = (hide.text(clean) if hide is not None else clean).encode()
            entry = tarfile.TarInfo(f"gangsched/{name}")
            entry.size, entry.mtime = len(content), int(time.time())
            archive.addfile(entry, io.BytesIO(content))
            count += 1
    return count


async def _files(
    client: KubeClient, home: str, hide: Pseudonyms | None
) -> AsyncIterator[tuple[str, str]]:
    listed = {name: await _listed(client, name, home) for name in _LISTS}
    if hide is not None:  # of some jobs there is no gang that it knows already
        hide.learn_names(_called(listed))
    yield "version.txt", f"gangsched {__version__}\n"
    page = Console(file=io.StringIO(), width=100)
    show(await examine(client, home), page)
    yield "doctor.txt", page.file.getvalue()  # type: ignore[attr-defined]
    for name, (objects, remark) in listed.items():
        if remark:
            yield f"{name}.txt", f"{remark}\n"
        if objects is not None and (objects or name not in _JOBS):
            yield f"{name}.json", json.dumps([_kept(name, one) for one in objects], indent=1)
    pods = f"/api/v1/namespaces/{home}/pods"
    for pod in msgspec.json.decode(await client.get(pods))["items"]:
        own = pod["metadata"]["name"]
        yield f"pods/{own}.json", json.dumps(redacted(pod), indent=1)
        for word, previous in (("log", "false"), ("previous.log", "true")):
            lines = str(_LOG_LINES)
            try:
                log = await client.get(f"{pods}/{own}/log", tailLines=lines, previous=previous)
            except KubeError:
                continue  # it has not run, or not before
            yield f"pods/{own}.{word}", log.decode(errors="replace")
    plane = serving(client.server)
    if plane is not None:
        for one in _of_plane(plane, all_logs=hide is None):
            yield one


async def _listed(client: KubeClient, name: str, home: str) -> tuple[list[Json] | None, str]:
    """Return the objects of a kind, and a remark where they are not all there are."""
    path = _LISTS[name].format(home=home)
    try:
        found = bounded(msgspec.json.decode, await client.get(path, limit=str(_MOST)))
    except KubeError as error:
        absent = isinstance(error, NotFound) and name in _JOBS
        return None, "" if absent else f"{path}: {error}"
    more = (found.get("metadata") or {}).get("continue")
    return found["items"], f"{path}: these are the first {_MOST} of them" if more else ""


def _called(listed: dict[str, tuple[list[Json] | None, str]]) -> Iterator[str]:
    """Return whose jobs there are, where, and what they are called."""
    for name in _JOBS:
        for one in listed[name][0] or []:
            metadata = one["metadata"]
            user = (metadata.get("annotations") or {}).get(names.USER_ANNOTATION) or ""
            yield from (metadata["namespace"], metadata["name"], user)


def _of_plane(plane: Plane, *, all_logs: bool) -> Iterator[tuple[str, str]]:
    """Return what a local control plane runs, and the ends of its programs' logs.

    Others' logs are full of names of what is no more, which nobody can know to hide.
    """
    ended = set(plane.programs.ended())
    programs = [one.name for one in plane.programs.all()]
    info = plane.info()
    lines = [f"Kubernetes {info.get('kubernetes')}, binding {info.get('binding')}"]
    lines += [f"{name}: {'ended' if name in ended else 'runs'}" for name in programs]
    yield "plane.txt", "\n".join(lines) + "\n"
    for name in programs:
        if all_logs or name.startswith("gangsched"):
            text = plane.programs.tail(name, _LOG_LINES, _LOG_BYTES)
            text = text.replace(str(plane.folder), "<plane>").replace(str(Path.home()), "~")
            yield f"plane/{name}.log", f"{text}\n"


def _kept(name: str, value: Json) -> Any:
    if name == "nodes":
        parts = {part: value.get(part) or {} for part in _OF_NODES}
        value = {
            part: {k: parts[part][k] for k in keys if k in parts[part]}
            for part, keys in _OF_NODES.items()
        }
    return redacted(value, of_users=name == "podgroups" or name in _JOBS)


def redacted(value: Any, *, of_users: bool = False) -> Any:
    """Return a JSON value without what is left out, and with no annotations but ours.

    What is `of_users` loses more: of their pods' specs only what a scheduler reads is kept.
    """
    if isinstance(value, list):
        return [redacted(one, of_users=of_users) for one in value]
    if not isinstance(value, dict):
        return value
    if of_users and isinstance(value.get("containers"), list):
        value = _pod_spec(value)
    gone = _GONE_OF_USERS if of_users else _GONE
    found = {k: redacted(one, of_users=of_users) for k, one in value.items() if k not in gone}
    for field in ("annotations", "labels") if of_users else ("annotations",):
        if isinstance(found.get(field), dict):
            found[field] = {key: one for key, one in found[field].items() if _ours(key)}
    return found


def _ours(key: str) -> bool:
    return names.GROUP in key or key in names.QUEUE_LABELS


def _pod_spec(spec: Json) -> Json:
    found = {key: one for key, one in spec.items() if key in _OF_PODS}
    for field in ("containers", "initContainers"):
        if isinstance(found.get(field), list):
            found[field] = [
                {key: part for key, part in one.items() if key in _OF_CONTAINERS}
                for one in found[field]
                if isinstance(one, dict)
            ]
    return found
