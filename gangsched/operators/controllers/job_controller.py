"""Carries a job's actions out: reads the caches, calls the reconcile, makes the API calls.

One job is worked on by one task at a time. What was just created counts as existing until the
watch shows it, so that a late cache never creates twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

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
    answered,
    clock,
    collection,
    elsewhere,
    ended,
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
from gangsched.operators.controllers.job_cache import JobCache
from gangsched.operators.controllers.preflight import precheck
from gangsched.operators.job_kind import BlockedError, InvalidJobError, RejectedError
from gangsched.operators.kinds.ssh_keys import with_ssh_key_pair
from gangsched.operators.kinds.training_job import parse, pod_view
from gangsched.operators.work_queue import Key, WorkQueue, all_done

log = logging.getLogger(__name__)

_CONTENT = ("data", "rules", "subjects", "spec")
"""Fields of a job's documents that are brought back to what they should be."""

_CREATIONS_AT_ONCE = 16
_EVENTS_KEPT = 64


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
        self._jobs: dict[Key, JobCache] = {}
        self._work = WorkQueue(self._step)
        self._slots = asyncio.Semaphore(_CREATIONS_AT_ONCE)

    # -- what happened ------------------------------------------------------------------------

    def job_seen(self, body: Json) -> None:
        """Take a job's newest state."""
        cache = self._cache(_key(body))
        if cache.body is not None and same(cache.body, body):
            body = newer(cache.body, body)
        else:  # what an earlier job of the name had written goes with that job
            cache.documents.clear()
            cache.dropped.clear()
            cache.held = ""
        cache.take(body, self.kind.specs)
        self._work.wake(_key(body))

    def job_gone(self, body: Json) -> None:
        """Forget a job; what it owns is deleted by the garbage collector."""
        cache = self._jobs.get(_key(body))
        if cache is not None and cache.body is not None and same(cache.body, body):
            cache.body = None
            if not (cache.pods or cache.services or cache.group):
                del self._jobs[_key(body)]

    def part_seen(self, kind: str, body: Json, job: str) -> None:
        """Take a pod, Service or PodGroup of a job.

        Events of two objects that had one name in turn may come in any order: the later counts.
        """
        cache = self._cache((body["metadata"]["namespace"], job))
        if kind == "PodGroup":
            cache.group = body if cache.group is None else newer(cache.group, body)
        else:
            known, name = cache.pods if kind == "Pod" else cache.services, body["metadata"]["name"]
            known[name] = newer(known[name], body) if name in known else body
        self._work.wake((body["metadata"]["namespace"], job))

    def part_gone(self, kind: str, body: Json, job: str) -> None:
        """Forget a part, unless a successor of the same name took its place."""
        key = (body["metadata"]["namespace"], job)
        cache = self._cache(key)
        uid, name = body["metadata"]["uid"], body["metadata"]["name"]
        if kind == "PodGroup":
            if cache.group is not None and cache.group["metadata"]["uid"] == uid:
                cache.group = None
        else:
            known = cache.pods if kind == "Pod" else cache.services
            if name in known and known[name]["metadata"]["uid"] == uid:
                last = known.pop(name)
                # The API server keeps no pod for a grace period that had ended before.
                done = ended(last) and not leaving(last)
                known_to_leave = uid in cache.deleted or uid in cache.heeded or done
                if kind == "Pod" and not known_to_leave:
                    cache.vanished.append(last)  # it went faster than anybody looked
                cache.deleted.discard(uid)
        if cache.body is None and not (cache.pods or cache.services or cache.group):
            del self._jobs[key]  # anybody may name an owner that there is not
            return
        cache.went.add(uid)
        cache.doubted = True
        self._work.wake(key)

    def _cache(self, key: Key) -> JobCache:
        return self._jobs.setdefault(key, JobCache())

    # -- work ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    async def _step(self, key: Key) -> None:
        cache = self._jobs.get(key)
        if cache is None or cache.body is None:
            return
        body = cache.body
        cache.went.clear()
        if body["metadata"].get("deletionTimestamp") or elsewhere(body):
            return
        if cache.doubted and not conditions.finished(body.get("status") or {}):
            path = named(self._collection(key[0]), key[1])
            if not await lives(self._client, path, body["metadata"]["uid"]):
                self.job_gone(body)
                return
            cache.doubted = bool(cache.went)  # more went while it was asked
        subject = subject_of(body, self.kind.api_version, self.kind.kind)
        try:
            job = parse(body, self._scheduler, self.kind.kind, self._aliases)
        except InvalidJobError as error:
            await self._reject(body, subject, str(error))
            return
        vanished = tuple(cache.vanished)
        left = frozenset(p["metadata"]["uid"] for p in cache.pods.values() if leaving(p))
        actions = reconcile(job, self._observed(cache, job, vanished), clock())
        try:
            await self._carry_out(job, cache, subject, actions)
        except RejectedError as error:
            await self._reject(cache.body or body, subject, str(error))
            return
        del cache.vanished[: len(vanished)]
        cache.heeded = left
        if actions.again_in_s is not None:
            self._work.later(key, actions.again_in_s + 0.05)

    async def _carry_out(
        self, job: Job, cache: JobCache, subject: ObjectRef, actions: Actions
    ) -> None:
        if actions.status is not None:
            await self._write_status(cache, job, actions.status)
        for event in (*actions.events, *cache.edits(self.kind.specs)):
            await self._tell(cache, subject, event)
        groups = collection(GROUP_VERSION, "PodGroup", job.namespace)
        # Before its pods: a gang that is over has not lost them.
        if actions.delete_group and cache.group is not None:
            await remove(self._client, named(groups, job.name), cache.group["metadata"]["uid"])
            event = JobEvent("Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {job.name}")
            await self._tell(cache, subject, event)
        path = f"/api/v1/namespaces/{job.namespace}"
        cache.deleted.update(pod.uid for pod in actions.delete_pods)
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
            cache.documents.pop(("Service", name), None)
            if name in cache.services:
                uid = cache.services[name]["metadata"]["uid"]
                await remove(self._client, named(f"{path}/services", name), uid)
        for document in actions.drop:
            await self._drop(cache, subject, document)
        if actions.put_group is not None:
            await self._put_group(cache, subject, groups, actions)
        await self._create(cache, subject, actions)
        if actions.delete_job:
            await remove(self._client, named(self._collection(job.namespace), job.name), job.uid)

    async def _create(self, cache: JobCache, subject: ObjectRef, actions: Actions) -> None:
        for document in actions.documents:
            await self._ensure(cache, subject, document)
        path = f"/api/v1/namespaces/{subject.namespace}"

        async def one(kind: str, known: dict[str, Json], document: Json) -> None:
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
            state = answered(known.get(name), made, cache.went)
            if state is not None:
                known[name] = state

        await all_done(one("Service", cache.services, s) for s in actions.create_services)
        await all_done(one("Pod", cache.pods, p) for p in actions.create_pods)
        count = len(actions.create_pods)
        if count:  # one Event a batch: an Event a pod would double the writes
            names = [pod["metadata"]["name"] for pod in actions.create_pods]
            shown = ", ".join(names[:4]) + (f" and {count - 4} more" if count > 4 else "")
            event = JobEvent("Normal", "SuccessfulCreatePod", f"Created pod: {shown}")
            await self._tell(cache, subject, event)

    async def _put_group(
        self, cache: JobCache, subject: ObjectRef, groups: str, actions: Actions
    ) -> None:
        group = actions.put_group or {}
        if cache.group is not None and owner_uid(cache.group) == subject.uid:
            body = only(cache.group) | {"spec": group["spec"]}
            made = msgspec.json.decode(await self._client.patch(named(groups, subject.name), body))
        else:
            await self._look_ahead(cache, subject, actions.intents)
            made = await self._make(cache, subject, groups, group)
        cache.group = answered(cache.group, made, cache.went)

    async def _look_ahead(self, cache: JobCache, subject: ObjectRef, intents: list[Intent]) -> None:
        """Return if the whole gang can be created; say on the job why not.

        Raises:
            NotYetError, RefusedError: it cannot.

        """
        try:
            await precheck(self._client, subject, intents)
        except BlockedError as error:
            if cache.held != str(error):
                cache.held = str(error)
                self._work.wake((subject.namespace, subject.name))  # to say it on the job
            await self._tell(cache, subject, JobEvent("Warning", "FailedCreatePod", cache.held))
            raise
        cache.held = ""

    async def _ensure(self, cache: JobCache, subject: ObjectRef, document: Json) -> None:
        """Bring an object about that pods need, with the content it should have."""
        key = document["kind"], document["metadata"]["name"]
        if cache.documents.get(key) == document:
            return
        path = collection(document["apiVersion"], document["kind"], subject.namespace)
        made = await self._make(cache, subject, path, with_ssh_key_pair(document))
        content = {part: document[part] for part in _CONTENT if part in document}
        if not within(content, made):
            await self._client.patch(named(path, key[1]), content | only(made))
        cache.documents[key] = document
        cache.dropped.discard(key)

    async def _drop(self, cache: JobCache, subject: ObjectRef, document: Json) -> None:
        """Delete one of the job's documents, if it is there and the job's."""
        key = document["kind"], document["metadata"]["name"]
        if key in cache.dropped:
            return
        path = named(collection(document["apiVersion"], key[0], subject.namespace), key[1])
        with contextlib.suppress(NotFound):
            found = msgspec.json.decode(await self._client.get(path))
            if owner_uid(found) == subject.uid:
                await remove(self._client, path, found["metadata"]["uid"])
        cache.documents.pop(key, None)
        cache.dropped.add(key)

    async def _make(self, cache: JobCache, subject: ObjectRef, path: str, document: Json) -> Json:
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

    async def _write_status(self, cache: JobCache, job: Job, status: Json) -> None:
        # A merge patch keeps keys that are absent: name those that have to go.
        absent = {key: None for key in job.status if key not in status}
        path = f"{named(self._collection(job.namespace), job.name)}/status"
        body = {"metadata": {"uid": job.uid}, "status": status | absent}
        try:
            written = msgspec.json.decode(await self._client.patch(path, body))
        except NotFound:
            return
        if cache.body is not None:
            cache.body = newer(cache.body, written)

    def _collection(self, namespace: str) -> str:
        return f"/apis/{self.kind.api_version}/namespaces/{namespace}/{self.kind.plural}"

    def _observed(self, cache: JobCache, job: Job, vanished: tuple[Json, ...]) -> Observed:
        def view(pod: Json) -> PodView:
            return pod_view(pod, self.kind.main_container(pod["spec"])["name"])

        mine = [pod for pod in cache.pods.values() if owner_uid(pod) == job.uid]
        return Observed(
            vanished=tuple(view(pod) for pod in vanished if owner_uid(pod) == job.uid),
            pods=tuple(sorted(map(view, mine), key=lambda pod: pod.name)),
            services=frozenset(n for n, s in cache.services.items() if owner_uid(s) == job.uid),
            group=waiting.view(cache.group)
            if cache.group is not None and owner_uid(cache.group) == job.uid
            else None,
            held=cache.held,
            heeded=cache.heeded.union(cache.deleted),
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

    async def _tell(self, cache: JobCache, subject: ObjectRef, event: JobEvent) -> None:
        if event.among(cache.said):
            return
        cache.said = [*cache.said[-_EVENTS_KEPT:], event]
        await post_event(self._client, subject, event.type, event.reason, event.message)


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
