"""The contract of PyTorchJob (training-operator release-1.9, pkg/controller.v1/pytorch).

Beyond it, worker-only jobs get the master's variables too (their rank 0 is worker 0), and plain
`python` finds LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun overrides for its children.
"""

from gangsched.core.model.text import whole
from gangsched.jobs.common.model import JobRole, Json, Observed, TrainingJob
from gangsched.jobs.kubeflow.framework import DecidingPods, Framework, Variables

_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Agents share one store. Rank 0 sends its address only in the first round: a worker that joins a
running job would wait for it until the store's time-out (torch's dynamic_rendezvous.py)."""


class PyTorch(Framework):
    """torch.distributed: a static rendezvous, or torchrun's elastic one."""

    kind = "PyTorchJob"
    plural = "pytorchjobs"
    specs = "pytorchReplicaSpecs"
    roles = ("Master", "Worker")
    container = "pytorch"
    port_name = "pytorchjob-port"
    port = 23456
    restart = "OnFailure"

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return the variables of torch.distributed and torchrun."""
        address, port = self.rank_zero(job)
        processes = job.nproc_per_node
        count = whole(processes or "") or 1
        node_rank = str(self.rank(job, role, index))
        variables = {
            "PYTHONUNBUFFERED": "1",
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "PET_MASTER_ADDR": address,
            "PET_MASTER_PORT": str(port),
            "WORLD_SIZE": str(job.total * count),
            "RANK": node_rank,
            "PET_NODE_RANK": node_rank,
            "PET_NNODES": str(job.total),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }
        if processes is not None:
            variables["PET_NPROC_PER_NODE"] = processes
        if job.elastic is not None:
            variables["PET_NNODES"] = f"{job.elastic.minimum}:{job.elastic.maximum}"
            variables |= _OWN_STORE
            if not self.has_static_rendezvous(role.template):
                variables |= job.elastic.environment
        return variables

    def deciding_pods(self, job: TrainingJob) -> DecidingPods:
        """Return the master; without one all workers, or any worker of an elastic job."""
        role = job.role("Master") or job.roles[0]
        whole = role.type == "Worker" and job.elastic is None
        return DecidingPods(role, role.replicas if whole else 1)

    def documents(self, job: TrainingJob, seen: Observed) -> list[Json]:
        """Return the autoscaler of an elastic job that has metrics."""
        del seen
        if job.elastic is None or not job.elastic.metrics:
            return []
        spec = {
            "scaleTargetRef": {"apiVersion": self.api_version, "kind": self.kind, "name": job.name},
            "minReplicas": job.elastic.minimum,
            "maxReplicas": job.elastic.maximum,
            "metrics": list(job.elastic.metrics),
        }
        return [
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": job.name},
                "spec": spec,
            }
        ]

    def documents_while_running(self, job: TrainingJob) -> list[Json]:
        """Return the autoscaler, which a job that does not run must not have."""
        return self.documents(job, Observed())

    def has_static_rendezvous(self, template: Json) -> bool:
        """Return whether a command has a static rendezvous, because it names its master.

        Elastic defaults must not override it.
        """
        container = self.main_container(template["spec"])
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        return any("--master_addr" in word or "--master-addr" in word for word in words)
