"""Which gangs to preempt: the cheapest set that frees both the quota and a place.

Preempting a gang costs the GPU time that it loses since its last checkpoint, plus the restart.
Gangs of higher priority are touched only where preempting lower ones is not enough, and
members a gang can do without go before whole gangs. The set grows from the cheapest until the gang
fits, shrinks to what is needed, and then CP-SAT looks for a cheaper one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.placement import Eviction, Placement
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.fill import fill
from gangsched.core.placement.tree_fill import TOPOLOGY_FILL
from gangsched.core.policy import PreemptionRequest
from gangsched.core.preemption.first_feasible import smallest_feasible_count
from gangsched.core.preemption.freed_capacity import FreedCapacity
from gangsched.core.preemption.victim_options import (
    PreemptionCost,
    VictimOption,
    VictimOptions,
    VictimSequence,
)
from gangsched.core.preemption.victim_program import find_cheaper_set
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import Snapshot

_DOMAINS_MAX = 8
_SOLVER_OPTIONS_MAX = 300
_CHECKS_MAX = 40
_WINDOW = 400
"""So many of the cheapest are looked at, and more only where these are not enough."""


@dataclass(slots=True)
class VictimSearch:
    """Looks for the cheapest options that let one gang start; the request is left as it was.

    With `youngest` the latest to start go first, whatever they cost.
    """

    request: PreemptionRequest
    prices: PreemptionCost = field(default_factory=PreemptionCost)
    solve: bool = True
    youngest: bool = False
    _freed: FreedCapacity = field(init=False)
    _all: VictimSequence = field(init=False)
    _least: int = field(init=False)
    _cheapest_window: list[VictimOption] = field(init=False)

    def __post_init__(self) -> None:
        self._freed = FreedCapacity(self.request)

    @property
    def waiting(self) -> PendingGang:
        """Return the gang that would start."""
        return self.request.waiting

    @property
    def snapshot(self) -> Snapshot:
        """Return the view it is planned on."""
        return self.request.snapshot

    @property
    def usage(self) -> Usage:
        """Return what the queues use."""
        return self.request.usage

    def cheapest(self) -> Placement | None:
        """Return the placement with its victims, or None where preemption does not help."""
        offer = VictimOptions(self.request, self.prices, youngest=self.youngest)
        self._all = VictimSequence(self.request, offer)
        least = self._count(self._all)
        if least is None:
            return None
        self._least = least
        self._cheapest_window = options = offer[: max(_WINDOW, least)]
        tiers = sorted({option.candidate.running.priority for option in options})
        for priority in tiers:
            below = options
            if priority != tiers[-1]:
                below = [
                    option for option in options if option.candidate.running.priority <= priority
                ]
                if len(below) < self._least:  # they are the first of all
                    continue
            chosen = self._smallest(below)
            if chosen is not None and self.solve:
                chosen = self._cheaper(below, chosen)
            if chosen is not None:
                placed = self._placed(chosen)
                if placed is not None:
                    return placed
        return None

    # -- sets ---------------------------------------------------------------------------------

    def _is_enough(self, chosen: list[VictimOption]) -> bool:
        """Return whether the gang fits once these are gone, by quota and by capacity."""
        kept = self._permitted(chosen)
        return kept is not None and self._freed.fits(kept)

    def _count(self, steps: VictimSequence) -> int | None:
        """Return how many of the first are enough for quota and capacity, None if all are not."""
        if steps.admitted_after is None:
            return None
        vacant = self._freed.fits
        return smallest_feasible_count(
            len(steps.options), lambda n: vacant(steps.first(n)), steps.admitted_after
        )

    def _permitted(self, chosen: list[VictimOption]) -> list[VictimOption] | None:
        """Return the options the rules allow one after the other, or None if quota lacks then."""
        steps = VictimSequence(self.request, chosen)
        return steps.first(len(chosen)) if steps.admitted_after is not None else None

    def _smallest(self, options: list[VictimOption]) -> list[VictimOption] | None:
        """Take the cheapest first until it is enough, in each domain and in all; drop the rest."""
        best: list[VictimOption] | None = None
        for group in self._groups(options):
            whole = group is self._cheapest_window
            steps = self._all if whole else VictimSequence(self.request, group)
            count = self._least if whole else self._count(steps)
            if count is None:
                continue
            chosen = self._minimized(self._relevant(steps.first(count)))
            if best is None or _total(chosen) < _total(best):
                best = chosen
        return best

    def _relevant(self, chosen: list[VictimOption]) -> list[VictimOption]:
        """Keep those on the nodes the gang would go to, and of the others what quota needs."""
        placed = fill(self.waiting, self._freed.without(chosen), TOPOLOGY_FILL)
        if isinstance(placed, Refusal):
            return chosen
        nodes = {node for _, node in placed.nodes}
        near = [option for option in chosen if any(p.node in nodes for p in option.places)]
        if len(near) == len(chosen) or self._is_enough(near):
            return near
        kept = {id(option) for option in near}
        far = [option for option in chosen if id(option) not in kept]
        count = smallest_feasible_count(
            len(far), lambda number: self._is_enough([*near, *far[:number]])
        )
        return chosen if count is None else self._permitted([*near, *far[:count]]) or chosen

    def _minimized(self, chosen: list[VictimOption]) -> list[VictimOption]:
        """Drop the victims that are not needed, the dearest first: singly, or many at once.

        Fewer than the rules allow is allowed too: only quota and capacity are looked at.
        """
        left = sorted(chosen, key=attrgetter("rank"), reverse=True)
        size, at, checks = max(len(left) // _CHECKS_MAX, 1), 0, 0
        self._charge(left, -1)
        try:
            while checks < _CHECKS_MAX and at < len(left):
                dropped, fewer = left[at : at + size], left[:at] + left[at + size :]
                checks += 1
                self._charge(dropped, 1)
                admitted = self.usage.fits(self.waiting.gang.queue, self.request.charge)
                if admitted and self._freed.fits(fewer):
                    left = fewer
                else:
                    self._charge(dropped, -1)
                    at += size
        finally:
            self._charge(left, 1)
        return left[::-1]

    def _charge(self, options: Iterable[VictimOption], times: int) -> None:
        for option in options:
            self.usage.charge(option.candidate.running.gang.queue, option.charge, times)

    def _groups(self, options: list[VictimOption]) -> Iterator[list[VictimOption]]:
        """Yield the options of each domain the gang must fit into, then all of them."""
        cluster = self.snapshot.cluster
        near = self.waiting.constraints.near.required
        tree = cluster.tree(self.waiting.constraints.topology)
        level = tree.topology.index(near) if tree is not None and near is not None else None
        if tree is not None and level is not None and level < len(tree.codes):
            inside: dict[int, list[VictimOption]] = {}
            for option in options:
                rows = {cluster.rows.get(place.node, -1) for place in option.places}
                for code in {int(tree.codes[level][row]) for row in rows if row >= 0}:
                    inside.setdefault(code, []).append(option)
            ranked = sorted(inside.items(), key=lambda item: (_total(item[1]), item[0]))
            for _, group in ranked[:_DOMAINS_MAX]:
                yield group
        by_value = sorted(
            options, key=lambda one: (*one.rank[:2], one.cost / max(len(one.places), 1))
        )
        yield options
        if not self.youngest:
            yield by_value

    def _cheaper(
        self, options: list[VictimOption], chosen: list[VictimOption]
    ) -> list[VictimOption]:
        """Let CP-SAT look for a cheaper set; keep what was found where it finds none."""
        limit = _total(chosen)
        useful = [option for option in options if option.cost < limit]
        if not useful or len(useful) > _SOLVER_OPTIONS_MAX:
            return chosen
        ruled_out: list[list[VictimOption]] = []
        quota = self._missing_quota(useful)
        for _ in range(3):
            cheaper = find_cheaper_set(self.waiting, self.snapshot, useful, limit, ruled_out, quota)
            if cheaper is None:
                return chosen
            if self._is_enough(cheaper):
                return self._permitted(cheaper) or chosen
            ruled_out.append(cheaper)
        return chosen

    def _missing_quota(self, options: list[VictimOption]) -> list[tuple[int, list[int]]]:
        """Return what must come free of each quota, and what each option frees of it at most."""
        tree, found = self.usage.tree, []
        for short in self.usage.shortfalls(self.waiting.gang.queue, self.request.charge):
            frees = [
                dict(one.charge).get(short.key, 0)
                if short.queue in tree.path(one.candidate.running.gang.queue)
                else 0
                for one in options
            ]
            found.append((short.wanted - short.available, frees))
        return found

    def _placed(self, chosen: list[VictimOption]) -> Placement | None:
        placed = self.request.placer.place(self.waiting, self._freed.without(chosen))
        if isinstance(placed, Refusal):
            return None
        evicts = tuple(
            Eviction(
                option.candidate.running.gang.id,
                () if option.whole else tuple(place.name for place in option.places),
                option.candidate.ground.value,
            )
            for option in sorted(chosen, key=lambda one: one.candidate.running.gang.id)
        )
        return replace(placed, evicts=evicts)


def _total(options: Iterable[VictimOption]) -> int:
    return sum(option.cost for option in options)
