"""Trials: how their job stands, and what its log says, for the core's reconcile."""

import re
from typing import Any

import gjson
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

_SEEN = ("Seen", "")
"""Where `look` leaves what it saw among a trial's parts."""

_LOG_BYTES = 64 * 2**20
_CONDITION = 'status.conditions.#(type=="{}")#|#(status=="True")#'
_ENDS = {
    "Job": ("Complete", "Failed"),
    "TrainJob": ("Complete", "Failed"),
    "JobSet": ("Completed", "Failed"),
}
"""Conditions that end a job well or badly; those of the Training Operator have other words."""

_TRAINING = ("Succeeded", "Failed")
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
        parts = dict(owned.parts)
        seen = parts.pop(_SEEN, {})
        return trial.reconcile(Owned(owned.body, parts), trial.Seen(**seen), clock)

    return OwnerKind(trial.API_VERSION, trial.KIND, trial.JOBS, step, look=look)


async def look(client: KubeClient, owned: Owned) -> Owned:
    """Return a trial with what its job and its log say.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"Trial {owned.namespace}/{owned.name}"
    try:
        TrialSpec.model_validate(owned.body.get("spec") or {})
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    spec: Json = owned.body["spec"]
    job = owned.parts.get((spec["runSpec"].get("kind", ""), owned.name))
    if job is None or trial.state(owned.body) in trial.OVER:
        return owned
    try:
        ended = _ended(spec, job)
    except gjson.GJSONError as error:
        raise InvalidJobError(f"{subject}: a condition is no GJSON path: {error}") from error
    series = None
    if (
        ended == "succeeded"
        or spec.get("earlyStoppingRules")
        or trial.FIRST_STEPS in (owned.body["metadata"].get("annotations") or {})
    ):
        series = await _series(client, owned, job, subject)
    seen = {"ended": ended, "series": series}
    return Owned(owned.body, {**owned.parts, _SEEN: seen})


def _ended(spec: Json, job: Json) -> str:
    """Return how a job ended, by the trial's conditions (GJSON) or those its kind has."""
    well, badly = (_CONDITION.format(word) for word in _ENDS.get(job["kind"], _TRAINING))
    for said, path in (
        ("failed", spec.get("failureCondition") or badly),
        ("succeeded", spec.get("successCondition") or well),
    ):
        if gjson.get(job, path, quiet=True):
            return said
    return ""


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
    source = (spec.get("metricsCollector") or {}).get("source") or {}
    filters = (source.get("filter") or {}).get("metricsFormat") or ()
    try:
        return metrics.read(log.decode(errors="replace").splitlines(), names, filters)
    except (re.error, IndexError) as error:
        raise InvalidJobError(
            f"{subject}: spec.metricsCollector.source.filter.metricsFormat: {error}; an "
            f"expression needs two groups, name and value"
        ) from error
