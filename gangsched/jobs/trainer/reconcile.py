"""The reconcile of a TrainJob (trainer.kubeflow.org/v1alpha1) as a pure function.

A TrainJob and its runtime become a JobSet; the TrainJob ends when the JobSet does. Its conditions
are Suspended, Complete and Failed, and Scheduled while it waits. Scheduled is removed once the job
is placed, because the SDK shows a running job with any other condition as "Created".
"""

import copy
import hashlib
import json

from gangsched.jobs.common import waiting
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import (
    Owned,
    Steps,
    is_terminating,
    set_condition,
    true_condition,
)
from gangsched.jobs.common.times import parse_time
from gangsched.jobs.trainer import initializers
from gangsched.jobs.trainer.runtimes import resolve

KIND = "TrainJob"
API_VERSION = "trainer.kubeflow.org/v1alpha1"
REFS = (("jobset.x-k8s.io/v1alpha2", "JobSet"),)
"""The kinds of parts of a TrainJob."""

NO_RUNTIME = "TrainingRuntimeNotSupported"
MADE_FROM = "gangsched.io/made-from"
"""Annotation of a JobSet: digests of the fields of the TrainJob's spec that it was created from."""

_READ_ONCE = (
    "initializer",
    "trainer",
    "podSpecOverrides",
    "podTemplateOverrides",
    "runtimePatches",
)
"""Fields that are read when a JobSet is created, and again when it is resumed."""

_NEVER_AGAIN = ("labels", "annotations")
_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")
_DEADLINE = "DeadlineExceeded"
_DIGITS, _DIGESTS_LENGTH = 16, 1_000


def reconcile(owned: Owned, runtime: Json | None, why_none: str, clock: Clock) -> Steps:
    """Return the actions to take now; `why_none` is the reason if `runtime` is None."""
    steps, body = Steps(), owned.body
    status: Json = copy.deepcopy(body.get("status") or {})
    suspended = bool(body["spec"].get("suspend"))
    jobset = next((part for part in owned.of("JobSet") if not is_terminating(part)), None)
    over = true_condition(body, "Complete") or true_condition(body, "Failed")
    if over is not None and over.get("reason") == NO_RUNTIME:
        over = None  # the runtime may exist now
    if over is None:
        _suspend(status, steps, clock, suspended=suspended)
        if runtime is None and jobset is None:
            _fail(status, steps, clock, NO_RUNTIME, why_none)
        else:
            _clear_missing_runtime(status)
            _apply_jobset(owned, runtime, jobset, steps)
        if jobset is not None:
            _copy_status(status, jobset)
        _apply_deadline(owned, status, jobset, steps, clock)
    _report_waiting(status, jobset, steps, clock)
    if status != (body.get("status") or {}):
        steps.status = status
    return steps


def _apply_jobset(owned: Owned, runtime: Json | None, jobset: Json | None, steps: Steps) -> None:
    suspend = owned.body["spec"].get("suspend")
    if jobset is None:
        assert runtime is not None, "checked before"  # noqa: S101
        if owned.of("JobSet"):
            return  # the last JobSet is terminating
        plan = resolve(owned.body, runtime)
        if plan.keys:
            steps.create.append(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "type": "kubernetes.io/ssh-auth",
                    "metadata": {"name": plan.keys},
                    "immutable": True,
                }
            )
        parts = (plan.hostfile, plan.tokens, plan.cache)
        steps.create += [part for part in parts if part is not None]
        if plain := initializers.warning(owned.body):
            steps.events.append(JobEvent("Warning", "TokenInSpec", plain))
        plan.jobset["metadata"]["annotations"] |= {MADE_FROM: _digests(owned.body, {})}
        steps.create.append(plan.jobset)
        return
    if suspend is None or bool(suspend) == bool(jobset["spec"].get("suspend")):
        if not suspend:
            _report_edits(owned, jobset, steps)
        return
    change: Json = {"spec": {"suspend": suspend}}
    if not suspend and runtime is not None:
        # Queueing systems write patches and resume the job in one update.
        plan = resolve(owned.body, runtime)
        steps.create += [plan.tokens] if plan.tokens is not None else []
        change["spec"]["replicatedJobs"] = plan.jobset["spec"]["replicatedJobs"]
        if known := _recorded_digests(jobset):
            kept = {key: known[key] for key in _NEVER_AGAIN if key in known}
            change["metadata"] = {"annotations": {MADE_FROM: _digests(owned.body, kept)}}
    steps.patch.append((("JobSet", owned.name), change))


