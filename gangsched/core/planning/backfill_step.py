"""Keeping room and quota in time for a gang that does not start now, from cycle to cycle."""

from dataclasses import replace

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.fill import is_feasible
from gangsched.core.planning.context import PlanningContext, at_least
from gangsched.core.planning.quota_profile import QuotaProjection
from gangsched.core.preemption.first_feasible import smallest_feasible_count
from gangsched.core.snapshot import BackfillReservation, Snapshot

ROOM = frozenset({Reason.NO_ROOM, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED})
"""Refusals for want of room: time, or others leaving, would help."""

LACKS = ROOM | {Reason.OVER_QUOTA}
"""Refusals for want of room or quota."""

_TRIES = 3


def restore_reservations(outlook: PlanningContext) -> None:
    """Keep what was promised before, before anybody has a turn.

    Where it is not possible any more, because somebody runs for longer than was expected, room is
    kept for the next moment there is some.
    """
    if outlook.policies.backfill is None:
        return
    for promise in outlook.snapshot.promises:
        waiting = outlook.waiting.get(promise.gang)
        if waiting is None:
            continue
        outlook.snapshot.progress.turn(promise.gang)
        if promise.start_s < outlook.now_s or not _again(outlook, waiting, promise):
            _keep(outlook, waiting)


def keep_room(
    outlook: PlanningContext,
    waiting: PendingGang,
    refusal: Refusal,
    promised: BackfillReservation | None,
) -> Refusal:
    """Keep room for a gang that does not start now, where the backfill policy says so.

    A backfill reservation is kept from cycle to cycle: only a gang that outranks its gang takes it
    away (`PlanningContext.lapse`).
    """
    if outlook.policies.backfill is None or waiting.surplus:
        return refusal
    if refusal.reason not in LACKS:
        return refusal
    if promised is None and not outlook.may_keep(waiting):
        return refusal
    before_s = promised.start_s if promised is not None else float("inf")
    start_s = _keep(outlook, waiting, before_s)
    if start_s is None and promised is not None and _again(outlook, waiting, promised):
        start_s = promised.start_s
    return refusal if start_s is None else replace(refusal, starts_s=start_s)


def _again(outlook: PlanningContext, waiting: PendingGang, promise: BackfillReservation) -> bool:
    """Keep a promise as it is; tell whether that is possible."""
    names = {member.name for member in waiting.members}
    if not all(name in names for name, _ in promise.nodes):
        return False
    if not outlook.horizon.possible(outlook.stay(waiting, promise.nodes, promise.start_s)):
        return False
    ahead = outlook.ahead(waiting)
    if ahead is not None:
        ahead.to(promise.start_s)
        if not outlook.holds.possible(outlook.claim(waiting), ahead):
            return False
    outlook.keep(waiting, promise, ahead)
    return True


def _keep(
    outlook: PlanningContext, waiting: PendingGang, before_s: float = float("inf")
) -> float | None:
    """Keep room and quota from the first moment there are both; return when that is."""
    claim, ahead = outlook.claim(waiting), outlook.ahead(waiting)
    if ahead is not None:
        while not outlook.holds.possible(claim, ahead):
            if not ahead.step():
                return None
    first_s = ahead.at_s if ahead is not None else outlook.now_s
    later = [time_s for time_s in outlook.horizon.times() if first_s < time_s]
    times = [time_s for time_s in (first_s, *later) if time_s < before_s]
    least = at_least(waiting)
    namespace = waiting.gang.id.split("/", 1)[0]

    def at(time_s: float) -> Snapshot:
        end_s = time_s + claim.runtime_s
        view = outlook.horizon.view_at(namespace, waiting.gang.queue, time_s, end_s)
        return replace(outlook.snapshot, cluster=view)

    # It is taken that a later moment never works worse.
    count = smallest_feasible_count(
        len(times), lambda number: is_feasible(least, at(times[number - 1]))
    )
    for time_s in times[count - 1 : count - 1 + _TRIES] if count is not None else ():
        placed = outlook.policies.placer.place(least, at(time_s))
        if not isinstance(placed, Placement):
            continue
        if _has_quota(outlook, waiting, ahead, time_s):
            outlook.keep(waiting, BackfillReservation(waiting.gang.id, time_s, placed.nodes), ahead)
            return time_s
    return None


def _has_quota(
    outlook: PlanningContext, waiting: PendingGang, ahead: QuotaProjection | None, time_s: float
) -> bool:
    if ahead is None:
        return True
    ahead.to(time_s)
    return outlook.holds.possible(outlook.claim(waiting), ahead)
