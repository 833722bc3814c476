"""The reconcile of a JobSet (jobset.x-k8s.io/v1alpha2) as a pure function.

Source: kubernetes-sigs/jobset v0.10, pkg/controllers. Beyond it, every stage of a JobSet is a gang:
its PodGroup is created before its Jobs.

    Suspended <-> (starting, running) -> Completed | Failed;    a restart recreates every Job
"""

import copy
import math
from collections.abc import Collection, Iterator, Mapping

from gangsched.core.bounds import MESSAGE_LETTERS
from gangsched.core.model.text import whole
from gangsched.jobs.common import waiting
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.merge import missing_items
from gangsched.jobs.common.model import GROUP_VERSION, Intent, JobEvent, Json
from gangsched.jobs.common.owned_objects import (
    Owned,
    Steps,
    is_terminating,
    set_condition,
    true_condition,
)
from gangsched.jobs.common.step_budget import StepBudget
from gangsched.jobs.common.times import parse_time
from gangsched.jobs.jobset.objects import PREFIX, RESTARTS, Attempt
from gangsched.jobs.jobset.stages import JobSetStage, pods_at_a_time, pods_each

KIND = "JobSet"
API_VERSION = "jobset.x-k8s.io/v1alpha2"

_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")

Matching = Mapping[str, Collection[str]]
"""The messages of failed Jobs that match, by pattern of the failure policy."""


def reconcile(
    owned: Owned, clock: Clock, scheduler: str, extra_spec: Json, matching: Matching
) -> Steps:
    """Return the steps to take now; `extra_spec` are further fields of the gangs' PodGroups."""
    step = _ActiveJobSet(owned, clock, scheduler, extra_spec, matching)
    step.decide()
    step.report_waiting()
    if step.status != (owned.body.get("status") or {}):
        step.steps.status = step.status
    if step.budget.exhausted:
        step.steps.requeue_in(0.0)
    return step.steps.within_limits()


def messages(owned: Owned) -> list[str]:
    """Return the messages of failed Jobs, in the length that patterns are matched with."""
    return sorted({_message(job) for job in owned.of("Job") if true_condition(job, "Failed")})


