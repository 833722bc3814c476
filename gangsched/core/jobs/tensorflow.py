"""The contract of TFJob (training-operator release-1.9, pkg/controller.v1/tensorflow)."""

import json
from collections.abc import Mapping

from gangsched.core.jobs.framework import Decisive, Framework, Variables
from gangsched.core.jobs.model import Job, JobRole, Json, PodView


class TensorFlow(Framework):
    """TF_CONFIG: parameter servers, or workers that reduce among themselves."""

    kind = "TFJob"
    plural = "tfjobs"
    specs = "tfReplicaSpecs"
    roles = ("Chief", "Master", "Worker", "PS", "Evaluator")
    container = "tensorflow"
    port_name = "tfjob-port"
    port = 2222
    everywhere = False
    single = ("Chief", "Master")

    def wrong_roles(self, roles: Mapping[str, JobRole]) -> str:
        """A job has a chief or a master, not both."""
        if "Chief" in roles and "Master" in roles:
            return "has a Chief and a Master; one of them leads"
        return super().wrong_roles(roles)

    def variables(self, job: Job, role: JobRole, index: int) -> Variables:
        """Return TF_CONFIG; a job of one pod is no cluster and gets none."""
        if job.total == 1:
            return {}
        kind = role.type.lower()
        cluster = self._cluster(job)
        value: Json = {"cluster": cluster, "task": {"type": kind, "index": index}}
        if not job.dynamic_workers:
            value["environment"] = "cloud"
        else:
            # Workers come and go: each knows the servers and itself, and a server itself.
            mine = cluster[kind][index]
            own: Json = {"worker": {}, "ps": cluster.get("ps", [])}
            if role.type == "PS":
                own["ps"] = [mine]
            elif role.type == "Worker":
                own["worker"] = {str(index): mine}
            else:
                own["ps"] = []
            value["cluster"] = own
        return {"TF_CONFIG": json.dumps(value, separators=(",", ":"))}

    def _cluster(self, job: Job) -> dict[str, list[str]]:
        """Return the addresses of every role, in the order of the roles' names."""
        domain = f"{job.namespace}.svc" + (f".{job.cluster_domain}" if job.cluster_domain else "")
        return {
            role.type.lower(): [
                f"{job.pod_name(role, i)}.{domain}:{self.port_of(role)}"
                for i in range(role.replicas)
            ]
            for role in sorted(job.roles, key=lambda role: role.type.lower())
        }

    def leads(self, job: Job, role: JobRole, index: int) -> bool:
        """Tell whether a pod is the chief; without one worker 0 is."""
        chief = _chief(job)
        return role is chief if chief is not None else role.type == "Worker" and index == 0

    def decisive(self, job: Job) -> Decisive:
        """Return the chief; without one worker 0, or all workers where the job says so."""
        chief = _chief(job)
        if chief is not None:
            return Decisive(chief, chief.replicas)
        role = job.role("Worker") or job.roles[0]
        return Decisive(role, role.replicas, first_suffices=not job.all_workers)

    def shrugs(self, job: Job, pod: PodView) -> bool:
        """Dynamic workers may fail; the others go on."""
        return job.dynamic_workers and pod.role == "worker"


def _chief(job: Job) -> JobRole | None:
    return job.role("Chief") or job.role("Master")
