"""Jobs of kubeflow.org/v1: they own pods, the Services of pods, and a PodGroup.

The reconcile of such jobs reads pods one by one, and returns what to create and to delete.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from gangsched.config import RUN_VARIABLES
from gangsched.jobs.common import conditions, waiting
from gangsched.jobs.common.model import (
    GROUP_VERSION,
    Actions,
    JobEvent,
    Json,
    Observed,
    PodView,
    TrainingJob,
    with_answers,
)
from gangsched.jobs.common.owned_objects import is_terminating
from gangsched.jobs.common.templates import is_contained
from gangsched.jobs.kubeflow.framework import Framework
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, NotFound
from gangsched.operators.api_objects import NO_ENV, clock, managed_elsewhere, owner_uid, with_env
from gangsched.operators.controllers.job_record import JobRecord
from gangsched.operators.controllers.reconciler import Reconciler, ReconcileStep
from gangsched.operators.job_kind import BlockedError
from gangsched.operators.kinds.ssh_keys import with_ssh_key_pair
from gangsched.operators.kinds.training_job import parse, parse_pod_view
from gangsched.operators.tracking.run_tracker import RunTracker
from gangsched.operators.work_queue import gather_all

_CONTENT = ("data", "rules", "subjects", "spec")
"""Fields of a job's documents that are restored if they differ."""

_CREATIONS_AT_ONCE = 16


