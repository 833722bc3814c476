"""Carries a job's actions out: reads the caches, calls the reconcile, makes the API calls.

One job is worked on by one task at a time. What was just created counts as existing until the
watch shows it, so that a late cache never creates twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from gangsched.jobs.common import conditions, waiting
from gangsched.jobs.common.model import (
    GROUP_VERSION,
    Actions,
    Intent,
    Job,
    JobEvent,
    Json,
    Observed,
    PodView,
)
from gangsched.jobs.common.owned_objects import leaving
from gangsched.jobs.common.templates import within
from gangsched.jobs.kubeflow.framework import Framework
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.paths import named
from gangsched.kube.status.events import ObjectRef, post_event
from gangsched.operators.api_objects import (
    NO_ENV,
    clock,
    collection,
    elsewhere,
    lives,
    only,
    owned_by,
    owner_name,
    owner_uid,
    remove,
    subject_of,
    with_env,
)
from gangsched.operators.controllers.job_record import JobRecord
from gangsched.operators.controllers.owned_objects import OwnedObjects
from gangsched.operators.controllers.preflight import precheck
from gangsched.operators.job_kind import BlockedError, InvalidJobError, RejectedError
from gangsched.operators.kinds.ssh_keys import with_ssh_key_pair
from gangsched.operators.kinds.training_job import parse, pod_view
from gangsched.operators.work_queue import Key, WorkQueue, all_done

log = logging.getLogger(__name__)

_CONTENT = ("data", "rules", "subjects", "spec")
"""Fields of a job's documents that are brought back to what they should be."""

_CREATIONS_AT_ONCE = 16

Cache = OwnedObjects[JobRecord]


