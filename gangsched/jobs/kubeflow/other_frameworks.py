"""The contracts of XGBoostJob, PaddleJob, JAXJob and MXJob (training-operator release-1.9)."""

from collections.abc import Mapping
from functools import lru_cache

from gangsched.core.bounds import VARIABLE_BYTES
from gangsched.jobs.common.model import JobRole, TrainingJob
from gangsched.jobs.kubeflow.framework import Framework, Variables, length_error, listed_bytes


class XGBoost(Framework):
    """A tracker on the master; LightGBM reads the workers' addresses as well."""

    kind = "XGBoostJob"
    plural = "xgboostjobs"
    specs = "xgbReplicaSpecs"
    roles = ("Master", "Worker")
    container = "xgboost"
    port_name = "xgboostjob-port"
    port = 9999

    def roles_error(self, roles: Mapping[str, JobRole]) -> str:
        """Return that a job needs a master: the tracker runs there."""
        return "" if "Master" in roles else "needs a Master"

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return the variables that rabit and LightGBM read in the operator's examples."""
        address, port = self.rank_zero(job)
        variables = {
            "MASTER_PORT": str(port),
            "MASTER_ADDR": address,
            "WORLD_SIZE": str(job.total),
            "RANK": str(self.rank(job, role, index)),
            "PYTHONUNBUFFERED": "1",
        }
        worker = job.role("Worker")
        if worker is not None and job.total > 1:
            addresses = _addresses(f"{job.name}-worker", worker.replicas)
            variables |= {"WORKER_PORT": str(self.port_of(worker)), "WORKER_ADDRS": addresses}
        return variables

    def size_error(self, job: TrainingJob) -> str:
        """Return whether the variable with the names of all workers would be too long."""
        worker = job.role("Worker")
        length = listed_bytes(f"{job.name}-worker", worker.replicas, 1) if worker else 0
        return length_error("WORKER_ADDRS", length, VARIABLE_BYTES)


@lru_cache(maxsize=16)
def _addresses(stem: str, count: int) -> str:
    return ",".join(f"{stem}-{index}" for index in range(count))


class Paddle(Framework):
    """`paddle launch`: collective among workers, or with parameter servers on the masters."""

    kind = "PaddleJob"
    plural = "paddlejobs"
    specs = "paddleReplicaSpecs"
    roles = ("Master", "Worker")
    container = "paddle"
    port_name = "master"
    port = 36543
    restart = "OnFailure"
    single = ()

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return the variables of `paddle launch`; rank 0 gets its IP address, not its name."""
        address, port = self.rank_zero(job)
        variables: dict[str, str | dict[str, object]] = {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": job.name,
            "PADDLE_NNODES": str(job.total),
        }
        if job.pod_name(role, index) == address:
            variables["POD_IP_DUMMY"] = {"fieldRef": {"fieldPath": "status.podIP"}}
            address = "$(POD_IP_DUMMY)"
        variables["PADDLE_MASTER"] = f"{address}:{port}"
        if job.role("Master") is not None:
            count = "PADDLE_SERVER_NUM" if role.type == "Master" else "PADDLE_TRAINER_NUM"
            variables[count] = "1"
        return variables

    def is_master(self, job: TrainingJob, role: JobRole, index: int) -> bool:
        """Return whether a pod is a master: workers never are."""
        del job, index
        return role.type == "Master"


class Jax(Framework):
    """jax.distributed: a coordinator on worker 0."""

    kind = "JAXJob"
    plural = "jaxjobs"
    specs = "jaxReplicaSpecs"
    roles = ("Worker",)
    container = "jax"
    port_name = "jaxjob-port"
    port = 6666

    def variables(self, job: TrainingJob, role: JobRole, index: int) -> Variables:
        """Return the variables that a script passes to `jax.distributed.initialize`."""
        del role
        address, port = self.rank_zero(job)
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(port),
            "COORDINATOR_ADDRESS": address,
            "NUM_PROCESSES": str(job.total),
            "PROCESS_ID": str(index),
        }


class MXNet(Framework):
    """Not supported; registered so that its jobs are rejected with a reason."""

    kind = "MXJob"
    plural = "mxjobs"
    specs = "mxReplicaSpecs"
    roles = ("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner")
    container = "mxnet"
    port_name = "mxjob-port"
    port = 9091
    unsupported = "MXNet was retired in 2023, and no operator since 1.8 runs its jobs"
