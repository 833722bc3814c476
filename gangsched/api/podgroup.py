"""The PodGroup of gangsched.io/v1beta1: the declaration of a gang, and its status."""

from typing import Any

from pydantic import Field

from gangsched.api.base import ApiModel, Condition
from gangsched.api.start_conditions import DependencySpec, SeriesSpec
from gangsched.api.topology import NearSpec, TopologyRequest

Quantity = int | str


class RoleSpec(ApiModel):
    """A part of the gang with equal pods."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$",
        description="Name of the role; pods carry it in the label gangsched.io/role.",
    )
    count: int = Field(ge=1, le=100_000, description="How many pods the role has.")
    minCount: int | None = Field(  # noqa: N815 -- the API's case
        None,
        ge=0,
        le=100_000,
        description="How many pods of the role must start together. Default: count.",
    )
    template: dict[str, Any] | None = Field(
        None,
        description="Pod template. With a template the role is planned before its pods exist. The "
        "pods are then created as <podgroup>-<role in lower case>-<index>, pinned to "
        "their nodes.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    topology: NearSpec | None = Field(
        None, description="How near to each other the pods of this role must be."
    )
    podName: str | None = Field(  # noqa: N815
        None,
        max_length=253,
        description="Name of the only pod of the role. Default: <podgroup>-<role in lower case>-0.",
    )


class PodGroupSpec(ApiModel):
    """What the gang needs to start."""

    minMember: int | None = Field(  # noqa: N815
        None,
        ge=1,
        le=100_000,
        description="How many pods must start together. Default: the sum of minCount of the roles.",
    )
    roles: list[RoleSpec] = Field(
        default_factory=list,
        max_length=64,
        description="Roles of the gang: parts with equal pods.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    queue: str = Field(
        "default", min_length=1, max_length=253, description="Queue of the gang. Default: default."
    )
    priorityClassName: str = Field(  # noqa: N815
        "",
        max_length=253,
        description="PriorityClass of the whole gang. Default: that of its pods.",
    )
    expectedRuntimeSeconds: int | None = Field(  # noqa: N815
        None,
        ge=1,
        le=315_360_000,
        description="Expected run time of the gang in seconds, for backfill and forecasts.",
    )
    scheduleTimeoutSeconds: int = Field(  # noqa: N815
        60,
        ge=1,
        le=86_400,
        description="Seconds that the gang may take from reservation to start, or run below its "
        "minimum. After that it is torn down and planned again. While pods do not exist "
        "yet, their nodes stay reserved for at most 600 s.",
    )
    topology: TopologyRequest | None = Field(None, description="Topology constraints of the gang.")
    gpuKinds: list[str] = Field(  # noqa: N815
        default_factory=list,
        max_length=16,
        description="Parts of GPU product names in order of preference, such as H100, A100. The "
        "whole gang gets one of them. Default: any GPU.",
    )
    avoidNodes: list[str] = Field(  # noqa: N815
        default_factory=list, max_length=1000, description="Nodes that the gang must not use."
    )
    maxRuntimeSeconds: float | None = Field(  # noqa: N815
        None,
        gt=0,
        description="Seconds after which the gang is stopped and not started again. Default: no "
        "limit.",
    )
    readyTimeoutSeconds: float | None = Field(  # noqa: N815
        None,
        gt=0,
        description="Seconds that bound pods may take to become ready. After that the gang is torn "
        "down and planned again, up to five times. Default: no limit.",
    )
    preemptible: bool = Field(
        default=True,
        description="Whether gangs with precedence may preempt this gang. Default: true. With "
        "false the gang starts within the nominal quota of its queue alone, unless the Queue "
        "sets nonPreemptibleMayBorrow.",
    )
    user: str = Field(
        "",
        max_length=253,
        description="No longer read. The API server writes the user into the annotation "
        "gangsched.io/user at admission.",
    )
    movable: bool = Field(
        default=False,
        description="Whether the gang may be moved to other nodes to free capacity for other "
        "gangs. Default: false.",
    )
    minRuntimeSeconds: int = Field(  # noqa: N815
        0,
        ge=0,
        description="Seconds that the gang runs before it may be moved. It is not preempted in "
        "that time either, for at most an hour, or minRuntimeSeconds of its Queue if that is "
        "longer. Default: 0.",
    )
    checkpointAt: str | None = Field(  # noqa: N815
        None,
        description="Time of the last checkpoint. Work after it is lost if the gang is moved or "
        "preempted.",
        json_schema_extra={"format": "date-time"},
    )
    checkpointGraceSeconds: int | None = Field(  # noqa: N815
        None,
        ge=1,
        le=86_400,
        description="Seconds that the gang may take to save its work before it is stopped for "
        "another gang or for maintenance. The stop is announced by the annotation "
        "gangsched.io/stop-at; the gang answers with gangsched.io/checkpoint-at. The "
        "administrator bounds the time. Default: the gang is stopped at once.",
    )
    dependencies: list[DependencySpec] = Field(
        default_factory=list,
        max_length=64,
        description="Jobs and PodGroups of the same namespace that the gang waits for. It is not "
        "planned before all conditions hold.",
    )
    series: SeriesSpec | None = Field(
        None, description="Series of the gang: at most maxRunning gangs of it run at a time."
    )
    maxPricePerHour: int | None = Field(  # noqa: N815
        None,
        ge=0,
        le=1_000_000,
        description="What the nodes that are bought for the gang may cost for an hour, by the "
        "prices of the administrator. Default: no limit.",
    )
    maxWaitSeconds: int | None = Field(  # noqa: N815
        None,
        ge=1,
        le=31_536_000,
        description="Seconds within which nodes that are bought for the gang should be there, "
        "counted from when it began to wait. Nodes in time are preferred to cheaper ones. If none "
        "are in time, the first are bought. Default: the cheapest nodes are bought.",
    )


class Assignment(ApiModel):
    """The node of one pod."""

    pod: str
    node: str


class RemedyStatus(ApiModel):
    """A change with which the gang would start, as a trial showed."""

    kind: str = Field(
        description="level, members, spread, exclusive, gpu-kind, avoid, node, wait, move."
    )
    message: str
    at: str | None = Field(None, json_schema_extra={"format": "date-time"})


class RefusalStatus(ApiModel):
    """Why the gang does not start, as data."""

    reason: str
    role: str = ""
    wanted: int = 0
    possible: int = 0
    proved: bool = Field(
        default=True,
        description="Whether it is proved that no placement exists. False: none was found.",
    )
    nearestNode: str = ""  # noqa: N815
    lacks: dict[str, int] = Field(default_factory=dict)
    remedies: list[RemedyStatus] = Field(default_factory=list)


class StartStatus(ApiModel):
    """When a pending gang is expected to start, by a forecast."""

    position: int = Field(description="Position of the gang in its queue, from 1.")
    expected: str | None = Field(None, json_schema_extra={"format": "date-time"})
    earliest: str | None = Field(None, json_schema_extra={"format": "date-time"})
    latest: str | None = Field(None, json_schema_extra={"format": "date-time"})
    reserved: str | None = Field(
        None,
        description="Start of the backfill reservation of the gang.",
        json_schema_extra={"format": "date-time"},
    )
    basis: str = Field(
        "",
        description="Source of the run time of the gang: declared, learnt (from earlier gangs), "
        "queue (default of the Queue) or assumed.",
    )


class PodGroupStatus(ApiModel):
    """State of the gang, written by gangsched alone."""

    phase: str = Field("", description="Gathering, Pending, Reserved, Binding, Placed or Broken.")
    message: str = Field("", description="State of the gang, in one sentence.")
    queue: str = Field("", description="Queue that the gang is charged to.")
    assignments: list[Assignment] = Field(
        default_factory=list,
        max_length=100_000,
        description="Node of each pod, while the gang is reserved or placed.",
    )
    proof: str = Field(
        "", description="proved: no better placement exists. gap: none was found in time."
    )
    refusal: RefusalStatus | None = Field(None, description="Why the gang is pending.")
    start: StartStatus | None = Field(
        None, description="When the pending gang is expected to start."
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class CoschedulingSpec(ApiModel):
    """The PodGroup of scheduler-plugins, as its users write it."""

    minMember: int = Field(1, ge=0)  # noqa: N815
    minResources: dict[str, Quantity] | None = None  # noqa: N815
    scheduleTimeoutSeconds: int | None = Field(  # noqa: N815
        None, ge=0, description="0, as the MPI Operator writes it, means that none is given."
    )


class VolcanoSpec(ApiModel):
    """The PodGroup of Volcano, as its users write it."""

    minMember: int = Field(1, ge=0)  # noqa: N815
    minTaskMember: dict[str, int] | None = None  # noqa: N815
    minResources: dict[str, Quantity] | None = None  # noqa: N815
    queue: str | None = "default"
    priorityClassName: str | None = None  # noqa: N815
    networkTopology: dict[str, Any] | None = None  # noqa: N815


class KaiSpec(ApiModel):
    """The PodGroup of KAI, as its controller writes it."""

    minMember: int = Field(1, ge=0)  # noqa: N815
    queue: str | None = None
    priorityClassName: str | None = None  # noqa: N815
    topologyConstraint: dict[str, Any] | None = None  # noqa: N815
