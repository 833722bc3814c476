"""The reconcile of a TrainJob (trainer.kubeflow.org/v1alpha1) as a pure function.

A TrainJob and its runtime become a JobSet, whose end is the TrainJob's. Its conditions are
Suspended, Complete and Failed, and Scheduled while it waits: the SDK calls a job with any other
condition "Created" for as long as it runs, so that one goes once the job is placed.
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
from gangsched.jobs.trainer.runtimes import resolve

KIND = "TrainJob"
API_VERSION = "trainer.kubeflow.org/v1alpha1"
REFS = (("jobset.x-k8s.io/v1alpha2", "JobSet"),)
"""The kinds of parts of a TrainJob."""

NO_RUNTIME = "TrainingRuntimeNotSupported"
MADE_FROM = "gangsched.io/made-from"
"""Annotation of a JobSet: digests of those fields of its TrainJob's spec that it was made from."""

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
    """Return what to do now; `runtime` is what it refers to, or None, which `why_none` explains."""
    steps, body = Steps(), owned.body
    status: Json = copy.deepcopy(body.get("status") or {})
    suspended = bool(body["spec"].get("suspend"))
    jobset = next((one for one in owned.of("JobSet") if not is_terminating(one)), None)
    over = true_condition(body, "Complete") or true_condition(body, "Failed")
    if over is not None and over.get("reason") == NO_RUNTIME:
        over = None  # it may have come since
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
            return  # the last one is terminating
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
        if plan.hostfile is not None:
            steps.create.append(plan.hostfile)
        plan.jobset["metadata"]["annotations"] |= {MADE_FROM: _digests(owned.body, {})}
        steps.create.append(plan.jobset)
        return
    if suspend is None or bool(suspend) == bool(jobset["spec"].get("suspend")):
        if not suspend:
            _report_edits(owned, jobset, steps)
        return
    change: Json = {"spec": {"suspend": suspend}}
    if not suspend and runtime is not None:
        # Queueing systems write patches while a job is suspended, and resume it in one go.
        spec = resolve(owned.body, runtime).jobset["spec"]
        change["spec"]["replicatedJobs"] = spec["replicatedJobs"]
        if known := _recorded_digests(jobset):
            kept = {key: known[key] for key in _NEVER_AGAIN if key in known}
            change["metadata"] = {"annotations": {MADE_FROM: _digests(owned.body, kept)}}
    steps.patch.append((("JobSet", owned.name), change))


def _report_edits(owned: Owned, jobset: Json, steps: Steps) -> None:
    """Report which edits of a job have no effect, since its JobSet exists already."""
    known, now = _recorded_digests(jobset), json.loads(_digests(owned.body, {}))
    changed = [key for key, value in now.items() if known and known.get(key) != value]
    if not changed:
        return
    fields = ", ".join(f"spec.{key}" for key in changed)
    again = all(key in _READ_ONCE for key in changed)
    remedy = "suspend and resume the job, or create it anew" if again else "create the job anew"
    message = (
        f"{fields} changed after the JobSet was made, which goes on as it was made; to have the "
        f"change take effect, {remedy}."
    )
    steps.events.append(JobEvent("Warning", "EditNotTaken", message))


def _digests(body: Json, kept: Json) -> str:
    """Return digests of the fields that are read once; those that are `kept` are as they were."""
    found = {}
    for key in (*_READ_ONCE, *_NEVER_AGAIN):
        text = json.dumps(body["spec"].get(key) or None, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        found[key] = kept.get(key, digest)
    return json.dumps(found)


def _recorded_digests(jobset: Json) -> Json:
    """Return the digests that a JobSet has; any user may have changed them."""
    text = (jobset["metadata"].get("annotations") or {}).get(MADE_FROM, "")
    try:
        found = json.loads(text[:_DIGESTS_LENGTH])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _suspend(status: Json, steps: Steps, clock: Clock, *, suspended: bool) -> None:
    """Set the condition Suspended; a job that never was suspended has none."""
    reason, message = (
        ("Suspended", "TrainJob is suspended") if suspended else ("Resumed", "TrainJob is resumed")
    )
    if set_condition(status, "Suspended", reason, message, clock.now, true=suspended):
        steps.events.append(JobEvent("Normal", reason, message))


def _copy_status(status: Json, jobset: Json) -> None:
    """Take over how far the JobSet is, and how it ended."""
    theirs = jobset.get("status") or {}
    counts = theirs.get("replicatedJobsStatus") or []
    if counts:
        status["jobsStatus"] = [
            {"name": one["name"], **{key: int(one.get(key) or 0) for key in _COUNTS}}
            for one in counts
        ]
    else:
        status.pop("jobsStatus", None)
    for kind, ours in (("Completed", "Complete"), ("Failed", "Failed")):
        end = true_condition(jobset, kind)
        if end is not None:
            when = end["lastTransitionTime"]
            set_condition(status, ours, end["reason"], end.get("message", ""), when)


def _report_waiting(status: Json, jobset: Json | None, steps: Steps, clock: Clock) -> None:
    """Report why the JobSet waits; remove the report once it does not."""
    theirs = waiting.part_view(jobset) if jobset is not None else None
    over = any(
        one["type"] in ("Complete", "Failed") and one["status"] == "True"
        for one in status.get("conditions") or []
    )
    if over or theirs is None:
        waiting.clear(status)
        return
    waits = waiting.report(status, (theirs,), clock.now_s, clock.now)
    steps.events += [waits.event] if waits.event is not None else []


def _apply_deadline(
    owned: Owned, status: Json, jobset: Json | None, steps: Steps, clock: Clock
) -> None:
    """End a job whose deadline is over; the time of a suspended one stands still."""
    limit_s = owned.body["spec"].get("activeDeadlineSeconds")
    ended = any(
        one["type"] in ("Complete", "Failed") and one["status"] == "True"
        for one in status.get("conditions") or []
    )
    if not limit_s or ended or owned.body["spec"].get("suspend"):
        return
    since = str(owned.body["metadata"].get("creationTimestamp") or clock.now)
    for one in status.get("conditions") or []:
        if one["type"] == "Suspended" and one["status"] == "False":
            since = one["lastTransitionTime"]
    left_s = parse_time(since) + float(limit_s) - clock.now_s
    if left_s > 0:
        steps.requeue_in(left_s)
        return
    _fail(status, steps, clock, _DEADLINE, "TrainJob exceeded its active deadline")
    if jobset is not None:
        steps.delete.append(("JobSet", jobset["metadata"]["name"]))


def _fail(status: Json, steps: Steps, clock: Clock, reason: str, message: str) -> None:
    known = next((c for c in status.get("conditions") or [] if c["type"] == "Failed"), None)
    if known is not None and known.get("message") != message:
        status["conditions"].remove(known)
    if set_condition(status, "Failed", reason, message, clock.now):
        steps.events.append(JobEvent("Warning", reason, message))


def _clear_missing_runtime(status: Json) -> None:
    """Take back that there was no runtime."""
    if "conditions" not in status:
        return
    kept = [
        one
        for one in status["conditions"]
        if not (one["type"] == "Failed" and one.get("reason") == NO_RUNTIME)
    ]
    status["conditions"] = kept
    if not kept:
        del status["conditions"]
