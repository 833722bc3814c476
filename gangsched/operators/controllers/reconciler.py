"""The controller of one kind of owner, apart from the watches that report to it.

    watches -> OwnedObjects -> family: decide, then write by ApiWriter -> OwnedObjects

One owner is worked on by one task at a time. What was just written counts as existing until the
watch shows it, so that a late cache never creates an object twice.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from gangsched.jobs.common.model import Intent, JobEvent, Json
from gangsched.kube.client.client import KubeClient
from gangsched.operators.api_objects import clock, is_same_object, subject_of
from gangsched.operators.controllers.api_writer import ApiWriter
from gangsched.operators.controllers.job_observer import JobObserver
from gangsched.operators.controllers.owned_objects import OwnedObjects, RecordT
from gangsched.operators.controllers.preflight import preflight
from gangsched.operators.job_kind import BlockedError, InvalidJobError, RejectedError
from gangsched.operators.work_queue import Key, WorkQueue

_AFTER_S = 0.05
"""Added to a delay, so that the awaited moment has passed."""

_GROUP = "PodGroup"


@dataclass(frozen=True, slots=True)
class ReconcileStep(Generic[RecordT]):
    """One step of one owner: its state when the step began, and what the step writes with.

    `wake` requests another step soon.
    """

    body: Json
    owned: OwnedObjects[RecordT]
    record: RecordT
    writer: ApiWriter
    wake: Callable[[], None]

    @property
    def uid(self) -> str:
        """Return the owner's uid."""
        return self.writer.owner.uid

    @property
    def is_current(self) -> bool:
        """Return whether the owner is still there, as far as is known."""
        return self.owned.body is not None and is_same_object(self.owned.body, self.body)

    async def preflight(self, intents: Sequence[Intent]) -> None:
        """Return if all intended objects can be created now; else report why not.

        Raises:
            BlockedError: they cannot be created now.
            RejectedError: they cannot be created until the owner is changed.

        """
        try:
            await preflight(self.writer.client, self.writer.owner, intents)
        except BlockedError as error:
            await self.writer.emit(JobEvent("Warning", "FailedCreatePod", str(error)))
            raise


class Kind(Protocol):
    """The names of a kind in the API."""

    @property
    def api_version(self) -> str:
        """Return group and version."""

    @property
    def kind(self) -> str:
        """Return the kind."""

    @property
    def plural(self) -> str:
        """Return the kind as paths have it."""


class Family(Protocol[RecordT]):
    """How the owners of one kind are run: their parts, their step, their rejection."""

    names_failed: bool
    """Whether the Event of a failed creation names the object."""

    @property
    def kind(self) -> Kind:
        """Return the kind of the owners."""

    @property
    def part_kinds(self) -> frozenset[str]:
        """Return the kinds of their parts."""

    def new_record(self) -> RecordT:
        """Return the record of an owner that was not seen before."""

    def runs(self, body: Json) -> bool:
        """Return whether an owner is run here, and not by another controller."""

    def may_create(self, body: Json) -> bool:
        """Return whether a step may create parts: then the owner has to exist."""

    async def step(self, step: ReconcileStep[RecordT]) -> float | None:
        """Do what an owner needs now; return in how many seconds to do so again, if at all.

        Raises:
            InvalidJobError, RejectedError: it cannot run as it is written.
            KubeError: the step is tried again.

        """

    def reject(self, status: Json, message: str, now: str) -> str:
        """Write into a status that the owner cannot run as it is written.

        Return the reason, or nothing if the status has that rejection already.
        """


