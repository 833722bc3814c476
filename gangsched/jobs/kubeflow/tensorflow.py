"""The contract of TFJob (training-operator release-1.9, pkg/controller.v1/tensorflow)."""

import json
from collections.abc import Mapping
from functools import lru_cache

from gangsched.core.bounds import VARIABLE_BYTES
from gangsched.jobs.common.model import JobRole, PodView, TrainingJob
from gangsched.jobs.kubeflow.framework import (
    DecidingPods,
    Framework,
    Variables,
    length_error,
    listed_bytes,
)


class TensorFlow(Framework):
    """TF_CONFIG: parameter servers, or workers that reduce among themselves."""

    kind = "TFJob"
    plural = "tfjobs"
    specs = "tfReplicaSpecs"
    roles = ("Chief", "Master", "Worker", "PS", "Evaluator")
    container = "tensorflow"
    port_name = "tfjob-port"
    port = 2222
    all_containers = False
    single = ("Chief", "Master")

    def roles_error(self, roles: Mapping[str, JobRole]) -> str:
        """Return what is wrong with the roles: a job has a chief or a master, not both."""
        if "Chief" in roles and "Master" in roles:
            return "has a Chief and a Master; one of them leads"
        return super().roles_error(roles)

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return TF_CONFIG; a job of one pod is not a cluster and gets none."""
        if job.total == 1:
            return {}
        kind = role.type.lower()
        task = _text({"type": kind, "index": index})
        if not job.dynamic_workers:
            roles = self._cluster(job).items()
            cluster = ",".join(f"{_text(name)}:{addresses}" for name, addresses in roles)
            value = f'{{"cluster":{{{cluster}}},"task":{task},"environment":"cloud"}}'
            return {"TF_CONFIG": value}
        # Workers come and go: each gets its own address and those of the servers.
        own = f"{job.pod_name(role, index)}{self._tail(job, role)}"
        worker, servers = "{}", "[]"
        if role.type == "PS":
            servers = _text([own])
        elif role.type == "Worker":
            worker, servers = _text({str(index): own}), self._cluster(job).get("ps", "[]")
        return {"TF_CONFIG": f'{{"cluster":{{"worker":{worker},"ps":{servers}}},"task":{task}}}'}

    def size_error(self, job: TrainingJob) -> str:
        """Return whether TF_CONFIG, with the addresses of all pods, would be too long."""
        length = sum(
            listed_bytes(_stem(job, role), role.replicas, len(self._tail(job, role)) + len('"",'))
            for role in job.roles
            if role.type == "PS" or not job.dynamic_workers
        )
        return length_error("TF_CONFIG", length, VARIABLE_BYTES)

    def _cluster(self, job: TrainingJob) -> dict[str, str]:
        """Return the addresses of every role, as JSON, in the order of the roles' names."""
        return {
            role.type.lower(): _addresses(_stem(job, role), role.replicas, self._tail(job, role))
            for role in sorted(job.roles, key=lambda role: role.type.lower())
            if role.type == "PS" or not job.dynamic_workers
        }

    def _tail(self, job: TrainingJob, role: JobRole) -> str:
        """Return the part of a pod's address after its name."""
        domain = f"{job.namespace}.svc" + (f".{job.cluster_domain}" if job.cluster_domain else "")
        return f".{domain}:{self.port_of(role)}"

    def is_master(self, job: TrainingJob, role: JobRole, index: int) -> bool:
        """Return whether a pod is the chief, or worker 0 of a job without a chief."""
        chief = _chief(job)
        return role is chief if chief is not None else role.type == "Worker" and index == 0

    def deciding_pods(self, job: TrainingJob) -> DecidingPods:
        """Return the chief; without one worker 0, or all workers if the job requires it."""
        chief = _chief(job)
        if chief is not None:
            return DecidingPods(chief, chief.replicas)
        role = job.role("Worker") or job.roles[0]
        return DecidingPods(role, role.replicas, first_suffices=not job.all_workers)

    def tolerates_failure(self, job: TrainingJob, pod: PodView) -> bool:
        """Return whether a pod is a dynamic worker: the job continues without it."""
        return job.dynamic_workers and pod.role == "worker"


def _stem(job: TrainingJob, role: JobRole) -> str:
    return f"{job.name}-{role.type.lower()}"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@lru_cache(maxsize=16)
def _addresses(stem: str, count: int, tail: str) -> str:
    return _text([f"{stem}-{index}{tail}" for index in range(count)])


def _chief(job: TrainingJob) -> JobRole | None:
    return job.role("Chief") or job.role("Master")
