"""Owners of objects of any kind: JobSets, TrainJobs, Experiments, Trials.

The kind's own reconcile reads an owner with its parts, and returns what to create, change and
delete.
"""

from collections.abc import Mapping
from contextlib import suppress

from gangsched.api import keys
from gangsched.config import RUN_VARIABLES
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Owned, Ref, Steps, set_condition, true_condition
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.operators.api_objects import NO_ENV, clock, with_env
from gangsched.operators.controllers.job_observer import JobObserver
from gangsched.operators.controllers.owned_objects import NoRecord
from gangsched.operators.controllers.reconciler import Reconciler, ReconcileStep
from gangsched.operators.job_kind import BlockedError, OwnerKind
from gangsched.operators.tracking.run_tracker import RunTracker

_REJECTED = "FailedValidation"
_WITH_PODS = ("Job", "Pod")
_FOREGROUND = ("Job", "JobSet")
"""Kinds that are deleted after their own parts, so that a successor never meets those."""


class ObjectTrees:
    """Runs the owners of one kind by the functions of that kind."""

    names_failed = True

    def __init__(
        self,
        kind: OwnerKind,
        env: Mapping[str, str] = NO_ENV,
        tracker: RunTracker | None = None,
    ) -> None:
        """`env`, and the owner's run, are added to every container that does not set them."""
        self.kind = kind
        self._env, self._tracker = env, tracker
        self._versions = {kind: version for version, kind in kind.parts}
        self.part_kinds = frozenset(self._versions)

    def new_record(self) -> NoRecord:
        """Return the record of an owner: nothing is recorded."""
        return NoRecord()

    def runs(self, body: Json) -> bool:
        """Return whether an owner is run here: its kind's reconcile decides."""
        del body
        return True

    def may_create(self, body: Json) -> bool:
        """Return whether a step may create parts; only the kind's reconcile decides that."""
        del body
        return True

    async def step(self, step: ReconcileStep[NoRecord]) -> float | None:
        """Take the actions that an owner needs now."""
        accepted = _without_rejection(step.body)
        try:
            steps = await self._decide(step, Owned(accepted, step.owned.parts_of(step.uid)))
        except BlockedError as error:
            await step.writer.emit(JobEvent("Warning", "NotEvaluated", str(error)))
            raise
        if not step.is_current:
            return None  # a successor took its name meanwhile
        if accepted is not step.body:
            if steps.status is None:
                steps.status = accepted["status"]
            with suppress(BlockedError):  # raises RejectedError before the status changes
                await step.preflight(steps.intents)
        if wrong := _unknown_keys(step.body):
            await step.writer.emit(JobEvent("Warning", keys.REASON, wrong, wrong))
        await self._carry_out(step, steps)
        return steps.requeue_in_s

    def reject(self, status: Json, message: str, now: str) -> str:
        """Write the condition Failed, in place of an earlier one with another message."""
        known = true_condition({"status": status}, "Failed")
        if known is not None and known["message"] == message:
            return ""
        status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != "Failed"]
        set_condition(status, "Failed", _REJECTED, message, now)
        return _REJECTED

    async def _decide(self, step: ReconcileStep[NoRecord], owned: Owned) -> Steps:
        if self.kind.read_unwatched is not None:
            owned = await self.kind.read_unwatched(step.writer.client, owned)
        return self.kind.step(owned, clock())

    async def _carry_out(self, step: ReconcileStep[NoRecord], steps: Steps) -> None:
        writer = step.writer
        if steps.status is not None:
            await writer.write_status(step.body.get("status") or {}, steps.status)
        for event in steps.events:
            await writer.emit(event)
        for ref in steps.delete:
            await self._delete(step, ref)
        await step.preflight(steps.intents)
        self._hold_pods(step, steps)
        run = self._tracker.variables(step.body) if self._tracker is not None else {}
        for document in steps.create:
            tracked = with_env(document, run, RUN_VARIABLES)
            await writer.create_part(with_env(tracked, self._env))
        for document in steps.unowned:
            await writer.create_unowned(document)
        for ref, change in steps.patch:
            await writer.patch_part(self._versions[ref[0]], ref, change)
        for ref, status in steps.patch_status:
            await writer.patch_part_status(self._versions[ref[0]], ref, status)
        for document in steps.companions:
            with suppress(KubeError):  # an Event says why; the next step tries again
                await writer.create_part(document)
        if steps.delete_owner:
            await writer.delete_owner()

    def _hold_pods(self, step: ReconcileStep[NoRecord], steps: Steps) -> None:
        """Let new objects with pods wait a moment for the run of their owner."""
        if self._tracker is None or not any(d["kind"] in _WITH_PODS for d in steps.create):
            return
        held_s = self._tracker.hold_s(step.body, step.wake)
        if held_s > 0:
            steps.create = [d for d in steps.create if d["kind"] not in _WITH_PODS]
            steps.requeue_in(held_s)

    async def _delete(self, step: ReconcileStep[NoRecord], ref: Ref) -> None:
        owned, known = step.owned, step.owned.parts.get(ref)
        if known is None:
            return
        uid = known["metadata"]["uid"]
        policy = "Foreground" if ref[0] in _FOREGROUND else "Background"
        await step.writer.delete(self._versions[ref[0]], ref, uid, policy)
        if policy == "Background":
            owned.hide(ref, uid)
        elif uid not in owned.deleted_uids:
            # It is terminating until the watch reports its deletion.
            stamp = {"deletionTimestamp": clock().now}
            owned.parts[ref] = known | {"metadata": known["metadata"] | stamp}


def tree_controller(
    client: KubeClient,
    kind: OwnerKind,
    env: Mapping[str, str] = NO_ENV,
    observer: JobObserver | None = None,
    tracker: RunTracker | None = None,
) -> Reconciler[NoRecord]:
    """Return the controller of one kind."""
    return Reconciler(client, ObjectTrees(kind, env, tracker), observer)


def _without_rejection(body: Json) -> Json:
    """Return an owner without the condition that rejected it."""
    status = body.get("status") or {}
    conditions = status.get("conditions") or []
    kept = [c for c in conditions if (c["type"], c.get("reason")) != ("Failed", _REJECTED)]
    if len(kept) == len(conditions):
        return body
    return body | {"status": status | {"conditions": kept}}


def _unknown_keys(body: Json) -> str:
    """Return a sentence about unknown keys of an owner; a part's are reported on its owner."""
    metadata = body["metadata"]
    ended = any(
        true_condition(body, kind) for kind in ("Complete", "Completed", "Failed", "Succeeded")
    )
    if ended or any(owner.get("controller") for owner in metadata.get("ownerReferences") or []):
        return ""
    return keys.unknown(metadata.get("labels"), metadata.get("annotations"))
