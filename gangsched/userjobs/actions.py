"""What users do with their jobs: hold, release, cancel, and another priority."""

from gangsched.config import ConfigError
from gangsched.kube.client.client import KubeClient
from gangsched.userjobs.finding import UserJob
from gangsched.userjobs.job_kinds import GANG_KIND, Json

_DELETE = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


async def hold_job(client: KubeClient, job: UserJob, *, runs: bool) -> str:
    """Suspend a pending job; return a sentence. A job that `runs` would lose its work.

    Raises:
        ConfigError: the job runs, or its kind cannot be suspended.
        KubeError: the caller may not, or the job is gone.

    """
    if job.is_suspended:
        return f"{job} is held already."
    if runs:
        raise ConfigError(f"{job} runs and cannot be held; cancel it, or suspend it with kubectl")
    await _suspend(client, job, suspended=True)
    return f"{job} is held."


async def release_job(client: KubeClient, job: UserJob) -> str:
    """Resume a held job; return a sentence.

    Raises:
        ConfigError: its kind cannot be suspended.
        KubeError: the caller may not, or the job is gone.

    """
    if job.kind.suspend and not job.is_suspended:
        return f"{job} is not held."
    await _suspend(client, job, suspended=False)
    return f"{job} is released."


async def _suspend(client: KubeClient, job: UserJob, *, suspended: bool) -> None:
    if not job.kind.suspend:
        raise ConfigError(f"{job} cannot be held: the kind {job.kind.kind} has no field for it")
    patch = job.kind.suspension(suspended=suspended)
    await client.patch(job.path, {"metadata": {"uid": job.uid}} | patch)


async def cancel_job(client: KubeClient, job: UserJob) -> str:
    """Delete a job with its pods; return a sentence.

    Raises:
        KubeError: the caller may not, or the job is gone.

    """
    await client.delete(job.path, _DELETE | {"preconditions": {"uid": job.uid}})
    return f"{job} is cancelled."


async def set_priority(client: KubeClient, job: UserJob, priority_class: str) -> str:
    """Give a pending job another PriorityClass; return a sentence.

    Raises:
        ConfigError: the kind has no such field that may change.
        KubeError: the caller may not, or the job is gone.

    """
    if job.kind == GANG_KIND:
        patch: Json = {"spec": {"priorityClassName": priority_class}}
    elif job.kind.suspend == ("spec", "runPolicy", "suspend"):
        scheduling = {"schedulingPolicy": {"priorityClass": priority_class}}
        patch = {"spec": {"runPolicy": scheduling}}
    else:
        raise ConfigError(
            f"{job} keeps its priority: in a {job.kind.kind} it is part of the pods' template, "
            f"which does not change after submission"
        )
    await client.patch(job.path, {"metadata": {"uid": job.uid}} | patch)
    return f"{job} has the priority class {priority_class}."
