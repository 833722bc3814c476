"""Whom to stop: the cheapest set of gangs whose going frees both the quota and a place.

What stopping a gang costs is the GPU time it loses since its last checkpoint, plus what starting
again costs. Gangs of higher priority are touched only where stopping lower ones is not enough, and
members a gang can do without go before whole gangs. The set grows from the cheapest until the gang
fits, shrinks to what is needed, and then CP-SAT looks for a cheaper one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from gangsched.core.accounts.usage import Usage
from gangsched.core.model import GPU, MILLI, GangId, Waiting
from gangsched.core.nodes import Ints
from gangsched.core.placement.choosers import fewest
from gangsched.core.placement.descent import Style
from gangsched.core.placement.fill import countable, fill, fits
from gangsched.core.policy import Candidate, Eviction, Ground, Placement, Request
from gangsched.core.queueing.admission import charge_at
from gangsched.core.queueing.candidates import beyond_guarantee, branches, contested
from gangsched.core.queueing.cheapest import cheaper
from gangsched.core.queues import Amounts, QuotaKey
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Place, Snapshot

_STYLE = Style(fewest, descend=True)
_DOMAINS = 8
_SOLVED = 300
_CHECKS = 40


@dataclass(frozen=True, slots=True)
class Prices:
    """What stopping costs beside the lost work: GPU-seconds to start again, and for each gang."""

    restart_s: float = 60.0
    gang: float = 60.0
    fairness: float = 0.5


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that can be given up: a whole gang, or its spare members."""

    candidate: Candidate
    places: tuple[Place, ...]
    whole: bool
    cost: int
    charge: Amounts

    @property
    def tier(self) -> tuple[int, int]:
        """Return what is given up first: lower priorities, then spare members."""
        return (self.candidate.running.priority, self.whole)


