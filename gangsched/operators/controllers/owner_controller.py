"""The controller of kinds whose parts are objects of any kind: JobSets, TrainJobs.

It keeps what the watches know of an owner and its parts, calls the kind's reconcile, and carries
its steps out. What it did itself counts at once, until the watch shows it.
"""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    answered,
    clock,
    collection,
    lives,
    newer,
    only,
    owned_by,
    owner_name,
    owner_uid,
    remove,
    same,
    subject_of,
    with_env,
)
from gangsched.operators.controllers.preflight import precheck
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind, RejectedError
from gangsched.operators.work_queue import Key, WorkQueue

log = logging.getLogger(__name__)

_EVENTS_KEPT = 64
_REJECTED = "FailedValidation"
_FOREGROUND = ("Job", "JobSet")
"""Kinds whose successor of the same name may only come when their own parts are gone."""


@dataclass(slots=True)
class _Cache:
    """What is known of one owner.

    `gone` are parts that we deleted, and `went` those that went since the last look, by their uid.
    It is `doubted` once a part went: the owner may have gone itself, unheard of.
    """

    body: Json | None = None
    parts: dict[Ref, Json] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    went: set[str] = field(default_factory=set)
    doubted: bool = False
    said: list[JobEvent] = field(default_factory=list)

    def answer(self, ref: Ref, made: Json) -> None:
        """Take over what a call about a part was answered."""
        state = answered(self.parts.get(ref), made, self.went)
        if state is not None:
            self.parts[ref] = state


class OwnerController:
    """The controller of one kind, apart from how it hears of changes."""

    def __init__(
        self, client: KubeClient, kind: OwnerKind, env: Mapping[str, str] = NO_ENV
    ) -> None:
        """`env` is told to every container that does not have it."""
        self.kind = kind
        self._env = env
        self._client = client
        self._known: dict[Key, _Cache] = {}
        self._work = WorkQueue(self._step)
        self._versions = {kind: version for version, kind in kind.parts}
        self.part_kinds = frozenset(self._versions)

    # -- what happened ------------------------------------------------------------------------

    def job_seen(self, body: Json) -> None:
        """Take an owner's newest state."""
        cache = self._known.setdefault(_key(body), _Cache())
        if cache.body is not None and same(cache.body, body):
            body = newer(cache.body, body)
        cache.body = body
        self._work.wake(_key(body))

    def job_gone(self, body: Json) -> None:
        """Forget an owner; what it owns is deleted by the garbage collector."""
        cache = self._known.get(_key(body))
        if cache is not None and cache.body is not None and same(cache.body, body):
            del self._known[_key(body)]

    def part_seen(self, kind: str, body: Json, owner: str) -> None:
        """Take a part; events of two that had one name in turn may come in any order."""
        key = (body["metadata"]["namespace"], owner)
        cache = self._known.setdefault(key, _Cache())
        ref = (kind, body["metadata"]["name"])
        if body["metadata"]["uid"] not in cache.gone:
            known = cache.parts.get(ref)
            cache.parts[ref] = body if known is None else newer(known, body)
        self._work.wake(key)

    def part_gone(self, kind: str, body: Json, owner: str) -> None:
        """Forget a part, unless a successor of the same name took its place."""
        key = (body["metadata"]["namespace"], owner)
        cache = self._known.get(key)
        if cache is None:
            return
        uid, ref = body["metadata"]["uid"], (kind, body["metadata"]["name"])
        if ref in cache.parts and cache.parts[ref]["metadata"]["uid"] == uid:
            del cache.parts[ref]
        if cache.body is None and not cache.parts:
            del self._known[key]  # anybody may name an owner that there is not
            return
        cache.gone.discard(uid)
        cache.went.add(uid)
        cache.doubted = True
        self._work.wake(key)

    def wake_all(self, namespace: str) -> None:
        """Look soon at every owner of a namespace, of all of them if it is empty."""
        for key in self._known:
            if namespace in ("", key[0]):
                self._work.wake(key)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    # -- work ---------------------------------------------------------------------------------

    async def _step(self, key: Key) -> None:
        cache = self._known.get(key)
        if cache is None or cache.body is None or cache.body["metadata"].get("deletionTimestamp"):
            return
        body = cache.body
        cache.went.clear()
        uid = body["metadata"]["uid"]
        subject = subject_of(body, self.kind.api_version, self.kind.kind)
        if cache.doubted:
            if not await lives(self._client, self._own_path(subject), uid):
                self.job_gone(body)
                return
            cache.doubted = bool(cache.went)  # more went while it was asked
        parts = {ref: part for ref, part in cache.parts.items() if owner_uid(part) == uid}
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

    async def _carry_out(self, cache: _Cache, subject: ObjectRef, steps: Steps) -> None:
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
                cache.answer((kind, name), made)
        if steps.delete_owner:
            await remove(self._client, self._own_path(subject), subject.uid, "Background")

    def _own_path(self, subject: ObjectRef) -> str:
        path = collection(self.kind.api_version, self.kind.kind, subject.namespace)
        return named(path, subject.name)

    async def _create(self, cache: _Cache, subject: ObjectRef, document: Json) -> None:
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
        cache.answer((kind, name), made)

    async def _taken(self, cache: _Cache, subject: ObjectRef, made: Json, what: str) -> None:
        """Say whose a name is; an earlier owner's of our own name goes by itself."""
        whose = owner_name(made)
        if whose != f"{subject.kind} {subject.name}":
            message = f"{what} exists and belongs to {whose}; give this job another name"
            await self._tell(cache, subject, JobEvent("Warning", "NameTaken", message))

    async def _delete(self, cache: _Cache, subject: ObjectRef, ref: Ref) -> None:
        kind, name = ref
        known = cache.parts.get(ref)
        if known is None:
            return
        uid = known["metadata"]["uid"]
        path = collection(self._versions[kind], kind, subject.namespace)
        policy = "Foreground" if kind in _FOREGROUND else "Background"
        await remove(self._client, named(path, name), uid, policy)
        if uid in cache.went:
            return  # the watch was quicker than the answer
        if policy == "Background":
            cache.parts.pop(ref, None)
            cache.gone.add(uid)
        else:  # it is there, and leaving, until the watch says otherwise
            stamp = {"deletionTimestamp": clock().now}
            cache.parts[ref] = known | {"metadata": known["metadata"] | stamp}

    async def _write_status(self, cache: _Cache, subject: ObjectRef, status: Json) -> None:
        before = (cache.body or {}).get("status") or {}
        # A merge patch keeps keys that are absent: name those that have to go.
        absent = {key: None for key in before if key not in status}
        body = {"metadata": {"uid": subject.uid}, "status": status | absent}
        try:
            path = f"{self._own_path(subject)}/status"
            written = msgspec.json.decode(await self._client.patch(path, body))
        except NotFound:
            return
        if cache.body is not None:
            cache.body = newer(cache.body, written)

    async def _reject(self, cache: _Cache, subject: ObjectRef, message: str) -> None:
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

    async def _tell(self, cache: _Cache, subject: ObjectRef, event: JobEvent) -> None:
        if event.among(cache.said):
            return
        cache.said = [*cache.said[-_EVENTS_KEPT:], event]
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
