"""The reconcile of a training job: one pure step from the existing objects to the wanted ones.

    Created -> Running <-> Restarting -> Succeeded | Failed        Suspended <-> (any unfinished)

Pods are created only once their gang has its assignment (plan before create), pinned to the
assigned node. A pod that is replaced later is created gated, and planned as a late member.
"""

import copy

from gangsched.jobs.common import conditions
from gangsched.jobs.common.adoption import adopted_origin, join_gang
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import (
    GROUP_LABEL,
    GROUP_VERSION,
    Actions,
    GroupView,
    Intent,
    JobRole,
    Json,
    Observed,
    PodView,
    TrainingJob,
)
from gangsched.jobs.common.step_budget import StepBudget
from gangsched.jobs.common.templates import covers, gang_role, pin_to_node, with_lower_minimum
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.step import JobReconcile

GATE = "gangsched.io/gang"
_ON_ITS_WAY = ("Reserved", "Binding")
"""Phases in which the spec of a PodGroup must not change."""

_RETRIABLE_EXIT = 128


def reconcile(job: TrainingJob, seen: Observed, clock: Clock) -> Actions:
    """Return the actions to take now; an unchanged state needs none."""
    status: Json = copy.deepcopy(dict(job.status))
    actions = Actions()
    step = _ActiveJob(job, FRAMEWORKS[job.kind], seen, clock, status, actions)
    if conditions.is_finished(status):
        step.clean_up()
    elif job.limits.suspend:
        step.suspend()
    else:
        step.advance()
        if conditions.is_finished(status):
            step.clean_up()
    step.report_waiting()
    if status != job.status:
        status["lastReconcileTime"] = clock.now
        actions.status = status
    return actions