@dataclass(slots=True)
class Search:
    """Looks for the cheapest options that let one gang start; the request is left as it was.

    With `youngest` the latest to start go first, whatever they cost.
    """

    request: Request
    prices: Prices = field(default_factory=Prices)
    solve: bool = True
    youngest: bool = False
    _limited: frozenset[QuotaKey] = field(init=False)
    _mercies: dict[str, float] = field(default_factory=dict)
    _ways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _frees: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    _all: "Steps" = field(init=False)
    _plain: bool = field(init=False)
    _countable: bool = field(init=False)

    def __post_init__(self) -> None:
        tree = self.usage.tree
        queues = {one.running.gang.queue for one in self.request.candidates}
        queues.add(self.waiting.gang.queue)
        self._limited = frozenset(key for name in queues for key in tree.limited(name))
        needs = {
            id(place.needs): place.needs
            for one in self.request.candidates
            for place in one.running.places
        }
        self._plain = not self.snapshot.cluster.exclusive and not any(
            one.share is not None or one.host_ports for one in needs.values()
        )
        self._countable = self._plain and countable(self.waiting)

    @property
    def waiting(self) -> Waiting:
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
        """Return the placement and whom it evicts, or None where stopping does not help."""
        options = sorted(
            (option for one in self.request.candidates for option in self._options(one)),
            key=self._rank,
        )
        options = self._touching(options)
        self._all = Steps(self, options)
        if not options or not self._all.enough(len(options)):
            return None
        tiers = sorted({option.candidate.running.priority for option in options})
        for priority in tiers:
            below = options
            if priority != tiers[-1]:
                below = [one for one in options if one.candidate.running.priority <= priority]
                if not self._enough(below):
                    continue
            chosen = self._smallest(below)
            if chosen is not None and self.solve:
                chosen = self._cheaper(below, chosen)
            if chosen is not None:
                placed = self._placed(chosen)
                if placed is not None:
                    return placed
        return None

    def _rank(self, option: Option) -> tuple[float | str, ...]:
        running = option.candidate.running
        first = -running.started_s if self.youngest else option.cost
        return (*option.tier, first, running.gang.id)

    # -- options ------------------------------------------------------------------------------

    def _options(self, one: Candidate) -> Iterator[Option]:
        running = one.running
        if running.spare:
            names = set(running.spare)
            spare = tuple(place for place in running.places if place.name in names)
            if spare and len(spare) < len(running.places):
                yield self._option(one, spare, whole=False)
        yield self._option(one, running.places, whole=True)

    def _option(self, one: Candidate, places: tuple[Place, ...], *, whole: bool) -> Option:
        running = one.running
        charge = running.charge
        if not whole or not charge:
            seats = ((place.node, place.needs) for place in places)
            charge = charge_at(self.snapshot.cluster, self.snapshot.rules.kinds, seats)
        gpus = dict(charge).get((GPU, ""), 0) / MILLI
        if one.ground is not Ground.FAIR:  # only what has a quota decides who is admitted
            charge = tuple(item for item in charge if item[0] in self._limited)
        lost_s = max(self.request.now_s - running.lost_since_s, 0.0) if whole else 0.0
        price = (lost_s + self.prices.restart_s) * max(gpus, 1) + self.prices.gang
        if not whole:
            price = self.prices.gang  # an elastic gang goes on without them
        return Option(one, places, whole, round(price * self._mercy(one)), charge)

    def _mercy(self, one: Candidate) -> float:
        """Stopping gangs of the queue that is furthest beyond its share costs less."""
        if one.ground is Ground.PRIORITY:
            return 1.0
        queue = one.running.gang.queue
        if queue not in self._mercies:
            self._mercies[queue] = 1.0 + self.prices.fairness / (1.0 + self.usage.share(queue))
        return self._mercies[queue]

    def _touching(self, options: list[Option]) -> list[Option]:
        """Drop what frees nothing the gang could use."""
        wanted = {name for member in self.waiting.members for name, _ in member.needs.requests}
        short = self.usage.shortfalls(self.waiting.gang.queue, self.request.charge)
        return [
            option
            for option in options
            if short
            or any(name in wanted for place in option.places for name, _ in place.needs.requests)
        ]

    # -- sets ---------------------------------------------------------------------------------

    def _enough(self, chosen: Iterable[Option]) -> bool:
        """Tell whether the gang fits once these are gone, by quota and by room."""
        kept = self._lawful(chosen)
        return kept is not None and self.fits_without(kept)

    def fits_without(self, gone: list[Option]) -> bool:
        """Tell whether there is room once these are gone."""
        if not self._countable:
            return fits(self.waiting, self._without(gone), _STYLE)
        cluster, (needs,) = self.snapshot.cluster, self.waiting.kinds
        rows, amounts = self._freed(gone)
        kept = cluster.used[rows]
        np.subtract.at(cluster.used, rows, amounts)
        touched = np.unique(rows)
        then = cluster.count(needs, touched, cluster.used[touched])
        cluster.used[rows] = kept
        now = cluster.capacity(needs)
        return int(now.sum() - now[touched].sum() + then.sum()) >= self.waiting.minimum

    def _lawful(self, chosen: Iterable[Option]) -> list[Option] | None:
        """Return the options the rules allow one after the other, or None if quota lacks then."""
        steps = Steps(self, chosen)
        return steps.kept(steps.count) if steps.admitted is not None else None

    def theirs(self, queue: str) -> tuple[str, ...]:
        """Return a queue's way up to the ancestor it shares with the gang's queue."""
        known = self._ways.get(queue)
        if known is None:
            known = self._ways[queue] = branches(self.usage, self.waiting.gang.queue, queue)[1]
        return known

    def fair(self, queue: str) -> bool:
        """Tell whether a queue keeps a share at least as large as the gang's queue would have."""
        ours, theirs = branches(self.usage, self.waiting.gang.queue, queue)
        our_share = self.usage.share(ours[-1], self.request.charge)
        return our_share <= self.usage.share(theirs[-1])

    def _smallest(self, options: list[Option]) -> list[Option] | None:
        """Take the cheapest first until it is enough, in each domain and in all; drop the rest."""
        best: list[Option] | None = None
        for group in self._groups(options):
            steps = self._all if group is self._all.options else Steps(self, group)
            if steps.admitted is None:
                continue
            count = _first(len(group), steps.enough, steps.admitted)
            if count is None:
                continue
            chosen = self._shrunk(self._helpful(steps.kept(count)))
            if best is None or _total(chosen) < _total(best):
                best = chosen
        return best

    def _helpful(self, chosen: list[Option]) -> list[Option]:
        """Keep those on the nodes the gang would go to, and of the others what quota needs."""
        placed = fill(self.waiting, self._without(chosen), _STYLE)
        if isinstance(placed, Refusal):
            return chosen
        nodes = {node for _, node in placed.nodes}
        near = [one for one in chosen if any(p.node in nodes for p in one.places)]
        if len(near) == len(chosen) or self._enough(near):
            return near
        kept = {id(one) for one in near}
        far = [one for one in chosen if id(one) not in kept]
        count = _first(len(far), lambda number: self._enough([*near, *far[:number]]))
        return chosen if count is None else self._lawful([*near, *far[:count]]) or chosen

    def _shrunk(self, chosen: list[Option]) -> list[Option]:
        """Drop whoever is not needed, the dearest first: one by one, or many at once of many.

        Fewer than the rules allow is allowed too: only quota and room are looked at.
        """
        left = sorted(chosen, key=self._rank, reverse=True)
        size, at, checks = max(len(left) // _CHECKS, 1), 0, 0
        self._charge(left, -1)
        try:
            while checks < _CHECKS and at < len(left):
                dropped, fewer = left[at : at + size], left[:at] + left[at + size :]
                checks += 1
                self._charge(dropped, 1)
                admitted = self.usage.fits(self.waiting.gang.queue, self.request.charge)
                if admitted and self.fits_without(fewer):
                    left = fewer
                else:
                    self._charge(dropped, -1)
                    at += size
        finally:
            self._charge(left, 1)
        return left[::-1]

    def _charge(self, options: Iterable[Option], times: int) -> None:
        for option in options:
            self.usage.charge(option.candidate.running.gang.queue, option.charge, times)

    def _groups(self, options: list[Option]) -> Iterator[list[Option]]:
        """Yield the options of each domain the gang must fit into, then all of them."""
        cluster = self.snapshot.cluster
        near = self.waiting.constraints.near.required
        tree = cluster.tree(self.waiting.constraints.topology)
        level = tree.topology.index(near) if tree is not None and near is not None else None
        if tree is not None and level is not None and level < len(tree.codes):
            inside: dict[int, list[Option]] = {}
            for option in options:
                rows = {cluster.rows.get(place.node, -1) for place in option.places}
                for code in {int(tree.codes[level][row]) for row in rows if row >= 0}:
                    inside.setdefault(code, []).append(option)
            ranked = sorted(inside.items(), key=lambda item: (_total(item[1]), item[0]))
            for _, group in ranked[:_DOMAINS]:
                yield group
        by_value = sorted(options, key=lambda one: (*one.tier, one.cost / max(len(one.places), 1)))
        yield options
        if not self.youngest:
            yield by_value

    def _cheaper(self, options: list[Option], chosen: list[Option]) -> list[Option]:
        """Let CP-SAT look for a cheaper set; keep what was found where it finds none."""
        limit = _total(chosen)
        useful = [option for option in options if option.cost < limit]
        if not useful or len(useful) > _SOLVED:
            return chosen
        ruled_out: list[list[Option]] = []
        for _ in range(3):
            found = cheaper(self.waiting, self.snapshot, useful, limit, ruled_out)
            if found is None:
                return chosen
            if self._enough(found):
                return self._lawful(found) or chosen
            ruled_out.append(found)
        return chosen

    def _placed(self, chosen: list[Option]) -> Placement | None:
        placed = self.request.placer.place(self.waiting, self._without(chosen))
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

    def _freed(self, gone: list[Option]) -> tuple[Ints, Ints]:
        """Return rows and what comes free there, shapes (n,) and (n, resources)."""
        parts = [self._freed_by(option) for option in gone]
        width = len(self.snapshot.cluster.resources)
        none = np.zeros(0, dtype=np.int64), np.zeros((0, width), dtype=np.int64)
        rows, amounts = zip(*(parts or [none]), strict=True)
        return np.concatenate(rows), np.concatenate(amounts)

    def _freed_by(self, option: Option) -> tuple[Ints, Ints]:
        known = self._frees.get(id(option))
        if known is None:
            cluster = self.snapshot.cluster
            there = [
                (cluster.rows[p.node], p.needs) for p in option.places if p.node in cluster.rows
            ]
            rows = np.array([row for row, _ in there], dtype=np.int64)
            amounts = np.zeros((len(there), len(cluster.resources)), dtype=np.int64)
            for at, (_, needs) in enumerate(there):
                amounts[at] = cluster.vector(needs)
            known = self._frees[id(option)] = rows, amounts
        return known

    def _without(self, gone: list[Option]) -> Snapshot:
        cluster = self.snapshot.cluster.copy()
        if self._plain:
            cluster.release(*self._freed(gone))
            return replace(self.snapshot, cluster=cluster)
        for option in gone:
            for place in option.places:
                row = cluster.rows.get(place.node)
                if row is not None:
                    holder = option.candidate.running.gang.id
                    cluster.give(row, place.needs, 1, holder, (place.devices,))
        for option in gone:
            if option.whole:
                cluster.exclusive.pop(option.candidate.running.gang.id, None)
        return replace(self.snapshot, cluster=cluster)


class Steps:
    """Options given up one after the other, as far as the rules allow.

    A queue is never pushed below its guarantee by more than its last gang. `admitted` is after
    how many of `count` the gang has quota, None if it never has.
    """

    def __init__(self, search: Search, options: Iterable[Option]) -> None:
        self.options = options
        self.count = 0
        self.admitted: int | None = None
        self._search = search
        self._taken: list[tuple[int, Option, Option | None]] = []
        usage, request = search.usage, search.request
        wanted = contested(usage, search.waiting.gang.queue, request.charge)
        parts: dict[GangId, Option] = {}
        whole: set[GangId] = set()
        charged: list[tuple[str, Amounts, int]] = []

        def charge(queue: str, amounts: Amounts, times: int) -> None:
            usage.charge(queue, amounts, times)
            charged.append((queue, amounts, times))

        def admitted() -> bool:
            return usage.fits(search.waiting.gang.queue, request.charge)

        try:
            if admitted():
                self.admitted = 0
            for option in options:
                self.count += 1
                gang, queue = option.candidate.running.gang.id, option.candidate.running.gang.queue
                if gang in whole or (gang in parts and not option.whole):
                    continue
                if option.candidate.ground is not Ground.PRIORITY and not all(
                    beyond_guarantee(usage, name, wanted) for name in search.theirs(queue)
                ):
                    continue
                before = parts.get(gang)
                if before is not None:  # its spare members were counted; now the whole gang is
                    charge(queue, before.charge, 1)
                charge(queue, option.charge, -1)
                if option.candidate.ground is Ground.FAIR and not search.fair(queue):
                    charge(queue, option.charge, 1)
                    if before is not None:
                        charge(queue, before.charge, -1)
                    continue
                self._taken.append((self.count, option, before))
                if option.whole:
                    whole.add(gang)
                else:
                    parts[gang] = option
                if self.admitted is None and admitted():
                    self.admitted = self.count
        finally:
            for queue, amounts, times in charged:
                usage.charge(queue, amounts, -times)

    def kept(self, count: int) -> list[Option]:
        """Return who is given up of the first so many options."""
        kept: dict[int, Option] = {}
        for at, option, before in self._taken:
            if at > count:
                break
            if before is not None:
                kept.pop(id(before), None)
            kept[id(option)] = option
        return list(kept.values())

    def enough(self, count: int) -> bool:
        """Tell whether the gang fits once the first so many are gone."""
        if self.admitted is None or count < self.admitted:
            return False
        return self._search.fits_without(self.kept(count))


def _total(options: Iterable[Option]) -> int:
    return sum(option.cost for option in options)


def _first(most: int, works: Callable[[int], bool], least: int = 1) -> int | None:
    """Return the smallest count that works, where more never works worse; `least` if known."""
    high = max(least, 1)
    while high < most and not works(high):
        high *= 2
    high = min(high, most)
    if not works(high):
        return None
    low = max(high // 2, least - 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high
