"""Which job has which run: from what the watches of jobs and PodGroups report.

Experiment                a run
Trial                     a run, nested in that of its experiment
job of a Trial            the run of the trial
JobSet of a TrainJob      the run of the TrainJob
any other job             a run
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gangsched.api import names
from gangsched.config import RUN_VARIABLES, NamespaceTracking, TrackingConfig
from gangsched.core.bounds import TRACKED_JOBS
from gangsched.jobs import tracking
from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.trial import API_VERSION, JOBS
from gangsched.jobs.progress import progress
from gangsched.jobs.tracking import GangHold, gang_hold
from gangsched.kube.client.client import KubeClient
from gangsched.operators.api_objects import subject_of
from gangsched.operators.tracking.mlflow_api import MlflowApi, open_session
from gangsched.operators.tracking.patience import Patience
from gangsched.operators.tracking.run_writer import RunWriter
from gangsched.operators.tracking.targets import RunTarget, TargetError, TrackingServer, target_of
from gangsched.operators.tracking.tracked_job import TrackedJob, annotation

_VERSIONS = {kind: version for version, kind in JOBS} | {
    "Experiment": API_VERSION,
    "Trial": API_VERSION,
}
_SHARING = ("Trial", "TrainJob")
"""Kinds of owners with a run that their jobs share."""

_LEVELS = 4
_SOON_S = 0.1
_CREDENTIALS = {
    "MLFLOW_TRACKING_TOKEN": "token",
    "MLFLOW_TRACKING_USERNAME": "username",
    "MLFLOW_TRACKING_PASSWORD": "password",
}
"""Variables of pods, by the keys of the Secret in the namespace of the pods."""

_Name = tuple[str, str, str]
"""Kind, namespace and name of a job."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """A job that shares the run of its owner; its pods wait until the owner is seen."""

    owner: str
    deadline_s: float


class RunTracker:
    """The runs of all jobs."""

    def __init__(self, config: TrackingConfig, client: KubeClient) -> None:
        self._config, self._client = config, client
        self._kinds: Collection[str] = ()
        self._jobs: dict[str, TrackedJob] = {}
        self._counts: Counter[str] = Counter()
        self._shared: dict[str, _Shared] = {}
        self._sharers: dict[str, set[_Name]] = {}
        self._uids: dict[_Name, str] = {}
        self._holds: dict[_Name, dict[str, GangHold]] = {}
        self._owners_of_groups: dict[str, _Name] = {}
        self._writers = {
            server: RunWriter(server, client, Patience(config.wait_s), self._jobs.get, self._drop)
            for server in _servers(config)
        }
        self._main = next(iter(self._writers.values()))

    async def run(self) -> None:
        """Work until cancelled."""
        async with open_session() as session, asyncio.TaskGroup() as group:
            for server, writer in self._writers.items():
                api = MlflowApi(session, server, self._client, self._config.timeout_s)
                group.create_task(writer.run(api))

    def begin(self, kinds: Collection[str]) -> None:
        """Forget all jobs: the watches report those of the kinds that gangsched runs again."""
        self._kinds = kinds
        for job in self._jobs.values():
            job.call_waiting()
        for known in (self._jobs, self._counts, self._shared, self._sharers):
            known.clear()
        for table in (self._uids, self._holds, self._owners_of_groups):
            table.clear()

    # -- what controllers ask -----------------------------------------------------------------

    def hold_s(self, body: Json, wake: Callable[[], None]) -> float:
        """Return how many seconds the pods of a job wait for its run; 0: they start now.

        `wake` is called when that changes.
        """
        job = self._job_of(body)
        if job is None:
            shared = self._shared.get(body["metadata"]["uid"])
            waits = shared is not None and self._main.patience.left_s(shared.deadline_s) > 0
            return _SOON_S if waits else 0.0
        writer = self._writer(job)
        return writer.hold(job, wake) if writer is not None else 0.0

    def variables(self, body: Json) -> Mapping[str, str | Json]:
        """Return the variables of a job's pods, none if it has no run; a mapping is a valueFrom."""
        job = self._job_of(body)
        if job is None or job.target is None or not job.run_id:
            return {}
        server = job.target.server
        values = (server.pods_uri, job.run_id, job.target.experiment)
        secrets: dict[str, str | Json] = {
            name: {"secretKeyRef": {"name": server.pods_secret, "key": key, "optional": True}}
            for name, key in _CREDENTIALS.items()
        }
        return dict(zip(RUN_VARIABLES, values, strict=True)) | secrets

    # -- what watches report ------------------------------------------------------------------

    def job_seen(self, kind: str, body: Json, queue: str) -> None:
        """Record the newest state of a job that gangsched runs."""
        if kind not in _VERSIONS:
            return
        metadata = body["metadata"]
        uid, name = metadata["uid"], (kind, metadata["namespace"], metadata["name"])
        self._uids[name] = uid
        owner = _owner(metadata)
        if kind != "Trial" and owner.get("kind") in _SHARING and owner["kind"] in self._kinds:
            if uid not in self._shared:
                deadline_s = self._main.patience.deadline_s()
                self._shared[uid] = _Shared(owner["uid"], deadline_s)
                self._sharers.setdefault(owner["uid"], set()).add(name)
                self._count_gangs(name)
            return
        job = self._jobs.get(uid) or self._first_seen(kind, body, owner)
        if job is not None:
            job.queue = queue
            self._apply(job, kind, body)
            self._wake(job)

    def job_gone(self, kind: str, body: Json) -> None:
        """Record that a job was deleted."""
        metadata = body["metadata"]
        uid, name = metadata["uid"], (kind, metadata["namespace"], metadata["name"])
        if self._uids.get(name) == uid:
            del self._uids[name]
        shared = self._shared.pop(uid, None)
        if shared is not None:
            sharers = self._sharers.get(shared.owner, set())
            sharers.discard(name)
            if not sharers:
                self._sharers.pop(shared.owner, None)
        job = self._jobs.get(uid)
        if job is not None:
            job.is_gone = True
            job.outcome = job.outcome or tracking.DELETED
            job.gpu_time.end(time.time())
            if job.target is None:
                self._drop(job)
            else:
                self._wake(job)

    def group_seen(self, kind: str, owner: str, group: Json) -> None:
        """Record the newest state of a job's PodGroup."""
        metadata, now_s = group["metadata"], time.time()
        name = (kind, metadata["namespace"], owner)
        hold = gang_hold(group, now_s)
        self._holds.setdefault(name, {})[metadata["uid"]] = hold
        self._owners_of_groups[metadata["uid"]] = name
        job = self._job_named(name)
        if job is not None and not job.outcome and job.gpu_time.put(metadata["uid"], hold, now_s):
            self._wake(job)

    def group_gone(self, group: Json) -> None:
        """Record that a PodGroup was deleted."""
        uid = group["metadata"]["uid"]
        name = self._owners_of_groups.pop(uid, None)
        if name is None:
            return
        holds = self._holds.get(name, {})
        holds.pop(uid, None)
        if not holds:
            self._holds.pop(name, None)
        job = self._job_named(name)
        if job is not None:
            job.gpu_time.remove(uid, time.time())
            self._wake(job)

    # -- records ------------------------------------------------------------------------------

    def _first_seen(self, kind: str, body: Json, owner: Json) -> TrackedJob | None:
        """Return the record of a new job; None if it ended before, or there are too many."""
        namespace = body["metadata"]["namespace"]
        had_run = annotation(body, names.RUN_ANNOTATION)
        ended = progress(body).end is not None
        is_settled = not had_run or annotation(body, names.RUN_OUTCOME_ANNOTATION)
        if (ended and is_settled) or self._counts[namespace] >= TRACKED_JOBS.most:
            return None
        parent = owner["uid"] if kind == "Trial" and owner.get("kind") == "Experiment" else ""
        target, refusal = self._target(body, is_nested=bool(parent))
        job = TrackedJob(
            subject_of(body, _VERSIONS[kind], kind),
            target,
            parent,
            "",
            progress(body).wanted_s,
            self._main.patience.deadline_s(),
            refusal=refusal,
            known_run=had_run.rpartition("/")[2],
            announced=had_run,
            announced_outcome=annotation(body, names.RUN_OUTCOME_ANNOTATION),
        )
        job.ended_as = job.announced_outcome
        if kind == "Trial":
            job.fixed_tags |= tracking.parameters(body)
        self._jobs[job.ref.uid] = job
        self._counts[namespace] += 1
        for name in self._names_of(job.ref.uid, (kind, namespace, job.ref.name)):
            self._count_gangs(name)
        return job

    def _target(self, body: Json, *, is_nested: bool) -> tuple[RunTarget | None, str]:
        """Return where the run of a job belongs, and why it has none if an annotation is wrong."""
        metadata = body["metadata"]
        keys = metadata.get("annotations") or {}
        if is_nested:
            keys = {names.TRACKING_ANNOTATION: "on"}  # its experiment decides
        try:
            return target_of(self._config, metadata["namespace"], keys), ""
        except TargetError as error:
            return None, f"the job gets no run on the tracking server: {error}"

    def _apply(self, job: TrackedJob, kind: str, body: Json) -> None:
        """Record what the status of a job says."""
        now = progress(body)
        if now.has_run and kind != "Experiment" and tracking.WAIT_S not in job.fixed_tags:
            waited_s = max(time.time() - now.wanted_s, 0.0)
            job.fixed_tags[tracking.WAIT_S] = f"{waited_s:.1f}"
        outcome = now.end.value if now.end is not None else ""
        if outcome != job.outcome:
            job.outcome, job.failures, job.retry_at_s = outcome, 0, 0.0
            if outcome:
                job.gpu_time.end(time.time())

    def _drop(self, job: TrackedJob) -> None:
        """Forget a job that does not exist any more."""
        if self._jobs.pop(job.ref.uid, None) is not None:
            self._counts[job.ref.namespace] -= 1
            if not self._counts[job.ref.namespace]:
                del self._counts[job.ref.namespace]
            job.call_waiting()

    def _names_of(self, uid: str, own: _Name, levels: int = _LEVELS) -> list[_Name]:
        """Return the names of a job, and of all jobs that share its run."""
        found = [own]
        for name in self._sharers.get(uid, ()) if levels else ():
            found += self._names_of(self._uids.get(name, ""), name, levels - 1)
        return found

    def _count_gangs(self, name: _Name) -> None:
        """Count the gangs that were reported before their job."""
        job = self._job_named(name)
        if job is not None and not job.outcome:
            for uid, hold in self._holds.get(name, {}).items():
                job.gpu_time.put(uid, hold, time.time())

    def _job_of(self, body: Json) -> TrackedJob | None:
        """Return the job with the run of a job."""
        return self._root(body["metadata"]["uid"], body["metadata"]["namespace"])

    def _job_named(self, name: _Name) -> TrackedJob | None:
        return self._root(self._uids.get(name, ""), name[1])

    def _root(self, uid: str, namespace: str) -> TrackedJob | None:
        """Follow owners to the job with the run; an owner of another namespace is none."""
        for _ in range(_LEVELS):
            job = self._jobs.get(uid)
            if job is not None:
                return job if job.ref.namespace == namespace else None
            shared = self._shared.get(uid)
            if shared is None:
                return None
            uid = shared.owner
        return None

    def _writer(self, job: TrackedJob) -> RunWriter | None:
        return self._writers[job.target.server] if job.target is not None else None

    def _wake(self, job: TrackedJob) -> None:
        writer = self._writer(job)
        if writer is None and job.refusal:
            writer = self._main  # it reports why the job has no run
        if writer is not None:
            writer.wake(job)


def _servers(config: TrackingConfig) -> list[TrackingServer]:
    """Return the server of the cluster, and those of namespaces."""
    settings = config.model_copy(update={"jobs": "all"})
    every = {"": NamespaceTracking(), **config.namespaces}
    enabled = {name: own.model_copy(update={"enabled": True}) for name, own in every.items()}
    settings = settings.model_copy(update={"namespaces": enabled})
    targets = (target_of(settings, name, {}) for name in enabled)
    return list(dict.fromkeys(target.server for target in targets if target is not None))


def _owner(metadata: Json) -> Json:
    """Return the owner reference of an object's controller, or an empty one."""
    owners = metadata.get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})
