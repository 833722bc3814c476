"""Backfill reservations: a start in the future, with its nodes, for a gang that must wait."""

from dataclasses import replace

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.fill import is_feasible
from gangsched.core.planning.context import PlanningContext, required_only
from gangsched.core.planning.profiles.quota_profile import QuotaProjection
from gangsched.core.preemption.first_feasible import smallest_feasible_count
from gangsched.core.snapshot import BackfillReservation, Snapshot

CAPACITY_REASONS = frozenset(
    {Reason.NOT_ENOUGH_FREE, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED}
)
"""Refusals for lack of capacity: time, or gangs that end, would help."""

SHORTAGE_REASONS = CAPACITY_REASONS | {Reason.QUOTA_IN_USE}
"""Refusals for lack of capacity or quota."""

_PLACEMENTS_TRIED = 3


def restore_reservations(context: PlanningContext) -> None:
    """Restore the reservations of earlier cycles, before any gang has its turn.

    If a gang runs for longer than expected and a reservation is no longer possible, the earliest
    possible start is reserved instead.
    """
    if context.policies.backfill is None:
        return
    for reservation in context.snapshot.backfill_reservations:
        waiting = context.waiting.get(reservation.gang)
        if waiting is None:
            continue
        context.snapshot.progress.turn(reservation.gang)
        if reservation.start_s < context.now_s or not _restore(context, waiting, reservation):
            _reserve_earliest(context, waiting)


def reserve_start(
    context: PlanningContext,
    waiting: PendingGang,
    refusal: Refusal,
    reserved: BackfillReservation | None,
) -> Refusal:
    """Reserve a start for a gang that does not start now, if the backfill policy says so.

    A backfill reservation is kept from cycle to cycle. Only a gang that outranks its gang revokes
    it (`PlanningContext.revoke_outranked`).
    """
    if context.policies.backfill is None or waiting.is_scale_up:
        return refusal
    if refusal.reason not in SHORTAGE_REASONS:
        return refusal
    if reserved is None and not context.may_reserve(waiting):
        return refusal
    before_s = reserved.start_s if reserved is not None else float("inf")
    start_s = _reserve_earliest(context, waiting, before_s)
    if start_s is None and reserved is not None and _restore(context, waiting, reserved):
        start_s = reserved.start_s
    return refusal if start_s is None else replace(refusal, starts_s=start_s)


def _restore(
    context: PlanningContext, waiting: PendingGang, reservation: BackfillReservation
) -> bool:
    """Restore a reservation as it was; return whether that is possible."""
    names = {member.name for member in waiting.members}
    if not all(name in names for name, _ in reservation.nodes):
        return False
    if not context.availability.is_free(
        context.occupancy(waiting, reservation.nodes, reservation.start_s)
    ):
        return False
    ahead = context.quota_projection(waiting)
    if ahead is not None:
        ahead.advance_to(reservation.start_s)
        if not context.quota_profile.is_available(context.quota_claim(waiting), ahead):
            return False
    context.reserve(waiting, reservation, ahead)
    return True


def _reserve_earliest(
    context: PlanningContext, waiting: PendingGang, before_s: float = float("inf")
) -> float | None:
    """Reserve nodes and quota from the first moment that both are free; return it."""
    claim, ahead = context.quota_claim(waiting), context.quota_projection(waiting)
    if ahead is not None:
        while not context.quota_profile.is_available(claim, ahead):
            if not ahead.advance():
                return None
    first_s = ahead.at_s if ahead is not None else context.now_s
    later = [time_s for time_s in context.availability.release_times_s() if first_s < time_s]
    times = [time_s for time_s in (first_s, *later) if time_s < before_s]
    least = required_only(waiting)
    namespace = waiting.gang.id.split("/", 1)[0]

    def at(time_s: float) -> Snapshot:
        end_s = time_s + claim.runtime_s
        view = context.availability.view_at(namespace, waiting.gang.queue, time_s, end_s)
        return replace(context.snapshot, cluster=view)

    # The search assumes that a later moment is never worse.
    count = smallest_feasible_count(
        len(times), lambda number: is_feasible(least, at(times[number - 1]))
    )
    for time_s in times[count - 1 : count - 1 + _PLACEMENTS_TRIED] if count is not None else ():
        placed = context.policies.placer.place(least, at(time_s))
        if not isinstance(placed, Placement):
            continue
        if _has_quota(context, waiting, ahead, time_s):
            context.reserve(
                waiting, BackfillReservation(waiting.gang.id, time_s, placed.nodes), ahead
            )
            return time_s
    return None


def _has_quota(
    context: PlanningContext, waiting: PendingGang, ahead: QuotaProjection | None, time_s: float
) -> bool:
    if ahead is None:
        return True
    ahead.advance_to(time_s)
    return context.quota_profile.is_available(context.quota_claim(waiting), ahead)
