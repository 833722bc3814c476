"""Finds jobs: by name, by the number of `gangsched submit`, and by their gang."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from gangsched.api.names import (
    ARRAY_LABEL,
    JOB_ID_LABEL,
    JOB_NAME_LABEL,
    POD_GROUP_LABEL,
    TASK_LABEL,
)
from gangsched.config import ConfigError
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.userjobs.job_kinds import (
    BY_NAME,
    GANG_KIND,
    POD_KIND,
    USER_JOB_KINDS,
    Json,
    UserJobKind,
    owner_of,
)

_PAGE = "500"
_JOBS_MAX = 20_000
_OWNERS_MAX = 4
"""A pod of a TrainJob is owned by a Job, that by a JobSet, and that by the TrainJob."""


@dataclass(frozen=True, slots=True)
class UserJob:
    """A job as its object says."""

    kind: UserJobKind
    body: Json

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return str(self.body["metadata"].get("namespace") or "")

    @property
    def name(self) -> str:
        """Return the name of its object."""
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Return the uid of its object."""
        return str(self.body["metadata"].get("uid") or "")

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of its object."""
        return self.body["metadata"].get("labels") or {}

    @property
    def number(self) -> str:
        """Return the number that `gangsched submit` gave it, or ""."""
        return self.labels.get(JOB_ID_LABEL, "")

    @property
    def title(self) -> str:
        """Return the name that its user gave it."""
        return self.labels.get(JOB_NAME_LABEL) or self.name

    @property
    def is_suspended(self) -> bool:
        """Return whether it is suspended."""
        return self.kind.is_suspended(self.body)

    @property
    def path(self) -> str:
        """Return the path of its object."""
        return object_path(self.kind.collection(self.namespace), self.name)

    def __str__(self) -> str:
        """Return kind and full name, for messages."""
        return f"{self.kind.kind} {self.namespace}/{self.name}"


async def objects(
    client: KubeClient,
    kind: UserJobKind,
    namespace: str | None,
    selector: str = "",
    fields: str = "",
) -> AsyncIterator[Json]:
    """Yield all objects of a kind in a namespace, or in all namespaces with None.

    `selector` selects by labels, and `fields` by fields.

    Raises:
        KubeError: they may not be listed, or the server does not know the kind.

    """
    params = {"limit": _PAGE}
    params |= {"labelSelector": selector} if selector else {}
    params |= {"fieldSelector": fields} if fields else {}
    count = 0
    while True:
        page = msgspec.json.decode(await client.get(kind.collection(namespace), **params))
        for item in page.get("items") or []:
            yield item
        count += len(page.get("items") or [])
        following = (page.get("metadata") or {}).get("continue")
        if not following or count >= _JOBS_MAX:
            return
        params["continue"] = following


async def list_jobs(client: KubeClient, namespace: str | None, selector: str = "") -> list[UserJob]:
    """Return the jobs that no other job owns; kinds that the server lacks have none.

    Raises:
        KubeError: no kind may be listed.

    """
    jobs = await all_jobs(client, namespace, selector)
    return [job for job in jobs if not _is_owned(job.body)]


async def all_jobs(client: KubeClient, namespace: str | None, selector: str = "") -> list[UserJob]:
    """Return the jobs, also those of other jobs; kinds that the server lacks have none.

    Raises:
        KubeError: no kind may be listed.

    """

    async def of_kind(kind: UserJobKind) -> list[UserJob] | KubeError:
        try:
            return [
                UserJob(kind, body) async for body in objects(client, kind, namespace, selector)
            ]
        except (NotFound, Forbidden) as error:
            return error

    answers = await asyncio.gather(*(of_kind(kind) for kind in USER_JOB_KINDS))
    refused = [answer for answer in answers if isinstance(answer, Forbidden)]
    lists = [answer for answer in answers if isinstance(answer, list)]
    if refused and not lists:
        raise refused[0]
    return [job for jobs in lists for job in jobs]


def _is_owned(body: Json) -> bool:
    owner = owner_of(body)
    return owner is not None and (owner.get("apiVersion"), owner.get("kind")) in BY_NAME


async def find_jobs(client: KubeClient, namespace: str, name: str) -> list[UserJob]:
    """Return the jobs of a name or of a number; of an array job all its tasks.

    Raises:
        ConfigError: there is none, or several kinds have one of this name.
        KubeError: the jobs may not be read.

    """
    if name.isascii() and name.replace("_", "").isdigit():
        number, _, task = name.partition("_")
        found = await list_jobs(client, namespace, f"{JOB_ID_LABEL}={quote(number)}")
        found += await list_jobs(client, namespace, f"{ARRAY_LABEL}={quote(number)}")
        by_uid = {job.uid: job for job in found}
        chosen = [job for job in by_uid.values() if not task or job.labels.get(TASK_LABEL) == task]
        if chosen:
            return sorted(chosen, key=lambda job: (job.number, job.name))
    one = await _named(client, namespace, name)
    if one is not None:
        return [one]
    gang = await job_of_gang(client, namespace, name)
    if gang is not None:
        return [gang]
    raise ConfigError(f"there is no job {name!r} in namespace {namespace!r}")


async def _named(client: KubeClient, namespace: str, name: str) -> UserJob | None:
    async def of_kind(kind: UserJobKind) -> UserJob | None:
        try:
            raw = await client.get(object_path(kind.collection(namespace), name))
        except (NotFound, Forbidden):
            return None
        return UserJob(kind, msgspec.json.decode(raw))

    answers = await asyncio.gather(*(of_kind(kind) for kind in USER_JOB_KINDS))
    found = [job for job in answers if job is not None and not _is_owned(job.body)]
    if len(found) > 1:
        kinds = ", ".join(job.kind.kind for job in found)
        raise ConfigError(f"{name!r} is the name of several jobs ({kinds}); use kubectl")
    return found[0] if found else None


async def job_of_gang(client: KubeClient, namespace: str, gang: str) -> UserJob | None:
    """Return the job that a gang belongs to, else its PodGroup, else None.

    Raises:
        KubeError: the objects may not be read.

    """
    try:
        raw = await client.get(object_path(GANG_KIND.collection(namespace), gang))
        body: Json | None = msgspec.json.decode(raw)
    except NotFound:
        body = None
    if body is None:
        selector = f"{POD_GROUP_LABEL}={gang}"
        body = await anext(objects(client, POD_KIND, namespace, selector), None)
        if body is None:
            try:
                body = msgspec.json.decode(
                    await client.get(object_path(POD_KIND.collection(namespace), gang))
                )
            except NotFound:
                return None
    job = await _topmost(client, namespace, body)
    if job is None and body.get("kind") == GANG_KIND.kind:
        return UserJob(GANG_KIND, body)
    return job


async def _topmost(client: KubeClient, namespace: str, body: Json) -> UserJob | None:
    """Return the last of the owners of an object that is a job."""
    found: UserJob | None = None
    for _ in range(_OWNERS_MAX):
        owner: Any = owner_of(body)
        kind = None if owner is None else BY_NAME.get((owner["apiVersion"], owner["kind"]))
        if kind is None:
            break
        try:
            raw = await client.get(object_path(kind.collection(namespace), str(owner["name"])))
        except NotFound:
            break
        body = msgspec.json.decode(raw)
        found = UserJob(kind, body)
    return found
