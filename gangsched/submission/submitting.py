"""Creates the objects of a submission: all of them, or none."""

import contextlib
import time
from dataclasses import replace

import msgspec

from gangsched.config import ConfigError
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Forbidden, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.submission.manifests import Json, Submission, jobsets, secret
from gangsched.submission.waiting_for import jobs_of_number, named_jobs, user_name

_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_QUEUES = "/apis/gangsched.io/v1beta1/queues"
_SINCE_S = 1_735_689_600
"""Job numbers count seconds since 2025, so that they grow."""

_TRIES = 100
_OWNERS_MAX = 1000


def next_number() -> int:
    """Return the number of a job that is submitted now."""
    return int(time.time()) - _SINCE_S


async def submit(client: KubeClient, submission: Submission) -> Submission:
    """Create a job; return it with the number that it got.

    Raises:
        ConfigError: there is no such queue, PriorityClass or job, or no number is free.
        KubeError: the API server refused; then nothing is left.

    """
    request = submission.request
    await _check_exists(client, "--qos", _PRIORITY_CLASSES, request.priority_class)
    await _check_exists(client, "--partition", _QUEUES, request.queue)
    if request.dependencies:
        jobs = await named_jobs(client, submission.namespace, request.dependencies)
        submission = replace(submission, dependencies=jobs)
    if request.singleton:
        submission = replace(submission, user=await user_name(client))
    for further in range(_TRIES):
        numbered = replace(submission, number=submission.number + further)
        if await jobs_of_number(client, submission.namespace, str(numbered.number)):
            continue  # another job of the same second has it
        try:
            await _create(client, numbered)
        except Conflict:
            continue
        return numbered
    raise ConfigError("no job number is free; try again in some minutes")


async def _check_exists(client: KubeClient, option: str, collection: str, name: str) -> None:
    """Check that an object exists, if the caller may read it."""
    if not name:
        return
    try:
        await client.get(object_path(collection, name))
    except Forbidden:
        return
    except NotFound as error:
        kind = "PriorityClass" if collection == _PRIORITY_CLASSES else "Queue"
        raise ConfigError(f"{option}: there is no {kind} {name!r}") from error


async def _create(client: KubeClient, submission: Submission) -> None:
    secrets_path = f"/api/v1/namespaces/{submission.namespace}/secrets"
    jobs_path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{submission.namespace}/jobsets"
    await client.create(secrets_path, secret(submission))
    created: list[Json] = []
    try:
        for body in jobsets(submission):
            answer = await client.create(jobs_path, body)
            created.append(msgspec.json.decode(answer))
        owners = [
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "name": body["metadata"]["name"],
                "uid": body["metadata"]["uid"],
            }
            for body in created[:_OWNERS_MAX]
        ]
        patch = {"metadata": {"ownerReferences": owners}}
        await client.patch(object_path(secrets_path, submission.stem), patch)
    except BaseException:
        for body in created:
            with contextlib.suppress(KubeError):
                await client.delete(object_path(jobs_path, str(body["metadata"]["name"])))
        with contextlib.suppress(NotFound, KubeError):
            await client.delete(object_path(secrets_path, submission.stem))
        raise