class PodJobs:
    """Runs the jobs of one kind by the description of their framework."""

    names_failed = False
    part_kinds = frozenset({"Pod", "Service", "PodGroup"})

    def __init__(
        self,
        scheduler: str,
        kind: Framework,
        env: Mapping[str, str] = NO_ENV,
        aliases: Sequence[str] = (),
        tracker: RunTracker | None = None,
    ) -> None:
        """Add `env`, and the job's run, to all containers.

        `aliases` are other names that the scheduler serves.
        """
        self.kind = kind
        self._env, self._tracker = env, tracker
        self._scheduler, self._aliases = scheduler, aliases
        self._slots = asyncio.Semaphore(_CREATIONS_AT_ONCE)

    def new_record(self) -> JobRecord:
        """Return the record of a job that was not seen before."""
        return JobRecord(self.kind.specs)

    def runs(self, body: Json) -> bool:
        """Return whether a job is run here, and not by another controller (KEP-693)."""
        return not managed_elsewhere(body)

    def may_create(self, body: Json) -> bool:
        """Return whether a step may create pods: not once the job is over."""
        return not conditions.is_finished(body.get("status") or {})

    async def step(self, step: ReconcileStep[JobRecord]) -> float | None:
        """Take the actions that a job needs now."""
        record = step.record
        job = parse(step.body, self._scheduler, self.kind.kind, self._aliases)
        vanished = tuple(record.vanished)
        terminating = frozenset(
            part["metadata"]["uid"]
            for (kind, _), part in step.owned.parts.items()
            if kind == "Pod" and is_terminating(part)
        )
        actions = reconcile(job, self._observed(step, job, vanished), clock())
        self._hold_pods(step, actions)
        await self._carry_out(step, job, actions)
        del record.vanished[: len(vanished)]
        record.handled_terminations = terminating
        return actions.requeue_in_s

    def _hold_pods(self, step: ReconcileStep[JobRecord], actions: Actions) -> None:
        """Let new pods wait a moment for the run of their job."""
        if self._tracker is None or not actions.create_pods:
            return
        held_s = self._tracker.hold_s(step.body, step.wake)
        if held_s > 0:
            actions.create_pods = []
            known_s = actions.requeue_in_s
            actions.requeue_in_s = held_s if known_s is None else min(held_s, known_s)

    def reject(self, status: Json, message: str, now: str) -> str:
        """Write the condition Failed; a job that is over stays as it is."""
        if conditions.is_finished(status):
            return ""
        reason = f"{self.kind.kind}FailedValidation"
        conditions.put(status, "Failed", reason, message, now)
        return reason

    def _observed(
        self, step: ReconcileStep[JobRecord], job: TrainingJob, vanished: tuple[Json, ...]
    ) -> Observed:
        def view(pod: Json) -> PodView:
            return parse_pod_view(pod, self.kind.main_container(pod["spec"])["name"])

        own, record = step.owned.parts_of(job.uid), step.record
        pods = (view(part) for (kind, _), part in own.items() if kind == "Pod")
        group = own.get(("PodGroup", job.name))
        return Observed(
            vanished=tuple(view(pod) for pod in vanished if owner_uid(pod) == job.uid),
            pods=with_answers(pods),
            services=frozenset(name for kind, name in own if kind == "Service"),
            group=waiting.parse_group_view(group) if group is not None else None,
            wait_reason=record.wait_reason,
            handled_terminations=record.handled_terminations.union(record.requested_deletions),
            has_predecessor=any(
                kind == "Pod" and owner_uid(part) != job.uid
                for (kind, _), part in step.owned.parts.items()
            ),
        )

    # -- writes -------------------------------------------------------------------------------

    async def _carry_out(
        self, step: ReconcileStep[JobRecord], job: TrainingJob, actions: Actions
    ) -> None:
        writer, record = step.writer, step.record
        if actions.status is not None:
            await writer.write_status(step.body.get("status") or {}, actions.status)
        for event in (*actions.events, *record.edits()):
            await writer.emit(event)
        # Before its pods: otherwise the gang would seem to lose them.
        if actions.delete_group and await writer.delete_part(GROUP_VERSION, ("PodGroup", job.name)):
            message = f"Deleted PodGroup: {job.name}"
            await writer.emit(JobEvent("Normal", "SuccessfulDeletePodGroup", message))
        await self._delete_pods(step, actions)
        for name in actions.delete_services:
            record.documents.pop(("Service", name), None)
            await writer.delete_part("v1", ("Service", name))
        for document in actions.drop:
            await self._drop(step, document)
        if actions.put_group is not None:
            await self._put_group(step, actions.put_group, actions)
        await self._create(step, actions)
        if actions.delete_job:
            await writer.delete_owner()

    async def _delete_pods(self, step: ReconcileStep[JobRecord], actions: Actions) -> None:
        writer = step.writer
        uids = {pod.uid for pod in actions.delete_pods}
        step.record.requested_deletions |= uids - step.owned.deleted_uids
        for pod in actions.delete_pods:
            await writer.delete("v1", ("Pod", pod.name), pod.uid)
            message = f"Deleted pod: {pod.name}"
            await writer.emit(JobEvent("Normal", "SuccessfulDeletePod", message))
        for pod in actions.stop_pods:
            # A deleted pod loses its log; a deadline ends a pod and keeps it.
            change: Json = {"spec": {"activeDeadlineSeconds": 1}}
            with contextlib.suppress(NotFound, Conflict):
                await writer.patch("v1", ("Pod", pod.name), pod.uid, change)
            message = f"Stopped pod: {pod.name}: the job is over"
            await writer.emit(JobEvent("Normal", "StoppedPod", message))

    async def _create(self, step: ReconcileStep[JobRecord], actions: Actions) -> None:
        for document in actions.documents:
            await self._ensure(step, document)

        run = self._tracker.variables(step.body) if self._tracker is not None else {}

        async def create(document: Json) -> None:
            async with self._slots:
                tracked = with_env(document, run, RUN_VARIABLES)
                await step.writer.create_part(with_env(tracked, self._env))

        await gather_all(create(service) for service in actions.create_services)
        await gather_all(create(pod) for pod in actions.create_pods)
        count = len(actions.create_pods)
        if count:  # one Event a batch: one a pod would double the writes
            names = [pod["metadata"]["name"] for pod in actions.create_pods]
            shown = ", ".join(names[:4]) + (f" and {count - 4} more" if count > 4 else "")
            event = JobEvent("Normal", "SuccessfulCreatePod", f"Created pod: {shown}")
            await step.writer.emit(event)

    async def _put_group(
        self, step: ReconcileStep[JobRecord], group: Json, actions: Actions
    ) -> None:
        ref = ("PodGroup", step.writer.owner.name)
        if ref in step.owned.parts_of(step.uid):
            await step.writer.patch_part(GROUP_VERSION, ref, {"spec": group["spec"]})
            return
        try:
            await step.preflight(actions.intents)
        except BlockedError as error:
            if step.record.wait_reason != str(error):
                step.record.wait_reason = str(error)
                step.wake()  # to write it into the job's status
            raise
        step.record.wait_reason = ""
        await step.writer.create_part(group)

    async def _ensure(self, step: ReconcileStep[JobRecord], document: Json) -> None:
        """Create an object that pods need, or restore its content."""
        ref = document["kind"], document["metadata"]["name"]
        if step.record.documents.get(ref) == document:
            return
        current = await step.writer.create(with_ssh_key_pair(document))
        content = {part: document[part] for part in _CONTENT if part in document}
        if not is_contained(content, current):
            uid = current["metadata"]["uid"]
            await step.writer.patch(document["apiVersion"], ref, uid, content)
        step.record.documents[ref] = document
        step.record.removed_documents.discard(ref)

    async def _drop(self, step: ReconcileStep[JobRecord], document: Json) -> None:
        """Delete one of the job's documents, if it exists and belongs to the job."""
        version, ref = document["apiVersion"], (document["kind"], document["metadata"]["name"])
        if ref in step.record.removed_documents:
            return
        with contextlib.suppress(NotFound):
            current = await step.writer.read(version, ref)
            if owner_uid(current) == step.uid:
                await step.writer.delete(version, ref, current["metadata"]["uid"])
        step.record.documents.pop(ref, None)
        step.record.removed_documents.add(ref)


def job_controller(
    client: KubeClient,
    scheduler: str,
    kind: Framework,
    env: Mapping[str, str] = NO_ENV,
    aliases: Sequence[str] = (),
) -> Reconciler[JobRecord]:
    """Return the controller of one kind of job."""
    return Reconciler(client, PodJobs(scheduler, kind, env, aliases))
