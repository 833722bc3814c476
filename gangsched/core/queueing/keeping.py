"""Keeping room, or quota, in time for a gang that does not fit now, from cycle to cycle."""

from collections.abc import Callable
from dataclasses import replace

from gangsched.core.model import Waiting
from gangsched.core.placement.choosers import fewest
from gangsched.core.placement.descent import Style
from gangsched.core.placement.fill import fits
from gangsched.core.policy import Placement
from gangsched.core.queueing.admission import charge_of
from gangsched.core.queueing.holds import Claim
from gangsched.core.queueing.outlook import Outlook, at_least
from gangsched.core.refusal import Reason, Refusal
from gangsched.core.snapshot import Reserved, Snapshot

ROOM = frozenset({Reason.NO_ROOM, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED})
"""Refusals for want of room: time, or others leaving, would help."""

_STYLE = Style(fewest, descend=True)


def keep_promises(outlook: Outlook) -> None:
    """Keep what was promised before, before anybody has a turn.

    Where it is not possible any more, because somebody runs for longer than was expected, it is
    kept for the next moment that is.
    """
    if outlook.policies.backfill is None:
        return
    for promise in outlook.snapshot.promises:
        waiting = outlook.waiting.get(promise.gang)
        if waiting is None:
            continue
        if not promise.nodes:
            _keep_quota(outlook, waiting)
            continue
        if promise.start_s >= outlook.now_s and _stands(outlook, waiting, promise):
            stay = outlook.stay(waiting, promise.nodes, promise.start_s)
            outlook.horizon.reserve(promise.gang, stay, promise.nodes)
            continue
        found = _earliest(outlook, waiting, [outlook.now_s, *outlook.horizon.times()])
        if found is not None:
            stay = outlook.stay(waiting, found.nodes, found.start_s)
            outlook.horizon.reserve(promise.gang, stay, found.nodes)


def keep_room(
    outlook: Outlook, waiting: Waiting, refusal: Refusal, promised: Reserved | None
) -> Refusal:
    """Keep room for a gang that does not fit, where the backfill policy says so.

    Whoever had a promise keeps it: only a gang that outranks it takes it away (`Outlook.lapse`).
    """
    backfill = outlook.policies.backfill
    if backfill is None or waiting.surplus:
        return refusal
    if refusal.reason is Reason.OVER_QUOTA:
        root = outlook.usage.tree.path(waiting.gang.queue)[-1]
        made = sum(1 for one in outlook.holds if one.root == root)
        if promised is None and not backfill.reserves(made):
            return refusal
        at_s = _keep_quota(outlook, waiting)
        return replace(refusal, starts_s=at_s) if at_s is not None else refusal
    if refusal.reason not in ROOM:
        return refusal
    if promised is None and not backfill.reserves(len(outlook.horizon.reserved)):
        return refusal
    times = outlook.horizon.times()
    had_nodes = promised is not None and bool(promised.nodes)
    if promised is not None and had_nodes:
        times = [time_s for time_s in times if time_s < promised.start_s]
    found = _earliest(outlook, waiting, times)
    if found is None and promised is not None and had_nodes and _stands(outlook, waiting, promised):
        found = promised
    if found is None:
        return refusal
    stay = outlook.stay(waiting, found.nodes, found.start_s)
    outlook.keep(waiting.gang.id, stay, found.nodes)
    return replace(refusal, starts_s=found.start_s)


def _stands(outlook: Outlook, waiting: Waiting, promise: Reserved) -> bool:
    """Tell whether a promise can still be kept as it is."""
    names = {member.name for member in waiting.members}
    if not all(name in names for name, _ in promise.nodes):
        return False
    return outlook.horizon.possible(outlook.stay(waiting, promise.nodes, promise.start_s))


def _earliest(outlook: Outlook, waiting: Waiting, times: list[float]) -> Reserved | None:
    """Return the first of some moments at which a gang fits, and where."""
    least = at_least(waiting)
    namespace = waiting.gang.id.split("/", 1)[0]
    runtime_s = outlook.runtime_s(waiting)

    def at(time_s: float) -> Snapshot:
        view = outlook.horizon.view_at(namespace, waiting.gang.queue, time_s, time_s + runtime_s)
        return replace(outlook.snapshot, cluster=view)

    first = _first(times, lambda time_s: fits(least, at(time_s), _STYLE))
    for time_s in times[first : first + 3] if first is not None else ():
        placed = outlook.policies.placer.place(least, at(time_s))
        if isinstance(placed, Placement):
            return Reserved(waiting.gang.id, time_s, placed.nodes)
    return None


def _keep_quota(outlook: Outlook, waiting: Waiting) -> float | None:
    """Keep quota for a gang from the moment enough of it comes free; return when that is.

    Enough may be free now, for a gang that was promised it and lacks room.
    """
    claim = Claim(
        waiting.gang.id, waiting.gang.queue, charge_of(waiting), outlook.runtime_s(waiting)
    )
    ending = [one for one in outlook.running.values() if one.gang.id not in outlook.victims]
    ending.sort(key=lambda one: (one.free_s(outlook.now_s), one.gang.id))
    made = outlook.holds.keep(claim, outlook.usage, ending, outlook.now_s)
    return made.at_s if made is not None else None


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
