"""The parts that all kinds of kubeflow.org/v1 share: names, labels, Services, templates.

Source: kubeflow/training-operator release-1.9, pkg/controller.v1/common. Each kind is a subclass
with the variables of its pods, and the pods that decide how the job ends.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gangsched.core.bounds import UpperBound
from gangsched.jobs.common.model import JobRole, Json, Observed, PodView, TrainingJob

PREFIX = "training.kubeflow.org"

Variables = Mapping[str, str | Json]
"""Variables by name; a mapping is a `valueFrom`."""


@dataclass(frozen=True, slots=True)
class DecidingPods:
    """The pods that decide the job's success: `wanted` pods of a role, or the first pod alone.

    The job runs while one of the role's pods runs.
    """

    role: JobRole
    wanted: int
    first_suffices: bool = False


class Framework:
    """One kind of job: its names and its rules."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    specs: ClassVar[str]
    """The field of the spec that has the replica specs."""

    roles: ClassVar[tuple[str, ...]]
    """Replica types, leaders first: a gang that is smaller than the job keeps the first."""

    single: ClassVar[tuple[str, ...]] = ("Master",)
    """Replica types with exactly one pod."""

    container: ClassVar[str]
    port_name: ClassVar[str] = ""
    port: ClassVar[int] = 0
    """Default port of the pods, unless a container names another `port_name`; 0: none."""

    restart: ClassVar[str] = "Never"
    """Default restart policy of a role."""

    unsupported: ClassVar[str] = ""
    """Why jobs of the kind are rejected, or empty."""

    all_containers: ClassVar[bool] = True
    """Whether all containers get the variables, or only the main container."""

    emits_running_event: ClassVar[bool] = False
    """Whether Events, besides conditions, report that a job was created and runs."""

    has_exit_grace: ClassVar[bool] = True
    """Whether pods get time to end by themselves once the job has succeeded."""

    @property
    def api_version(self) -> str:
        """Return group and version."""
        return "kubeflow.org/v1"

    @property
    def operator(self) -> str:
        """Return the value of the pods' label operator-name."""
        return f"{self.kind.lower()}-controller"

    def roles_error(self, roles: Mapping[str, JobRole]) -> str:
        """Return what is wrong with the set of a job's roles, or nothing."""
        return "" if roles else f"needs a {' or a '.join(self.roles)}"

    def container_error(self, template: Json) -> str:
        """Return why a template has no main container, or nothing."""
        containers = (template.get("spec") or {}).get("containers") or []
        names = [c.get("name") for c in containers if isinstance(c, dict)]
        if self.container in names:
            return ""
        existing = ", ".join(repr(name) for name in names) or "none"
        return f"one must be named {self.container!r}; there are: {existing}"

    def fixed_pod_name(self, job: str, role: str) -> str:
        """Return the name of a role's only pod if that name has no index, or nothing."""
        del job, role
        return ""

    def size_error(self, job: TrainingJob) -> str:
        """Return which list of the job's pods would be too long for its readers, or nothing."""
        del job
        return ""

    def restart_of(self, role: str, version: str) -> str:
        """Return the default restart policy of a role; `version` is the job's API version."""
        del role, version
        return self.restart

    # -- what differs -------------------------------------------------------------------------

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return the environment variables of a pod's containers."""
        raise NotImplementedError

    def is_master(self, job: TrainingJob, role: JobRole, index: int) -> bool:
        """Return whether a pod has the label job-role=master."""
        master = job.role("Master")
        return role is master if master is not None else index == 0 and role.type == "Worker"

    def deciding_pods(self, job: TrainingJob) -> DecidingPods:
        """Return the pods that decide the job's success: the master, else all workers."""
        role = job.role("Master") or job.roles[0]
        return DecidingPods(role, role.replicas)

    def tolerates_failure(self, job: TrainingJob, pod: PodView) -> bool:
        """Return whether the job continues without a pod that is not recreated."""
        del job, pod
        return False

    def failure(self, pod: PodView) -> str:
        """Return the suffix of the condition's reason if a pod's failure ends the job."""
        del pod
        return "Failed"

    def is_running(self, job: TrainingJob, statuses: Json) -> bool:
        """Return whether the job runs, by its roles' counts: one deciding pod runs."""
        return bool(statuses[self.deciding_pods(job).role.type].get("active", 0) > 0)

    def starts_with_gang(self, job: TrainingJob, role: JobRole) -> bool:
        """Return whether a role's pods belong to the starting gang, or come once it runs."""
        del job, role
        return True

    def must_wait(self, job: TrainingJob, role: JobRole, seen: Observed) -> bool:
        """Return whether a role's pods may not be created yet."""
        del job, role, seen
        return False

    def has_static_rendezvous(self, template: Json) -> bool:
        """Return whether a pod's program waits until all pods of the job exist."""
        del template
        return False

    def documents(self, job: TrainingJob, seen: Observed) -> list[Json]:
        """Return further objects that pods need; they are created or restored before the pods."""
        del job, seen
        return []

    def documents_while_running(self, job: TrainingJob) -> list[Json]:
        """Return the documents that a suspended or finished job must not have."""
        del job
        return []

    def customize(self, job: TrainingJob, role: JobRole, index: int, template: Json) -> None:
        """Add the fields to a pod's template that only this kind needs."""

    # -- what is the same -----------------------------------------------------------------------

    def labels(self, job: TrainingJob, role: JobRole, index: int) -> dict[str, str]:
        """Return the labels of a pod and its Service, with those of operators before 1.7."""
        kind = role.type.lower()
        labels = {
            f"{PREFIX}/operator-name": self.operator,
            f"{PREFIX}/job-name": job.name,
            f"{PREFIX}/replica-type": kind,
            f"{PREFIX}/replica-index": str(index),
            "job-name": job.name,
            "replica-type": kind,
            "replica-index": str(index),
            "group-name": "kubeflow.org",
        }
        if self.is_master(job, role, index):
            labels[f"{PREFIX}/job-role"] = "master"
        return labels

    def selector(self, job: TrainingJob, role: JobRole) -> str:
        """Return the label selector of a role's pods, for the scale subresource."""
        return (
            f"{PREFIX}/job-name={job.name},{PREFIX}/operator-name={self.operator},"
            f"{PREFIX}/replica-type={role.type.lower()}"
        )

    def pod_template(self, job: TrainingJob, role: JobRole, index: int) -> Json:
        """Return a pod's template with the contract's labels, ports, environment and policy."""
        template = copy.deepcopy(role.template)
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = (metadata.get("labels") or {}) | self.labels(job, role, index)
        spec = template["spec"]
        never = role.restart_policy == "ExitCode"
        spec["restartPolicy"] = "Never" if never else role.restart_policy
        spec["schedulerName"] = spec.get("schedulerName") or job.scheduler
        main = self.main_container(spec)
        everyone = (*spec.get("initContainers", []), *spec["containers"])
        variables = self.variables(job, role, index)
        for container in everyone if self.all_containers else (main,):
            add_variables(container, variables)
        main["ports"] = self._ports(main)
        self.customize(job, role, index, template)
        return template

    def service(self, job: TrainingJob, role: JobRole, index: int) -> Json | None:
        """Return the headless Service that gives a pod its name, also before the pod is ready."""
        labels = self.labels(job, role, index)
        ports = self._ports(self.main_container(role.template["spec"]))
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": job.pod_name(role, index), "labels": labels},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {
                    key: value for key, value in labels.items() if key.startswith(f"{PREFIX}/")
                },
                "ports": [
                    {
                        "name": port["name"],
                        "port": port["containerPort"],
                        "targetPort": port["containerPort"],
                    }
                    for port in ports
                    if port.get("name") and port.get("protocol", "TCP") == "TCP"
                ],
            },
        }

    def _ports(self, main: Json) -> list[Json]:
        """Return the ports of the main container, including the default port."""
        ports: list[Json] = list(main.get("ports") or [])
        if self.port and not any(port.get("name") == self.port_name for port in ports):
            ports.append({"name": self.port_name, "containerPort": self.port})
        return ports

    def main_container(self, spec: Json) -> Json:
        """Return the main container, which trains."""
        container: Json = next(c for c in spec["containers"] if c["name"] == self.container)
        return container

    def port_of(self, role: JobRole) -> int:
        """Return the port on which a role's pods listen."""
        for port in self.main_container(role.template["spec"]).get("ports") or []:
            if port.get("name") == self.port_name:
                return int(port["containerPort"])
        return self.port

    def rank(self, job: TrainingJob, role: JobRole, index: int) -> int:
        """Return a pod's rank: masters come first, workers follow."""
        master = job.role("Master")
        return index + master.replicas if master is not None and role is not master else index

    def rank_zero(self, job: TrainingJob) -> tuple[str, int]:
        """Return the address and port of rank 0."""
        role = job.role("Master") or job.roles[0]
        return job.pod_name(role, 0), self.port_of(role)


def listed_bytes(stem: str, count: int, around: int) -> int:
    """Return the length of a list of pods: `stem-0` and so on, each with `around` more letters."""
    digits = count + sum(max(count - int(10**power), 0) for power in range(1, 10))
    return digits + count * (len(stem) + len("-") + around)


def length_error(what: str, length: int, bound: UpperBound) -> str:
    """Return a message if a length is above its bound, or nothing."""
    if length <= bound.most:
        return ""
    return f"{what} would have {length} bytes; at most {bound.most} are allowed: {bound.reason}"


def add_variables(container: Json, variables: Variables) -> None:
    """Add variables to a container.

    The variables come first, so that the user's own may refer to them. The user's own take
    precedence.
    """
    own = {variable["name"] for variable in container.get("env") or []}
    added = [
        {"name": name, "value": value}
        if isinstance(value, str)
        else {"name": name, "valueFrom": value}
        for name, value in variables.items()
        if name not in own
    ]
    container["env"] = added + (container.get("env") or [])
