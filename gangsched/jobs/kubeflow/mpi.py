"""The contract of MPIJob: a launcher, and workers it starts processes on.

Two operators own the kind under one name. kubeflow.org/v1 (training-operator 1.9) reaches workers
by `kubectl exec`, kubeflow.org/v2beta1 (mpi-operator 0.6) by ssh; the version that a job was
written in decides.
Beyond both: the launcher is a pod in v2beta1 too, so that its node is reserved with the workers'.
"""

from collections.abc import Mapping
from typing import Protocol

from gangsched.core.bounds import HOSTS_BYTES
from gangsched.jobs.common.model import V1, V2BETA1, Job, JobRole, Json, Observed, PodView
from gangsched.jobs.kubeflow import mpi_exec, mpi_ssh
from gangsched.jobs.kubeflow.framework import Framework, Variables, length_error, listed_bytes

_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


class Reach(Protocol):
    """How a launcher reaches its workers."""

    def variables(self, job: Job, role: JobRole) -> Variables:
        """Return the variables of a role's main container."""
        ...

    def customize(self, job: Job, role: JobRole, index: int, spec: Json) -> None:
        """Add volumes, names and a command to a pod's spec."""
        ...

    def documents(self, job: Job, running: list[str]) -> list[Json]:
        """Return what has to be there before pods are; `running` workers can be reached."""
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
        """Workers do nothing by themselves."""
        return "" if "Launcher" in roles else "needs a Launcher"

    def container_error(self, template: Json) -> str:
        """The first container runs, whatever its name."""
        return "" if (template.get("spec") or {}).get("containers") else "there is none"

    def main_container(self, spec: Json) -> Json:
        """Return the container named mpi, else the first."""
        named = (c for c in spec["containers"] if c["name"] == self.container)
        found: Json = next(named, spec["containers"][0])
        return found

    def size_error(self, job: Job) -> str:
        """All workers are in the host file."""
        worker = job.role("Worker")
        around = len(f".{job.name}.{job.namespace}.svc slots={job.mpi.slots}\n")
        length = listed_bytes(f"{job.name}-worker", worker.replicas, around) if worker else 0
        return length_error("the host file", length, HOSTS_BYTES)

    def restart_of(self, role: str, version: str) -> str:
        """A launcher of v2beta1 is restarted in place: its workers may be late."""
        return "OnFailure" if version == V2BETA1 and role == "Launcher" else "Never"

    def variables(self, job: Job, role: JobRole, index: int) -> Variables:
        """Return what mpirun reads; a launcher that does not work itself sees no GPU."""
        del index
        found = dict(_reach(job).variables(job, role))
        if role.type == "Launcher" and not job.mpi.launcher_works:
            found |= _NO_GPU
        return found

    def is_master(self, job: Job, role: JobRole, index: int) -> bool:
        """Return whether a pod carries the label job-role=master, which v1 alone has."""
        del job, index
        return role.type == "Launcher"

    def labels(self, job: Job, role: JobRole, index: int) -> dict[str, str]:
        """Return the labels of the job's version; those of v1 are every kind's."""
        if job.mpi.version == V1:
            return super().labels(job, role, index)
        return mpi_ssh.labels(job, role, index)

    def selector(self, job: Job, role: JobRole) -> str:
        """Return the label selector of a role's pods."""
        if job.mpi.version == V1:
            return super().selector(job, role)
        return mpi_ssh.selector(job, role)

    def fixed_pod_name(self, job: str, role: str) -> str:
        """A launcher's name has no index."""
        return f"{job}-launcher" if role == "Launcher" else ""

    def customize(self, job: Job, role: JobRole, index: int, template: Json) -> None:
        """Add what the launcher and its workers find each other by."""
        _reach(job).customize(job, role, index, template["spec"])

    def service(self, job: Job, role: JobRole, index: int) -> Json | None:
        """Pods have no Service each: v2beta1 has one for all, v1 uses the API server."""
        del job, role, index
        return None

    def documents(self, job: Job, seen: Observed) -> list[Json]:
        """Return host file, keys and rights; hosts are listed once a pod can read them."""
        launched = any(p.role == "launcher" and p.phase == "Running" for p in seen.pods)
        running = [p.name for p in seen.pods if p.role == "worker" and p.phase == "Running"]
        worker = job.role("Worker")
        whole = worker is None or len(running) == worker.replicas
        return _reach(job).documents(job, sorted(running) if whole or launched else [])

    def must_wait(self, job: Job, role: JobRole, seen: Observed) -> bool:
        """A launcher may be created once its workers are ready: it is no part of the gang."""
        worker = job.role("Worker")
        if role.type != "Launcher" or worker is None or self.starts_with_gang(job, role):
            return False
        ready = sum(pod.role == "worker" and pod.ready for pod in seen.pods)
        return ready < worker.replicas

    def starts_with_gang(self, job: Job, role: JobRole) -> bool:
        """Return whether a role's pods exist before the gang runs."""
        return role.type != "Launcher" or not job.mpi.waits

    def is_running(self, job: Job, statuses: Json) -> bool:
        """The job runs while the launcher and all workers do."""
        return all(statuses[role.type].get("active", 0) >= role.replicas for role in job.roles)

    def tolerates_failure(self, job: Job, pod: PodView) -> bool:
        """With ssh the launcher is the judge of a worker's end; an evicted one ends the job."""
        return job.mpi.version == V2BETA1 and pod.role == "worker" and pod.reason != "Evicted"

    def failure(self, pod: PodView) -> str:
        """Return the suffix of the reason: an evicted pod has its own."""
        return "Evicted" if pod.reason == "Evicted" else "Failed"


def _reach(job: Job) -> Reach:
    return mpi_exec.EXEC if job.mpi.version == V1 else mpi_ssh.SSH
