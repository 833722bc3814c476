"""What would help a refused gang: the smallest changes, each tried by planning it."""

from collections.abc import Iterator
from dataclasses import replace

from gangsched.core.model import GPU, NodeName, Waiting
from gangsched.core.placement.choosers import fewest
from gangsched.core.placement.cost import main_resource
from gangsched.core.placement.demand import kinds_of
from gangsched.core.placement.descent import Style
from gangsched.core.placement.fill import fits
from gangsched.core.placement.relax import relaxations, with_fewer
from gangsched.core.placement.scope import MisconfiguredError, resolve
from gangsched.core.refusal import Reason, Refusal, Remedy, amount, plural
from gangsched.core.snapshot import Running, Snapshot

_STYLE = Style(fewest, descend=True)
_RELEASED_MAX = 200
"""Running gangs looked at for when room comes free; beyond it the answer would be a guess."""


def advise(waiting: Waiting, snapshot: Snapshot, refusal: Refusal) -> Refusal:
    """Return the refusal with remedies; a gang whose request makes no sense gets none."""
    if refusal.reason in (Reason.MISCONFIGURED, Reason.UNKNOWN_QUEUE, Reason.BEYOND_PLANNER):
        return refusal
    try:
        remedies = tuple(_remedies(waiting, snapshot, refusal))
    except MisconfiguredError:
        return refusal
    return replace(refusal, remedies=remedies)


def _remedies(waiting: Waiting, snapshot: Snapshot, refusal: Refusal) -> Iterator[Remedy]:
    scope = resolve(waiting, snapshot.cluster)
    helped: set[str] = set()
    for one in relaxations(waiting, scope):
        if one.binding not in helped and fits(one.waiting, snapshot, _STYLE):
            helped.add(one.binding)
            yield Remedy(one.kind, one.message)
    fewer = _fewer(waiting, snapshot)
    if fewer is not None:
        yield fewer
    more = _one_node(waiting, snapshot, refusal)
    if more is not None:
        yield more
    soonest = _released(waiting, snapshot)
    if soonest is not None:
        yield soonest


def _fewer(waiting: Waiting, snapshot: Snapshot) -> Remedy | None:
    """Find the largest number of members that fits now."""
    scope = resolve(waiting, snapshot.cluster)
    unit = max(kind.rules.unit(0) for kind in kinds_of(waiting, scope, snapshot.cluster))
    if len(scope.roles) and unit > 1:
        return None  # slices of one role among several: what to leave out is the user's choice
    low, high = 0, waiting.minimum
    while low + unit < high:  # `low` members fit (or none), `high` do not
        middle = (low + (high - low) // 2) // unit * unit
        if middle <= low:
            middle = low + unit
        trial = with_fewer(waiting, middle, unit)
        if trial.members and fits(trial, snapshot, _STYLE):
            low = middle
        else:
            high = middle
    if low == 0:
        return None
    return Remedy("members", f"{plural(low, 'pod')} instead of {waiting.minimum}")


def _one_node(waiting: Waiting, snapshot: Snapshot, refusal: Refusal) -> Remedy | None:
    """Try what the closest node lacks beside GPUs: it may be all that is missing."""
    miss = refusal.near_miss
    main = main_resource([member.needs for member in waiting.members])
    if miss is None or not miss.lacks or main in dict(miss.lacks):
        return None
    cluster = snapshot.cluster
    lacks = tuple(
        ("pods" if name == "pod slots" else name, quantity) for name, quantity in miss.lacks
    )
    with cluster.offering({NodeName(miss.node): ((), lacks)}):
        if not fits(waiting, snapshot, _STYLE):
            return None
    more = " and ".join(amount(name, quantity) for name, quantity in lacks)
    return Remedy("node", f"{more} more on node {miss.node}")


def _released(waiting: Waiting, snapshot: Snapshot) -> Remedy | None:
    """Find the first moment at which gangs that end by then have made room."""
    known = sorted(
        (gang for gang in snapshot.holders if gang.end_s is not None),
        key=lambda gang: (gang.end_s or 0.0, gang.gang.id),
    )[:_RELEASED_MAX]
    for count in _growing(len(known)):
        if _fits_without(waiting, snapshot, tuple(known[:count])):
            low = count // 2
            while low + 1 < count:  # `low` are too few, `count` are enough
                middle = (low + count) // 2
                if _fits_without(waiting, snapshot, tuple(known[:middle])):
                    count = middle  # noqa: PLW2901 -- the search narrows from above
                else:
                    low = middle
            last = known[count - 1]
            others = f" and {plural(count - 1, 'other gang')} before it" if count > 1 else ""
            return Remedy("wait", f"{_what(last)} of gang {last.gang.id} end{others}", last.end_s)
    unknown = sorted(
        (gang for gang in snapshot.holders if gang.end_s is None),
        key=lambda gang: (len(gang.places), gang.gang.id),
    )[:_RELEASED_MAX]
    for gang in unknown:
        if _fits_without(waiting, snapshot, (gang,)):
            return Remedy("wait", f"{_what(gang)} of gang {gang.gang.id} come free")
    return None


def _growing(total: int) -> Iterator[int]:
    count = 1
    while count < total:
        yield count
        count *= 2
    if total:
        yield total


def _fits_without(waiting: Waiting, snapshot: Snapshot, gone: tuple[Running, ...]) -> bool:
    return fits(waiting, without(snapshot, gone), _STYLE)


def without(snapshot: Snapshot, gone: tuple[Running, ...]) -> Snapshot:
    """Return the snapshot as it would be without some running gangs."""
    cluster = snapshot.cluster.copy()
    for gang in gone:
        for place in gang.places:
            row = cluster.rows.get(place.node)
            if row is not None:
                cluster.give(row, place.needs, 1, gang.gang.id, (place.devices,))
    ids = {gang.gang.id for gang in gone}
    running, coming = (
        tuple(gang for gang in gangs if gang.gang.id not in ids)
        for gangs in (snapshot.running, snapshot.coming)
    )
    return replace(snapshot, cluster=cluster, running=running, coming=coming)


def _what(gang: Running) -> str:
    gpus = sum(dict(place.needs.requests).get(GPU, 0) for place in gang.places)
    return plural(gpus, "GPU") if gpus else plural(len(gang.places), "pod")
