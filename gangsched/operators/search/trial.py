"""Trials: how their job stands, and what its log says, for the core's reconcile."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
from pydantic import ValidationError

from gangsched.api.katib import TrialSpec
from gangsched.config import one_sentence
from gangsched.core.jobs import metrics, trial
from gangsched.core.jobs.model import Json
from gangsched.core.jobs.step import Clock
from gangsched.core.jobs.tree import Owned, Steps
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import KubeError
from gangsched.operators.owner import OwnerKind
from gangsched.operators.parse import InvalidJobError
from gangsched.operators.search.collect import FilterError, read
from gangsched.operators.search.ends import ConditionError, ended

_LOG_BYTES = 64 * 2**20
_PODS = {
    "Job": "batch.kubernetes.io/job-name",
    "TrainJob": "jobset.sigs.k8s.io/jobset-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
}
_PRIMARY = {
    "Job": {},
    "JobSet": {},
    "TrainJob": {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "0",
    },
}
_MASTER = {"training.kubeflow.org/job-role": "master"}


def kind() -> OwnerKind:
    """Return how Trials are run."""

    def step(owned: Owned, clock: Clock) -> Steps:
        return trial.reconcile(owned, trial.Seen(**owned.seen), clock)

    return OwnerKind(trial.API_VERSION, trial.KIND, trial.JOBS, step, look=look)


def unrunnable(job: Json) -> str:
    """Return why a job cannot be a trial's, if it cannot."""
    if (job.get("apiVersion"), job.get("kind")) not in trial.JOBS:
        there = ", ".join(f"{version} {one}" for version, one in trial.JOBS)
        return f"is a {job.get('apiVersion')} {job.get('kind')}; there are: {there}"
    metadata = job.get("metadata") or {}
    if not isinstance(metadata, dict):
        return f"has metadata {metadata!r}; it must be a mapping"
    for field in ("labels", "annotations"):
        texts = metadata.get(field) or {}
        if not isinstance(texts, dict) or not all(isinstance(one, str) for one in texts.values()):
            return f"has metadata.{field} {texts!r}; it must be a mapping of strings"
    return ""


def checked(owned: Owned) -> Json:
    """Return a trial's spec.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"Trial {owned.namespace}/{owned.name}"
    spec: Json = owned.body.get("spec") or {}
    try:
        TrialSpec.model_validate(spec)
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    if why := unrunnable(spec["runSpec"]):
        raise InvalidJobError(f"{subject}: spec.runSpec {why}")
    return spec


def filters(spec: Json) -> tuple[str, ...]:
    """Return the expressions that find metrics in a trial's log, if it has its own."""
    source = (spec.get("metricsCollector") or {}).get("source") or {}
    return tuple((source.get("filter") or {}).get("metricsFormat") or ())


async def look(client: KubeClient, owned: Owned) -> Owned:
    """Return a trial with what its job and its log say.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"Trial {owned.namespace}/{owned.name}"
    spec = checked(owned)
    job = owned.parts.get((spec["runSpec"]["kind"], owned.name))
    if job is None or trial.state(owned.body) in trial.OVER:
        return owned
    try:
        now = ended(spec, job)
    except ConditionError as error:
        raise InvalidJobError(f"{subject}: spec.{error}") from error
    series = None
    if (
        now == "succeeded"
        or spec.get("earlyStoppingRules")
        or trial.FIRST_STEPS in (owned.body["metadata"].get("annotations") or {})
    ):
        series = await _series(client, owned, job, subject)
    return replace(owned, seen={"ended": now, "series": series})


async def _series(
    client: KubeClient, owned: Owned, job: Json, subject: str
) -> metrics.Series | None:
    """Read the metrics in the log of a job's first pod; None where there is no log."""
    spec = owned.body["spec"]
    key = _PODS.get(job["kind"], "training.kubeflow.org/job-name")
    primary = spec.get("primaryPodLabels") or _PRIMARY.get(job["kind"], _MASTER)
    labels = {key: owned.name} | primary
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    path = f"/api/v1/namespaces/{owned.namespace}/pods"
    listed: Any = msgspec.json.decode(await client.get(path, labelSelector=selector))
    # Of several tries of one pod, the last counts.
    pods = sorted(listed["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    if not pods:
        return None
    pod = pods[-1]
    containers = [one["name"] for one in pod["spec"]["containers"]]
    container = spec.get("primaryContainerName")
    if container not in containers:
        container = containers[0]
    try:
        log = await client.get(
            f"{path}/{pod['metadata']['name']}/log",
            container=container,
            limitBytes=str(_LOG_BYTES),
        )
    except KubeError:
        return None
    objective = spec["objective"]
    names = [objective["objectiveMetricName"], *(objective.get("additionalMetricNames") or [])]
    try:
        # In a thread: a log may be long, and others wait for this loop.
        return await asyncio.to_thread(read, log.decode(errors="replace"), names, filters(spec))
    except FilterError as error:
        where = "spec.metricsCollector.source.filter.metricsFormat"
        raise InvalidJobError(f"{subject}: {where}: {error}") from error
