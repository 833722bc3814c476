"""The contract of MPIJob: a launcher, and workers on which it starts processes.

Two operators own the kind under one name. kubeflow.org/v1 (training-operator 1.9) reaches workers
by `kubectl exec`, kubeflow.org/v2beta1 (mpi-operator 0.6) by ssh; the API version of the user's
object decides. Beyond both: in v2beta1 the launcher is a pod too, so that its node is reserved
together with those of the workers.
"""

from collections.abc import Mapping
from typing import Protocol

from gangsched.core.bounds import HOSTS_BYTES
from gangsched.jobs.common.model import V1, V2BETA1, JobRole, Json, Observed, PodView, TrainingJob
from gangsched.jobs.kubeflow import mpi_exec, mpi_ssh
from gangsched.jobs.kubeflow.framework import Framework, Variables, length_error, listed_bytes

_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


class Reach(Protocol):
    """How a launcher reaches its workers."""

    def variables(self, job: TrainingJob, role: JobRole) -> Variables:
        """Return the variables of a role's main container."""
        ...

    def customize(self, job: TrainingJob, role: JobRole, index: int, spec: Json) -> None:
        """Add volumes, names and a command to a pod's spec."""
        ...

    def documents(self, job: TrainingJob, running: list[str]) -> list[Json]:
        """Return the objects that pods need; `running` are the names of reachable workers."""
        ...


class MPI(Framework):
    """mpirun on a launcher, its daemons on workers."""

    kind = "MPIJob"
    plural = "mpijobs"
    specs = "mpiReplicaSpecs"
    roles = ("Launcher", "Worker")
    single = ("Launcher",)
    container = "mpi"
    all_containers = False
    has_exit_grace = False
    emits_running_event = True

    def roles_error(self, roles: Mapping[str, JobRole]) -> str:
        """Return that a job needs a launcher: workers do nothing by themselves."""
        return "" if "Launcher" in roles else "needs a Launcher"

    def container_error(self, template: Json) -> str:
        """Return that a pod needs a container; the first one is main, whatever its name."""
        return "" if (template.get("spec") or {}).get("containers") else "there is none"

    def main_container(self, spec: Json) -> Json:
        """Return the container named mpi, else the first."""
        named = (c for c in spec["containers"] if c["name"] == self.container)
        container: Json = next(named, spec["containers"][0])
        return container

    def size_error(self, job: TrainingJob) -> str:
        """Return whether the host file, with all workers, would be too long."""
        worker = job.role("Worker")
        around = len(f".{job.name}.{job.namespace}.svc slots={job.mpi.slots}\n")
        length = listed_bytes(f"{job.name}-worker", worker.replicas, around) if worker else 0
        return length_error("the host file", length, HOSTS_BYTES)

    def restart_of(self, role: str, version: str) -> str:
        """Return the restart policy; a launcher of v2beta1 restarts, as workers may be late."""
        return "OnFailure" if version == V2BETA1 and role == "Launcher" else "Never"

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return the variables of mpirun; a launcher that does not work itself sees no GPU."""
        del index
        variables = dict(_reach(job).variables(job, role))
        if role.type == "Launcher" and not job.mpi.launcher_works:
            variables |= _NO_GPU
        return variables

    def is_master(self, job: TrainingJob, role: JobRole, index: int) -> bool:
        """Return whether a pod has the label job-role=master, which only v1 has."""
        del job, index
        return role.type == "Launcher"

    def labels(self, job: TrainingJob, role: JobRole, index: int) -> dict[str, str]:
        """Return the labels of the job's API version; v1 has those of all kinds."""
        if job.mpi.version == V1:
            return super().labels(job, role, index)
        return mpi_ssh.labels(job, role, index)

    def selector(self, job: TrainingJob, role: JobRole) -> str:
        """Return the label selector of a role's pods."""
        if job.mpi.version == V1:
            return super().selector(job, role)
        return mpi_ssh.selector(job, role)

    def fixed_pod_name(self, job: str, role: str) -> str:
        """Return the launcher's name, which has no index."""
        return f"{job}-launcher" if role == "Launcher" else ""

    def customize(self, job: TrainingJob, role: JobRole, index: int, template: Json) -> None:
        """Add the fields by which the launcher and its workers find each other."""
        _reach(job).customize(job, role, index, template["spec"])

    def service(self, job: TrainingJob, role: JobRole, index: int) -> Json | None:
        """Return None: v2beta1 has one Service for all pods, v1 uses the API server."""
        del job, role, index
        return None

    def documents(self, job: TrainingJob, seen: Observed) -> list[Json]:
        """Return the host file, keys and permissions; hosts are listed once pods can read them."""
        launched = any(p.role == "launcher" and p.phase == "Running" for p in seen.pods)
        running = [p.name for p in seen.pods if p.role == "worker" and p.phase == "Running"]
        worker = job.role("Worker")
        whole = worker is None or len(running) == worker.replicas
        return _reach(job).documents(job, sorted(running) if whole or launched else [])

    def must_wait(self, job: TrainingJob, role: JobRole, seen: Observed) -> bool:
        """Return whether a launcher outside the gang must wait until its workers are ready."""
        worker = job.role("Worker")
        if role.type != "Launcher" or worker is None or self.starts_with_gang(job, role):
            return False
        ready = sum(pod.role == "worker" and pod.ready for pod in seen.pods)
        return ready < worker.replicas

    def starts_with_gang(self, job: TrainingJob, role: JobRole) -> bool:
        """Return whether a role's pods exist before the gang runs."""
        return role.type != "Launcher" or not job.mpi.waits

    def is_running(self, job: TrainingJob, statuses: Json) -> bool:
        """Return whether the launcher and all workers run."""
        return all(statuses[role.type].get("active", 0) >= role.replicas for role in job.roles)

    def tolerates_failure(self, job: TrainingJob, pod: PodView) -> bool:
        """Return whether the launcher handles a worker's failure: with ssh, unless evicted."""
        return job.mpi.version == V2BETA1 and pod.role == "worker" and pod.reason != "Evicted"

    def failure(self, pod: PodView) -> str:
        """Return the suffix of the condition's reason; evicted pods have their own."""
        return "Evicted" if pod.reason == "Evicted" else "Failed"


def _reach(job: TrainingJob) -> Reach:
    return mpi_exec.EXEC if job.mpi.version == V1 else mpi_ssh.SSH
