"""Counts what happens to jobs, from the states that their watches and status writes report.

    first sight, no status yet          created
    first sight, with a status          nothing: another process, or this one earlier, counted it
    another state than before           started, restarted, ended: each change once

So a restart of the process counts nothing twice: the status of a job outlives the process.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gangsched.api import dialects
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.job_metrics import JobMetrics, JobRef
from gangsched.jobs.common.model import Json
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.progress import JobEnd, JobState, ObservedProgress, progress
from gangsched.operators.kinds import jobset, trainjob
from gangsched.operators.tracking.run_tracker import RunTracker

_MANAGERS = {"JobSet": (None, "", jobset.MANAGER), "TrainJob": (None, "", trainjob.MANAGER)}

_Name = tuple[str, str, str]
"""Kind, namespace and name of a job."""


@dataclass(slots=True)
class _KnownJob:
    """The last observed progress of a job, and what was counted of it."""

    job: JobRef
    last: ObservedProgress
    since_s: float
    has_run: bool
    ends: set[JobEnd] = field(default_factory=set)


class JobObserver:
    """Reports the changes of all jobs to their metrics."""

    def __init__(
        self,
        metrics: JobMetrics,
        now_s: Callable[[], float] = time.time,
        tracker: RunTracker | None = None,
    ) -> None:
        """Report the same states to `tracker`, for the runs of jobs."""
        self._metrics, self._now_s, self._tracker = metrics, now_s, tracker
        self._known: dict[str, _KnownJob] = {}
        self._parts: dict[str, tuple[str, str]] = {}
        """The owner's uid and the last restart of each JobSet of a TrainJob, by its uid."""

        self._uids: dict[_Name, str] = {}
        self._groups: dict[str, _Name] = {}
        """The owner of each PodGroup."""

        self._created: set[str] = set()
        """Uids of jobs without a status that were counted; it outlives the watches."""

        metrics.find_job = self._job_of_gang

    def begin(self) -> None:
        """Forget the states of all jobs: the watches report all of them again."""
        self._known.clear()
        self._parts.clear()
        self._uids.clear()
        self._groups.clear()
        self._metrics.live.clear()

    # -- jobs ---------------------------------------------------------------------------------

    def seen(self, kind: str, body: Json) -> None:
        """Record the newest state of a job."""
        if _is_managed_elsewhere(kind, body):
            return
        if self._tracker is not None:
            self._tracker.job_seen(kind, body, queue_named_by(kind, body))
        metadata = body["metadata"]
        uid, name = metadata["uid"], (kind, metadata["namespace"], metadata["name"])
        now = progress(body)
        owner = _train_job(kind, metadata)
        if owner:
            self._part_seen(uid, owner, now)
            self._uids[name] = owner
            return
        self._uids[name] = uid
        job = JobRef(kind, queue_named_by(kind, body), name[1])
        known = self._known.get(uid)
        if known is None:
            known = self._first_seen(uid, job, now)
        else:
            known.job = job
            self._changed(known, now)
        if not now.is_new:
            self._created.discard(uid)
        if now.end is not None:
            self._metrics.live.remove(uid)
        else:
            self._metrics.live.put(uid, known.job, now.state, known.since_s)

    def gone(self, kind: str, body: Json) -> None:
        """Forget a job that was deleted."""
        if self._tracker is not None:
            self._tracker.job_gone(kind, body)
        metadata = body["metadata"]
        uid, name = metadata["uid"], (kind, metadata["namespace"], metadata["name"])
        self._created.discard(uid)
        if self._uids.get(name) == self._parts.get(uid, (uid,))[0]:
            del self._uids[name]
        self._parts.pop(uid, None)
        self._metrics.live.remove(uid)
        known = self._known.pop(uid, None)
        if known is not None:
            self._metrics.deleted(known.job, ended=known.last.end is not None)

    def _first_seen(self, uid: str, job: JobRef, now: ObservedProgress) -> _KnownJob:
        known = _KnownJob(job, now, now.since_s, now.has_run)
        self._known[uid] = known
        if now.end is not None:
            known.ends.add(now.end)
        if now.is_new and uid not in self._created:
            self._created.add(uid)
            self._metrics.created(job)
        return known

    def _changed(self, known: _KnownJob, now: ObservedProgress) -> None:
        last, known.last, now_s = known.last, now, self._now_s()
        resumes = last.end is not None and now.end is None and known.job.kind == "Experiment"
        if resumes:
            known.ends.clear()
        if resumes or (now.restart and now.restart != last.restart):
            self._metrics.restarted(known.job)
        if now.state != last.state:
            known.since_s = now_s
        if now.state is JobState.SUSPENDED:
            known.has_run = False
        elif now.has_run and not known.has_run:
            known.has_run = True
            self._metrics.started(known.job, now_s - now.wanted_s)
        if now.end is not None and now.end not in known.ends:
            known.ends.add(now.end)
            self._metrics.ended(known.job, now.end, now_s - now.wanted_s)

    def _part_seen(self, uid: str, owner: str, now: ObservedProgress) -> None:
        """Count the restarts of a TrainJob's JobSet as the TrainJob's; the rest is its own."""
        _, last = self._parts.get(uid, (owner, now.restart))
        self._parts[uid] = owner, now.restart
        known = self._known.get(owner)
        if known is not None and now.restart and now.restart != last:
            self._metrics.restarted(known.job)

    # -- gangs --------------------------------------------------------------------------------

    def group_seen(self, kind: str, owner: str, group: Json) -> None:
        """Record the owner of a PodGroup."""
        if self._tracker is not None:
            self._tracker.group_seen(kind, owner, group)
        metadata = group["metadata"]
        self._groups[_gang(metadata)] = kind, metadata["namespace"], owner

    def group_gone(self, group: Json) -> None:
        """Forget a PodGroup."""
        if self._tracker is not None:
            self._tracker.group_gone(group)
        self._groups.pop(_gang(group["metadata"]), None)

    def _job_of_gang(self, gang: str) -> JobRef | None:
        name = self._groups.get(gang)
        known = self._known.get(self._uids.get(name, "")) if name is not None else None
        return known.job if known is not None else None


