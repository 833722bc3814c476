"""The jobs of a namespace with their states, as `gangsched ps` shows them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gangsched.api.names import POD_GROUP_LABEL, QUEUE_LABELS, USER_ANNOTATION
from gangsched.core.model.pods import GPU
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.kube.decoding.quantities import DecodeError, quantity
from gangsched.userjobs.finding import UserJob, all_jobs, objects
from gangsched.userjobs.job_kinds import (
    EVENT_KIND,
    GANG_KIND,
    POD_KIND,
    Json,
    UserJobKind,
    owner_of,
)

SCHEDULER = "gangsched"
_ENDED = ("Succeeded", "Failed")
_ALWAYS_OURS = ("kubeflow.org/v1", "trainer.kubeflow.org/v1alpha1", "jobset.x-k8s.io/v1alpha2")
"""Jobs of these APIs are ours unless they name another scheduler."""

_OVER = {"Complete": "CD", "Completed": "CD", "Succeeded": "CD", "Failed": "F"}
STATES = {
    "PD": "PENDING",
    "R": "RUNNING",
    "CG": "COMPLETING",
    "CD": "COMPLETED",
    "F": "FAILED",
}
"""The states that a job may have: as Slurm shortens them, and in full."""


@dataclass(slots=True)
class JobRow:
    """A job: its state, and where it runs or why it waits.

    `job_id` is the number of `gangsched submit`, or "". Times are seconds since 1970.
    """

    kind: str
    namespace: str
    name: str
    title: str
    job_id: str = ""
    queue: str = ""
    user: str = ""
    state: str = "PD"
    reason: str = ""
    message: str = ""
    started_s: float | None = None
    expected_start: str = ""
    pods: int = 0
    has_refusal: bool = False
    nodes: set[str] = field(default_factory=set)

    def data(self, now_s: float) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "jobId": self.job_id,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "title": self.title,
            "queue": self.queue,
            "user": self.user,
            "state": STATES[self.state],
            "reason": self.reason,
            "message": self.message,
            "runs_s": round(now_s - self.started_s) if self.started_s is not None else None,
            "expectedStart": self.expected_start or None,
            "pods": self.pods,
            "nodes": sorted(self.nodes),
        }


@dataclass(frozen=True, slots=True)
class NamespaceObjects:
    """The jobs, PodGroups and pods of a namespace, or of all."""

    jobs: tuple[UserJob, ...]
    groups: tuple[Json, ...]
    pods: tuple[Json, ...]
    events: tuple[Json, ...] = ()
    """What the scheduler reported, as far as the caller may read it."""


async def read_objects(client: KubeClient, namespace: str | None) -> NamespaceObjects:
    """Read what the caller may read of it.

    Raises:
        KubeError: pods may not be listed, or the API server does not answer.

    """

    async def each(kind: UserJobKind) -> tuple[Json, ...]:
        return tuple([body async for body in objects(client, kind, namespace)])

    async def allowed(kind: UserJobKind, fields: str = "") -> tuple[Json, ...]:
        try:
            found = objects(client, kind, namespace, fields=fields)
            return tuple([body async for body in found])
        except (NotFound, Forbidden):
            return ()

    jobs, groups, pods, events = await asyncio.gather(
        all_jobs(client, namespace),
        allowed(GANG_KIND),
        each(POD_KIND),
        allowed(EVENT_KIND, f"reportingComponent={SCHEDULER}"),
    )
    return NamespaceObjects(tuple(jobs), groups, pods, events)


def job_rows(read: NamespaceObjects) -> list[JobRow]:
    """Return a row for each job, and for each gang or pod of ours without one."""
    owners = {job.uid: job for job in read.jobs}
    rows: dict[str, JobRow] = {}
    for job in read.jobs:
        if _top(job.body, owners) is None and _is_ours(job):
            rows[job.uid] = _row_of_job(job)
    by_group: dict[tuple[str, str], JobRow] = {}
    of_uid: dict[str, JobRow] = {}
    for group in read.groups:
        metadata = group["metadata"]
        top = _top(group, owners)
        key = top.uid if top is not None else str(metadata["uid"])
        row = rows.get(key)
        if row is None:
            row = rows[key] = _row_of_job(top or UserJob(GANG_KIND, group))
        by_group[str(metadata["namespace"]), str(metadata["name"])] = row
        _add_group(row, group)
    for pod in read.pods:
        metadata = pod["metadata"]
        namespace = str(metadata["namespace"])
        group_name = (metadata.get("labels") or {}).get(POD_GROUP_LABEL, "")
        top = _top(pod, owners)
        row = rows.get(top.uid) if top is not None else by_group.get((namespace, group_name))
        ours = pod["spec"].get("schedulerName") == SCHEDULER
        if row is None and ours:
            key = top.uid if top is not None else group_name or str(metadata["uid"])
            row = rows.get(key)
            if row is None:
                row = rows[key] = _row_of_job(top or UserJob(POD_KIND, pod))
                if group_name and top is None:
                    row.kind, row.name, row.title = "PodGroup", group_name, group_name
        if row is not None:
            _add_pod(row, pod)
            of_uid[str(metadata["uid"])] = row
    of_uid |= {uid: row for uid, row in rows.items() if uid in owners}
    _add_events(of_uid, read.events)
    for row in rows.values():
        if row.state in ("CD", "F"):
            row.reason = row.message = ""
    return sorted(rows.values(), key=lambda row: (row.namespace, row.job_id, row.name))


def _top(body: Json, owners: dict[str, UserJob]) -> UserJob | None:
    """Return the last of the owners of an object that is a job."""
    found = None
    for _ in range(len(_ALWAYS_OURS) + 2):
        owner = owner_of(body)
        job = owners.get(str(owner.get("uid"))) if owner is not None else None
        if job is None:
            break
        found, body = job, job.body
    return found


def _is_ours(job: UserJob) -> bool:
    named = list(_scheduler_names(job.body.get("spec")))
    if named:
        return SCHEDULER in named
    return job.kind.api_version in _ALWAYS_OURS


def _scheduler_names(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key == "schedulerName" and isinstance(part, str):
                yield part
            else:
                yield from _scheduler_names(part)
    elif isinstance(value, list):
        for part in value:
            yield from _scheduler_names(part)


def _row_of_job(job: UserJob) -> JobRow:
    metadata = job.body["metadata"]
    annotations = metadata.get("annotations") or {}
    marks = annotations | job.labels
    row = JobRow(job.kind.kind, job.namespace, job.name, job.title, job.number)
    row.user = str(annotations.get(USER_ANNOTATION, ""))
    row.queue = str(next((marks[key] for key in QUEUE_LABELS if key in marks), ""))
    if job.is_suspended:
        row.reason, row.message = "JobHeldUser", f"the {job.kind.kind} is suspended."
    for condition in (job.body.get("status") or {}).get("conditions") or []:
        if condition.get("status") == "True" and condition.get("type") in _OVER:
            row.state = _OVER[condition["type"]]
    if (job.body.get("status") or {}).get("jobDeploymentStatus") in ("Complete", "Failed"):  # Ray's
        row.state = "CD" if job.body["status"]["jobDeploymentStatus"] == "Complete" else "F"
    return row


def _add_group(row: JobRow, group: Json) -> None:
    status, spec = group.get("status") or {}, group.get("spec") or {}
    row.queue = str(status.get("queue") or spec.get("queue") or row.queue)
    metadata = group["metadata"]
    row.user = row.user or str((metadata.get("annotations") or {}).get(USER_ANNOTATION, ""))
    row.pods += int(spec.get("minMember") or 0) or sum(
        int(role.get("count") or 0) for role in spec.get("roles") or []
    )
    if row.state in ("CD", "F"):
        return
    if status.get("phase") == "Placed":
        row.state, row.reason, row.message = "R", "", ""
        return
    refusal, start = status.get("refusal") or {}, status.get("start") or {}
    row.has_refusal = bool(refusal)
    row.reason = str(refusal.get("reason") or status.get("phase") or "Created")
    row.message = str(status.get("message") or "")
    row.expected_start = str(start.get("expected") or "")


def _add_pod(row: JobRow, pod: Json) -> None:
    status, spec = pod.get("status") or {}, pod["spec"]
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        return
    node = spec.get("nodeName")
    if node:
        row.nodes.add(str(node))
    started_s = _seconds(status.get("startTime"))
    if started_s is not None:
        row.started_s = min(started_s, row.started_s or started_s)
    if row.state in ("CD", "F"):
        return
    if pod["metadata"].get("deletionTimestamp"):
        row.state = "CG"
    elif phase == "Running" and row.state != "CG":
        row.state, row.reason, row.message = "R", "", ""
    elif row.state == "PD" and not row.reason:
        conditions = status.get("conditions") or []
        waits: Json = next((c for c in conditions if c.get("type") == "PodScheduled"), {})
        row.reason = str(waits.get("reason") or "Pending")
        row.message = str(waits.get("message") or "")


def _add_events(of_uid: dict[str, JobRow], events: Iterable[Json]) -> None:
    """Give pending jobs without a PodGroup the reason that was reported last."""
    for event in sorted(events, key=lambda event: str(event.get("lastTimestamp") or "")):
        row = of_uid.get(str((event.get("involvedObject") or {}).get("uid")))
        if row is None or row.state != "PD" or row.reason == "JobHeldUser" or row.has_refusal:
            continue
        row.reason = str(event.get("reason") or row.reason)
        row.message = str(event.get("message") or "")


def _seconds(stamp: str | None) -> float | None:
    return None if not stamp else datetime.fromisoformat(stamp).timestamp()


def pods_of_job(read: NamespaceObjects, job: UserJob) -> list[Json]:
    """Return the pods of a job, or of a PodGroup or pod that has no job."""
    owners = {known.uid: known for known in read.jobs}
    found = []
    for pod in read.pods:
        metadata = pod["metadata"]
        top = _top(pod, owners)
        group = (metadata.get("labels") or {}).get(POD_GROUP_LABEL)
        of_group = job.kind == GANG_KIND and top is None and group == job.name
        own = str(metadata["uid"]) if top is None else top.uid
        if (of_group or own == job.uid) and metadata.get("namespace") == job.namespace:
            found.append(pod)
    return found


def holdings(read: NamespaceObjects) -> list[dict[str, Any]]:
    """Return what each running job holds, as JSON values, the most GPUs and cores first."""
    rows = {(row.namespace, row.kind, row.name): row for row in job_rows(read)}
    owners = {job.uid: job for job in read.jobs}
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for pod in read.pods:
        if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        key = _row_key(pod, owners)
        row = rows.get(key)
        if row is None:
            continue
        held = found.setdefault(
            key,
            {
                "namespace": row.namespace,
                "name": row.name,
                "title": row.title,
                "queue": row.queue or "default",
                "user": row.user,
                "pods": 0,
                "nodes": len(row.nodes),
                "gpus": 0,
                "cores": 0.0,
            },
        )
        gpus, milli = _requests(pod)
        held["pods"] += 1
        held["gpus"] += gpus
        held["cores"] = round(held["cores"] + milli / 1000, 3)
    return sorted(found.values(), key=lambda row: (-row["gpus"], -row["cores"], row["name"]))


def _row_key(pod: Json, owners: dict[str, UserJob]) -> tuple[str, str, str]:
    metadata, top = pod["metadata"], _top(pod, owners)
    namespace = str(metadata["namespace"])
    if top is not None:
        return namespace, top.kind.kind, top.name
    group = (metadata.get("labels") or {}).get(POD_GROUP_LABEL)
    return namespace, "PodGroup" if group else "Pod", str(group or metadata["name"])


def _requests(pod: Json) -> tuple[int, int]:
    """Return the GPUs and the thousandths of cores of a pod's containers."""
    gpus = milli = 0
    for container in pod["spec"].get("containers") or []:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for resource, value in asked.items():
            try:
                if resource == GPU:
                    gpus += quantity(resource, value)
                elif resource == "cpu":
                    milli += quantity(resource, value)
            except DecodeError:
                continue  # the API server admits forms that we do not count
    return gpus, milli
