"""Decode the JSON of Queues and Reservations to values of the core."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gangsched.api.queue import QueueSpec, QueueStatus, QuotaSpec, ReservationSpec
from gangsched.config import one_sentence
from gangsched.core import facts as f
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import (
    AdvanceReservation,
    GpuBudget,
    Preemption,
    Queue,
    Quota,
    Reclaim,
    Stop,
    Within,
)
from gangsched.core.model.text import shown
from gangsched.kube.decoding.quantities import (
    DecodeError,
    UnknownClassError,
    parse_timestamp,
    quantity,
)
from gangsched.kube.decoding.schemas import GroupObject

T = TypeVar("T", bound=BaseModel)

Namespaces = dict[str, dict[str, str]]
"""Labels of every namespace."""


def parse_queue(group: GroupObject, priorities: dict[str, int], namespaces: Namespaces) -> Queue:
    """Return a Queue.

    Raises:
        DecodeError: the Queue is malformed.

    """
    subject = f"Queue {group.metadata.name}"
    spec = _spec(QueueSpec, group, subject)
    allowed = set(spec.namespaces)
    if spec.namespaceSelector is not None:
        wanted = spec.namespaceSelector.matchLabels.items()
        allowed |= {name for name, labels in namespaces.items() if wanted <= labels.items()}
    return Queue(
        name=group.metadata.name,
        parent=spec.parent,
        quotas=tuple(_quota(quota_spec, subject) for quota_spec in spec.quotas),
        weight=spec.weight,
        priority=spec.priority,
        max_runtime_s=spec.maxRuntimeSeconds,
        default_runtime_s=spec.defaultRuntimeSeconds,
        default_priority=_class(spec.defaultPriorityClassName, "default", subject, priorities),
        highest_priority=_class(spec.maxPriorityClassName, "max", subject, priorities),
        namespaces=frozenset(allowed),
        open_to_all=not spec.namespaces and spec.namespaceSelector is None,
        user_limits=tuple(
            (
                resource,
                parse_quota_amount(resource, value, f"{subject}: spec.userLimits[{resource}]"),
            )
            for resource, value in sorted(spec.userLimits.items())
        ),
        budgets=tuple(
            GpuBudget(budget.gpuHours * 3600, budget.periodHours * 3600, budget.perUser)
            for budget in spec.budgets
        ),
        order=spec.order,
        strict=spec.strict,
        preemption=Preemption(
            Within(spec.preemption.withinQueue),
            Reclaim(spec.preemption.reclaim),
            spec.preemption.fairShare,
            spec.preemption.delaySeconds,
        ),
        min_runtime_s=spec.minRuntimeSeconds,
        stop=Stop(spec.stop),
        exclusive=spec.exclusive,
        non_preemptible_may_borrow=spec.nonPreemptibleMayBorrow,
        price_max=spec.maxPricePerHour,
    )


def _class(name: str, which: str, subject: str, priorities: dict[str, int]) -> int | None:
    """Return the value of the PriorityClass that a field names."""
    if name and name not in priorities:
        raise UnknownClassError(f"{subject}: spec.{which}PriorityClassName", name, priorities)
    return priorities.get(name)


def _quota(spec: QuotaSpec, subject: str) -> Quota:
    where = f"{subject}: spec.quotas[{spec.resource}]"

    def limit(field: str, value: int | str | None) -> int | None:
        return (
            None if value is None else parse_quota_amount(spec.resource, value, f"{where}.{field}")
        )

    return Quota(
        spec.resource,
        parse_quota_amount(spec.resource, spec.nominal, f"{where}.nominal"),
        spec.gpuKind,
        limit("borrowingLimit", spec.borrowingLimit),
        limit("lendingLimit", spec.lendingLimit),
    )


def parse_quota_amount(resource: str, value: float | str, where: str) -> int:
    """Return a quantity in the unit of quotas: GPUs in thousandths.

    Raises:
        DecodeError: the value is no quantity, is negative, or exceeds any cluster.

    """
    counted = "cpu" if resource == GPU else resource
    try:
        number = quantity(counted, value)
    except DecodeError as error:
        problem = str(error).removeprefix(f"{counted}: ")  # `where` names the resource
        raise DecodeError(f"{where}: {problem}") from error
    if number >= 1 << 60:
        raise DecodeError(f"{where}: {shown(value)} is more than any cluster has")
    return number


def reservation(group: GroupObject) -> AdvanceReservation:
    """Return an advance reservation.

    Raises:
        DecodeError: the Reservation is malformed.

    """
    subject = f"Reservation {group.metadata.name}"
    spec = _spec(ReservationSpec, group, subject)
    start_s = _time(spec.start, f"{subject}: spec.start")
    return AdvanceReservation(
        name=group.metadata.name,
        start_s=start_s,
        end_s=start_s + spec.durationSeconds,
        nodes=tuple(NodeName(name) for name in spec.nodes),
        count=spec.count or 0,
        selector=tuple(sorted(spec.nodeSelector.items())),
        queues=frozenset(spec.queues),
        namespaces=frozenset(spec.namespaces),
        every_s=spec.everySeconds,
        until_s=_time(spec.until, f"{subject}: spec.until") if spec.until else None,
        evicts=spec.evict,
    )


def _time(text: str, where: str) -> float:
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise DecodeError(f"{where}: {shown(text)} is no RFC 3339 time") from error


def gpu_time(group: GroupObject) -> list[f.UsageRestored]:
    """Return the GPU time that an earlier process wrote into the status of a queue."""
    try:
        status = QueueStatus.model_validate(group.status)
    except ValidationError:
        return []  # only gangsched writes the status, and the next write replaces a malformed one
    at_s = parse_timestamp(status.asOf or "")
    periods: dict[str, list[tuple[float, int, float]]] = {}
    decayed: dict[str, float] = {}
    for row in status.spent:
        decayed[row.user] = max(decayed.get(row.user, 0.0), row.decayedGpuSeconds)
        if row.periodSeconds:
            spent = (row.periodSeconds, row.period, row.gpuSeconds)
            periods.setdefault(row.user, []).append(spent)
    name = group.metadata.name
    return [
        f.UsageRestored(name, user, at_s, amount, tuple(periods.get(user, ())))
        for user, amount in decayed.items()
    ]


def _spec(model: type[T], group: GroupObject, subject: str) -> T:
    try:
        return model.model_validate(group.spec)
    except ValidationError as error:
        raise DecodeError(one_sentence(error, f"{subject}: spec")) from error
