"""Keeping room, or quota, in time for a gang that does not fit now."""

from collections.abc import Callable
from dataclasses import replace

from gangsched.core.model import Waiting
from gangsched.core.placement.choosers import fewest
from gangsched.core.placement.descent import Style
from gangsched.core.placement.fill import fits
from gangsched.core.policy import Placement
from gangsched.core.queueing.admission import charge_of
from gangsched.core.queueing.outlook import Hold, Outlook, at_least
from gangsched.core.refusal import Reason, Refusal
from gangsched.core.snapshot import Reserved, Snapshot

ROOM = frozenset({Reason.NO_ROOM, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED})
"""Refusals for want of room: time, or others leaving, would help."""

_STYLE = Style(fewest, descend=True)
_HOLDS_MAX = 16


def keep_room(
    outlook: Outlook, waiting: Waiting, refusal: Refusal, promised: Reserved | None
) -> Refusal:
    """Keep room for a gang that does not fit, where the backfill policy says so."""
    backfill = outlook.policies.backfill
    if backfill is None or waiting.surplus:
        return refusal
    if refusal.reason is Reason.OVER_QUOTA:
        return _keep_quota(outlook, waiting, refusal)
    if refusal.reason not in ROOM or not backfill.reserves(outlook.kept):
        return refusal
    least = at_least(waiting)
    namespace = waiting.gang.id.split("/", 1)[0]
    runtime_s = outlook.runtime_s(waiting)

    def at(time_s: float) -> Snapshot:
        view = outlook.horizon.view_at(namespace, waiting.gang.queue, time_s, time_s + runtime_s)
        return replace(outlook.snapshot, cluster=view)

    times = outlook.horizon.times()
    if promised is not None:
        times = [time_s for time_s in times if time_s < promised.start_s]
    first = _first(times, lambda time_s: fits(least, at(time_s), _STYLE))
    for time_s in times[first : first + 3] if first is not None else ():
        placed = outlook.policies.placer.place(least, at(time_s))
        if isinstance(placed, Placement):
            stay = outlook.stay(waiting, placed.nodes, time_s)
            outlook.keep(waiting.gang.id, stay, placed.nodes)
            return replace(refusal, starts_s=time_s)
    if promised is not None:
        stay = outlook.stay(waiting, promised.nodes, promised.start_s)
        if outlook.horizon.possible(stay):
            outlook.keep(waiting.gang.id, stay, promised.nodes)
            return replace(refusal, starts_s=promised.start_s)
    return refusal


def _keep_quota(outlook: Outlook, waiting: Waiting, refusal: Refusal) -> Refusal:
    """Keep quota for a queue's head from the moment enough of it comes free."""
    if len(outlook.holds) >= _HOLDS_MAX:
        return refusal
    charge = charge_of(waiting)
    usage = outlook.usage.copy()
    ending = sorted(
        outlook.running.values(), key=lambda one: (one.free_s(outlook.now_s), one.gang.id)
    )
    for one in ending:
        if one.gang.id in outlook.victims:
            continue
        usage.charge(one.gang.queue, one.charge, -1)
        if usage.fits(waiting.gang.queue, charge):
            at_s = one.free_s(outlook.now_s)
            usage.charge(waiting.gang.queue, charge)
            outlook.holds.append(Hold(waiting.gang.id, at_s, usage))
            return replace(refusal, starts_s=at_s)
    return refusal


def _first(times: list[float], works: Callable[[float], bool]) -> int | None:
    """Return the first moment that works, taking it that a later one never works worse."""
    high = 1
    while high < len(times) and not works(times[high - 1]):
        high *= 2
    high = min(high, len(times))
    if not times or not works(times[high - 1]):
        return None
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(times[middle - 1]) else (middle, high)
    return high - 1
