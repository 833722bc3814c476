"""Trials: the outcome of their job and the metrics in its log, for the pure reconcile."""

import re
from collections import OrderedDict
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from gangsched.api.jobs.katib import TrialSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import LOG_BYTES, LOG_LINES
from gangsched.core.model.text import shown
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Intent, Json
from gangsched.jobs.common.owned_objects import Owned, Steps
from gangsched.jobs.katib import trial
from gangsched.jobs.katib.collectors import PRINTED, sidecar_of, with_collector
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.operators.api_objects import clock, collection
from gangsched.operators.evaluation.pool import Evaluators, OverrunError, UnusableError
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind
from gangsched.operators.kinds.trial_queue import in_queue_of, scheduled
from gangsched.operators.search import collector_program as collector
from gangsched.operators.search.job_outcome import ConditionError, outcome_of_job

_FORMAT = "metricsCollector.source.filter.metricsFormat"
_FEWER = 8
"""Divisor for the number of lines of a log's end, until they fit."""

_RECENT = 3
"""Periods of reading that a look at a running trial covers: a late look misses no line."""

_TIMES_KEPT = 10_000
_LISTED = "16"
"""Largest number of pods in a list: a job may have thousands."""

_LEVELS = 3
_BETWEEN = (("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet"))
"""Kinds of owners between a pod and a trial's job."""

_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_LENGTH = 317
_LABELS = 16

