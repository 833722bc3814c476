"""The Queue of gangsched.io/v1beta1, and the Reservation that books room in advance."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from gangsched.api.base import ApiModel, Condition

Quantity = int | str
"""A Kubernetes quantity: 16, "500m", "2Ti"."""


class QuotaSpec(ApiModel):
    """What a queue has of one resource."""

    resource: str = Field(
        min_length=1, max_length=316, description="cpu, memory, pods, nvidia.com/gpu, ..."
    )
    gpuKind: str = Field(  # noqa: N815 -- the API's case
        "",
        max_length=63,
        description="Part of a GPU product name (H100): this quota is for such GPUs alone. Only "
        "for nvidia.com/gpu.",
    )
    nominal: Quantity = Field(description="Guaranteed to the queue and all below it.")
    borrowingLimit: Quantity | None = Field(  # noqa: N815
        None, description="How much more it may use of what others do not; default: all of it."
    )
    lendingLimit: Quantity | None = Field(  # noqa: N815
        None, description="How much of it others may use; default: all of it."
    )

    @model_validator(mode="after")
    def _kinds_are_of_gpus(self) -> "QuotaSpec":
        if self.gpuKind and self.resource != "nvidia.com/gpu":
            raise ValueError(f"gpuKind goes with nvidia.com/gpu, not with {self.resource!r}")
        return self


class GpuHours(ApiModel):
    """A budget that starts anew each period."""

    gpuHours: float = Field(gt=0, le=1e9, description="At the exchange rates of the GPU kinds.")  # noqa: N815
    periodHours: float = Field(  # noqa: N815
        168, gt=0, le=87_600, description="Length of a period, counted from 1970; default: a week."
    )
    perUser: bool = Field(  # noqa: N815
        default=False, description="For every user alone, instead of all together."
    )


class PreemptionSpec(ApiModel):
    """Whom gangs of the queue may stop."""

    withinQueue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(  # noqa: N815
        "LowerPriority", description="Gangs of the same queue."
    )
    reclaim: Literal["Never", "LowerPriority", "Any"] = Field(
        "Any", description="Gangs that run on guarantees of this queue, lent to theirs."
    )
    fairShare: bool = Field(  # noqa: N815
        default=False,
        description="Gangs on loans, of queues whose share stays above this queue's.",
    )
    delaySeconds: float = Field(  # noqa: N815
        0, ge=0, le=604_800, description="How long a gang waits before it stops others."
    )


class NamespaceSelector(ApiModel):
    """Namespaces by label."""

    matchLabels: dict[str, str] = Field(default_factory=dict, max_length=16)  # noqa: N815


class QueueSpec(ApiModel):
    """A queue: a guarantee, limits, and rules. Everything has a default."""

    parent: str = Field("", max_length=253, description="The queue above; default: none.")
    quotas: list[QuotaSpec] = Field(
        default_factory=list,
        max_length=64,
        description="By resource, and for GPUs by kind; a resource without one is not limited.",
    )
    weight: float = Field(1.0, gt=0, le=1e6, description="Its part among its siblings.")
    priority: int = Field(
        0, ge=-1_000_000, le=1_000_000, description="Before siblings of lower priority."
    )
    maxRuntimeSeconds: float | None = Field(  # noqa: N815
        None, gt=0, description="Gangs are stopped for good after so long."
    )
    minRuntimeSeconds: float = Field(  # noqa: N815
        0, ge=0, description="Gangs are not stopped for others before."
    )
    defaultRuntimeSeconds: float | None = Field(  # noqa: N815
        None, gt=0, description="Expected of gangs of which nothing better is known."
    )
    defaultPriorityClassName: str = Field(  # noqa: N815
        "", max_length=253, description="PriorityClass of gangs that have none."
    )
    maxPriorityClassName: str = Field(  # noqa: N815
        "",
        max_length=253,
        description="Gangs of the queue, and of those below it, may have this PriorityClass or a "
        "lower one; default: any that is not system-*, and in kube-system these too.",
    )
    namespaces: list[str] = Field(
        default_factory=list, max_length=1000, description="May use it; default: all."
    )
    namespaceSelector: NamespaceSelector | None = Field(  # noqa: N815
        None, description="Namespaces with these labels may use it too."
    )
    userLimits: dict[str, Quantity] = Field(  # noqa: N815
        default_factory=dict,
        max_length=16,
        description="What one user may hold at a time, by resource.",
    )
    budgets: list[GpuHours] = Field(default_factory=list, max_length=8)
    order: str = Field(
        "", max_length=63, description="Order policy inside the queue; default: the cluster's."
    )
    strict: bool = Field(
        default=False, description="Nobody passes a gang of this queue that cannot start."
    )
    preemption: PreemptionSpec = Field(default_factory=PreemptionSpec)
    stop: Literal["None", "Hold", "HoldAndDrain"] = Field(
        "None", description="Hold: nobody starts. HoldAndDrain: those who run are stopped too."
    )
    exclusive: str = Field(
        "",
        max_length=316,
        description="Coarsest level of a Topology (name or node label, host for single nodes) "
        "whose domains gangs of the queue, and of those below it, may have for themselves by "
        "topology.exclusive; default: none. What they leave free there nobody else can use, and "
        "no quota counts it.",
    )
    nonPreemptibleMayBorrow: bool = Field(  # noqa: N815
        default=False,
        description="Gangs of the queue, and of those below it, that may not be stopped "
        "(preemptible: false) may borrow as others do; default: they get what is guaranteed.",
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
    """How one quota is used."""

    resource: str
    gpuKind: str = ""  # noqa: N815
    nominal: str = "0"
    used: str = "0"
    borrowed: str = "0"


class HeadStatus(ApiModel):
    """The gang that is next. Its name is left out unless everybody may read it."""

    gang: str = ""
    reason: str = ""
    message: str = ""
    expectedStart: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815


class SpentStatus(ApiModel):
    """GPU time of the queue, or of one user, as the scheduler takes it over after a restart."""

    user: str = ""
    decayedGpuSeconds: float = 0.0  # noqa: N815
    periodSeconds: float | None = None  # noqa: N815
    period: int = 0
    gpuSeconds: float = 0.0  # noqa: N815


class QueueStatus(ApiModel):
    """How a queue stands; written by gangsched alone."""

    message: str = Field("", description="In one sentence.")
    pending: int = Field(0, description="Gangs that wait in it and below it.")
    admitted: int = Field(0, description="Gangs that have their room.")
    share: float = Field(0.0, description="Dominant share of the cluster over its weight.")
    quotas: list[QuotaStatus] = Field(default_factory=list)
    head: HeadStatus | None = None
    asOf: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815
    spent: list[SpentStatus] = Field(default_factory=list, max_length=1000)
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class ReservationSpec(ApiModel):
    """Room booked in advance: for some queues or namespaces, or for maintenance."""

    start: str = Field(json_schema_extra={"format": "date-time"})
    durationSeconds: float = Field(gt=0, le=31_536_000)  # noqa: N815
    everySeconds: float | None = Field(  # noqa: N815
        None, gt=0, description="Recurs so often; at least its duration."
    )
    until: str | None = Field(
        None, description="No occurrence begins after.", json_schema_extra={"format": "date-time"}
    )
    nodes: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list, max_length=5000, description="These nodes."
    )
    count: int | None = Field(None, ge=1, le=100_000, description="Or so many of them.")
    nodeSelector: dict[str, str] = Field(  # noqa: N815
        default_factory=dict, max_length=16, description="Among nodes with these labels."
    )
    queues: list[str] = Field(default_factory=list, max_length=1000)
    namespaces: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Who may use the nodes meanwhile; with neither, nobody: maintenance.",
    )
    evict: bool = Field(default=False, description="Stop whoever still runs there when it begins.")

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
    """What became of it; written by gangsched alone."""

    phase: str = Field("", description="Scheduled, Active, Over or Invalid.")
    message: str = ""
    nodes: list[str] = Field(default_factory=list, max_length=5000)
    nextStart: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815
    nextEnd: str | None = Field(None, json_schema_extra={"format": "date-time"})  # noqa: N815
