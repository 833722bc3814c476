"""The JobSet of jobset.x-k8s.io/v1alpha2, field for field; pod templates stay opaque."""

from typing import Any, Literal

from pydantic import Field

from gangsched.api.base import ApiModel

_OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class DependsOn(ApiModel):
    """An earlier replicated job, and how far it has to be."""

    name: str
    status: Literal["Ready", "Complete"]


class ReplicatedJob(ApiModel):
    """Jobs of one template."""

    name: str = Field(min_length=1, max_length=63, pattern=_NAME)
    groupName: str = Field("default", max_length=63)  # noqa: N815
    replicas: int = Field(1, ge=0, le=100_000)
    template: dict[str, Any] = Field(json_schema_extra=_OPEN)
    dependsOn: list[DependsOn] | None = Field(None, max_length=10)  # noqa: N815


class Network(ApiModel):
    """How pods find each other."""

    enableDNSHostnames: bool = True  # noqa: N815
    subdomain: str | None = Field(None, max_length=63, pattern=_NAME)
    publishNotReadyAddresses: bool = True  # noqa: N815


class SuccessPolicy(ApiModel):
    """When the whole has succeeded."""

    operator: Literal["All", "Any"] = "All"
    targetReplicatedJobs: list[str] | None = None  # noqa: N815


class FailureRule(ApiModel):
    """What to do when a Job failed in a certain way."""

    name: str = ""
    action: Literal[
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
    ]
    onJobFailureReasons: list[str] | None = None  # noqa: N815
    onJobFailureMessagePatterns: list[str] | None = None  # noqa: N815
    targetReplicatedJobs: list[str] | None = None  # noqa: N815


class FailurePolicy(ApiModel):
    """What to do when a Job failed."""

    maxRestarts: int = Field(0, ge=0)  # noqa: N815
    restartStrategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] = "Recreate"  # noqa: N815
    rules: list[FailureRule] | None = Field(None, max_length=20)


class StartupPolicy(ApiModel):
    """In which order Jobs start."""

    startupPolicyOrder: Literal["AnyOrder", "InOrder"] = "AnyOrder"  # noqa: N815


class Coordinator(ApiModel):
    """The pod that coordinates; all pods get its address."""

    replicatedJob: str  # noqa: N815
    jobIndex: int = Field(0, ge=0)  # noqa: N815
    podIndex: int = Field(0, ge=0)  # noqa: N815


class ClaimRetention(ApiModel):
    """Whether claims outlive the JobSet."""

    whenDeleted: Literal["Retain", "Delete"] = "Delete"  # noqa: N815


class ClaimPolicy(ApiModel):
    """Volume claims that all Jobs share."""

    templates: list[dict[str, Any]]
    retentionPolicy: ClaimRetention | None = None  # noqa: N815


class JobSetSpec(ApiModel):
    """Jobs that belong together."""

    replicatedJobs: list[ReplicatedJob] = Field(  # noqa: N815
        default_factory=list,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    network: Network | None = None
    successPolicy: SuccessPolicy | None = None  # noqa: N815
    failurePolicy: FailurePolicy | None = None  # noqa: N815
    startupPolicy: StartupPolicy | None = None  # noqa: N815
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managedBy: str | None = Field(None, max_length=63)  # noqa: N815
    ttlSecondsAfterFinished: int | None = Field(None, ge=0)  # noqa: N815
    volumeClaimPolicies: list[ClaimPolicy] | None = Field(None, max_length=50)  # noqa: N815