def _report_edits(owned: Owned, jobset: Json, steps: Steps) -> None:
    """Report edits of a job that have no effect because its JobSet exists already."""
    known, now = _recorded_digests(jobset), json.loads(_digests(owned.body, {}))
    changed = [key for key, value in now.items() if known and known.get(key) != value]
    if not changed:
        return
    fields = ", ".join(f"spec.{key}" for key in changed)
    is_resumable = all(key in _READ_ONCE for key in changed)
    recreate = "delete the job and create it again"
    remedy = f"suspend and resume the job, or {recreate}" if is_resumable else recreate
    message = (
        f"{fields} changed after the JobSet was created, and the JobSet keeps the old value; for "
        f"the change to take effect, {remedy}."
    )
    steps.events.append(JobEvent("Warning", "EditNotTaken", message))


def _digests(body: Json, kept: Json) -> str:
    """Return digests of the fields that are read once; `kept` digests do not change."""
    digests = {}
    for key in (*_READ_ONCE, *_NEVER_AGAIN):
        text = json.dumps(body["spec"].get(key) or None, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        digests[key] = kept.get(key, digest)
    return json.dumps(digests)


def _recorded_digests(jobset: Json) -> Json:
    """Return the digests of a JobSet's annotation; any user may have changed them."""
    text = (jobset["metadata"].get("annotations") or {}).get(MADE_FROM, "")
    try:
        digests = json.loads(text[:_DIGESTS_LENGTH])
    except (ValueError, RecursionError):
        return {}
    return digests if isinstance(digests, dict) else {}


def _suspend(status: Json, steps: Steps, clock: Clock, *, suspended: bool) -> None:
    """Set the condition Suspended; a job that never was suspended has no such condition."""
    reason, message = (
        ("Suspended", "TrainJob is suspended") if suspended else ("Resumed", "TrainJob is resumed")
    )
    if set_condition(status, "Suspended", reason, message, clock.now, true=suspended):
        steps.events.append(JobEvent("Normal", reason, message))


def _copy_status(status: Json, jobset: Json) -> None:
    """Copy the counts and the final condition of the JobSet."""
    counts = (jobset.get("status") or {}).get("replicatedJobsStatus") or []
    if counts:
        status["jobsStatus"] = [
            {"name": count["name"], **{key: int(count.get(key) or 0) for key in _COUNTS}}
            for count in counts
        ]
    else:
        status.pop("jobsStatus", None)
    for of_jobset, of_trainjob in (("Completed", "Complete"), ("Failed", "Failed")):
        end = true_condition(jobset, of_jobset)
        if end is not None:
            when = end["lastTransitionTime"]
            set_condition(status, of_trainjob, end["reason"], end.get("message", ""), when)


def _report_waiting(status: Json, jobset: Json | None, steps: Steps, clock: Clock) -> None:
    """Report why the JobSet waits; remove the report once it does not."""
    part = waiting.part_view(jobset) if jobset is not None else None
    if part is None or _is_over(status):
        waiting.clear(status)
        return
    waits = waiting.report(status, (part,), clock.now_s, clock.now)
    steps.events += [waits.event] if waits.event is not None else []


def _apply_deadline(
    owned: Owned, status: Json, jobset: Json | None, steps: Steps, clock: Clock
) -> None:
    """End a job after its deadline; the time while it is suspended does not count."""
    limit_s = owned.body["spec"].get("activeDeadlineSeconds")
    if not limit_s or _is_over(status) or owned.body["spec"].get("suspend"):
        return
    since = str(owned.body["metadata"].get("creationTimestamp") or clock.now)
    for item in status.get("conditions") or []:
        if item["type"] == "Suspended" and item["status"] == "False":
            since = item["lastTransitionTime"]
    left_s = parse_time(since) + float(limit_s) - clock.now_s
    if left_s > 0:
        steps.requeue_in(left_s)
        return
    _fail(status, steps, clock, _DEADLINE, "TrainJob exceeded its active deadline")
    if jobset is not None:
        steps.delete.append(("JobSet", jobset["metadata"]["name"]))


def _is_over(status: Json) -> bool:
    return any(
        item["type"] in ("Complete", "Failed") and item["status"] == "True"
        for item in status.get("conditions") or []
    )


def _fail(status: Json, steps: Steps, clock: Clock, reason: str, message: str) -> None:
    known = next((c for c in status.get("conditions") or [] if c["type"] == "Failed"), None)
    if known is not None and known.get("message") != message:
        status["conditions"].remove(known)
    if set_condition(status, "Failed", reason, message, clock.now):
        steps.events.append(JobEvent("Warning", reason, message))


def _clear_missing_runtime(status: Json) -> None:
    """Remove the condition that the runtime did not exist."""
    if "conditions" not in status:
        return
    kept = [
        item
        for item in status["conditions"]
        if not (item["type"] == "Failed" and item.get("reason") == NO_RUNTIME)
    ]
    status["conditions"] = kept
    if not kept:
        del status["conditions"]
