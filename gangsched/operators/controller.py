"""Carries a job's actions out: reads the caches, calls the reconcile, makes the API calls.

One job is worked on by one task at a time. What was just created counts as existing until the
watch shows it, so that a late cache never creates twice.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from gangsched.core.jobs import conditions
from gangsched.core.jobs.model import Actions, Job, JobEvent, Json, Observed
from gangsched.core.jobs.reconcile import API_VERSION, KIND, Clock, reconcile
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, KubeError, NotFound
from gangsched.kube.status import Subject, post_event
from gangsched.operators.parse import InvalidJobError, group_view, parse, pod_view

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name of a job."""

_WORKERS = 8
_RETRY_MAX_S = 30.0
_CREATIONS_AT_ONCE = 16
_EVENTS_KEPT = 64


@dataclass(slots=True)
class JobCache:
    """What the watches know of one job."""

    body: Json | None = None
    pods: dict[str, Json] = field(default_factory=dict)
    services: dict[str, Json] = field(default_factory=dict)
    group: Json | None = None
    failures: int = 0
    said: list[JobEvent] = field(default_factory=list)
    vanished: list[Json] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)


class JobController:
    """The PyTorchJob controller, apart from how it hears of changes."""

    def __init__(self, client: KubeClient, scheduler: str) -> None:
        self._client = client
        self._scheduler = scheduler
        self._jobs: dict[Key, JobCache] = {}
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._slots = asyncio.Semaphore(_CREATIONS_AT_ONCE)

    # -- what happened ------------------------------------------------------------------------

    def job_seen(self, body: Json) -> None:
        """Take a job's newest state."""
        cache = self._cache(_key(body))
        known = cache.body
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            body = _newer(known, body)
        cache.body = body
        self.wake(_key(body))

    def job_gone(self, body: Json) -> None:
        """Forget a job; what it owns is deleted by the garbage collector."""
        cache = self._jobs.get(_key(body))
        if cache is not None and cache.body is not None:
            cache.body = None
            if not (cache.pods or cache.services or cache.group):
                del self._jobs[_key(body)]

    def part_seen(self, kind: str, body: Json, job: str) -> None:
        """Take a pod, Service or PodGroup of a job."""
        cache = self._cache((body["metadata"]["namespace"], job))
        if kind == "PodGroup":
            cache.group = body
        else:
            known = cache.pods if kind == "Pod" else cache.services
            known[body["metadata"]["name"]] = body
        self.wake((body["metadata"]["namespace"], job))

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
                if kind == "Pod" and uid not in cache.deleted and not _was_leaving(last):
                    cache.vanished.append(last)  # it went faster than the watch could tell
                cache.deleted.discard(uid)
        self.wake(key)

    def wake(self, key: Key) -> None:
        """Look at a job soon."""
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    def _cache(self, key: Key) -> JobCache:
        return self._jobs.setdefault(key, JobCache())

    # -- work ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work_on())

    async def _work_on(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            if key in self._busy:
                asyncio.get_running_loop().call_later(0.02, self.wake, key)
                continue
            self._busy.add(key)
            try:
                await self._step(key)
            finally:
                self._busy.discard(key)

    async def _step(self, key: Key) -> None:
        cache = self._jobs.get(key)
        if cache is None or cache.body is None:
            return
        body = cache.body
        if body["metadata"].get("deletionTimestamp"):
            return
        subject = Subject(API_VERSION, KIND, *key, body["metadata"]["uid"])
        try:
            job = parse(body, self._scheduler)
        except InvalidJobError as error:
            await self._reject(body, subject, str(error))
            return
        vanished = tuple(cache.vanished)
        try:
            actions = reconcile(job, _observed(cache, job, vanished), _clock())
            await self._carry_out(job, cache, subject, actions)
            cache.failures = 0
            del cache.vanished[: len(vanished)]
        except KubeError as error:
            cache.failures += 1
            pause_s = min(0.2 * 2**cache.failures, _RETRY_MAX_S)
            log.warning("%s/%s: %s; again in %.1f s", *key, error, pause_s)
            self._later(key, pause_s)
            return
        if actions.again_in_s is not None:
            self._later(key, actions.again_in_s + 0.05)

    def _later(self, key: Key, in_s: float) -> None:
        asyncio.get_running_loop().call_later(in_s, self.wake, key)

    async def _carry_out(
        self, job: Job, cache: JobCache, subject: Subject, actions: Actions
    ) -> None:
        if actions.status is not None:
            await self._write_status(cache, job, actions.status)
        for event in actions.events:
            await self._tell(cache, subject, event)
        path = f"/api/v1/namespaces/{job.namespace}"
        cache.deleted.update(pod.uid for pod in actions.delete_pods)
        for pod in actions.delete_pods:
            await self._gone(f"{path}/pods/{pod.name}", pod.uid)
            event = JobEvent("Normal", "SuccessfulDeletePod", f"Deleted pod: {pod.name}")
            await self._tell(cache, subject, event)
        for name in actions.delete_services:
            if name in cache.services:
                uid = cache.services[name]["metadata"]["uid"]
                await self._gone(f"{path}/services/{name}", uid)
        groups = f"/apis/gangsched.io/v1alpha1/namespaces/{job.namespace}/podgroups"
        if actions.delete_group and cache.group is not None:
            await self._gone(f"{groups}/{job.name}", cache.group["metadata"]["uid"])
            event = JobEvent("Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {job.name}")
            await self._tell(cache, subject, event)
        if actions.put_group is not None:
            await self._put_group(cache, job, groups, actions.put_group)
        await self._create(cache, job, subject, actions)
        if actions.delete_job:
            await self._gone(f"{_collection(job.namespace)}/{job.name}", job.uid)

    async def _create(self, cache: JobCache, job: Job, subject: Subject, actions: Actions) -> None:
        path = f"/api/v1/namespaces/{job.namespace}"

        async def one(kind: str, known: dict[str, Json], document: Json) -> None:
            name = document["metadata"]["name"]
            async with self._slots:
                try:
                    made = await self._client.create(
                        f"{path}/{kind.lower()}s", _owned(document, job)
                    )
                except Conflict:
                    return  # the cache is late: it is there
                except KubeError as error:
                    reason = f"Error creating: {error}"
                    await self._tell(
                        cache, subject, JobEvent("Warning", f"FailedCreate{kind}", reason)
                    )
                    raise
            known.setdefault(name, msgspec.json.decode(made))

        await _all(one("Service", cache.services, s) for s in actions.create_services)
        await _all(one("Pod", cache.pods, p) for p in actions.create_pods)
        count = len(actions.create_pods)
        if count:  # one Event a batch: an Event a pod would double the writes
            names = [pod["metadata"]["name"] for pod in actions.create_pods]
            shown = ", ".join(names[:4]) + (f" and {count - 4} more" if count > 4 else "")
            event = JobEvent("Normal", "SuccessfulCreatePod", f"Created pod: {shown}")
            await self._tell(cache, subject, event)

    async def _put_group(self, cache: JobCache, job: Job, groups: str, group: Json) -> None:
        if cache.group is not None:
            made = await self._client.patch(f"{groups}/{job.name}", {"spec": group["spec"]})
        else:
            try:
                made = await self._client.create(groups, _owned(group, job))
            except Conflict:
                return
        cache.group = msgspec.json.decode(made)

    async def _gone(self, path: str, uid: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            await self._client.delete(path, body)
        except (NotFound, Conflict):
            return

    async def _write_status(self, cache: JobCache, job: Job, status: Json) -> None:
        # A merge patch keeps keys that are absent: name those that have to go.
        absent = {key: None for key in job.status if key not in status}
        path = f"{_collection(job.namespace)}/{job.name}/status"
        body = {"metadata": {"uid": job.uid}, "status": status | absent}
        try:
            written = msgspec.json.decode(await self._client.patch(path, body))
        except NotFound:
            return
        if cache.body is not None:
            cache.body = _newer(cache.body, written)

    async def _reject(self, body: Json, subject: Subject, message: str) -> None:
        status: Json = dict(body.get("status") or {})
        if conditions.finished(status):
            return
        reason = f"{KIND}FailedValidation"
        conditions.put(status, "Failed", reason, message, _clock().now)
        path = f"{_collection(subject.namespace)}/{subject.name}/status"
        try:
            written = await self._client.patch(path, {"status": status})
            await post_event(self._client, subject, "Warning", reason, message)
            self.job_seen(msgspec.json.decode(written))
        except KubeError as error:
            log.warning("%s/%s: %s", subject.namespace, subject.name, error)

    async def _tell(self, cache: JobCache, subject: Subject, event: JobEvent) -> None:
        if event in cache.said:
            return
        cache.said = [*cache.said[-_EVENTS_KEPT:], event]
        await post_event(self._client, subject, event.type, event.reason, event.message)


def _was_leaving(pod: Json) -> bool:
    """Tell whether a pod that is gone was known to leave, or to have ended."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _observed(cache: JobCache, job: Job, vanished: tuple[Json, ...]) -> Observed:
    mine = [pod for pod in cache.pods.values() if _owner(pod) == job.uid]
    return Observed(
        vanished=tuple(pod_view(pod) for pod in vanished if _owner(pod) == job.uid),
        pods=tuple(sorted(map(pod_view, mine), key=lambda pod: pod.name)),
        services=frozenset(n for n, s in cache.services.items() if _owner(s) == job.uid),
        group=group_view(cache.group)
        if cache.group is not None and _owner(cache.group) == job.uid
        else None,
    )


def _owner(body: Json) -> str:
    owners = body["metadata"].get("ownerReferences") or []
    return next((str(o["uid"]) for o in owners if o.get("controller")), "")


def _owned(document: Json, job: Job) -> Json:
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = document["metadata"] | {"namespace": job.namespace, "ownerReferences": [owner]}
    return document | {"metadata": metadata}


def _newer(known: Json, body: Json) -> Json:
    """Return the later of two states of one object (versions count up, KEP-5504)."""
    old, new = (int(b["metadata"].get("resourceVersion") or 0) for b in (known, body))
    return body if new >= old else known


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _collection(namespace: str) -> str:
    return f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"


def _clock() -> Clock:
    return Clock(time.time(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


async def _all(work: Any) -> None:
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
