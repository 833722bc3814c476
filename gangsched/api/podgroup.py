"""The PodGroup of gangsched.io/v1beta1: what a gang is, and where it stands."""

from typing import Any

from pydantic import Field

from gangsched.api.base import ApiModel, Condition
from gangsched.api.topology import NearSpec, TopologyRequest

Quantity = int | str


class RoleSpec(ApiModel):
    """Pods of the gang that are alike."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$",
        description="Name of the role; pods carry it in the label gangsched.io/role.",
    )
    count: int = Field(ge=1, le=100_000, description="How many pods the role has.")
    minCount: int | None = Field(  # noqa: N815 -- the API's case
        None, ge=0, le=100_000, description="How many must start together; default: count."
    )
    template: dict[str, Any] | None = Field(
        None,
        description="Pod template. With it the role is planned before its pods exist; they are "
        "then created as <podgroup>-<role in lower case>-<index>, pinned to their node.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    topology: NearSpec | None = Field(None, description="How near this role's pods are.")
    podName: str | None = Field(  # noqa: N815
        None,
        max_length=253,
        description="Name of the role's only pod, where it is not called after role and index.",
    )


class PodGroupSpec(ApiModel):
    """What the gang needs to start."""

    minMember: int | None = Field(  # noqa: N815
        None,
        ge=1,
        le=100_000,
        description="How many pods must start together; default: the sum of the roles' minCount.",
    )
    roles: list[RoleSpec] = Field(
        default_factory=list,
        max_length=64,
        description="The kinds of pods the gang is made of.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    queue: str = Field(
        "default", min_length=1, max_length=253, description="The Queue the gang waits in."
    )
    priorityClassName: str = Field(  # noqa: N815
        "", max_length=253, description="PriorityClass of the whole gang; default: its pods'."
    )
    expectedRuntimeSeconds: int | None = Field(  # noqa: N815
        None,
        ge=1,
        le=315_360_000,
        description="How long the gang is expected to run, for backfill.",
    )
    scheduleTimeoutSeconds: int = Field(  # noqa: N815
        60,
        ge=1,
        le=86_400,
        description="How long the gang may take from reservation to start, and run incomplete, "
        "before it is stopped as a whole and planned again. While pods do not exist yet, room is "
        "reserved for them for 600 s at most.",
    )
    topology: TopologyRequest | None = Field(
        None, description="What the gang asks of the topology."
    )
    gpuKinds: list[str] = Field(  # noqa: N815
        default_factory=list,
        max_length=16,
        description="Parts of GPU product names in order of preference (H100, A100); the whole "
        "gang gets one of them.",
    )
    avoidNodes: list[str] = Field(  # noqa: N815
        default_factory=list, max_length=1000, description="Nodes it must not use."
    )
    maxRuntimeSeconds: float | None = Field(  # noqa: N815
        None, gt=0, description="It is stopped for good after so long."
    )
    readyTimeoutSeconds: float | None = Field(  # noqa: N815
        None,
        gt=0,
        description="How long its pods may take to become ready once bound, before all are "
        "stopped and planned again; after five tries it is given up.",
    )
    preemptible: bool = Field(
        default=True,
        description="It may be stopped for gangs that its queue lets go first. A gang that may "
        "not be stopped gets only what its queue is guaranteed, unless the queue says "
        "nonPreemptibleMayBorrow.",
    )
    user: str = Field(
        "",
        max_length=253,
        description="Not read any more: who asked is what the API server's admission writes into "
        "the annotation gangsched.io/user.",
    )
    movable: bool = Field(
        default=False,
        description="It may be stopped and started elsewhere to make room for others.",
    )
    minRuntimeSeconds: int = Field(  # noqa: N815
        0,
        ge=0,
        description="How long it runs undisturbed before it may be moved; it is not stopped for "
        "others either, for an hour at most, or as long as its queue says.",
    )
    checkpointAt: str | None = Field(  # noqa: N815
        None,
        description="When its work was last saved; moving it loses what came after.",
        json_schema_extra={"format": "date-time"},
    )


class Assignment(ApiModel):
    """One reserved place."""

    pod: str
    node: str


class RemedyStatus(ApiModel):
    """A change that was tried and would let the gang run."""

    kind: str = Field(description="level, members, spread, exclusive, gpu-kind, node, wait, move.")
    message: str
    at: str | None = Field(None, json_schema_extra={"format": "date-time"})


class RefusalStatus(ApiModel):
    """Why the gang does not start, as data."""

    reason: str
    role: str = ""
    wanted: int = 0
    possible: int = 0
    proved: bool = Field(default=True, description="There is no placement; false: none was found.")
    nearestNode: str = ""  # noqa: N815
    lacks: dict[str, int] = Field(default_factory=dict)
    remedies: list[RemedyStatus] = Field(default_factory=list)


class StartStatus(ApiModel):
    """When a waiting gang is expected to start, by running the scheduler forward."""

    position: int = Field(description="Its place in its queue, from 1.")
    expected: str | None = Field(None, json_schema_extra={"format": "date-time"})
    earliest: str | None = Field(None, json_schema_extra={"format": "date-time"})
    latest: str | None = Field(None, json_schema_extra={"format": "date-time"})
    reserved: str | None = Field(
        None,
        description="Room is kept for it from then on.",
        json_schema_extra={"format": "date-time"},
    )
    basis: str = Field(
        "",
        description="Where its own run time is known from: declared, learnt (its predecessors), "
        "queue (the queue's default) or assumed.",
    )


class PodGroupStatus(ApiModel):
    """Where the gang stands; written by gangsched alone."""

    phase: str = Field("", description="Gathering, Pending, Reserved, Binding, Placed or Broken.")
    message: str = Field("", description="Where it stands, in one sentence.")
    queue: str = Field("", description="The Queue that is charged for what the gang holds.")
    assignments: list[Assignment] = Field(
        default_factory=list,
        max_length=100_000,
        description="The node reserved for each pod, while the gang is reserved or placed.",
    )
    proof: str = Field(
        "", description="proved: no better placement exists; gap: none was found in time."
    )
    refusal: RefusalStatus | None = Field(None, description="While it waits: why.")
    start: StartStatus | None = Field(None, description="While it waits: when it will start.")
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