class _ActiveJob(JobReconcile):
    """The step of a job that is not over yet."""

    # -- unfinished ---------------------------------------------------------------------------

    def advance(self) -> None:
        """Create pods, and derive the job's state from existing pods."""
        reason = self._wait_reason()
        if reason:
            self._set_condition("Created", f"{self._subject} waits: {reason}", "Waiting")
        else:
            self._set_condition("Created", f"{self._subject} is created.")
        if conditions.is_true(self.status, "Suspended"):
            self._set_condition("Suspended", f"{self._subject} is resumed.", true=False)
            self.status.pop("startTime", None)
        if self._over_deadline() or self._over_backoff():
            return
        lost = self._lost()
        if lost and self._restart_gang(lost):
            return
        self._read_state()
        if conditions.is_finished(self.status):
            return
        self._replace()
        self._create_missing()

    def _wait_reason(self) -> str:
        """Return why the gang may not be declared yet, or nothing."""
        if self.seen.group is None and self._too_few():
            return (
                f"schedulingPolicy.minAvailable is {self.job.gang.minimum} and the job has "
                f"{self.job.total} pods; lower it, or add replicas"
            )
        return self.seen.wait_reason

    def _too_few(self) -> bool:
        return (self.job.gang.minimum or 0) > self.job.total

    def _create_missing(self) -> None:
        group = self.seen.group
        if adopted_origin(self.job, self.seen.pods) is not None:
            self._create_and_delete_pods(GroupView(""))
            if not self.actions.create_pods:
                self.actions.documents = []  # the documents of its pods stay unchanged
            return
        leaving = self.seen.has_predecessor or any(pod.terminating for pod in self.seen.pods)
        if not any(self._starts_with_gang(role) for role in self.job.roles):
            self.actions.delete_group = group is not None
            if not self._too_few():
                self._create_and_delete_pods(GroupView(""))
            return
        if group is None:
            # A new gang is declared once the last pod of the old gang is gone.
            if not leaving and not self._too_few():
                self.actions.put_group = self._group()
                self.actions.intents = [
                    self._intent(role) for role in self.job.roles if role.replicas
                ]
            return
        wanted = self._group()
        if group.phase == "Placed":
            wanted["spec"] = with_lower_minimum(group.spec, wanted["spec"])
        if not covers(group.spec, wanted["spec"]) and group.phase not in _ON_ITS_WAY:
            self.actions.put_group = wanted
        self._create_and_delete_pods(group)

    def _starts_with_gang(self, role: JobRole) -> bool:
        """Return whether a role's pods start with the gang and are placed by gangsched."""
        return self.framework.starts_with_gang(self.job, role) and self.job.is_placed_here(role)

    def _create_and_delete_pods(self, group: GroupView) -> None:
        """Create the pods that may exist, and delete surplus pods."""
        existing = {pod.name for pod in self.seen.pods}
        self.actions.documents = self.framework.documents(self.job, self.seen)
        budget = StepBudget()
        for role in self.job.roles:
            if not self.framework.must_wait(self.job, role, self.seen):
                self._create_pods(role, group, existing, budget)
        if budget.exhausted:
            self._requeue_in(0.0)
        self._scale_down()

    def _create_pods(
        self, role: JobRole, group: GroupView, existing: set[str], budget: StepBudget
    ) -> None:
        """Create the missing pods of a role that may exist, within the budget of one step."""
        origin = adopted_origin(self.job, self.seen.pods)
        counted = self._starts_with_gang(role) and origin is None
        if group.uid and not group.assignments and not self.job.is_placed_here(role):
            return  # pods of other schedulers would use nodes while the gang waits
        pinned = group.phase in ("Reserved", "Binding")
        for index in range(role.replicas):
            name = self.job.pod_name(role, index)
            if name in existing or (counted and name not in group.assignments):
                continue
            if not budget.may_build(role.type):
                return
            service = self.framework.service(self.job, role, index)
            if service is not None and name not in self.seen.services:
                self.actions.create_services.append(service)
            pod = self._pod(role, index, group.assignments.get(name) if pinned else None, origin)
            budget.charge(role.type, pod)
            self.actions.create_pods.append(pod)

    def _intent(self, role: JobRole) -> Intent:
        pod = self._pod(role, 0, None)
        documents = self.framework.documents(self.job, self.seen)
        accounts = [d["metadata"]["name"] for d in documents if d["kind"] == "ServiceAccount"]
        if pod["spec"].get("serviceAccountName") in accounts:  # the gang's creation creates it
            del pod["spec"]["serviceAccountName"]
        return Intent(role.replicas, pod, role.template["spec"])

    def _scale_down(self) -> None:
        """Delete pods beyond the wanted replicas, highest index first."""
        wanted = {
            self.job.pod_name(role, index)
            for role in self.job.roles
            for index in range(role.replicas)
        }
        surplus = [p for p in self.seen.pods if p.name not in wanted and not p.terminating]
        self._delete(sorted(surplus, key=lambda pod: pod.name, reverse=True))

    def _pod(self, role: JobRole, index: int, node: str | None, origin: Json | None = None) -> Json:
        """Return a pod, pinned to its assigned node, or gated until it has one."""
        template = self.framework.pod_template(self.job, role, index)
        metadata, spec = template["metadata"], template["spec"]
        metadata["name"] = self.job.pod_name(role, index)
        pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        if not self.job.is_placed_here(role):
            return pod
        if origin is not None:
            return join_gang(pod, origin)
        metadata["labels"] |= {
            GROUP_LABEL: self.job.name,
            "gangsched.io/role": role.type,
        }
        if node is None:
            spec["schedulingGates"] = [*spec.get("schedulingGates", []), {"name": GATE}]
        else:
            metadata["annotations"] = (metadata.get("annotations") or {}) | {
                "gangsched.io/pinned": node
            }
            pin_to_node(spec, node)
        return pod

    def _group(self) -> Json:
        job = self.job
        counted = [role for role in job.roles if self._starts_with_gang(role)]
        most = sum(role.replicas for role in counted)
        others = sum(role.replicas for role in job.roles if not job.is_placed_here(role))
        minimum = min(max(job.gang.minimum - others, 1), most) if job.gang.minimum else most
        roles = []
        left = minimum
        for role in counted:
            least = min(role.replicas, left)
            left -= least
            roles.append(gang_role(role, least, self.framework.pod_template(job, role, 0)))
        spec: Json = {
            "minMember": minimum,
            "roles": roles,
            "queue": job.gang.queue,
            "scheduleTimeoutSeconds": job.gang.timeout_s,
        }
        spec |= job.gang.extra_spec
        if job.gang.priority_class:
            spec["priorityClassName"] = job.gang.priority_class
        if job.limits.deadline_s:
            spec.setdefault("expectedRuntimeSeconds", job.limits.deadline_s)
        return {
            "apiVersion": GROUP_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": job.name},
            "spec": spec,
        }

    # -- state --------------------------------------------------------------------------------

    def _read_state(self) -> None:
        statuses: Json = {}
        for role in self.job.roles:
            pods = [pod for pod in self.seen.pods if pod.role == role.type.lower()]
            statuses[role.type] = {
                "active": sum(p.phase == "Running" and not p.terminating for p in pods),
                "succeeded": sum(p.done for p in pods),
                "failed": sum(p.phase == "Failed" for p in pods),
                "selector": self.framework.selector(self.job, role),
            }
        self.status["replicaStatuses"] = statuses
        self._report_crashes()
        if self._succeeded(statuses):
            self._finish("Succeeded", f"{self._subject} successfully completed.")
            return
        failed = self._failed_for_good()
        if failed is not None:
            self._finish("Failed", self._why_failed(failed), self.framework.failure(failed))
            return
        if self._failing():
            self._set_condition(
                "Restarting", f"{self._subject} is restarting because a pod failed."
            )
        elif self.framework.is_running(self.job, statuses):
            self.status.setdefault("startTime", self.clock.now)
            self._set_condition("Running", f"{self._subject} is running.")
        if self.job.limits.deadline_s is not None and "startTime" in self.status:
            self._requeue_in(self._started_s() + self.job.limits.deadline_s - self.clock.now_s)

    def _succeeded(self, statuses: Json) -> bool:
        decisive = self.framework.deciding_pods(self.job)
        if statuses[decisive.role.type]["succeeded"] >= decisive.wanted:
            return True
        first = self.job.pod_name(decisive.role, 0)
        return decisive.first_suffices and any(
            pod.name == first and pod.done for pod in self.seen.pods
        )

    def _failed_for_good(self) -> PodView | None:
        """Return the failed pod that ends the job, or None while a restart may help."""
        for pod in self.seen.pods:
            role = self._role_of(pod)
            if pod.phase != "Failed" or role is None or pod.terminating or pod.disrupted:
                continue
            if _is_final(pod, role) and not self.framework.tolerates_failure(self.job, pod):
                return pod
        return None

    def _why_failed(self, pod: PodView) -> str:
        role = self._role_of(pod)
        code = f" with exit code {pod.exit_code}" if pod.exit_code is not None else ""
        return (
            f"{self._subject} is failed because 1 {role.type if role else pod.role} replica(s) "
            f"failed: {pod.name} ended{code}."
        )

    def _failing(self) -> list[PodView]:
        """Return failed pods that are to be recreated; a job may tolerate the loss of some."""
        ended = [pod for pod in self.seen.pods if pod.phase == "Failed" or _is_saved(pod)]
        roles = [(pod, self._role_of(pod)) for pod in ended]
        return [
            pod
            for pod, role in roles
            if pod.disrupted or role is None or not _is_final(pod, role) or pod.terminating
        ]

    def _replace(self) -> None:
        """Delete failed pods that are to be recreated."""
        failed = [pod for pod in self._failing() if not pod.terminating]
        for pod in failed:
            if pod.exit_code is not None and self._policy(pod) == "ExitCode":
                self._event(
                    "Normal",
                    "ExitedWithCode",
                    f"Pod: {self.job.namespace}.{pod.name} exited with code {pod.exit_code}",
                )
        self._delete(failed)

    # -- limits -------------------------------------------------------------------------------

    def _over_deadline(self) -> bool:
        limit = self.job.limits.deadline_s
        if limit is None or "startTime" not in self.status:
            return False
        if self.clock.now_s - self._started_s() < limit:
            return False
        self._finish(
            "Failed",
            f"Job {self.job.name} has failed because it was active longer than specified deadline",
        )
        return True

    def _over_backoff(self) -> bool:
        limit = self.job.limits.backoff_limit
        if limit is None:
            return False
        restarts = sum(
            pod.restarts
            for pod in self.seen.pods
            if pod.phase == "Running" and self._policy(pod) in ("OnFailure", "Always")
        )
        over = restarts > 0 if limit == 0 else restarts >= limit
        if over:
            self._finish(
                "Failed",
                f"Job {self.job.name} has failed because it has reached the specified backoff "
                f"limit",
            )
        return over

    def _lost(self) -> list[PodView]:
        """Return lost pods that may restart the whole gang."""
        lost = [
            pod
            for pod in self.seen.pods
            if (pod.phase == "Failed" or pod.terminating)
            and pod.uid not in self.seen.handled_terminations
        ]
        lost += [pod for pod in self.seen.vanished if not pod.disrupted]
        return [pod for pod in lost if self._policy(pod) != "Never"]

    def _restart_gang(self, lost: list[PodView]) -> bool:
        """Restart the whole gang, if the user enabled it and the limit allows."""
        limit = self.job.gang.gang_restarts
        restarts = int(self.status.get("gangRestarts", 0))
        if not limit or self.seen.group is None:
            return False
        final = self._failed_for_good()
        if final is not None and all(p.exit_code and not p.terminating for p in lost):
            return False
        if restarts >= limit:
            self._finish(
                "Failed",
                f"{self._subject} is failed because its gang was restarted {restarts} times, "
                f"the limit, and {lost[0].name} was lost again.",
            )
            return True
        self.status["gangRestarts"] = restarts + 1
        self._set_condition(
            "Restarting",
            f"{self._subject} restarts as a whole: {lost[0].name} "
            f"was lost (restart {restarts + 1} of {limit}).",
        )
        self._delete([pod for pod in self.seen.pods if not pod.terminating])
        self.actions.delete_group = True
        return True


def _is_saved(pod: PodView) -> bool:
    """Return whether a pod exited with 0 after its stop was announced and the work was saved."""
    return pod.phase == "Succeeded" and pod.announced and pod.disrupted


def _is_final(pod: PodView, role: JobRole) -> bool:
    """Return whether a failed pod is not recreated.

    ExitCode: 128 and above means a failure of the machine, below 128 one of the program.
    """
    if role.restart_policy != "ExitCode":
        return role.restart_policy == "Never"
    return pod.exit_code is not None and pod.exit_code < _RETRIABLE_EXIT
