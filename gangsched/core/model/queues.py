"""Queues as an administrator declares them: a tree of guarantees, limits and rules.

Quantities are in the units of `model.py`, except GPUs, which queues count in thousandths, so that
shared GPUs and MIG slices draw on the same quota as whole ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gangsched.core.model.ids import NodeName
from gangsched.core.model.mig_profiles import profile_share_milli
from gangsched.core.model.pods import GPU, MILLI, PODS, PodRequirements, Requests

DEFAULT_QUEUE = "default"

QuotaKey = tuple[str, str]
"""Resource and GPU kind; the kind is "" for all resources but GPUs counted by kind."""

Amounts = tuple[tuple[QuotaKey, int], ...]
"""What is charged to a queue, sorted by key; GPUs in thousandths."""

CREDITS: QuotaKey = ("gpu-credits", "")
"""GPUs in thousandths times their worth, where kinds have exchange rates; for shares alone."""

MIG_PREFIX = "nvidia.com/mig-"


class Stop(StrEnum):
    """Whether a queue admits gangs, and what becomes of those that run."""

    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


class Within(StrEnum):
    """Which gangs of its own queue a gang may stop."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    NEWER = "LowerOrNewerEqualPriority"


class Reclaim(StrEnum):
    """Which gangs of others, that run on borrowed quota, a gang within its own may stop."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class Quota:
    """One resource of a queue.

    `nominal` is the whole subtree's guarantee. A queue may use `borrowing` beyond it, and lets
    others have `lending` of it; None sets no limit.
    """

    resource: str
    nominal: int
    gpu_type: str = ""
    borrowing: int | None = None
    lending: int | None = None

    @property
    def key(self) -> QuotaKey:
        """Return resource and kind."""
        return (self.resource, self.gpu_type)


@dataclass(frozen=True, slots=True)
class GpuBudget:
    """GPU-seconds (at exchange rates) in each period; for every user alone, or for all together."""

    gpu_s: float
    period_s: float
    per_user: bool = False


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which gangs the gangs of a queue may preempt, and when.

    `fair` lets them preempt gangs of queues with a share that stays above their own. `delay_s` is
    how long a gang waits before it preempts others.
    """

    within: Within = Within.LOWER
    reclaim: Reclaim = Reclaim.ANY
    fair: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue. Without quotas anywhere on its way to the root, it may use what is free.

    `namespaces` may use it (empty: all). `user_limits` bound what one user holds at a time, and
    `highest_priority` what priority its gangs and those of the queues below it may have.
    `order` names the order policy inside it ("" for the cluster's). With `strict`, no gang
    passes a gang that cannot start. `exclusive` is the coarsest level of which a gang may have a
    domain for itself ("": none). With `non_preemptible_may_borrow`, gangs with `preemptible: false`
    may use borrowed quota. Nodes that are bought for its gangs and those of the queues below it may
    cost `price_max` for an hour. `broken` says why a declaration cannot be read; then nothing else
    is known of the queue.
    """

    name: str
    parent: str = ""
    quotas: tuple[Quota, ...] = ()
    weight: float = 1.0
    priority: int = 0
    max_runtime_s: float | None = None
    default_runtime_s: float | None = None
    default_priority: int | None = None
    namespaces: frozenset[str] = frozenset()
    open_to_all: bool = True
    user_limits: Requests = ()
    highest_priority: int | None = None
    budgets: tuple[GpuBudget, ...] = ()
    order: str = ""
    strict: bool = False
    preemption: Preemption = Preemption()
    min_runtime_s: float = 0.0
    stop: Stop = Stop.NONE
    exclusive: str = ""
    non_preemptible_may_borrow: bool = False
    price_max: float | None = None
    broken: str = ""

    def admits(self, namespace: str) -> bool:
        """Return whether gangs of a namespace may use it."""
        return self.open_to_all or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Nodes reserved in advance: by name or as a count among those with some labels.

    `queues` and `namespaces` may use it meanwhile (both empty: no gang, for maintenance). From
    `drain_s` before its start nothing begins there that would still run then. It recurs every
    `every_s` until `until_s`.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[NodeName, ...] = ()
    count: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    queues: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    every_s: float | None = None
    until_s: float | None = None
    evicts: bool = False

    def window(self, now_s: float) -> tuple[float, float] | None:
        """Return start and end of the present occurrence or of the next; None after the last."""
        start_s, length_s = self.start_s, self.end_s - self.start_s
        if now_s >= self.end_s and self.every_s is not None:
            start_s += self.every_s * ((now_s - self.end_s) // self.every_s + 1)
        over = now_s >= start_s + length_s
        if over or (self.until_s is not None and start_s >= self.until_s):
            return None
        return start_s, start_s + length_s

    def admits(self, namespace: str, queue: str) -> bool:
        """Return whether gangs of a namespace and queue may use the nodes."""
        return namespace in self.namespaces or queue in self.queues


@dataclass(frozen=True, slots=True)
class GpuWeights:
    """What a GPU of each kind is worth, for shares and budgets: H100 = 2 where A100 = 1."""

    weights: Mapping[str, float] = field(default_factory=dict)

    def of(self, model: str) -> float:
        """Return the worth of a GPU of this product name; the longest kind that it contains."""
        gpu_type = gpu_type_of(model, self.weights)
        return self.weights[gpu_type] if gpu_type else 1.0


def gpu_type_of(model: str, types: Iterable[str]) -> str:
    """Return the longest type that a product name contains, or an empty string."""
    return max((one for one in types if one in model), key=len, default="")


def charged_amounts(needs: PodRequirements, times: int = 1) -> Amounts:
    """Return what pods of these needs charge, whatever GPUs they get."""
    charge: dict[QuotaKey, int] = {(PODS, ""): times}
    gpus = 0
    for resource, quantity in needs.requests:
        if resource == GPU:
            gpus += quantity * MILLI
            continue
        charge[(resource, "")] = quantity * times
        if resource.startswith(MIG_PREFIX):
            gpus += profile_share_milli(resource.removeprefix(MIG_PREFIX)) * quantity
    if needs.share is not None:
        gpus += (needs.share.milli or MILLI) * needs.share.devices
    if gpus:
        charge[(GPU, "")] = gpus * times
    return tuple(sorted(charge.items()))


def sum_requests(parts: Mapping[PodRequirements, int]) -> Amounts:
    """Return the sum over pods of several kinds."""
    total: dict[QuotaKey, int] = {}
    for needs, times in parts.items():
        for key, quantity in charged_amounts(needs, times):
            total[key] = total.get(key, 0) + quantity
    return tuple(sorted(total.items()))


@dataclass(frozen=True, slots=True)
class GpuTypes:
    """How GPUs of different products count: those with quotas of their own, and their worth."""

    names: tuple[str, ...] = ()
    weights: GpuWeights = field(default_factory=GpuWeights)

    def of(self, model: str) -> str:
        """Return the kind with a quota of its own that a product name contains, or ""."""
        return next((kind for kind in self.names if kind in model), "")

    def with_gpu_types(self, charge: Amounts, model: str) -> Amounts:
        """Return a charge with its GPUs counted under their kind and worth as well."""
        gpus = dict(charge).get((GPU, ""), 0)
        if not gpus or not (self.names or self.weights.weights):
            return charge
        more: list[tuple[QuotaKey, int]] = []
        kind = self.of(model)
        if kind:
            more.append(((GPU, kind), gpus))
        if self.weights.weights:
            more.append((CREDITS, round(gpus * self.weights.of(model))))
        return tuple(sorted([*charge, *more]))


def gpu_types_of(queues: Iterable[Queue], rates: GpuWeights) -> GpuTypes:
    """Return the GPU kinds that any queue has a quota for; longer names are compared first."""
    names = {quota.gpu_type for queue in queues for quota in queue.quotas} - {""}
    return GpuTypes(tuple(sorted(names, key=lambda kind: (-len(kind), kind))), rates)


def quota_label(key: QuotaKey) -> str:
    """Name a resource, with the GPU kind where there is one."""
    resource, kind = key
    return f"{resource} ({kind})" if kind else resource


def gpus_of_pod(needs: PodRequirements) -> float:
    """Return the GPUs of a pod, with its parts of GPUs."""
    milli = 0
    for resource, amount in needs.requests:
        if resource == GPU:
            milli += amount * MILLI
        elif resource.startswith(MIG_PREFIX):
            milli += profile_share_milli(resource.removeprefix(MIG_PREFIX)) * amount
    if needs.share is not None:
        milli += (needs.share.milli or MILLI) * needs.share.devices
    return milli / MILLI