_JOB_NAMES = {
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


def trial_kind(evaluators: Evaluators, scheduler: str = "") -> OwnerKind:
    """Return the kind Trial; pods of its Jobs get the name `scheduler`, if one is given."""

    def step(owned: Owned, clock: Clock) -> Steps:
        steps = trial.reconcile(owned, trial.TrialJobOutcome(**owned.lookups), clock)
        program = collector_program()
        created = [with_collector(job, owned.body, program) for job in steps.create]
        jobs = [in_queue_of(owned.body, document) for document in created]
        steps.create = [scheduled(job, scheduler) for job in jobs]
        # A job that the API server refuses for good ends the trial, with the reason.
        steps.intents = [Intent(0, job, {}) for job in steps.create]
        return steps

    return OwnerKind(
        trial.API_VERSION,
        trial.KIND,
        trial.JOBS,
        step,
        read_unwatched=partial(_look, evaluators, ReadTimes()),
    )


def job_error(job: Json) -> str:
    """Return why a job cannot be a trial's, if it cannot."""
    if (job.get("apiVersion"), job.get("kind")) not in trial.JOBS:
        allowed = ", ".join(f"{version} {kind}" for version, kind in trial.JOBS)
        return f"is a {job.get('apiVersion')} {job.get('kind')}; allowed are: {allowed}"
    metadata = job.get("metadata") or {}
    if not isinstance(metadata, dict):
        return f"has metadata {metadata!r}; it must be a mapping"
    for field in ("labels", "annotations"):
        texts = metadata.get(field) or {}
        if not isinstance(texts, dict) or not all(isinstance(v, str) for v in texts.values()):
            return f"has metadata.{field} {texts!r}; it must be a mapping of strings"
    return ""


def validated(owned: Owned) -> Json:
    """Return a trial's spec, checked.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"Trial {owned.namespace}/{owned.name}"
    spec: Json = owned.body.get("spec") or {}
    try:
        TrialSpec.model_validate(spec)
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    if why := job_error(spec["runSpec"]):
        raise InvalidJobError(f"{subject}: spec.runSpec {why}")
    if why := labels_error(spec.get("primaryPodLabels") or {}):
        raise InvalidJobError(f"{subject}: spec.primaryPodLabels: {why}")
    try:
        sidecar_of(spec.get("metricsCollector"))
    except ValueError as error:
        raise InvalidJobError(f"{subject}: spec.metricsCollector.{error}") from error
    return spec


def labels_error(labels: dict[str, str]) -> str:
    """Return which label cannot select any pod, or nothing."""
    if len(labels) > _LABELS:
        return f"there are {len(labels)} labels; {_LABELS} are allowed"
    for key, value in labels.items():
        for text in (key, *filter(None, [value])):
            if len(text) > _LABEL_LENGTH or not _LABEL.fullmatch(text):
                return f"{shown(text)} is not a valid label"
    return ""


def filters(spec: Json) -> tuple[str, ...]:
    """Return the expressions that find metrics in a trial's log, if it has its own."""
    if sidecar_of(spec.get("metricsCollector")).prints_names:
        return (PRINTED,)
    source = (spec.get("metricsCollector") or {}).get("source") or {}
    return tuple((source.get("filter") or {}).get("metricsFormat") or ())


@cache
def collector_program() -> str:
    """Return the text of the program that collects metrics in the pods of trials."""
    return Path(collector.__file__).read_text()


class ReadTimes:
    """When the log of each trial that runs was last read."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, float] = OrderedDict()

    def is_due(self, uid: str) -> bool:
        """Return whether to read a log now, and record that it is read."""
        now_s = clock().now_s
        if now_s - self._at.get(uid, 0.0) < trial.READ_S:
            return False
        self._at[uid] = now_s
        self._at.move_to_end(uid)
        if len(self._at) > _TIMES_KEPT:
            self._at.popitem(last=False)
        return True


async def _look(
    evaluators: Evaluators, times: ReadTimes, client: KubeClient, owned: Owned
) -> Owned:
    """Return a trial with the outcome of its job and the metrics in its log.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"Trial {owned.namespace}/{owned.name}"
    spec = validated(owned)
    job = owned.parts.get((spec["runSpec"]["kind"], owned.name))
    if job is None or trial.trial_state(owned.body) in trial.OVER:
        return owned
    try:
        now = outcome_of_job(spec, job)
    except ConditionError as error:
        raise InvalidJobError(f"{subject}: spec.{error}") from error
    sidecar = sidecar_of(spec.get("metricsCollector"))
    if sidecar.kind == "None":
        known = {"ended": now, "series": {}, "without_metrics": True}
        return replace(owned, lookups=known)
    lookups: Json = {"ended": now}
    if sidecar.container:
        lookups["log"] = f"the log of container {sidecar.container}"
    whole_log = (
        now == "succeeded"
        or spec.get("earlyStoppingRules")
        or trial.FIRST_STEPS in (owned.body["metadata"].get("annotations") or {})
    )
    if not whole_log and not times.is_due(owned.uid):
        return replace(owned, lookups=lookups)
    log = await _log(client, owned, job, sidecar.container, recent=not whole_log)
    if log is None:
        return replace(owned, lookups=lookups)
    try:
        series = await evaluators.values(owned, log, trial.metric_names(spec), filters(spec))
    except UnusableError as error:
        raise InvalidJobError(f"{subject}: spec.{_FORMAT}: {error}") from error
    except OverrunError as error:
        clause = f"its log cannot be read with spec.{_FORMAT}: {error}"
        if error.may_retry:
            raise BlockedError(f"{subject}: {clause}; gangsched retries it") from error
        return replace(owned, lookups=lookups | {"unreadable": clause})
    return replace(owned, lookups=lookups | {"series": series, "recent": not whole_log})


async def _log(
    client: KubeClient, owned: Owned, job: Json, collector_name: str, *, recent: bool
) -> bytes | None:
    """Return the log of a job's first pod, or None; of a long log, its beginning and its end.

    A `recent` log has only lines of the last minutes.
    """
    pod = await _pod(client, owned, job)
    if pod is None:
        return None
    containers = [container["name"] for container in pod["spec"]["containers"]]
    container = owned.body["spec"].get("primaryContainerName")
    if container not in containers:
        container = containers[0]
    if collector_name:
        container = collector_name
    path = f"{object_path(_pods(owned.namespace), pod['metadata']['name'])}/log"

    async def read(most: int, **part: str) -> bytes:
        return (await client.get(path, container=container, limitBytes=str(most), **part))[:most]

    half, lines = LOG_BYTES.most // 2, LOG_LINES.most // 2
    try:
        if recent:
            since_s = str(int(_RECENT * trial.READ_S))
            return await read(LOG_BYTES.most // _FEWER, sinceSeconds=since_s)
        log = await read(LOG_BYTES.most)
        if len(log) < LOG_BYTES.most:
            return log
        end = await read(half, tailLines=str(lines))
        while len(end) == half and lines > 1:  # the limit cuts the end of the log, which is needed
            lines = lines // _FEWER or 1
            end = await read(half, tailLines=str(lines))
    except KubeError:
        return None
    return log[:half] + b"\n" + end


async def _pod(client: KubeClient, owned: Owned, job: Json) -> Json | None:
    """Return the pod that was created last for the job, of the pods that the labels select."""
    spec = owned.body["spec"]
    key = _JOB_NAMES.get(job["kind"], "training.kubeflow.org/job-name")
    primary = spec.get("primaryPodLabels") or _PRIMARY.get(job["kind"], _MASTER)
    labels = {key: owned.name} | primary
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    listed: Any = msgspec.json.decode(
        await client.get(_pods(owned.namespace), labelSelector=selector, limit=_LISTED)
    )
    # A retried pod has several objects; the last one counts.
    pods = sorted(listed["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    for pod in reversed(pods):
        if await _is_owned_by(client, owned.namespace, pod, job["metadata"]["uid"]):
            newest: Json = pod
            return newest
    return None


async def _is_owned_by(client: KubeClient, namespace: str, body: Json, uid: str) -> bool:
    """Return whether an object belongs to a job, by its owners: labels are the user's choice."""
    for _ in range(_LEVELS):
        owners = body["metadata"].get("ownerReferences") or []
        owner = next((item for item in owners if item.get("controller")), None)
        if owner is None:
            return False
        if owner["uid"] == uid:
            return True
        if (owner["apiVersion"], owner["kind"]) not in _BETWEEN:
            return False
        path = object_path(collection(owner["apiVersion"], owner["kind"], namespace), owner["name"])
        try:
            body = msgspec.json.decode(await client.get(path))
        except NotFound:
            return False
        if body["metadata"]["uid"] != owner["uid"]:
            return False
    return False


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
