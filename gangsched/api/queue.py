"""The kinds Queue and Reservation (an advance reservation of nodes) of gangsched.io/v1beta1."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from gangsched.api.base import ApiModel, Condition

Quantity = int | str
"""A Kubernetes quantity: 16, "500m", "2Ti"."""


class QuotaSpec(ApiModel):
    """Quota of a queue for one resource."""

    resource: str = Field(
        min_length=1, max_length=316, description="cpu, memory, pods, nvidia.com/gpu, ..."
    )
    gpuKind: str = Field(  # noqa: N815 -- the API's case
        "",
        max_length=63,
        description="Part of a GPU product name, such as H100. The quota covers these GPUs alone. "
        "Only for nvidia.com/gpu.",
    )
    nominal: Quantity = Field(description="Quota that the queue and its subqueues own.")
    borrowingLimit: Quantity | None = Field(  # noqa: N815
        None,
        description="How much unused quota of other queues the queue may borrow. Default: all of "
        "it.",
    )
    lendingLimit: Quantity | None = Field(  # noqa: N815
        None,
        description="How much of the nominal quota other queues may borrow while it is unused. "
        "Default: all of it.",
    )

    @model_validator(mode="after")
    def _kinds_are_of_gpus(self) -> "QuotaSpec":
        if self.gpuKind and self.resource != "nvidia.com/gpu":
            raise ValueError(f"gpuKind goes with nvidia.com/gpu, not with {self.resource!r}")
        return self


class GpuHours(ApiModel):
    """A budget of GPU hours in each period."""

    gpuHours: float = Field(  # noqa: N815
        gt=0, le=1e9, description="GPU hours in a period, weighted by GPU type."
    )
    periodHours: float = Field(  # noqa: N815
        168,
        gt=0,
        le=87_600,
        description="Length of a period in hours, counted from 1970. Default: 168 (a week).",
    )
    perUser: bool = Field(  # noqa: N815
        default=False,
        description="Whether each user has this budget, instead of all users together. Default: "
        "false.",
    )


class PreemptionSpec(ApiModel):
    """Which gangs the gangs of the queue may preempt."""

    withinQueue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(  # noqa: N815
        "LowerPriority",
        description="Which gangs of the same queue may be preempted. Default: LowerPriority.",
    )
    reclaim: Literal["Never", "LowerPriority", "Any"] = Field(
        "Any",
        description="Which gangs that use quota borrowed from this queue may be preempted. "
        "Default: Any.",
    )
    fairShare: bool = Field(  # noqa: N815
        default=False,
        description="Whether gangs with borrowed quota may be preempted if the share of their "
        "queue stays above the share of this queue. Default: false.",
    )
    delaySeconds: float = Field(  # noqa: N815
        0, ge=0, le=604_800, description="Seconds that a gang waits before it preempts. Default: 0."
    )


class NamespaceSelector(ApiModel):
    """Namespaces by label."""

    matchLabels: dict[str, str] = Field(default_factory=dict, max_length=16)  # noqa: N815


class QueueSpec(ApiModel):
    """A queue: a guarantee, limits, and rules. Everything has a default."""

    parent: str = Field("", max_length=253, description="Name of the parent queue. Default: none.")
    quotas: list[QuotaSpec] = Field(
        default_factory=list,
        max_length=64,
        description="Quotas by resource, and by GPU type for GPUs. A resource without a quota is "
        "not limited.",
    )
    weight: float = Field(
        1.0,
        gt=0,
        le=1e6,
        description="Weight of the queue among its siblings, for fair sharing. Default: 1.",
    )
    priority: int = Field(
        0,
        ge=-1_000_000,
        le=1_000_000,
        description="Priority of the queue: its gangs are planned before those of siblings with a "
        "lower value. Default: 0.",
    )
    maxRuntimeSeconds: float | None = Field(  # noqa: N815
        None,
        gt=0,
        description="Seconds after which a gang is stopped and not started again. Default: no "
        "limit.",
    )
    minRuntimeSeconds: float = Field(  # noqa: N815
        0, ge=0, description="Seconds that a gang runs before it may be preempted. Default: 0."
    )
    defaultRuntimeSeconds: float | None = Field(  # noqa: N815
        None,
        gt=0,
        description="Expected run time in seconds of gangs without a declared or learned run time.",
    )
    defaultPriorityClassName: str = Field(  # noqa: N815
        "",
        max_length=253,
        description="PriorityClass of gangs without one.",
    )
    maxPriorityClassName: str = Field(  # noqa: N815
        "",
        max_length=253,
        description="Highest PriorityClass that gangs of the queue and its subqueues may have. "
        "Default: any but system-*, which are allowed in kube-system alone.",
    )
    namespaces: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Namespaces that may use the queue. Default: all.",
    )
    namespaceSelector: NamespaceSelector | None = Field(  # noqa: N815
        None, description="Namespaces with these labels may use the queue too."
    )
    userLimits: dict[str, Quantity] = Field(  # noqa: N815
        default_factory=dict,
        max_length=16,
        description="Most that one user may use at a time, by resource.",
    )
    budgets: list[GpuHours] = Field(default_factory=list, max_length=8)
    order: str = Field(
        "",
        max_length=63,
        description="Policy that orders the gangs of the queue. Default: that of the cluster.",
    )
    strict: bool = Field(
        default=False,
        description="Strict FIFO: no later gang of this queue starts while an earlier gang is "
        "pending. Default: false.",
    )
    preemption: PreemptionSpec = Field(default_factory=PreemptionSpec)
    stop: Literal["None", "Hold", "HoldAndDrain"] = Field(
        "None",
        description="Hold: no gang starts. HoldAndDrain: running gangs are evicted too. Default: "
        "None.",
    )
    exclusive: str = Field(
        "",
        max_length=316,
        description="Coarsest level of a Topology with domains that gangs of the queue and its "
        "subqueues may reserve for themselves by topology.exclusive: a name, a node "
        "label, or host for single nodes. No other gang can use the free capacity of "
        "such a domain, and no quota counts it. Default: none.",
    )
    nonPreemptibleMayBorrow: bool = Field(  # noqa: N815
        default=False,
        description="Whether gangs of the queue and its subqueues with preemptible: false may "
        "borrow quota. Default: false, they start within nominal quota alone.",
    )
    maxPricePerHour: float | None = Field(  # noqa: N815
        None,
        ge=0,
        le=1e9,
        description="What nodes that are bought for gangs of the queue and its subqueues may cost "
        "for an hour, in $. Default: no limit.",
    )

    @field_validator("quotas")
    @classmethod
    def _once_each(cls, quotas: list[QuotaSpec]) -> list[QuotaSpec]:
        seen: set[tuple[str, str]] = set()
        for quota in quotas:
            key = (quota.resource, quota.gpuKind)
            if key in seen:
                raise ValueError(f"{quota.resource} {quota.gpuKind}".strip() + " is there twice")
            seen.add(key)
        return quotas


class QuotaStatus(ApiModel):
    """Usage of one quota."""

    resource: str
    gpuKind: str = ""  # noqa: N815
    nominal: str = "0"
    used: str = "0"
    borrowed: str = "0"


class HeadStatus(ApiModel):
    """The next gang of the queue, without its name unless every user may read it."""

    gang: str = ""
    reason: str = ""
    message: str = ""
    expectedStart: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815


class SpentStatus(ApiModel):
    """GPU time of the queue, or of one user, from which the scheduler continues after a restart."""

    user: str = ""
    decayedGpuSeconds: float = 0.0  # noqa: N815
    periodSeconds: float | None = None  # noqa: N815
    period: int = 0
    gpuSeconds: float = 0.0  # noqa: N815


class QueueStatus(ApiModel):
    """State of a queue, written by gangsched alone."""

    message: str = Field("", description="State of the queue, in one sentence.")
    pending: int = Field(0, description="Pending gangs of the queue and its subqueues.")
    admitted: int = Field(
        0, description="Gangs of the queue and its subqueues that are reserved or run."
    )
    share: float = Field(
        0.0, description="Dominant share of the cluster, divided by the weight of the queue."
    )
    quotas: list[QuotaStatus] = Field(default_factory=list)
    head: HeadStatus | None = None
    asOf: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815
    spent: list[SpentStatus] = Field(default_factory=list, max_length=1000)
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class ReservationSpec(ApiModel):
    """Nodes reserved in advance, for some queues or namespaces, or for maintenance."""

    start: str = Field(json_schema_extra={"format": "date-time"})
    durationSeconds: float = Field(gt=0, le=31_536_000)  # noqa: N815
    everySeconds: float | None = Field(  # noqa: N815
        None,
        gt=0,
        description="Seconds between two starts; at least durationSeconds. Default: it does not "
        "recur.",
    )
    until: str | None = Field(
        None,
        description="No occurrence starts after this time. Default: no end.",
        json_schema_extra={"format": "date-time"},
    )
    nodes: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list, max_length=5000, description="Names of the nodes to reserve."
    )
    count: int | None = Field(
        None, ge=1, le=100_000, description="Number of nodes to reserve, instead of their names."
    )
    nodeSelector: dict[str, str] = Field(  # noqa: N815
        default_factory=dict,
        max_length=16,
        description="Labels of the nodes that count chooses from. Default: all nodes.",
    )
    queues: list[str] = Field(default_factory=list, max_length=1000)
    namespaces: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Namespaces that may use the nodes meanwhile. Without queues and namespaces no "
        "gang may: maintenance.",
    )
    evict: bool = Field(
        default=False,
        description="Whether gangs that run on the nodes are evicted when the reservation starts. "
        "Default: false.",
    )

    @model_validator(mode="after")
    def _possible(self) -> "ReservationSpec":
        if bool(self.nodes) == (self.count is not None):
            raise ValueError("give nodes or count, one of them")
        if self.everySeconds is not None and self.everySeconds < self.durationSeconds:
            raise ValueError(
                f"everySeconds is {self.everySeconds:g}, below durationSeconds "
                f"{self.durationSeconds:g}: it would begin again before it ends"
            )
        return self


class ReservationStatus(ApiModel):
    """State of a reservation, written by gangsched alone."""

    phase: str = Field("", description="Scheduled, Active, Over or Invalid.")
    message: str = ""
    nodes: list[str] = Field(default_factory=list, max_length=5000)
    nextStart: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815
    nextEnd: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815
