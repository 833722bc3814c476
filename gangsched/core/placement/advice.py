"""Remedies for a refused gang: the smallest changes, each tried by a whole planning cycle.

Counting finds what may help, and is cheap. A remedy is reported only when a whole planning cycle
starts the gang: with quotas, permissions, reservations of other gangs, and all pending gangs.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.node_pools import Purchase
from gangsched.core.model.pods import GPU
from gangsched.core.model.refusal import Reason, Refusal, Remedy, format_amount, plural
from gangsched.core.placement.constraints import MisconfiguredError, resolve_constraints
from gangsched.core.placement.demand import pod_classes
from gangsched.core.placement.fill import is_feasible
from gangsched.core.placement.objectives import main_resource
from gangsched.core.placement.purchases import (
    cheapest_purchase,
    coming_remedy,
    purchase_remedy,
    with_purchase,
)
from gangsched.core.placement.relaxations import relaxations, with_fewer
from gangsched.core.quota.spending import spending_refusal
from gangsched.core.snapshot import RunningGang, Snapshot
from gangsched.core.what_if import left_free, without_gangs

Starts = Callable[[PendingGang, Snapshot, float | None], bool]
"""Whether a gang, changed in some way, starts on a snapshot, at a moment (None: now)."""

_RELEASED_MAX = 200
"""The number of running gangs considered for when capacity comes free; more would be a guess."""

_WAITS_PLANNED = 4
"""The number of moments that are planned in full; if the gang starts at none, none is reported."""

_UNHELPED = frozenset(
    {
        Reason.MISCONFIGURED,
        Reason.UNKNOWN_QUEUE,
        Reason.QUEUE_INVALID,
        Reason.QUEUE_STOPPED,
        Reason.BUDGET,
        Reason.BEYOND_PLANNER,
    }
)
"""Refusals that neither a changed request nor waiting can lift."""


def advise(
    waiting: PendingGang,
    snapshot: Snapshot,
    refusal: Refusal,
    starts: Starts,
    now_s: float,
) -> Refusal:
    """Return the refusal with remedies; a gang with an invalid request gets none.

    The snapshot has to hold all pending gangs.
    """
    if refusal.reason in _UNHELPED:
        return refusal
    advisor = _Advisor(waiting, snapshot, refusal, starts, now_s)
    try:
        remedies = tuple(advisor.remedies())
    except MisconfiguredError:
        return refusal
    return replace(refusal, remedies=remedies)


@dataclass(frozen=True, slots=True)
class _Advisor:
    """Looks for remedies for one gang."""

    waiting: PendingGang
    snapshot: Snapshot
    refusal: Refusal
    starts: Starts
    now_s: float

    def remedies(self) -> Iterator[Remedy]:
        bought = self._bought()
        if bought is not None:
            yield bought
        scope = resolve_constraints(self.waiting, self.snapshot.cluster)
        helped: set[str] = set()
        for relaxation in relaxations(self.waiting, scope):
            if relaxation.binding not in helped and self._helps(relaxation.waiting):
                helped.add(relaxation.binding)
                yield Remedy(relaxation.kind, relaxation.message)
        for remedy in (self._fewer(), self._one_node(), self._released()):
            if remedy is not None:
                yield remedy

    def _bought(self) -> Remedy | None:
        """Find the nodes that come for the gang, or the cheapest to buy."""
        supply = self.snapshot.node_supply
        coming = [one for one in supply.coming if one.gang == self.waiting.gang.id]
        if coming:
            return coming_remedy(coming[-1])
        if not supply.pools:
            return None
        found = cheapest_purchase(_unknown(self.waiting), self.snapshot, supply.pools, self.now_s)
        if not isinstance(found, Purchase) or not found.nodes:
            return None
        queue, spent = self.waiting.gang.queue, dict(supply.spent)
        if spending_refusal(queue, found.price, spent, self.snapshot.usage.tree):
            return None
        then = with_purchase(self.snapshot, supply.pools, found)
        helps = self.starts(_unknown(self.waiting), then, None)
        return purchase_remedy(found) if helps else None

    def _helps(self, changed: PendingGang) -> bool:
        """Return whether a changed gang would start now."""
        changed = _unknown(changed)
        return is_feasible(changed, self.snapshot) and self.starts(changed, self.snapshot, None)

    def _fewer(self) -> Remedy | None:
        """Find the largest number of members that starts now."""
        waiting, cluster = self.waiting, self.snapshot.cluster
        scope = resolve_constraints(waiting, cluster)
        unit = max(kind.rules.unit(0) for kind in pod_classes(waiting, scope, cluster))
        if len(scope.roles) and unit > 1:
            return None  # slices of one role among several: the user must choose which pods to omit
        low, high = 0, waiting.members_min
        while low + unit < high:  # `low` members start (or none), `high` do not
            middle = (low + (high - low) // 2) // unit * unit
            if middle <= low:
                middle = low + unit
            trial = with_fewer(waiting, middle, unit)
            if trial.members and self._helps(trial):
                low = middle
            else:
                high = middle
        if low == 0:
            return None
        return Remedy("members", f"{plural(low, 'pod')} instead of {waiting.members_min}")

    def _one_node(self) -> Remedy | None:
        """Try to add the resources, other than the main one, that the closest node lacks."""
        miss = self.refusal.near_miss
        main = main_resource([member.needs for member in self.waiting.members])
        if miss is None or not miss.lacks or main in dict(miss.lacks):
            return None
        lacks = tuple(
            ("pods" if name == "pod slots" else name, quantity) for name, quantity in miss.lacks
        )
        with self.snapshot.cluster.with_allocatable({NodeName(miss.node): ((), lacks)}):
            if not self._helps(self.waiting):
                return None
        more = " and ".join(format_amount(name, quantity) for name, quantity in lacks)
        return Remedy("node", f"{more} more on node {miss.node}")

    def _released(self) -> Remedy | None:
        """Find the first moment at which gangs that end by then have freed capacity and quota."""
        others = self._holders()
        known = sorted(
            (gang for gang in others if gang.end_s is not None),
            key=lambda gang: (gang.end_s or 0.0, gang.gang.id),
        )[:_RELEASED_MAX]
        first = self._first(known)
        moments = range(first, len(known) + 1) if first is not None else range(0)
        for count in moments[:_WAITS_PLANNED]:
            last = known[count - 1]
            then = without_gangs(self.snapshot, _ids(known[:count]))
            if self.starts(_unknown(self.waiting), then, last.end_s):
                before = f" and {plural(count - 1, 'other gang')} before it" if count > 1 else ""
                words = f"{_what(last)} of gang {last.gang.id} end{before}"
                return Remedy("wait", words, last.end_s)
        if first is not None:
            return None
        unknown = sorted(
            (gang for gang in others if gang.end_s is None),
            key=lambda gang: (len(gang.places), gang.gang.id),
        )[:_RELEASED_MAX]
        enough = (gang for gang in unknown if self._may_fit((gang,)))
        for gang, _ in zip(enough, range(_WAITS_PLANNED), strict=False):
            if self.starts(
                _unknown(self.waiting), without_gangs(self.snapshot, {gang.gang.id}), None
            ):
                return Remedy("wait", f"{_what(gang)} of gang {gang.gang.id} come free")
        return None

    def _holders(self) -> list[RunningGang]:
        """Return all other gangs that use capacity, each once."""
        occupants = sorted(self.snapshot.occupants, key=lambda gang: gang.gang.id)
        whole = []
        for gang_id, parts in groupby(occupants, key=lambda gang: gang.gang.id):
            first, *more = parts
            places = (*first.places, *(place for gang in more for place in gang.places))
            if gang_id != self.waiting.gang.id:
                whole.append(replace(first, places=places))
        return whole

    def _first(self, known: list[RunningGang]) -> int | None:
        """Count how many gangs, the first to end first, have to end so that the gang fits."""
        for count in _growing(len(known)):
            if not self._may_fit(known[:count]):
                continue
            low, high = count // 2, count
            while low + 1 < high:  # `low` are too few, `high` are enough
                middle = (low + high) // 2
                low, high = (low, middle) if self._may_fit(known[:middle]) else (middle, high)
            return high
        return None

    def _may_fit(self, gone: "list[RunningGang] | tuple[RunningGang, ...]") -> bool:
        self.snapshot.progress.check()
        return is_feasible(self.waiting, left_free(self.snapshot, _ids(gone)))


def _growing(total: int) -> Iterator[int]:
    count = 1
    while count < total:
        yield count
        count *= 2
    if total:
        yield total


def _unknown(waiting: PendingGang) -> PendingGang:
    """Return a gang without cached charge and equivalence class: its request has changed."""
    kinds = tuple(dict.fromkeys(member.needs for member in waiting.members))
    return replace(waiting, charge=(), request_fingerprint=0, pod_classes=kinds)


def _ids(gangs: Iterable[RunningGang]) -> frozenset[GangId]:
    return frozenset(gang.gang.id for gang in gangs)


def _what(gang: RunningGang) -> str:
    gpus = sum(dict(place.needs.requests).get(GPU, 0) for place in gang.places)
    return plural(gpus, "GPU") if gpus else plural(len(gang.places), "pod")
