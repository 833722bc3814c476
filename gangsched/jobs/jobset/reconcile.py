"""The reconcile of a JobSet (jobset.x-k8s.io/v1alpha2) as a pure function.

Source: kubernetes-sigs/jobset v0.10, pkg/controllers. Beyond it, every stage of a JobSet is a gang:
its PodGroup is there before its Jobs.

    Suspended <-> (starting, running) -> Completed | Failed;    a restart recreates every Job
"""

import copy
from collections.abc import Collection, Iterator, Mapping

from gangsched.core.bounds import MESSAGE_LETTERS
from gangsched.core.model.text import whole
from gangsched.jobs.common import waiting
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.merge import beyond
from gangsched.jobs.common.model import GROUP_VERSION, Intent, JobEvent, Json
from gangsched.jobs.common.owned_objects import Owned, Steps, condition, leaving, set_condition
from gangsched.jobs.common.portion import Portion
from gangsched.jobs.common.times import parse_time
from gangsched.jobs.jobset.objects import PREFIX, RESTARTS, Shape
from gangsched.jobs.jobset.stages import Stage, pods, pods_each

KIND = "JobSet"
API_VERSION = "jobset.x-k8s.io/v1alpha2"

_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")

Matching = Mapping[str, Collection[str]]
"""Which messages of failed Jobs each pattern of the failure policy matches."""


def reconcile(owned: Owned, clock: Clock, scheduler: str, asked: Json, matching: Matching) -> Steps:
    """Return the steps to take now; `asked` are further fields of the gangs' PodGroups."""
    step = _Step(owned, clock, scheduler, asked, matching)
    step.take()
    step.report_waiting()
    if step.status != (owned.body.get("status") or {}):
        step.steps.status = step.status
    if step.portion.short:
        step.steps.requeue_in(0.0)
    return step.steps.limited()


def messages(owned: Owned) -> list[str]:
    """Return the messages of failed Jobs, as far as patterns are matched with them."""
    return sorted({_message(job) for job in owned.of("Job") if condition(job, "Failed")})


