"""Admitting and placing one pending gang, or several that are planned together.

A gang is admitted by the rules of its queue and namespace, then by quota, for each GPU type that
its queue has quota for. The placer places it on the nodes that no backfill reservation and no
advance reservation needs while the gang would run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts
from gangsched.core.model.refusal import Reason, Refusal, beyond
from gangsched.core.placement.fill import is_feasible
from gangsched.core.placement.optimal.joint import Outcome, choose_jointly
from gangsched.core.placement.repartition import place_with_repartition
from gangsched.core.planning.admission import (
    admission_refusal,
    may_not_borrow,
    quota_refusal,
    trim_to_quota,
)
from gangsched.core.planning.context import PlanningContext
from gangsched.core.planning.namespace_quotas import namespace_quota_refusal
from gangsched.core.policy import PolicyError
from gangsched.core.progress import StoppedError
from gangsched.core.quota.charges import charge_of, gpu_types_to_try, with_gpu_type
from gangsched.core.snapshot import Trial

CountStart = Callable[[PendingGang, Placement, Trial], Amounts]
"""Verifies a placement, charges it to cluster and queue, and returns the charge."""


@contextmanager
def errors_of(pending: PendingGang) -> Iterator[None]:
    """Raise whatever goes wrong inside as an error of this gang.

    Raises:
        PolicyError: something failed; StoppedError passes as it is.

    """
    try:
        yield
    except (PolicyError, StoppedError):
        raise
    except Exception as error:
        raise PolicyError(pending.gang.id, f"{type(error).__name__}: {error}") from error


def place_gang(context: PlanningContext, pending: PendingGang) -> Placement | Refusal:
    """Admit a gang and place it, without preempting any other.

    Raises:
        PolicyError: a policy failed.

    """
    with errors_of(pending):
        context.snapshot.progress.at(pending.gang.id)
        refusal = _rules_refusal(context, pending)
        return refusal if refusal is not None else _place_within_quota(context, pending)


def place_together(
    context: PlanningContext, batch: list[PendingGang], count_start: CountStart
) -> Outcome:
    """Place gangs in their order, or in the order that starts more GPU-hours of them.

    The context is left as it was.
    """

    def in_order(gangs: list[PendingGang]) -> Outcome:
        outcome: Outcome = []
        started: list[tuple[PendingGang, Placement, Amounts]] = []
        cluster = context.snapshot.cluster
        exclusive = dict(cluster.exclusive_domains)
        with context.snapshot.trial() as trial:
            for pending in gangs:
                result = place_gang(context, pending)
                if isinstance(result, Placement):
                    started.append((pending, result, count_start(pending, result, trial)))
                outcome.append((pending, result))
        cluster.exclusive_domains = exclusive
        for start in reversed(started):
            context.undo_start(*start)
        return outcome

    outcome = in_order(batch)
    if all(isinstance(result, Placement) for _, result in outcome):
        return outcome
    return choose_jointly(batch, context.snapshot, outcome, in_order)


def _rules_refusal(context: PlanningContext, pending: PendingGang) -> Refusal | None:
    """Return which rule of its queue, its namespace or the planner refuses a gang, or None."""
    snapshot = context.snapshot
    refusal = admission_refusal(pending, snapshot, context.usage, context.users, context.now_s)
    if refusal is None and pending.unborn:
        unborn = context.unborn.get(pending.gang.id.partition("/")[0], {})
        refusal = namespace_quota_refusal(pending, snapshot.rules, unborn)
    if refusal is not None or snapshot.driver_checks_unmodelled:
        return refusal
    unmodelled = (member for member in pending.members if member.needs.unmodelled_constraints)
    first = next(unmodelled, None)
    if first is None:
        return None
    message = beyond(first.name, first.needs.unmodelled_constraints)
    return Refusal(pending.gang.id, Reason.BEYOND_PLANNER, message)


def _place_within_quota(context: PlanningContext, pending: PendingGang) -> Placement | Refusal:
    """Place a gang on the first GPU type that has both quota and capacity for it."""
    first: Refusal | None = None
    for kind in gpu_types_to_try(pending, context.usage):
        refusal = None if pending.is_refill else _quota_refusal(context, pending, kind)
        if refusal is not None:
            first = first or refusal
            continue
        trimmed = trim_to_quota(pending, context.usage, kind, context.snapshot)
        result = _place_on_nodes(context, with_gpu_type(trimmed, kind))
        if isinstance(result, Placement):
            return result
        first = result
    assert first is not None, "there is at least one GPU type to try"  # noqa: S101
    return first


def _quota_refusal(context: PlanningContext, pending: PendingGang, kind: str) -> Refusal | None:
    charge = context.snapshot.rules.gpu_types.with_gpu_types(charge_of(pending), kind)
    usage = context.usage
    refusal = may_not_borrow(pending, usage, charge) or quota_refusal(pending, usage, charge)
    if refusal is not None:
        return refusal
    queue, end_s = pending.gang.queue, context.now_s + context.runtime_s(pending)
    reservation = context.quota_profile.blocking(queue, charge, end_s)
    if reservation is None:
        return None
    message = (
        f"Queue {queue} has no quota left beside the backfill reservation of {reservation.gang}, "
        "which is ahead."
    )
    return Refusal(pending.gang.id, Reason.BEHIND, message)


def _place_on_nodes(context: PlanningContext, pending: PendingGang) -> Placement | Refusal:
    """Place a gang beside reservations, as GPUs are or once idle GPUs are repartitioned."""
    gang = pending.gang
    namespace = gang.id.split("/", 1)[0]
    end_s = context.now_s + context.runtime_s(pending)
    view = context.availability.view(namespace, gang.queue, end_s)
    snapshot = context.snapshot
    if view is not snapshot.cluster and not pending.is_refill:
        snapshot = replace(snapshot, cluster=view)
    placer = context.policies.placer
    result = placer.place(pending, snapshot)
    if not isinstance(result, Refusal) or result.reason is Reason.MISCONFIGURED:
        return result
    repartitioned = place_with_repartition(pending, snapshot, placer)
    if repartitioned is not None:
        return repartitioned
    if snapshot is not context.snapshot and is_feasible(pending, context.snapshot):
        return _reservation_refusal(context, pending, end_s)
    return result


def _reservation_refusal(context: PlanningContext, pending: PendingGang, end_s: float) -> Refusal:
    """Return which reservation needs the nodes that the gang would fit on."""
    gang, availability = pending.gang, context.availability
    reservations = (later for later in availability.reservations if later.start_s < end_s)
    first = next(reservations, None)
    if first is not None:
        message = (
            f"This gang would still run when the backfill reservation of {first.gang} starts, and "
            "needs its nodes."
        )
        return Refusal(gang.id, Reason.BEHIND, message)
    namespace = gang.id.split("/", 1)[0]
    advance = availability.advance_reservations_until(namespace, gang.queue, end_s)
    names = ", ".join(reservation.name for reservation in advance)
    message = (
        f"The free nodes belong to advance reservation {names}, which starts before this gang "
        "would end."
    )
    return Refusal(gang.id, Reason.BOOKED, message)