class Reconciler(Generic[RecordT]):
    """The controller of one kind, apart from how it is informed of changes."""

    def __init__(
        self, client: KubeClient, family: Family[RecordT], observer: JobObserver | None = None
    ) -> None:
        """Report the states of the owners to `observer`, which counts them."""
        self.family = family
        self._observer = observer
        self._client = client
        self._objects: dict[Key, OwnedObjects[RecordT]] = {}
        self._work = WorkQueue(self._step)

    @property
    def kind(self) -> Kind:
        """Return the kind of the owners."""
        return self.family.kind

    @property
    def part_kinds(self) -> frozenset[str]:
        """Return which kinds of parts have to be watched."""
        return self.family.part_kinds

    # -- what the watches report --------------------------------------------------------------

    def job_seen(self, body: Json) -> None:
        """Record the newest state of an owner."""
        key = _key(body)
        owned = self._known(key)
        before = owned.body
        owned.owner_seen(body)
        if before is not None and not is_same_object(before, body):
            self._report_gone(before)
        self._report(owned.body)
        self._work.wake(key)

    def job_gone(self, body: Json) -> None:
        """Forget an owner; the garbage collector deletes what it owns."""
        key = _key(body)
        if key in self._objects:
            self._objects[key].owner_gone(body)
            self._drop_empty(key)
        self._report_gone(body)

    def part_seen(self, kind: str, body: Json, owner: str) -> None:
        """Record the newest state of a part."""
        key = (body["metadata"]["namespace"], owner)
        self._known(key).part_seen((kind, body["metadata"]["name"]), body)
        if kind == _GROUP and self._observer is not None:
            self._observer.group_seen(self.kind.kind, owner, body)
        self._work.wake(key)

    def part_gone(self, kind: str, body: Json, owner: str) -> None:
        """Record the deletion of a part."""
        key, metadata = (body["metadata"]["namespace"], owner), body["metadata"]
        if key in self._objects:
            self._objects[key].part_gone((kind, metadata["name"]), metadata["uid"])
            self._drop_empty(key)
            self._work.wake(key)
        if kind == _GROUP and self._observer is not None:
            self._observer.group_gone(body)

    def _report(self, body: Json | None) -> None:
        """Have the state of an owner counted."""
        if body is not None and self._observer is not None and self.family.runs(body):
            self._observer.seen(self.kind.kind, body)

    def _report_gone(self, body: Json) -> None:
        if self._observer is not None:
            self._observer.gone(self.kind.kind, body)

    def wake_all(self, namespace: str) -> None:
        """Work soon on every owner of a namespace, or on all of them if it is empty."""
        for key in self._objects:
            if namespace in ("", key[0]):
                self._work.wake(key)

    def _known(self, key: Key) -> OwnedObjects[RecordT]:
        known = self._objects.get(key)
        if known is None:
            known = self._objects[key] = OwnedObjects(self.family.new_record)
        return known

    def _drop_empty(self, key: Key) -> None:
        if self._objects[key].is_empty:
            del self._objects[key]

    # -- work ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    async def _step(self, key: Key) -> None:
        owned = self._objects.get(key)
        if owned is None or owned.body is None:
            return
        body = owned.body
        owned.deleted_uids.clear()
        if body["metadata"].get("deletionTimestamp") or not self.family.runs(body):
            return
        step = self._begun(key, owned, body)
        if owned.owner_unverified and self.family.may_create(body):
            if not await step.writer.owner_exists():
                self.job_gone(body)
                return
            owned.owner_unverified = bool(owned.deleted_uids)  # more were deleted meanwhile
            if not step.is_current:
                return  # a successor took its name meanwhile
        try:
            requeue_in_s = await self.family.step(step)
        except (InvalidJobError, RejectedError) as error:
            await self._reject(step, str(error))
            return
        finally:
            self._report(owned.body)
        if requeue_in_s is not None:
            self._work.later(key, requeue_in_s + _AFTER_S)

    def _begun(self, key: Key, owned: OwnedObjects[RecordT], body: Json) -> ReconcileStep[RecordT]:
        owner = subject_of(body, self.kind.api_version, self.kind.kind)
        writer = ApiWriter(self._client, owned, owner, names_failed=self.family.names_failed)
        return ReconcileStep(body, owned, owned.record, writer, lambda: self._work.wake(key))

    async def _reject(self, step: ReconcileStep[RecordT], message: str) -> None:
        """Write on an owner what is wrong with it, unless another took its name meanwhile."""
        body = step.owned.body
        if body is None or not step.is_current:
            return
        before: Json = body.get("status") or {}
        status = copy.deepcopy(before)
        reason = self.family.reject(status, message, clock().now)
        if reason and await step.writer.write_status(before, status):
            self._report(step.owned.body)
            await step.writer.emit(JobEvent("Warning", reason, message))


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
