"""The parts of every step of a job's reconcile: conditions, Events, deletions, time limits."""

from dataclasses import dataclass

from gangsched.jobs.common import conditions, waiting
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import (
    Actions,
    JobEvent,
    JobRole,
    Json,
    Observed,
    PodView,
    TrainingJob,
)
from gangsched.jobs.common.times import parse_time
from gangsched.jobs.kubeflow.framework import Framework

_EXIT_GRACE_S = 60.0
_CRASHES_REPORTED = 3


@dataclass(slots=True)
class JobReconcile:
    """One reconcile in progress; `status` and `actions` are filled in."""

    job: TrainingJob
    framework: Framework
    seen: Observed
    clock: Clock
    status: Json
    actions: Actions

    @property
    def _subject(self) -> str:
        return f"{self.job.kind} {self.job.name}"

    # -- the end ------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Apply the clean-up policy; delete the job once its time to live is over."""
        if self.seen.group is not None:
            self.actions.delete_group = True
        self.actions.drop = self.framework.documents_while_running(self.job)
        policy = self.job.limits.clean_pods
        if not policy:
            self._stop_running_pods()
        if policy in ("Running", "All"):
            doomed = [
                pod
                for pod in self.seen.pods
                if policy == "All" or pod.phase in ("Running", "Pending", "Unknown", "")
            ]
            self._delete([pod for pod in doomed if not pod.terminating])
            self.actions.delete_services += [
                pod.name for pod in doomed if pod.name in self.seen.services
            ]
        ttl_s = self.job.limits.ttl_s
        if ttl_s is None:
            return
        completed = parse_time(str(self.status.get("completionTime", self.clock.now)))
        left_s = completed + ttl_s - self.clock.now_s
        if left_s <= 0:
            self.actions.delete_job = True
        else:
            self._requeue_in(left_s)

    def _stop_running_pods(self) -> None:
        """Stop pods that outlive their job and would use GPUs for nothing; their logs stay.

        The pods of a job that succeeded get some time to end by themselves.
        """
        running = [
            pod
            for pod in self.seen.pods
            if pod.phase in ("Running", "Pending", "Unknown", "")
            and not pod.terminating
            and not pod.stopping
        ]
        if not running:
            return
        left_s = 0.0
        if conditions.is_true(self.status, "Succeeded") and self.framework.has_exit_grace:
            ended_s = parse_time(str(self.status.get("completionTime", self.clock.now)))
            left_s = ended_s + _EXIT_GRACE_S - self.clock.now_s
        if left_s > 0:
            self._requeue_in(left_s)
        else:
            self.actions.stop_pods += running

    def suspend(self) -> None:
        """Delete everything, and set the condition Suspended."""
        self._set_condition("Created", f"{self._subject} is created.")
        self._delete([pod for pod in self.seen.pods if not pod.terminating])
        self.actions.delete_services += sorted(self.seen.services)
        self.actions.drop = self.framework.documents_while_running(self.job)
        self.actions.delete_group = self.seen.group is not None
        self.status.pop("startTime", None)
        self.status["replicaStatuses"] = {
            role.type: {"selector": self.framework.selector(self.job, role)}
            for role in self.job.roles
        }
        self._set_condition("Suspended", f"{self._subject} is suspended.")

    def report_waiting(self) -> None:
        """Report why the job waits, unless it is over or suspended, or has no gang."""
        ended = conditions.is_finished(self.status)
        if self.job.unknown_keys and not ended:
            event = JobEvent("Warning", "UnknownKey", self.job.unknown_keys, self.job.unknown_keys)
            self.actions.events.append(event)
        over = ended or self.job.limits.suspend
        group = None if over or self.actions.delete_group else self.seen.group
        groups = () if group is None else (group,)
        waits = waiting.report(self.status, groups, self.clock.now_s, self.clock.now)
        if waits.event is not None:
            self.actions.events.append(waits.event)
        if waits.requeue_in_s is not None:
            self._requeue_in(waits.requeue_in_s)

    def _report_crashes(self) -> None:
        """Report a pod with a container that keeps failing: the pod's phase stays Running."""
        for pod in self.seen.pods:
            if pod.restarts >= _CRASHES_REPORTED and pod.phase == "Running":
                self.actions.events.append(
                    JobEvent(
                        "Warning",
                        "CrashLooping",
                        f"pod {pod.name} has been restarted {pod.restarts} times, last exit code "
                        f"{pod.exit_code}; see its previous log, or set runPolicy.backoffLimit.",
                    )
                )
                break

    # -- small helpers ------------------------------------------------------------------------

    def _finish(self, kind: str, message: str, word: str = "") -> None:
        self.status["completionTime"] = self.clock.now
        self._set_condition(kind, message, word)

    def _set_condition(self, kind: str, message: str, word: str = "", *, true: bool = True) -> None:
        """Set a condition, with an Event if the condition is new; the reason ends with `word`.

        Created and Running have an Event only if the kind's own operator writes one.
        """
        plain = kind in ("Created", "Running") and not word
        word = word or (kind if true or kind != "Suspended" else "Resumed")
        reason = f"{self.job.kind}{word}"
        news = conditions.put(self.status, kind, reason, message, self.clock.now, true=true)
        if news and (self.framework.emits_running_event or not plain):
            self._event(
                "Warning" if kind in ("Failed", "Restarting") else "Normal", reason, message
            )

    def _event(self, kind: str, reason: str, message: str) -> None:
        self.actions.events.append(JobEvent(kind, reason, message))

    def _delete(self, pods: list[PodView]) -> None:
        known = {pod.uid for pod in self.actions.delete_pods}
        self.actions.delete_pods += [pod for pod in pods if pod.uid not in known]

    def _requeue_in(self, in_s: float) -> None:
        known = self.actions.requeue_in_s
        self.actions.requeue_in_s = max(min(in_s, known if known is not None else in_s), 0.0)

    def _role_of(self, pod: PodView) -> JobRole | None:
        return next((r for r in self.job.roles if r.type.lower() == pod.role), None)

    def _policy(self, pod: PodView) -> str:
        role = self._role_of(pod)
        return role.restart_policy if role is not None else "Never"

    def _started_s(self) -> float:
        return parse_time(self.status["startTime"])