class _Step:
    """One reconcile in progress."""

    def __init__(
        self, owned: Owned, clock: Clock, scheduler: str, asked: Json, matching: Matching
    ) -> None:
        self.owned, self.clock, self.matching = owned, clock, matching
        self.spec: Json = owned.body["spec"]
        self.status: Json = copy.deepcopy(owned.body.get("status") or {})
        self.steps = Steps()
        self.portion = Portion()
        self.restarts = int(self.status.get("restarts", 0))
        self.shape = Shape(owned, scheduler, self.restarts, asked)
        self.known = {job["metadata"]["name"]: job for job in owned.of("Job")}
        self.previous = [job for job in self.known.values() if _attempt(job) < self.restarts]
        self.jobs = [
            job
            for job in self.known.values()
            if not leaving(job) and _attempt(job) >= self.restarts
        ]
        self.failed = [job for job in self.jobs if condition(job, "Failed")]
        self.done = [job for job in self.jobs if condition(job, "Complete")]
        over = {job["metadata"]["name"] for job in (*self.failed, *self.done)}
        self.active = [job for job in self.jobs if job["metadata"]["name"] not in over]

    def take(self) -> None:
        """Fill in what to do."""
        self.status["restarts"] = self.restarts
        counts = self.status["replicatedJobsStatus"] = self._counts()
        self.counts = {one["name"]: one for one in counts}
        if self.status.get("terminalState"):
            self._clean_up()
            return
        old = [job for job in self.previous if not leaving(job)]
        self.steps.delete += [("Job", job["metadata"]["name"]) for job in old]
        if self.failed:
            self._fail()
        elif self.done and self._succeeded():
            self._set_condition("Completed", "AllJobsCompleted", "jobset completed successfully")
            self._end("Completed")
        else:
            self._create_missing()

    # -- what is there ------------------------------------------------------------------------

    def _counts(self) -> list[Json]:
        rjobs: dict[str, Json] = {one["name"]: one for one in self.spec["replicatedJobs"]}
        found = {name: dict.fromkeys(_COUNTS, 0) for name in rjobs}
        for kind, jobs in (("failed", self.failed), ("succeeded", self.done)):
            for job in jobs:
                if (name := _replicated(job)) in found:
                    found[name][kind] += 1
        for job in self.active:
            if (name := _replicated(job)) not in found:
                continue
            counts, status = found[name], job.get("status") or {}
            up = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
            counts["ready"] += up >= pods_each(rjobs[name])
            counts["active"] += int(status.get("active") or 0) > 0
            counts["suspended"] += bool(job["spec"].get("suspend"))
        return [{"name": name, **counts} for name, counts in found.items()]

    def _succeeded(self) -> bool:
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or []
        rjobs = [r for r in self.spec["replicatedJobs"] if not targets or r["name"] in targets]
        done = sum(self.counts[rjob["name"]]["succeeded"] for rjob in rjobs)
        whole = sum(int(rjob.get("replicas", 1)) for rjob in rjobs)
        return bool(done >= (1 if policy.get("operator", "All") == "Any" else whole))

    def _reached(self, rjob: Json) -> bool:
        """Return whether what a replicated job depends on has come so far."""
        replicas = {one["name"]: int(one.get("replicas", 1)) for one in self.spec["replicatedJobs"]}
        for one in rjob.get("dependsOn") or []:
            counts = self.counts[one["name"]]
            have = counts["succeeded"]
            if one.get("status") == "Ready":
                have += counts["failed"] + counts["ready"]
            if have < replicas[one["name"]]:
                return False
        return True

    def _started(self, rjob: Json) -> bool:
        counts = self.counts[rjob["name"]]
        up = counts["failed"] + counts["ready"] + counts["succeeded"]
        return bool(up == int(rjob.get("replicas", 1)))

    # -- how it ends --------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Delete what still runs, then the JobSet when its time is over."""
        self.steps.delete += [("Job", job["metadata"]["name"]) for job in self.active]
        self._drop_groups()
        ttl_s = self.spec.get("ttlSecondsAfterFinished")
        if ttl_s is None:
            return
        end = condition({"status": self.status}, self.status["terminalState"])
        left_s = (
            parse_time(end["lastTransitionTime"]) + ttl_s - self.clock.now_s
            if end is not None
            else 0.0
        )
        if left_s <= 0:
            self.steps.delete_owner = True
        else:
            self.steps.requeue_in(left_s)

    def _end(self, state: str) -> None:
        self.status["terminalState"] = state
        self.steps.requeue_in(0.0)

    def _fail(self) -> None:
        """Apply the failure policy."""
        policy = self.spec.get("failurePolicy")
        first = min(self.failed, key=_failed_at)
        if policy is None:
            self._give_up("FailedJobs", "jobset failed due to one or more job failures", first)
            return
        rule, job = next(self._matches(policy), (None, first))
        action = rule["action"] if rule is not None else "RestartJobSet"
        name = job["metadata"]["name"]
        if action == "FailJobSet":
            reason = "FailJobSetFailurePolicyAction"
            self._give_up(reason, "applying FailJobSet failure policy action", job)
            return
        counted = not action.endswith("IgnoreMaxRestarts")
        used = int(self.status.get("restartsCountTowardsMax", 0))
        if counted and used >= int(policy.get("maxRestarts", 0)):
            message = "jobset failed due to reaching max number of restarts"
            self._give_up("ReachedMaxRestarts", message, job)
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

    def _matches(self, policy: Json) -> Iterator[tuple[Json, Json]]:
        """Yield rules that match a failed Job, in order, each with the first that failed so."""
        for rule in policy.get("rules") or []:
            found = [job for job in self.failed if _matches(rule, job, self.matching)]
            if found:
                yield rule, min(found, key=_failed_at)

    def _give_up(self, reason: str, message: str, job: Json) -> None:
        name = job["metadata"]["name"]
        self._set_condition("Failed", reason, f"{message} (first failed job: {name})")
        self._end("Failed")

    # -- how it begins ------------------------------------------------------------------------

    def _create_missing(self) -> None:
        self._have_shared()
        suspended = bool(self.spec.get("suspend"))
        if suspended:
            self._suspend()
        elif self.previous and self._blocking():
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
                continue  # the last gang of that name is still leaving
            self._jobs_of(rjob, suspended=suspended)
            if ordered and not suspended:
                message = "in order startup policy is in progress"
                self._set_condition(
                    "StartupPolicyInProgress", "InOrderStartupPolicyInProgress", message
                )
                return
        if suspended:
            return
        if ordered:
            set_condition(
                self.status, "StartupPolicyInProgress", "", "", self.clock.now, true=False
            )
            message = "in order startup policy has completed"
            self._set_condition("StartupPolicyCompleted", "InOrderStartupPolicyCompleted", message)
        self._set_condition("Suspended", "ResumeJobs", "jobset is resumed", true=False)

    def _jobs_of(self, rjob: Json, *, suspended: bool) -> None:
        resumable = () if suspended else {job["metadata"]["name"] for job in self.active}
        for index in range(int(rjob.get("replicas", 1))):
            name = f"{self.owned.name}-{rjob['name']}-{index}"
            job = self.known.get(name)
            if job is None:
                if not self.portion.takes(rjob["name"]):
                    return  # the next step goes on
                made = self.shape.job(rjob, index, suspended=suspended)
                self.portion.built(rjob["name"], made)
                self.steps.create.append(made)
            elif job["spec"].get("suspend") and name in resumable:
                if not self.portion.takes(f"change of {rjob['name']}"):
                    return
                change = self._resumed(rjob, job)
                self.portion.built(f"change of {rjob['name']}", change)
                self.steps.patch.append((("Job", name), change))

    def _resumed(self, rjob: Json, job: Json) -> Json:
        """Return the patch that starts a Job, with what others wrote into the template since.

        A queueing system adds node selectors, tolerations and gates while a JobSet is suspended.
        """
        wanted, has = rjob["template"]["spec"]["template"], job["spec"]["template"]
        metadata = wanted.get("metadata") or {}
        spec: Json = {"nodeSelector": (wanted.get("spec") or {}).get("nodeSelector") or {}}
        for key in ("tolerations", "schedulingGates"):
            old = has["spec"].get(key) or []
            new = beyond(old, wanted["spec"].get(key) or [])
            if new:
                spec[key] = old + new
        template = {
            "metadata": {key: metadata.get(key) or {} for key in ("labels", "annotations")},
            "spec": spec,
        }
        return {"spec": {"suspend": False, "template": template}}

    def _have_shared(self) -> None:
        """Have what all Jobs share: their Service, their volume claims."""
        if self.shape.named and ("Service", self.shape.domain) not in self.owned.parts:
            self.steps.create.append(self.shape.service())
        for claim, kept in self.shape.claims():
            if kept and not self.known:  # it has no owner: created before the first Job
                self.steps.unowned.append(claim)
            elif not kept and ("PersistentVolumeClaim", claim["metadata"]["name"]) not in (
                self.owned.parts
            ):
                self.steps.create.append(claim)

    def _declare(self, rjob: Json) -> bool:
        """Create the PodGroup of a replicated job's stage; False while an old one terminates."""
        if not self.shape.ours(rjob):
            return True
        stage = self.shape.stage(rjob)
        known = self.owned.parts.get(("PodGroup", stage.group))
        if known is not None:
            labels = known["metadata"].get("labels") or {}
            return not leaving(known) and labels.get(RESTARTS) == str(self.restarts)
        if self.previous:
            return False  # a new gang begins when the last Job of the old one is gone
        made = any(
            one["kind"] == "PodGroup" and one["metadata"]["name"] == stage.group
            for one in self.steps.create
        )
        if not made:
            self.steps.create.append(self.shape.group(stage))
            self._intend(stage)
        return True

    def _intend(self, stage: Stage) -> None:
        """Add the intents of all Jobs; the pods of the stage count together."""
        for rjob in self.spec["replicatedJobs"]:
            job = self.shape.job(rjob, 0, suspended=False)
            template = job["spec"]["template"]
            metadata = template["metadata"] | {"name": f"{job['metadata']['name']}-0"}
            pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
            count = pods(rjob) if rjob in stage.jobs else 0
            self.steps.intents += [
                Intent(0, job, {}),
                Intent(count, pod, rjob["template"]["spec"]["template"]["spec"]),
            ]

    def _drop_groups(self) -> None:
        self.steps.delete += [
            ("PodGroup", group["metadata"]["name"])
            for group in self.owned.of("PodGroup")
            if not leaving(group)
        ]

    def _blocking(self) -> bool:
        policy = self.spec.get("failurePolicy") or {}
        return policy.get("restartStrategy") == "BlockingRecreate"

    def report_waiting(self) -> None:
        """Report why the JobSet waits; one that is over, suspended or restarting does not."""
        dropped = {name for kind, name in self.steps.delete if kind == "PodGroup"}
        over = self.status.get("terminalState") or self.spec.get("suspend")
        groups = [] if over else self.owned.of("PodGroup")
        seen = (waiting.view(one) for one in groups if one["metadata"]["name"] not in dropped)
        waits = waiting.report(self.status, seen, self.clock.now_s, self.clock.now)
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
    end = condition(job, "Failed") or {}
    return str(end.get("lastTransitionTime", "")), str(job["metadata"]["name"])


def _replicated(job: Json) -> str:
    return str((job["metadata"].get("labels") or {}).get(f"{PREFIX}/replicatedjob-name", ""))


def _message(job: Json) -> str:
    return str((condition(job, "Failed") or {}).get("message", ""))[: MESSAGE_LETTERS.most]


def _matches(rule: Json, job: Json, matching: Matching) -> bool:
    end = condition(job, "Failed") or {}
    reasons = rule.get("onJobFailureReasons") or []
    patterns = rule.get("onJobFailureMessagePatterns") or []
    targets = rule.get("targetReplicatedJobs") or []
    message = _message(job)
    return (
        (not reasons or end.get("reason") in reasons)
        and (not patterns or any(message in matching.get(one, ()) for one in patterns))
        and (not targets or _replicated(job) in targets)
    )


REFS: tuple[tuple[str, str], ...] = (
    ("batch/v1", "Job"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
    (GROUP_VERSION, "PodGroup"),
)
"""What a JobSet owns."""
