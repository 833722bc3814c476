"""Refusals: why a gang does not start, as data, and as one sentence for its user."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gangsched.core.model.ids import GangId, PodName
from gangsched.core.renamed import RenamedAttribute


class Reason(StrEnum):
    """The reasons of refusals; each is a Condition reason and a metric label."""

    if not TYPE_CHECKING:  # a type checker refuses the old name
        NO_ROOM = RenamedAttribute("NOT_ENOUGH_FREE")
        OVER_QUOTA = RenamedAttribute("QUOTA_IN_USE")
        BEYOND_QUOTA = RenamedAttribute("LARGER_THAN_QUOTA")

    NO_GROUP = "PodGroupMissing"
    TOO_FEW_PODS = "TooFewPods"
    GATED = "SchedulingGated"
    UNKNOWN_QUEUE = "UnknownQueue"
    UNSATISFIABLE = "NoNodeQualifies"
    TOO_LARGE = "LargerThanCluster"
    NOT_ENOUGH_FREE = "NotEnoughFree"
    TOPOLOGY = "TopologyDoesNotFit"
    MISCONFIGURED = "Misconfigured"
    FREEING_CAPACITY = "MakingRoom"
    BEYOND_PLANNER = "BeyondPlanner"
    BACKING_OFF = "BackingOff"
    QUEUE_INVALID = "QueueInvalid"
    QUEUE_STOPPED = "QueueStopped"
    NOT_PERMITTED = "NotPermitted"
    QUOTA_IN_USE = "QuotaInUse"
    LARGER_THAN_QUOTA = "LargerThanQuota"
    MAY_NOT_BORROW = "MayNotBorrow"
    NAMESPACE_QUOTA = "ResourceQuota"
    NOT_ADMITTED = "NotAdmitted"
    USER_LIMIT = "UserLimit"
    BUDGET = "BudgetSpent"
    BOOKED = "Booked"
    BEHIND = "BehindReservation"
    BLOCKED = "BehindHead"
    DEPENDENCY = "WaitsForGang"
    DEPENDENCY_NEVER_MET = "DependencyNeverMet"
    SERIES_FULL = "SeriesFull"
    GIVEN_UP = "GivenUp"
    PLAN_FAILED = "PlanFailed"


LACKS_NODES = frozenset({Reason.NOT_ENOUGH_FREE, Reason.TOO_LARGE, Reason.UNSATISFIABLE})
"""Refusals that more nodes may end. They come after all rules and quotas of the queue."""


_DECLARERS = {
    "job": "Job",
    "statefulset": "StatefulSet",
    "raycluster": "RayCluster",
    "pytorchjob": "PyTorchJob",
    "tfjob": "TFJob",
    "xgboostjob": "XGBoostJob",
    "paddlejob": "PaddleJob",
    "jaxjob": "JAXJob",
    "mpijob": "MPIJob",
    "workload": "Workload",
}
"""Kind of the object that declares a gang, by prefix of the gang's name; others are PodGroups."""


DECLARING_PREFIXES = (*_DECLARERS, "jobset", "rayjob")
"""How names of gangs begin that other objects than PodGroups of gangsched declare."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The node that came closest, and the amounts it lacks for one pod."""

    node: str
    lacks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would let the gang run now, or the moment it will by itself.

    Each was checked by planning the gang with it. `kind` is machine-readable: level, members,
    spread, exclusive, gpu-kind, avoid, node, pool, wait, move. `at_s` is set where time helps.
    """

    kind: str
    message: str
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a gang was not placed.

    `wanted` and `possible` count members of `role` (or of the gang when it is empty). `proved`
    means that counting shows that no placement exists now, not merely that the search has none.
    `starts_s` is the start of its reservation.
    """

    gang: GangId
    reason: Reason
    message: str
    role: str = ""
    wanted: int = 0
    possible: int = 0
    near_miss: NearMiss | None = None
    proved: bool = True
    remedies: tuple[Remedy, ...] = ()
    starts_s: float | None = None


def format_amount(resource: str, quantity: int) -> str:
    """Write a quantity as its user would: cores, GiB, or a plain count."""
    if resource == "cpu":
        return f"{quantity / 1000:g} cpu"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        gib = quantity / 2**30
        return f"{gib:.3g} GiB {resource}" if gib >= 1 else f"{quantity / 2**20:.3g} MiB {resource}"
    return f"{quantity} {resource}"


def plural(count: int, noun: str) -> str:
    """Write `1 node` or `3 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def beyond(pod: PodName, asked: tuple[str, ...]) -> str:
    """Return what direct binding does not check for a pod, or what the pod has to wait for.

    A request that ends in brackets, with the reason, becomes known in time.
    """
    never = [request for request in asked if not request.endswith(")")]
    if not never:
        return f"pod {pod} has to wait for {', '.join(asked)}."
    return (
        f"pod {pod} asks for {', '.join(never)}, which direct binding does not check; run "
        f"gangsched with --binding extender for it."
    )


def undeclared(gang: GangId) -> str:
    """Return what is missing of a gang that has pods, and no object that declares it."""
    name = gang.partition("/")[2]
    prefix, _, own = name.rpartition(":")
    if prefix in _DECLARERS:
        what = f"{_DECLARERS[prefix]} {own}"
        return f"the pods are those of {what}, which does not exist in their namespace (any more)."
    group = f"PodGroup {own}" + (f" ({prefix})" if prefix else "")
    return f"the pods name {group}, which does not exist in their namespace."
