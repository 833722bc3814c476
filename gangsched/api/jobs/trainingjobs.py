"""The jobs of kubeflow.org/v1, as users write them (field for field the Training Operator's).

Two fields that the guides put in the wrong place are declared too, since strict validation would
refuse them: `spec.ttlSecondsAfterFinished` and `spec.schedulerName`. `runPolicy` has a default,
because the kubeflow-training SDK cannot read a job without it.
"""

from typing import Any, Literal

from pydantic import Field

from gangsched.api.base import ApiModel

_OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
_FIXED: dict[str, Any] = {
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "managedBy is immutable"}]
}

Manager = Literal[
    "", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"
]
"""Controllers that may run a job (KEP-693)."""


class SchedulingPolicy(ApiModel):
    """How the job's gang is scheduled."""

    minAvailable: int | None = Field(None, ge=1)  # noqa: N815
    queue: str | None = None
    minResources: dict[str, int | str] | None = None  # noqa: N815
    priorityClass: str | None = None  # noqa: N815
    scheduleTimeoutSeconds: int | None = Field(None, ge=1, le=86_400)  # noqa: N815


class RunPolicy(ApiModel):
    """Limits of the job's life and what is left after it."""

    cleanPodPolicy: Literal["", "None", "Running", "All"] | None = None  # noqa: N815
    ttlSecondsAfterFinished: int | None = Field(None, ge=0)  # noqa: N815
    activeDeadlineSeconds: int | None = Field(None, ge=1)  # noqa: N815
    backoffLimit: int | None = Field(None, ge=0)  # noqa: N815
    suspend: bool = False
    managedBy: Manager | None = Field(None, json_schema_extra=_FIXED)  # noqa: N815
    schedulingPolicy: SchedulingPolicy | None = None  # noqa: N815


class ReplicaSpec(ApiModel):
    """The pods of one replica type."""

    replicas: int | None = Field(None, ge=0, le=100_000)
    restartPolicy: Literal["Always", "OnFailure", "Never", "ExitCode"] | None = None  # noqa: N815
    template: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)


class RdzvConf(ApiModel):
    """One setting of a rendezvous backend."""

    key: str
    value: str


class ElasticPolicy(ApiModel):
    """torchrun's elastic options; kept as written."""

    minReplicas: int | None = Field(None, ge=1)  # noqa: N815
    maxReplicas: int | None = Field(None, ge=1)  # noqa: N815
    rdzvBackend: Literal["c10d", "etcd", "etcd-v2"] | None = None  # noqa: N815
    rdzvPort: int | None = None  # noqa: N815
    rdzvHost: str | None = None  # noqa: N815
    rdzvId: str | None = None  # noqa: N815
    rdzvConf: list[RdzvConf] | None = None  # noqa: N815
    standalone: bool | None = None
    nProcPerNode: int | None = None  # noqa: N815
    maxRestarts: int | None = Field(None, ge=0)  # noqa: N815
    metrics: list[dict[str, Any]] | None = None


class JobSpec(ApiModel):
    """What every kind has."""

    runPolicy: RunPolicy = Field(default={})  # type: ignore[assignment]  # noqa: N815
    ttlSecondsAfterFinished: int | None = Field(  # noqa: N815
        None, ge=0, description="Alias of runPolicy.ttlSecondsAfterFinished, which wins."
    )
    schedulerName: str | None = Field(  # noqa: N815
        None, description="Alias of the pod templates' schedulerName, which win."
    )


class PyTorchJobSpec(JobSpec):
    """A distributed PyTorch job."""

    pytorchReplicaSpecs: dict[str, ReplicaSpec]  # noqa: N815
    elasticPolicy: ElasticPolicy | None = None  # noqa: N815
    nprocPerNode: int | str | None = None  # noqa: N815


class TFJobSpec(JobSpec):
    """A distributed TensorFlow job."""

    tfReplicaSpecs: dict[str, ReplicaSpec]  # noqa: N815
    successPolicy: Literal["", "AllWorkers"] | None = None  # noqa: N815
    enableDynamicWorker: bool = False  # noqa: N815


class MPIJobSpec(JobSpec):
    """A job of mpirun, with the fields of v1 and of v2beta1: the one name stands for both.

    No field has a default here, because the written fields decide the version of a job.
    """

    mpiReplicaSpecs: dict[str, ReplicaSpec]  # noqa: N815
    slotsPerWorker: int | None = Field(None, ge=1)  # noqa: N815
    cleanPodPolicy: Literal["", "None", "Running", "All"] | None = Field(  # noqa: N815
        None, description="v1: alias of runPolicy.cleanPodPolicy, which wins."
    )
    mainContainer: str | None = Field(  # noqa: N815
        None, description="v1: the container of a worker that kubectl exec enters."
    )
    runLauncherAsWorker: bool | None = None  # noqa: N815
    sshAuthMountPath: str | None = None  # noqa: N815
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] | None = None  # noqa: N815
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] | None = None  # noqa: N815


class XGBoostJobSpec(JobSpec):
    """A distributed XGBoost or LightGBM job."""

    xgbReplicaSpecs: dict[str, ReplicaSpec]  # noqa: N815


class PaddleJobSpec(JobSpec):
    """A distributed PaddlePaddle job."""

    paddleReplicaSpecs: dict[str, ReplicaSpec]  # noqa: N815
    elasticPolicy: ElasticPolicy | None = None  # noqa: N815


class JAXJobSpec(JobSpec):
    """A distributed JAX job."""

    jaxReplicaSpecs: dict[str, ReplicaSpec]  # noqa: N815


class MXJobSpec(JobSpec):
    """An MXNet job. gangsched rejects it with a message, because MXNet is retired."""

    mxReplicaSpecs: dict[str, ReplicaSpec] | None = None  # noqa: N815
    jobMode: str | None = None  # noqa: N815


SPECS: dict[str, type[JobSpec]] = {
    "PyTorchJob": PyTorchJobSpec,
    "TFJob": TFJobSpec,
    "MPIJob": MPIJobSpec,
    "XGBoostJob": XGBoostJobSpec,
    "PaddleJob": PaddleJobSpec,
    "JAXJob": JAXJobSpec,
    "MXJob": MXJobSpec,
}
"""The spec of each kind."""
