"""The controller of kinds whose parts are objects of any kind: JobSets, TrainJobs.

It keeps what the watches know of an owner and its parts, calls the kind's reconcile, and carries
its steps out. What it did itself counts at once, until the watch shows it.
"""

import contextlib
import logging
from collections.abc import Mapping

import msgspec

from gangsched.api import keys
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Owned, Ref, Steps, condition, set_condition
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.paths import named
from gangsched.kube.status.events import ObjectRef, post_event
from gangsched.operators.api_objects import (
    NO_ENV,
    clock,
    collection,
    lives,
    only,
    owned_by,
    owner_name,
    owner_uid,
    remove,
    same,
    subject_of,
    with_env,
)
from gangsched.operators.controllers.owned_objects import NoRecord, OwnedObjects
from gangsched.operators.controllers.preflight import precheck
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind, RejectedError
from gangsched.operators.work_queue import Key, WorkQueue

log = logging.getLogger(__name__)

_REJECTED = "FailedValidation"
_FOREGROUND = ("Job", "JobSet")
"""Kinds whose successor of the same name may only come when their own parts are gone."""


Cache = OwnedObjects[NoRecord]


class OwnerController:
    """The controller of one kind, apart from how it hears of changes."""

    def __init__(
        self, client: KubeClient, kind: OwnerKind, env: Mapping[str, str] = NO_ENV
    ) -> None:
        """`env` is told to every container that does not have it."""
        self.kind = kind
        self._env = env
        self._client = client
        self._objects: dict[Key, Cache] = {}
        self._work = WorkQueue(self._step)
        self._versions = {kind: version for version, kind in kind.parts}
        self.part_kinds = frozenset(self._versions)

    # -- what happened ------------------------------------------------------------------------

    def job_seen(self, body: Json) -> None:
        """Record an owner's newest state."""
        self._cache(_key(body)).owner_seen(body)
        self._work.wake(_key(body))

    def job_gone(self, body: Json) -> None:
        """Forget an owner; what it owns is deleted by the garbage collector."""
        key = _key(body)
        if key in self._objects:
            self._objects[key].owner_gone(body)
            self._drop_empty(key)

    def part_seen(self, kind: str, body: Json, owner: str) -> None:
        """Record the newest state of a part."""
        key = (body["metadata"]["namespace"], owner)
        self._cache(key).part_seen((kind, body["metadata"]["name"]), body)
        self._work.wake(key)

    def part_gone(self, kind: str, body: Json, owner: str) -> None:
        """Record the deletion of a part."""
        key, metadata = (body["metadata"]["namespace"], owner), body["metadata"]
        if key in self._objects:
            self._objects[key].part_gone((kind, metadata["name"]), metadata["uid"])
            self._drop_empty(key)
            self._work.wake(key)

    def _cache(self, key: Key) -> Cache:
        known = self._objects.get(key)
        if known is None:
            known = self._objects[key] = OwnedObjects(NoRecord)
        return known

    def _drop_empty(self, key: Key) -> None:
        if self._objects[key].is_empty:
            del self._objects[key]

    def wake_all(self, namespace: str) -> None:
        """Look soon at every owner of a namespace, of all of them if it is empty."""
        for key in self._objects:
            if namespace in ("", key[0]):
                self._work.wake(key)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    # -- work ---------------------------------------------------------------------------------

    async def _step(self, key: Key) -> None:
        cache = self._objects.get(key)
        if cache is None or cache.body is None or cache.body["metadata"].get("deletionTimestamp"):
            return
        body = cache.body
        cache.deleted_uids.clear()
        uid = body["metadata"]["uid"]
        subject = subject_of(body, self.kind.api_version, self.kind.kind)
        if cache.owner_unverified:
            if not await lives(self._client, self._own_path(subject), uid):
                self.job_gone(body)
                return
            cache.owner_unverified = bool(cache.deleted_uids)  # more went while it was asked
        parts = cache.parts_of(uid)
        mended = _without_rejection(body)
        try:
            steps = await self._decide(Owned(mended, parts))
        except InvalidJobError as error:
            await self._reject(cache, subject, str(error))
            return
        except BlockedError as error:
            await self._tell(cache, subject, JobEvent("Warning", "NotEvaluated", str(error)))
            raise
        if cache.body is None or not same(cache.body, body):
            return  # a successor took its name meanwhile
        if mended is not body and steps.status is None:
            steps.status = mended["status"]
        if wrong := _misspelt(body):
            await self._tell(cache, subject, JobEvent("Warning", keys.REASON, wrong, wrong))
        await self._carry_out(cache, subject, steps)
        if steps.again_in_s is not None:
            self._work.later(key, steps.again_in_s + 0.05)

    async def _decide(self, owned: Owned) -> Steps:
        if self.kind.look is not None:
            owned = await self.kind.look(self._client, owned)
        return self.kind.step(owned, clock())

    async def _carry_out(self, cache: Cache, subject: ObjectRef, steps: Steps) -> None:
        if steps.status is not None:
            await self._write_status(cache, subject, steps.status)
        for event in steps.events:
            await self._tell(cache, subject, event)
        for kind, name in steps.delete:
            await self._delete(cache, subject, (kind, name))
        try:
            await precheck(self._client, subject, steps.intents)
        except RejectedError as error:
            await self._reject(cache, subject, str(error))
            return
        except BlockedError as error:
            await self._tell(cache, subject, JobEvent("Warning", "FailedCreatePod", str(error)))
            raise
        for document in steps.create:
            wanted = with_env(document, self._env)
            await self._create(cache, subject, owned_by(wanted, subject))
        for document in steps.unowned:
            metadata = document["metadata"] | {"namespace": subject.namespace}
            with contextlib.suppress(Conflict):
                path = collection(document["apiVersion"], document["kind"], subject.namespace)
                await self._client.create(path, document | {"metadata": metadata})
        for (kind, name), body in steps.patch:
            path = collection(self._versions[kind], kind, subject.namespace)
            known = cache.parts.get((kind, name))
            if known is not None:
                change = body | {"metadata": body.get("metadata", {}) | only(known)["metadata"]}
                made = msgspec.json.decode(await self._client.patch(named(path, name), change))
                cache.merge_answer((kind, name), made)
        if steps.delete_owner:
            await remove(self._client, self._own_path(subject), subject.uid, "Background")

    def _own_path(self, subject: ObjectRef) -> str:
        path = collection(self.kind.api_version, self.kind.kind, subject.namespace)
        return named(path, subject.name)

    async def _create(self, cache: Cache, subject: ObjectRef, document: Json) -> None:
        kind, name = document["kind"], document["metadata"]["name"]
        path = collection(document["apiVersion"], kind, subject.namespace)
        try:
            made = msgspec.json.decode(await self._client.create(path, document))
        except Conflict:
            made = msgspec.json.decode(await self._client.get(named(path, name)))
            if owner_uid(made) != subject.uid:
                await self._taken(cache, subject, made, f"{kind} {name}")
                raise
        except KubeError as error:
            message = f"Error creating {kind} {name}: {error}"
            await self._tell(cache, subject, JobEvent("Warning", f"FailedCreate{kind}", message))
            raise
        cache.merge_answer((kind, name), made)

    async def _taken(self, cache: Cache, subject: ObjectRef, made: Json, what: str) -> None:
        """Say whose a name is; an earlier owner's of our own name goes by itself."""
        whose = owner_name(made)
        if whose != f"{subject.kind} {subject.name}":
            message = f"{what} exists and belongs to {whose}; give this job another name"
            await self._tell(cache, subject, JobEvent("Warning", "NameTaken", message))

    async def _delete(self, cache: Cache, subject: ObjectRef, ref: Ref) -> None:
        kind, name = ref
        known = cache.parts.get(ref)
        if known is None:
            return
        uid = known["metadata"]["uid"]
        path = collection(self._versions[kind], kind, subject.namespace)
        policy = "Foreground" if kind in _FOREGROUND else "Background"
        await remove(self._client, named(path, name), uid, policy)
        if policy == "Background":
            cache.hide(ref, uid)
        elif (
            uid not in cache.deleted_uids
        ):  # it is there, and leaving, until the watch says otherwise
            stamp = {"deletionTimestamp": clock().now}
            cache.parts[ref] = known | {"metadata": known["metadata"] | stamp}

    async def _write_status(self, cache: Cache, subject: ObjectRef, status: Json) -> None:
        before = (cache.body or {}).get("status") or {}
        # A merge patch keeps keys that are absent: name those that have to go.
        absent = {key: None for key in before if key not in status}
        body = {"metadata": {"uid": subject.uid}, "status": status | absent}
        try:
            path = f"{self._own_path(subject)}/status"
            written = msgspec.json.decode(await self._client.patch(path, body))
        except NotFound:
            return
        cache.merge_owner_answer(written)

    async def _reject(self, cache: Cache, subject: ObjectRef, message: str) -> None:
        """Say on the object itself what is wrong with it."""
        body = cache.body or {}
        known = condition(body, "Failed")
        if known is not None and known["message"] == message:
            return
        status: Json = msgspec.json.decode(msgspec.json.encode(body.get("status") or {}))
        status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != "Failed"]
        set_condition(status, "Failed", _REJECTED, message, clock().now)
        await self._write_status(cache, subject, status)
        await self._tell(cache, subject, JobEvent("Warning", _REJECTED, message))

    async def _tell(self, cache: Cache, subject: ObjectRef, event: JobEvent) -> None:
        if cache.is_news(event):
            await post_event(self._client, subject, event.type, event.reason, event.message)


def _without_rejection(body: Json) -> Json:
    """Return an owner as it is once what was wrong with it has been mended."""
    status = body.get("status") or {}
    listed = status.get("conditions") or []
    kept = [one for one in listed if (one["type"], one.get("reason")) != ("Failed", _REJECTED)]
    if len(kept) == len(listed):
        return body
    return body | {"status": status | {"conditions": kept}}


def _misspelt(body: Json) -> str:
    """Return what means nothing of what is written on an owner; a part's owner is told instead."""
    metadata = body["metadata"]
    ended = any(condition(body, kind) for kind in ("Complete", "Completed", "Failed", "Succeeded"))
    if ended or any(one.get("controller") for one in metadata.get("ownerReferences") or []):
        return ""
    return keys.unknown(metadata.get("labels"), metadata.get("annotations"))


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
