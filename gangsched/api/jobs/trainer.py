"""TrainJob and its runtimes (trainer.kubeflow.org/v1alpha1), the fields of v2.0 and of v2.3."""

from typing import Any, Literal

from pydantic import Field

from gangsched.api.base import ApiModel
from gangsched.api.jobs.jobset import JobSetSpec
from gangsched.core.bounds import PATCHES

_OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class RuntimeRef(ApiModel):
    """The runtime a job is made from."""

    name: str = Field(min_length=1)
    apiGroup: str | None = "trainer.kubeflow.org"  # noqa: N815
    kind: str | None = "ClusterTrainingRuntime"


class SecretRef(ApiModel):
    """A Secret in the job's namespace."""

    name: str


class InitializerPart(ApiModel):
    """Where a dataset or a model comes from."""

    storageUri: str | None = None  # noqa: N815
    env: list[dict[str, Any]] | None = None
    secretRef: SecretRef | None = None  # noqa: N815


class Initializer(ApiModel):
    """What is fetched before training."""

    dataset: InitializerPart | None = None
    model: InitializerPart | None = None


class Trainer(ApiModel):
    """What trains, and on how much."""

    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[dict[str, Any]] | None = None
    numNodes: int | None = Field(None, ge=1, le=100_000)  # noqa: N815
    resourcesPerNode: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)  # noqa: N815
    numProcPerNode: int | str | None = None  # noqa: N815


class TargetJob(ApiModel):
    """A replicated job of the runtime, by its name."""

    name: str


class OverriddenMetadata(ApiModel):
    """Labels and annotations that pods get."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class OverriddenSpec(ApiModel):
    """Fields of pods that may be overridden; items of lists are identified by their names."""

    serviceAccountName: str | None = None  # noqa: N815
    nodeSelector: dict[str, str] | None = None  # noqa: N815
    affinity: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)
    tolerations: list[dict[str, Any]] | None = None
    volumes: list[dict[str, Any]] | None = None
    initContainers: list[dict[str, Any]] | None = None  # noqa: N815
    containers: list[dict[str, Any]] | None = None
    schedulingGates: list[dict[str, Any]] | None = None  # noqa: N815
    imagePullSecrets: list[dict[str, Any]] | None = None  # noqa: N815


class PodTemplateOverride(ApiModel):
    """Changes to the pods of some replicated jobs."""

    targetJobs: list[TargetJob] = Field(min_length=1, max_length=PATCHES.most)  # noqa: N815
    metadata: OverriddenMetadata | None = None
    spec: OverriddenSpec | None = None


class TrainJobSpec(ApiModel):
    """A training job on a runtime."""

    runtimeRef: RuntimeRef  # noqa: N815
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    labels: dict[str, str] | None = Field(None, description="v2.0: labels of the JobSet.")
    annotations: dict[str, str] | None = Field(None, description="v2.0: annotations of the JobSet.")
    podSpecOverrides: list[dict[str, Any]] | None = Field(  # noqa: N815
        None,
        max_length=PATCHES.most,
        description="v2.0: changes to the pods of some replicated jobs.",
    )
    podTemplateOverrides: list[PodTemplateOverride] | None = Field(  # noqa: N815
        None,
        max_length=PATCHES.most,
        description="v2.1: changes to the pods of some replicated jobs, and to their metadata.",
    )
    runtimePatches: list[dict[str, Any]] | None = Field(  # noqa: N815
        None,
        max_length=PATCHES.most,
        description="Changes to the runtime's template, each by its manager.",
    )
    suspend: bool | None = None
    activeDeadlineSeconds: int | None = Field(None, ge=1)  # noqa: N815
    managedBy: str | None = Field(None, max_length=63)  # noqa: N815


class TorchPolicy(ApiModel):
    """torchrun."""

    numProcPerNode: int | str | None = None  # noqa: N815
    elasticPolicy: dict[str, Any] | None = None  # noqa: N815
    envInjection: dict[str, Any] | None = None  # noqa: N815


class MpiPolicy(ApiModel):
    """mpirun."""

    numProcPerNode: int | None = 1  # noqa: N815
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] | None = "OpenMPI"  # noqa: N815
    sshAuthMountPath: str | None = "/root/.ssh"  # noqa: N815
    runLauncherAsNode: bool | None = False  # noqa: N815


class MlPolicy(ApiModel):
    """How a framework is run."""

    numNodes: int | None = Field(1, ge=1)  # noqa: N815
    torch: TorchPolicy | None = None
    mpi: MpiPolicy | None = None
    jax: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)
    xgboost: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)
    flux: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)


class JobSetTemplate(ApiModel):
    """The JobSet a runtime makes."""

    metadata: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)
    spec: JobSetSpec


class RuntimeSpec(ApiModel):
    """How jobs on this runtime look."""

    mlPolicy: MlPolicy | None = None  # noqa: N815
    podGroupPolicy: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)  # noqa: N815
    template: JobSetTemplate


class Coscheduling(ApiModel):
    """How long a gang may take to start."""

    scheduleTimeoutSeconds: int | None = Field(None, ge=1, le=86_400)  # noqa: N815


class NetworkTopology(ApiModel):
    """How near each other pods are; tier 1 is the finest level."""

    mode: Literal["hard", "soft"] | None = "hard"
    highestTierAllowed: int | None = Field(None, ge=1, le=1_000)  # noqa: N815
    highestTierName: str | None = Field(None, min_length=1, max_length=253)  # noqa: N815


class VolcanoPolicy(ApiModel):
    """The scheduling policy in Volcano's form."""

    networkTopology: NetworkTopology | None = None  # noqa: N815


class PodGroupPolicy(ApiModel):
    """How the gangs of a runtime's jobs are scheduled."""

    coscheduling: Coscheduling | None = None
    volcano: VolcanoPolicy | None = None
