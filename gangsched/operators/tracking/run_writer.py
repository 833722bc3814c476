"""Brings the runs of jobs on one server up to date, and tries again after failures.

    no run -> found by the tag with the job's uid, or created -> tags, status, link

A failure of the server never reaches a controller: it is recorded, and the job goes on without.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from gangsched.api import names
from gangsched.jobs import tracking
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Forbidden, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.kube.status.events import post_event
from gangsched.operators.api_objects import collection
from gangsched.operators.tracking.mlflow_api import FoundRun, MlflowApi, TrackingError
from gangsched.operators.tracking.patience import Patience
from gangsched.operators.tracking.targets import TrackingServer
from gangsched.operators.tracking.tracked_job import TrackedJob
from gangsched.operators.work_queue import Key, WorkQueue

log = logging.getLogger(__name__)

_EXPERIMENTS_KEPT = 1_000
_PARENT_S, _PARENT_TRIES = 0.5, 20
"""How often the run of a trial waits until its experiment is seen, before it is no nested run."""

_AFTER_S = 0.05
"""Added to a delay, so that the awaited moment has passed."""

_LATE = "TrackingLate"
_REFUSED = "TrackingRefused"


class RunWriter:
    """Writes the runs of one server; `find` returns the record of a job by its uid."""

    def __init__(
        self,
        server: TrackingServer,
        client: KubeClient,
        patience: Patience,
        find: Callable[[str], TrackedJob | None],
        drop: Callable[[TrackedJob], None],
    ) -> None:
        """`drop` is called with a job that needs no record any more."""
        self.server, self.patience = server, patience
        self.work = WorkQueue(self._step)
        self._client, self._find, self._drop = client, find, drop
        self._api: MlflowApi | None = None
        self._experiments: OrderedDict[str, str] = OrderedDict()
        self._fails = self._is_denied = False
        self._held: set[str] = set()
        self._called: dict[str, TrackedJob] = {}
        self._parent_tries: dict[str, int] = {}

    async def run(self, api: MlflowApi) -> None:
        """Work until cancelled."""
        self._api = api
        await self.work.run()

    def wake(self, job: TrackedJob) -> None:
        """Work soon on the run of a job."""
        self.work.wake((job.ref.namespace, job.ref.uid))

    def hold(self, job: TrackedJob, wake: Callable[[], None]) -> float:
        """Return how many seconds the pods of a job wait for its run; 0: they start now.

        `wake` is called when that changes.
        """
        if job.run_id or job.target is None or job.starts_without:
            return 0.0
        left_s = self.patience.left_s(job.deadline_s)
        if left_s > 0:
            job.waiting.append(wake)
            self._held.add(job.ref.uid)
            return left_s
        now_s, long_s = time.monotonic(), self.patience.wait_s / 2
        if any(called.is_called_for(now_s, long_s) for called in self._called.values()):
            self.patience.lost()  # the server is slow, and not the queue of this namespace
            self._release()
        job.starts_without = True
        return 0.0

    # -- steps --------------------------------------------------------------------------------

    async def _step(self, key: Key) -> None:
        job = self._find(key[1])
        now_s = time.monotonic()
        if job is None or job.is_given_up or now_s < job.retry_at_s:
            return
        job.called_s = now_s
        try:
            if job.refusal:
                await self._report(job, _REFUSED, job.refusal)
                job.refusal = ""
            elif job.has_changes:
                self._called[key[1]] = job
                await self._update(job, key)
        except TrackingError as error:
            await self._failed(job, key, error)
        except KubeError as error:
            log.debug("%s/%s: its run cannot be shown: %s", *key, error)
            self.work.later(key, job.failed(time.monotonic()) + _AFTER_S)
        finally:
            job.called_s = None
            self._called.pop(key[1], None)
        if job.is_gone and (job.is_given_up or not job.has_changes):
            self._drop(job)

    async def _update(self, job: TrackedJob, key: Key) -> None:
        if not job.run_id and not await self._give_run(job, key):
            return
        if job.starts_without and not job.reported:
            message = "pods started before the run existed; pods that start later log to it"
            await self._report(job, _LATE, message)
        changed = job.changed_tags()
        if changed:
            await self._server().set_tags(job.run_id, changed)
            job.stored_tags |= changed
        if job.ended_as != job.outcome:
            await self._set_status(job)
        self._answered(job)
        if not job.is_gone:
            await self._announce(job)
        if job.has_changes:
            self.work.wake(key)

    async def _set_status(self, job: TrackedJob) -> None:
        outcome, api = job.outcome, self._server()
        if not outcome:
            await api.update_run(job.run_id, "RUNNING")
        else:
            if job.unsure:
                await self._choose(job, await api.runs_of(job.experiment_id, job.ref.uid))
                job.unsure = False
            await api.update_run(job.run_id, tracking.run_status(outcome), time.time())
        job.ended_as = outcome

    async def _give_run(self, job: TrackedJob, key: Key) -> bool:
        """Find or create the run of a job; return whether it has one now."""
        parent_run = ""
        if job.parent:
            parent = self._find(job.parent)
            tries = self._parent_tries.get(job.ref.uid, 0)
            if parent is None and tries < _PARENT_TRIES:
                self._parent_tries[job.ref.uid] = tries + 1
                self.work.later(key, _PARENT_S)
                return False
            self._parent_tries.pop(job.ref.uid, None)
            if parent is not None:
                job.target = parent.target
                if job.target is None:
                    job.call_waiting()
                    return False
                if not parent.run_id:
                    parent.waiting.append(lambda: self.work.wake(key))
                    return False
                parent_run = parent.run_id
        api = self._server()
        job.experiment_id = await self._experiment(job)
        runs = await api.runs_of(job.experiment_id, job.ref.uid)
        if runs:
            await self._choose(job, runs)
        elif job.is_gone:
            job.target = None
            return False
        else:
            await self._create(job, parent_run)
        if job.is_called_for(time.monotonic(), self.patience.wait_s):
            self.patience.lost()
        self._held.discard(job.ref.uid)
        job.call_waiting()
        return True

    async def _create(self, job: TrackedJob, parent_run: str) -> None:
        tags = job.first_tags(parent_run)
        try:
            run = await self._server().create_run(
                job.experiment_id, job.ref.name, job.created_s, tags
            )
        except TrackingError as error:
            job.unsure = job.unsure or not error.is_refusal
            if error.code == "RESOURCE_DOES_NOT_EXIST":
                self._experiments.clear()  # the experiment was deleted
            raise
        job.run_id = run.id
        job.stored_tags |= tags

    async def _choose(self, job: TrackedJob, runs: list[FoundRun]) -> None:
        """Take one run of a job, and delete those that calls without an answer created."""
        known = job.run_id or job.known_run
        chosen = next((run for run in runs if run.id == known), None)
        if chosen is None:
            if job.run_id:
                return  # the run is not listed any more: its user has changed it
            chosen = runs[0]
            job.restore(chosen)
        elif not job.run_id:
            job.restore(chosen)
        for run in runs:
            if run is not chosen:
                await self._server().delete_run(run.id)

    async def _experiment(self, job: TrackedJob) -> str:
        name = job.target.experiment if job.target is not None else ""
        known = self._experiments.get(name)
        if known is None:
            known = self._experiments[name] = await self._server().experiment(name)
        self._experiments.move_to_end(name)
        if len(self._experiments) > _EXPERIMENTS_KEPT:
            self._experiments.popitem(last=False)
        return known

    # -- failures -----------------------------------------------------------------------------

    async def _failed(self, job: TrackedJob, key: Key, error: TrackingError) -> None:
        self.work.later(key, job.failed(time.monotonic()) + _AFTER_S)
        if error.is_refusal:
            job.deadline_s = 0.0  # the other jobs still wait for their runs
        else:
            if not self._fails:
                log.warning(
                    "tracking server %s: %s; jobs start without runs until it answers",
                    self.server.uri,
                    error,
                )
            self._fails = True
            self.patience.lost()
            self._release()
        job.call_waiting()
        if not job.run_id and not job.reported and not job.is_gone:
            message = f"the job has no run on the tracking server yet: {error}; gangsched retries"
            with suppress(KubeError):
                await self._report(job, _LATE, message)

    def _answered(self, job: TrackedJob) -> None:
        job.failures = 0
        if self._fails:
            log.info("tracking server %s answers again", self.server.uri)
        self._fails = False

    def _release(self) -> None:
        """Let all pods start that wait for a run of this server."""
        held, self._held = self._held, set()
        for uid in held:
            job = self._find(uid)
            if job is not None:
                job.call_waiting()

    # -- what users see -----------------------------------------------------------------------

    def _link(self, job: TrackedJob) -> str:
        return f"{self.server.ui_uri}/#/experiments/{job.experiment_id}/runs/{job.run_id}"

    async def _announce(self, job: TrackedJob) -> None:
        """Write the address of the run, and the outcome that it has, on the job."""
        wanted: dict[str, str | None] = {}
        if job.announced != self._link(job):
            wanted[names.RUN_ANNOTATION] = self._link(job)
        if job.announced_outcome != job.ended_as:
            wanted[names.RUN_OUTCOME_ANNOTATION] = job.ended_as or None
        if not wanted:
            return
        ref, ended_as = job.ref, job.ended_as
        path = object_path(collection(ref.api_version, ref.kind, ref.namespace), ref.name)
        body = {"metadata": {"uid": ref.uid, "annotations": wanted}}
        try:
            await self._client.patch(path, body)
        except (NotFound, Conflict):
            pass  # it was deleted
        except Forbidden as error:
            if not self._is_denied:
                log.warning("runs are not shown on jobs; apply manifests/tracking: %s", error)
            self._is_denied = True
        job.announced, job.announced_outcome = self._link(job), ended_as

    async def _report(self, job: TrackedJob, reason: str, message: str) -> None:
        job.reported = True
        await post_event(self._client, job.ref, "Warning", reason, message)

    def _server(self) -> MlflowApi:
        if self._api is None:
            raise RuntimeError("call run() first")
        return self._api
