"""What `--dependency` names: numbers of jobs become names of their JobSets."""

import msgspec

from gangsched.api.names import ARRAY_LABEL, JOB_ID_LABEL
from gangsched.api.start_conditions import DEPENDENCIES_MAX
from gangsched.config import ConfigError
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def named_jobs(
    client: KubeClient, namespace: str, dependencies: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Return (condition, name of a job) of each dependency; an array job is all its tasks.

    Raises:
        ConfigError: no job has a number, or the names are too many.
        KubeError: the API server refused.

    """
    found: dict[tuple[str, str], None] = {}
    for condition, job in dependencies:
        names = await jobs_of_number(client, namespace, job) if job.isdigit() else [job.lower()]
        if not names:
            raise ConfigError(f"--dependency: there is no job {job} in namespace {namespace}")
        found |= dict.fromkeys((condition, name) for name in names)
    if len(found) > DEPENDENCIES_MAX:
        raise ConfigError(
            f"--dependency: names {len(found)} jobs and tasks; {DEPENDENCIES_MAX} are allowed"
        )
    return tuple(found)


async def jobs_of_number(client: KubeClient, namespace: str, number: str) -> list[str]:
    """Return the names of the JobSets with the number of a job, an array job or a task."""
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
    for label in (ARRAY_LABEL, JOB_ID_LABEL):
        answer = await client.get(path, labelSelector=f"{label}={number}", limit="1000")
        items = msgspec.json.decode(answer).get("items") or []
        if items:
            return sorted(str(item["metadata"]["name"]) for item in items)
    return []


async def user_name(client: KubeClient) -> str:
    """Return the name of the caller, "" if the API server does not say it."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = msgspec.json.decode(await client.create(_REVIEWS, body))
    except KubeError:
        return ""
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
