"""Which gangs to preempt: the cheapest set that frees both quota and nodes.

Preempting a gang costs the GPU time since its last checkpoint, plus the restart. Gangs of higher
priority are preempted only if lower ones are not enough, and surplus pods before whole gangs. The
set grows from the cheapest option until the gang fits, and shrinks to what is needed. Then CP-SAT
looks for a cheaper set.
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
"""The number of cheapest options to consider, and more only if these are not enough."""


@dataclass(slots=True)
class VictimSearch:
    """Looks for the cheapest options that let one gang start; the request stays unchanged.

    With `youngest`, the latest to start come first, whatever they cost.
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
        """Return the gang to start."""
        return self.request.waiting

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot to plan on."""
        return self.request.snapshot

    @property
    def usage(self) -> Usage:
        """Return the usage of the queues."""
        return self.request.usage

    def cheapest(self) -> Placement | None:
        """Return the placement with its victims, or None if preemption does not help."""
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
                if len(below) < self._least:  # the first options in rank: not enough
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
        """Return whether the gang fits once these are preempted, by quota and by capacity."""
        kept = self._permitted(chosen)
        return kept is not None and self._freed.fits(kept)

    def _count(self, steps: VictimSequence) -> int | None:
        """Return how many of the first options are enough, or None if all are not."""
        if steps.admitted_after is None:
            return None
        vacant = self._freed.fits
        return smallest_feasible_count(
            len(steps.options), lambda n: vacant(steps.first(n)), steps.admitted_after
        )

    def _permitted(self, chosen: list[VictimOption]) -> list[VictimOption] | None:
        """Return the options that the rules allow in turn, or None if quota still lacks."""
        steps = VictimSequence(self.request, chosen)
        return steps.first(len(chosen)) if steps.admitted_after is not None else None

    def _smallest(self, options: list[VictimOption]) -> list[VictimOption] | None:
        """Take the cheapest options until they are enough, in each domain and in all."""
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
        """Keep the options on the nodes of the gang, and of the others those that quota needs."""
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
        """Drop the victims that are not needed, the most expensive first, singly or many at once.

        The rules allow fewer victims, so that only quota and capacity are checked.
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
        """Yield the options of each domain that the gang may use, then all options."""
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
            options, key=lambda option: (*option.rank[:2], option.cost / max(len(option.places), 1))
        )
        yield options
        if not self.youngest:
            yield by_value

    def _cheaper(
        self, options: list[VictimOption], chosen: list[VictimOption]
    ) -> list[VictimOption]:
        """Return a cheaper set that CP-SAT finds, or else the set that was chosen."""
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
        """Return the amount that each quota lacks, and how much each option frees of it at most."""
        tree, missing = self.usage.tree, []
        for short in self.usage.shortfalls(self.waiting.gang.queue, self.request.charge):
            frees = [
                dict(option.charge).get(short.key, 0)
                if short.queue in tree.path(option.candidate.running.gang.queue)
                else 0
                for option in options
            ]
            missing.append((short.wanted - short.available, frees))
        return missing

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
            for option in sorted(chosen, key=lambda option: option.candidate.running.gang.id)
        )
        return replace(placed, evicts=evicts)


def _total(options: Iterable[VictimOption]) -> int:
    return sum(option.cost for option in options)