def queue_named_by(kind: str, body: Json) -> str:
    """Return the queue that a job names; a malformed one names none."""
    spec = body.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if kind in FRAMEWORKS:
        named = _field(spec, ("runPolicy", "schedulingPolicy", "queue"))
        if named and isinstance(named, str):
            return named
    metadata = body["metadata"]
    templates = [template.get("labels") for template in _templates(kind, spec)]
    admitted = dialects.admitted_elsewhere(*(t for t in templates if isinstance(t, dict)))
    keys = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return dialects.queue_of(*keys, admitted=admitted) or DEFAULT_QUEUE


def _templates(kind: str, spec: Json) -> list[Json]:
    """Return the metadata of a job's pod templates."""
    path: tuple[str, ...] = ("template", "metadata")
    roles: object = None
    if kind == "JobSet":
        path, roles = ("template", "spec", *path), spec.get("replicatedJobs")
    elif kind in FRAMEWORKS:
        roles = spec.get(FRAMEWORKS[kind].specs)
        roles = list(roles.values()) if isinstance(roles, dict) else None
    metadata = (_field(role, path) for role in (roles if isinstance(roles, list) else ()))
    return [item for item in metadata if isinstance(item, dict)]


def _field(value: object, path: tuple[str, ...]) -> object:
    """Return a field of nested objects, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _is_managed_elsewhere(kind: str, body: Json) -> bool:
    """Return whether a JobSet or TrainJob names another controller to run it."""
    manager = _field(body, ("spec", "managedBy"))
    return kind in _MANAGERS and manager not in _MANAGERS[kind]


def _train_job(kind: str, metadata: Json) -> str:
    """Return the uid of the TrainJob that a JobSet is a part of, or nothing."""
    owners = metadata.get("ownerReferences") or [] if kind == "JobSet" else []
    ours = (o for o in owners if o.get("controller") and o.get("kind") == "TrainJob")
    return next((str(owner["uid"]) for owner in ours), "")


def _gang(metadata: Json) -> str:
    return f"{metadata['namespace']}/{metadata['name']}"