class JobController:
    """The controller of one kind of job, apart from how it hears of changes."""

    part_kinds = frozenset({"Pod", "Service", "PodGroup"})

    def __init__(
        self,
        client: KubeClient,
        scheduler: str,
        kind: Framework,
        env: Mapping[str, str] = NO_ENV,
        aliases: Sequence[str] = (),
    ) -> None:
        """`env` is told to every container that lacks it; `aliases` name our scheduler too."""
        self.kind = kind
        self._env = env
        self._client = client
        self._scheduler, self._aliases = scheduler, aliases
        self._objects: dict[Key, Cache] = {}
        self._work = WorkQueue(self._step)
        self._slots = asyncio.Semaphore(_CREATIONS_AT_ONCE)

    # -- what happened ------------------------------------------------------------------------

    def job_seen(self, body: Json) -> None:
        """Record a job's newest state."""
        self._cache(_key(body)).owner_seen(body)
        self._work.wake(_key(body))

    def job_gone(self, body: Json) -> None:
        """Forget a job; what it owns is deleted by the garbage collector."""
        key = _key(body)
        if key in self._objects:
            self._objects[key].owner_gone(body)
            self._drop_empty(key)

    def part_seen(self, kind: str, body: Json, owner: str) -> None:
        """Record the newest state of a pod, Service or PodGroup of a job."""
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
            known = self._objects[key] = OwnedObjects(partial(JobRecord, self.kind.specs))
        return known

    def _drop_empty(self, key: Key) -> None:
        if self._objects[key].is_empty:
            del self._objects[key]

    # -- work ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    async def _step(self, key: Key) -> None:
        cache = self._objects.get(key)
        if cache is None or cache.body is None:
            return
        body = cache.body
        cache.deleted_uids.clear()
        if body["metadata"].get("deletionTimestamp") or elsewhere(body):
            return
        if cache.owner_unverified and not conditions.finished(body.get("status") or {}):
            path = named(self._collection(key[0]), key[1])
            if not await lives(self._client, path, body["metadata"]["uid"]):
                self.job_gone(body)
                return
            cache.owner_unverified = bool(cache.deleted_uids)  # more went while it was asked
        subject = subject_of(body, self.kind.api_version, self.kind.kind)
        try:
            job = parse(body, self._scheduler, self.kind.kind, self._aliases)
        except InvalidJobError as error:
            await self._reject(body, subject, str(error))
            return
        vanished = tuple(cache.record.vanished)
        left = frozenset(
            part["metadata"]["uid"]
            for (kind, _), part in cache.parts.items()
            if kind == "Pod" and leaving(part)
        )
        actions = reconcile(job, self._observed(cache, job, vanished), clock())
        try:
            await self._carry_out(job, cache, subject, actions)
        except RejectedError as error:
            await self._reject(cache.body or body, subject, str(error))
            return
        del cache.record.vanished[: len(vanished)]
        cache.record.heeded = left
        if actions.again_in_s is not None:
            self._work.later(key, actions.again_in_s + 0.05)

    async def _carry_out(
        self, job: Job, cache: Cache, subject: ObjectRef, actions: Actions
    ) -> None:
        if actions.status is not None:
            await self._write_status(cache, job, actions.status)
        for event in (*actions.events, *cache.record.edits()):
            await self._tell(cache, subject, event)
        groups = collection(GROUP_VERSION, "PodGroup", job.namespace)
        # Before its pods: a gang that is over has not lost them.
        group = cache.parts.get(("PodGroup", job.name))
        if actions.delete_group and group is not None:
            await remove(self._client, named(groups, job.name), group["metadata"]["uid"])
            event = JobEvent("Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {job.name}")
            await self._tell(cache, subject, event)
        path = f"/api/v1/namespaces/{job.namespace}"
        cache.record.deleted.update(pod.uid for pod in actions.delete_pods)
        for pod in actions.delete_pods:
            await remove(self._client, named(f"{path}/pods", pod.name), pod.uid)
            event = JobEvent("Normal", "SuccessfulDeletePod", f"Deleted pod: {pod.name}")
            await self._tell(cache, subject, event)
        for pod in actions.stop_pods:
            # Deleted pods take their logs with them; a deadline ends a pod and leaves it there.
            body = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": 1}}
            with contextlib.suppress(NotFound, Conflict):
                await self._client.patch(named(f"{path}/pods", pod.name), body)
            event = JobEvent("Normal", "StoppedPod", f"Stopped pod: {pod.name}: the job is over")
            await self._tell(cache, subject, event)
        for name in actions.delete_services:
            cache.record.documents.pop(("Service", name), None)
            service = cache.parts.get(("Service", name))
            if service is not None:
                uid = service["metadata"]["uid"]
                await remove(self._client, named(f"{path}/services", name), uid)
        for document in actions.drop:
            await self._drop(cache, subject, document)
        if actions.put_group is not None:
            await self._put_group(cache, subject, groups, actions)
        await self._create(cache, subject, actions)
        if actions.delete_job:
            await remove(self._client, named(self._collection(job.namespace), job.name), job.uid)

    async def _create(self, cache: Cache, subject: ObjectRef, actions: Actions) -> None:
        for document in actions.documents:
            await self._ensure(cache, subject, document)
        path = f"/api/v1/namespaces/{subject.namespace}"

        async def one(kind: str, document: Json) -> None:
            name = document["metadata"]["name"]
            async with self._slots:
                try:
                    wanted = with_env(document, self._env)
                    made = await self._make(cache, subject, f"{path}/{kind.lower()}s", wanted)
                except BlockedError:
                    raise
                except KubeError as error:
                    reason = f"Error creating: {error}"
                    await self._tell(
                        cache, subject, JobEvent("Warning", f"FailedCreate{kind}", reason)
                    )
                    raise
            cache.merge_answer((kind, name), made)

        await all_done(one("Service", service) for service in actions.create_services)
        await all_done(one("Pod", pod) for pod in actions.create_pods)
        count = len(actions.create_pods)
        if count:  # one Event a batch: an Event a pod would double the writes
            names = [pod["metadata"]["name"] for pod in actions.create_pods]
            shown = ", ".join(names[:4]) + (f" and {count - 4} more" if count > 4 else "")
            event = JobEvent("Normal", "SuccessfulCreatePod", f"Created pod: {shown}")
            await self._tell(cache, subject, event)

    async def _put_group(
        self, cache: Cache, subject: ObjectRef, groups: str, actions: Actions
    ) -> None:
        group = actions.put_group or {}
        known = cache.parts.get(("PodGroup", subject.name))
        if known is not None and owner_uid(known) == subject.uid:
            body = only(known) | {"spec": group["spec"]}
            made = msgspec.json.decode(await self._client.patch(named(groups, subject.name), body))
        else:
            await self._look_ahead(cache, subject, actions.intents)
            made = await self._make(cache, subject, groups, group)
        cache.merge_answer(("PodGroup", subject.name), made)

    async def _look_ahead(self, cache: Cache, subject: ObjectRef, intents: list[Intent]) -> None:
        """Return if the whole gang can be created; say on the job why not.

        Raises:
            NotYetError, RefusedError: it cannot.

        """
        try:
            await precheck(self._client, subject, intents)
        except BlockedError as error:
            if cache.record.held != str(error):
                cache.record.held = str(error)
                self._work.wake((subject.namespace, subject.name))  # to say it on the job
            await self._tell(
                cache, subject, JobEvent("Warning", "FailedCreatePod", cache.record.held)
            )
            raise
        cache.record.held = ""

    async def _ensure(self, cache: Cache, subject: ObjectRef, document: Json) -> None:
        """Bring an object about that pods need, with the content it should have."""
        key = document["kind"], document["metadata"]["name"]
        if cache.record.documents.get(key) == document:
            return
        path = collection(document["apiVersion"], document["kind"], subject.namespace)
        made = await self._make(cache, subject, path, with_ssh_key_pair(document))
        content = {part: document[part] for part in _CONTENT if part in document}
        if not within(content, made):
            await self._client.patch(named(path, key[1]), content | only(made))
        cache.record.documents[key] = document
        cache.record.dropped.discard(key)

    async def _drop(self, cache: Cache, subject: ObjectRef, document: Json) -> None:
        """Delete one of the job's documents, if it is there and the job's."""
        key = document["kind"], document["metadata"]["name"]
        if key in cache.record.dropped:
            return
        path = named(collection(document["apiVersion"], key[0], subject.namespace), key[1])
        with contextlib.suppress(NotFound):
            found = msgspec.json.decode(await self._client.get(path))
            if owner_uid(found) == subject.uid:
                await remove(self._client, path, found["metadata"]["uid"])
        cache.record.documents.pop(key, None)
        cache.record.dropped.add(key)

    async def _make(self, cache: Cache, subject: ObjectRef, path: str, document: Json) -> Json:
        """Create an object of a job; one that is there already is the job's, or the name is taken.

        Raises:
            NotYetError: it belongs to somebody else.

        """
        name = document["metadata"]["name"]
        try:
            made: Json = msgspec.json.decode(
                await self._client.create(path, owned_by(document, subject))
            )
        except Conflict:
            made = msgspec.json.decode(await self._client.get(named(path, name)))
            if owner_uid(made) == subject.uid:
                return made  # the cache is late
            whose = owner_name(made)
            sentence = (
                f"{document['kind']} {name} exists and belongs to {whose}; "
                f"give this job another name"
            )
            if whose != f"{subject.kind} {subject.name}":  # an earlier job's goes by itself
                await self._tell(cache, subject, JobEvent("Warning", "NameTaken", sentence))
            raise BlockedError(sentence) from None
        return made

    async def _write_status(self, cache: Cache, job: Job, status: Json) -> None:
        # A merge patch keeps keys that are absent: name those that have to go.
        absent = {key: None for key in job.status if key not in status}
        path = f"{named(self._collection(job.namespace), job.name)}/status"
        body = {"metadata": {"uid": job.uid}, "status": status | absent}
        try:
            written = msgspec.json.decode(await self._client.patch(path, body))
        except NotFound:
            return
        cache.merge_owner_answer(written)

    def _collection(self, namespace: str) -> str:
        return f"/apis/{self.kind.api_version}/namespaces/{namespace}/{self.kind.plural}"

    def _observed(self, cache: Cache, job: Job, vanished: tuple[Json, ...]) -> Observed:
        def view(pod: Json) -> PodView:
            return pod_view(pod, self.kind.main_container(pod["spec"])["name"])

        mine = cache.parts_of(job.uid)
        pods = (view(part) for (kind, _), part in mine.items() if kind == "Pod")
        group = mine.get(("PodGroup", job.name))
        return Observed(
            vanished=tuple(view(pod) for pod in vanished if owner_uid(pod) == job.uid),
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            services=frozenset(name for kind, name in mine if kind == "Service"),
            group=waiting.view(group) if group is not None else None,
            held=cache.record.held,
            heeded=cache.record.heeded.union(cache.record.deleted),
        )

    async def _reject(self, body: Json, subject: ObjectRef, message: str) -> None:
        """Say on a job itself what is wrong with it, unless another took its name meanwhile."""
        status: Json = dict(body.get("status") or {})
        if conditions.finished(status) or body["metadata"]["uid"] != subject.uid:
            return
        reason = f"{self.kind.kind}FailedValidation"
        conditions.put(status, "Failed", reason, message, clock().now)
        path = f"{named(self._collection(subject.namespace), subject.name)}/status"
        change = {"metadata": {"uid": subject.uid}, "status": status}  # no successor's
        try:
            written = await self._client.patch(path, change)
            await post_event(self._client, subject, "Warning", reason, message)
            self.job_seen(msgspec.json.decode(written))
        except NotFound:
            return
        except KubeError as error:
            log.warning("%s/%s: %s", subject.namespace, subject.name, error)

    async def _tell(self, cache: Cache, subject: ObjectRef, event: JobEvent) -> None:
        if cache.is_news(event):
            await post_event(self._client, subject, event.type, event.reason, event.message)


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