class _ActiveJobSet:
    """One reconcile in progress."""

    def __init__(
        self, owned: Owned, clock: Clock, scheduler: str, extra_spec: Json, matching: Matching
    ) -> None:
        self.owned, self.clock, self.matching = owned, clock, matching
        self.spec: Json = owned.body["spec"]
        self.status: Json = copy.deepcopy(owned.body.get("status") or {})
        self.steps = Steps()
        self.budget = StepBudget()
        self.restarts = int(self.status.get("restarts", 0))
        self.attempt = Attempt(owned, scheduler, self.restarts, extra_spec)
        self.known = {job["metadata"]["name"]: job for job in owned.of("Job")}
        self.previous = [job for job in self.known.values() if _attempt(job) < self.restarts]
        self.jobs = [
            job
            for job in self.known.values()
            if not is_terminating(job) and _attempt(job) >= self.restarts
        ]
        self.failed = [job for job in self.jobs if true_condition(job, "Failed")]
        self.done = [job for job in self.jobs if true_condition(job, "Complete")]
        over = {job["metadata"]["name"] for job in (*self.failed, *self.done)}
        self.active = [job for job in self.jobs if job["metadata"]["name"] not in over]

    def decide(self) -> None:
        """Fill in `steps` and `status`."""
        self.status["restarts"] = self.restarts
        counts = self.status["replicatedJobsStatus"] = self._counts()
        self.counts = {count["name"]: count for count in counts}
        if self.status.get("terminalState"):
            self._clean_up()
            return
        old = [job for job in self.previous if not is_terminating(job)]
        self.steps.delete += [("Job", job["metadata"]["name"]) for job in old]
        if self.failed:
            self._apply_failure_policy()
        elif self.done and self._succeeded():
            self._set_condition("Completed", "AllJobsCompleted", "jobset completed successfully")
            self._end("Completed")
        else:
            self._create_missing()

    # -- the Jobs -----------------------------------------------------------------------------

    def _counts(self) -> list[Json]:
        rjobs: dict[str, Json] = {rjob["name"]: rjob for rjob in self.spec["replicatedJobs"]}
        by_name = {name: dict.fromkeys(_COUNTS, 0) for name in rjobs}
        for kind, jobs in (("failed", self.failed), ("succeeded", self.done)):
            for job in jobs:
                if (name := _replicated_job(job)) in by_name:
                    by_name[name][kind] += 1
        for job in self.active:
            if (name := _replicated_job(job)) not in by_name:
                continue
            counts, status = by_name[name], job.get("status") or {}
            up = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
            counts["ready"] += up >= pods_each(rjobs[name])
            counts["active"] += int(status.get("active") or 0) > 0
            counts["suspended"] += bool(job["spec"].get("suspend"))
        return [{"name": name, **counts} for name, counts in by_name.items()]

    def _succeeded(self) -> bool:
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or []
        rjobs = [r for r in self.spec["replicatedJobs"] if not targets or r["name"] in targets]
        done = sum(self.counts[rjob["name"]]["succeeded"] for rjob in rjobs)
        whole = sum(int(rjob.get("replicas", 1)) for rjob in rjobs)
        return bool(done >= (1 if policy.get("operator", "All") == "Any" else whole))

    def _reached(self, rjob: Json) -> bool:
        """Return whether the dependencies of a replicated job are fulfilled."""
        replicas = {job["name"]: int(job.get("replicas", 1)) for job in self.spec["replicatedJobs"]}
        for dependency in rjob.get("dependsOn") or []:
            counts = self.counts[dependency["name"]]
            have = counts["succeeded"]
            if dependency.get("status") == "Ready":
                have += counts["failed"] + counts["ready"]
            if have < replicas[dependency["name"]]:
                return False
        return True

    def _started(self, rjob: Json) -> bool:
        counts = self.counts[rjob["name"]]
        up = counts["failed"] + counts["ready"] + counts["succeeded"]
        return bool(up == int(rjob.get("replicas", 1)))

    # -- the end ------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Delete running Jobs, and the JobSet once its time to live is over."""
        self.steps.delete += [("Job", job["metadata"]["name"]) for job in self.active]
        self._drop_groups()
        ttl_s = self.spec.get("ttlSecondsAfterFinished")
        if ttl_s is None:
            return
        end = true_condition({"status": self.status}, self.status["terminalState"])
        ended_s = parse_time(end["lastTransitionTime"]) if end is not None else -math.inf
        left_s = ended_s + ttl_s - self.clock.now_s
        if left_s <= 0:
            self.steps.delete_owner = True
        else:
            self.steps.requeue_in(left_s)

    def _end(self, state: str) -> None:
        self.status["terminalState"] = state
        self.steps.requeue_in(0.0)

    def _apply_failure_policy(self) -> None:
        policy = self.spec.get("failurePolicy")
        first = min(self.failed, key=_failed_at)
        if policy is None:
            self._fail_jobset("FailedJobs", "jobset failed due to one or more job failures", first)
            return
        rule, job = next(self._matching_rules(policy), (None, first))
        action = rule["action"] if rule is not None else "RestartJobSet"
        name = job["metadata"]["name"]
        if action == "FailJobSet":
            reason = "FailJobSetFailurePolicyAction"
            self._fail_jobset(reason, "applying FailJobSet failure policy action", job)
            return
        counted = not action.endswith("IgnoreMaxRestarts")
        used = int(self.status.get("restartsCountTowardsMax", 0))
        if counted and used >= int(policy.get("maxRestarts", 0)):
            message = "jobset failed due to reaching max number of restarts"
            self._fail_jobset("ReachedMaxRestarts", message, job)
            return
        if counted:
            self.status["restartsCountTowardsMax"] = used + 1
        if action.startswith("RestartJobSet"):
            self.status["restarts"] = self.restarts + 1
            self._drop_groups()
        else:
            self.steps.delete.append(("Job", name))
        message = f"applying {action} failure policy action (first failed job: {name})"
        self._emit("Warning", f"{action}FailurePolicyAction", message)
        self.steps.requeue_in(0.0)

    def _matching_rules(self, policy: Json) -> Iterator[tuple[Json, Json]]:
        """Yield rules that match a failed Job, in order, each with the first such Job."""
        for rule in policy.get("rules") or []:
            matched = [job for job in self.failed if _rule_matches(rule, job, self.matching)]
            if matched:
                yield rule, min(matched, key=_failed_at)

    def _fail_jobset(self, reason: str, message: str, job: Json) -> None:
        name = job["metadata"]["name"]
        self._set_condition("Failed", reason, f"{message} (first failed job: {name})")
        self._end("Failed")

    # -- the start ----------------------------------------------------------------------------

    def _create_missing(self) -> None:
        self._create_shared()
        suspended = bool(self.spec.get("suspend"))
        if suspended:
            self._suspend()
        elif self.previous and self._waits_for_old_jobs():
            return
        self._start(suspended=suspended)

    def _suspend(self) -> None:
        for job in self.active:
            if not job["spec"].get("suspend"):
                body = {"spec": {"suspend": True}}
                self.steps.patch.append((("Job", job["metadata"]["name"]), body))
        self._drop_groups()
        self._set_condition("Suspended", "SuspendedJobs", "jobset is suspended")

    def _start(self, *, suspended: bool) -> None:
        """Create and resume Jobs, as far as their order allows."""
        ordered = (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        for rjob in self.spec["replicatedJobs"]:
            if not self._reached(rjob):
                continue
            if ordered and not suspended and self._started(rjob):
                continue
            if not suspended and not self._declare(rjob):
                continue  # the last gang of that name is still terminating
            self._start_jobs(rjob, suspended=suspended)
            if ordered and not suspended:
                message = "in order startup policy is in progress"
                reason = "InOrderStartupPolicyInProgress"
                self._set_condition("StartupPolicyInProgress", reason, message)
                return
        if suspended:
            return
        if ordered:
            kind = "StartupPolicyInProgress"
            set_condition(self.status, kind, "", "", self.clock.now, true=False)
            message = "in order startup policy has completed"
            self._set_condition("StartupPolicyCompleted", "InOrderStartupPolicyCompleted", message)
        self._set_condition("Suspended", "ResumeJobs", "jobset is resumed", true=False)

    def _start_jobs(self, rjob: Json, *, suspended: bool) -> None:
        resumable = () if suspended else {job["metadata"]["name"] for job in self.active}
        for index in range(int(rjob.get("replicas", 1))):
            name = f"{self.owned.name}-{rjob['name']}-{index}"
            job = self.known.get(name)
            if job is None:
                if not self.budget.may_build(rjob["name"]):
                    return  # the next step goes on
                job = self.attempt.job(rjob, index, suspended=suspended)
                self.budget.charge(rjob["name"], job)
                self.steps.create.append(job)
            elif job["spec"].get("suspend") and name in resumable:
                if not self.budget.may_build(f"change of {rjob['name']}"):
                    return
                change = self._resume_patch(rjob, job)
                self.budget.charge(f"change of {rjob['name']}", change)
                self.steps.patch.append((("Job", name), change))

    def _resume_patch(self, rjob: Json, job: Json) -> Json:
        """Return the patch that resumes a Job, with later changes of the JobSet's template.

        A queueing system adds node selectors, tolerations and gates while a JobSet is suspended.
        """
        wanted, current = rjob["template"]["spec"]["template"], job["spec"]["template"]
        metadata = wanted.get("metadata") or {}
        spec: Json = {"nodeSelector": (wanted.get("spec") or {}).get("nodeSelector") or {}}
        for key in ("tolerations", "schedulingGates"):
            old = current["spec"].get(key) or []
            new = missing_items(old, wanted["spec"].get(key) or [])
            if new:
                spec[key] = old + new
        template = {
            "metadata": {key: metadata.get(key) or {} for key in ("labels", "annotations")},
            "spec": spec,
        }
        return {"spec": {"suspend": False, "template": template}}

    def _create_shared(self) -> None:
        """Create the objects that all Jobs share: their Service, their volume claims."""
        if self.attempt.has_dns_names and ("Service", self.attempt.domain) not in self.owned.parts:
            self.steps.create.append(self.attempt.service())
        for claim, kept in self.attempt.claims():
            if kept and not self.known:  # without an owner: created before the first Job
                self.steps.unowned.append(claim)
                continue
            ref = ("PersistentVolumeClaim", claim["metadata"]["name"])
            if not kept and ref not in self.owned.parts:
                self.steps.create.append(claim)

    def _declare(self, rjob: Json) -> bool:
        """Create the PodGroup of a replicated job's stage; False while an old one terminates."""
        if not self.attempt.is_placed_here(rjob):
            return True
        stage = self.attempt.stage(rjob)
        known = self.owned.parts.get(("PodGroup", stage.group))
        if known is not None:
            labels = known["metadata"].get("labels") or {}
            return not is_terminating(known) and labels.get(RESTARTS) == str(self.restarts)
        if self.previous:
            return False  # a new gang begins when the last Job of the old one is gone
        refs = [(part["kind"], part["metadata"]["name"]) for part in self.steps.create]
        if ("PodGroup", stage.group) not in refs:
            self.steps.create.append(self.attempt.group(stage))
            self._add_intents(stage)
        return True

    def _add_intents(self, stage: JobSetStage) -> None:
        """Add the intents of all Jobs; the pods of the stage count together."""
        for rjob in self.spec["replicatedJobs"]:
            job = self.attempt.job(rjob, 0, suspended=False)
            template = job["spec"]["template"]
            metadata = template["metadata"] | {"name": f"{job['metadata']['name']}-0"}
            pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
            count = pods_at_a_time(rjob) if rjob in stage.jobs else 0
            self.steps.intents += [
                Intent(0, job, {}),
                Intent(count, pod, rjob["template"]["spec"]["template"]["spec"]),
            ]

    def _drop_groups(self) -> None:
        self.steps.delete += [
            ("PodGroup", group["metadata"]["name"])
            for group in self.owned.of("PodGroup")
            if not is_terminating(group)
        ]

    def _waits_for_old_jobs(self) -> bool:
        policy = self.spec.get("failurePolicy") or {}
        return policy.get("restartStrategy") == "BlockingRecreate"

    def report_waiting(self) -> None:
        """Report why the JobSet waits, unless it is over, suspended or restarting."""
        dropped = {name for kind, name in self.steps.delete if kind == "PodGroup"}
        over = self.status.get("terminalState") or self.spec.get("suspend")
        groups = [] if over else self.owned.of("PodGroup")
        views = (
            waiting.parse_group_view(g) for g in groups if g["metadata"]["name"] not in dropped
        )
        waits = waiting.report(self.status, views, self.clock.now_s, self.clock.now)
        self.steps.events += [waits.event] if waits.event is not None else []

    # -- conditions ---------------------------------------------------------------------------

    def _set_condition(self, kind: str, reason: str, message: str, *, true: bool = True) -> None:
        if set_condition(self.status, kind, reason, message, self.clock.now, true=true):
            self._emit("Warning" if kind == "Failed" else "Normal", reason, message)

    def _emit(self, kind: str, reason: str, message: str) -> None:
        self.steps.events.append(JobEvent(kind, reason, message))


def _attempt(job: Json) -> int:
    attempt = whole((job["metadata"].get("labels") or {}).get(RESTARTS, ""))
    return -1 if attempt is None else attempt


def _failed_at(job: Json) -> tuple[str, str]:
    end = true_condition(job, "Failed") or {}
    return str(end.get("lastTransitionTime", "")), str(job["metadata"]["name"])


def _replicated_job(job: Json) -> str:
    return str((job["metadata"].get("labels") or {}).get(f"{PREFIX}/replicatedjob-name", ""))


def _message(job: Json) -> str:
    return str((true_condition(job, "Failed") or {}).get("message", ""))[: MESSAGE_LETTERS.most]


def _rule_matches(rule: Json, job: Json, matching: Matching) -> bool:
    end = true_condition(job, "Failed") or {}
    reasons = rule.get("onJobFailureReasons") or []
    patterns = rule.get("onJobFailureMessagePatterns") or []
    targets = rule.get("targetReplicatedJobs") or []
    message = _message(job)
    return (
        (not reasons or end.get("reason") in reasons)
        and (not patterns or any(message in matching.get(pattern, ()) for pattern in patterns))
        and (not targets or _replicated_job(job) in targets)
    )


REFS: tuple[tuple[str, str], ...] = (
    ("batch/v1", "Job"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
    (GROUP_VERSION, "PodGroup"),
)
"""The kinds that a JobSet owns."""
