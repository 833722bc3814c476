"""What can be given up for a gang that does not fit, what each costs, and what the rules allow."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gangsched.core.model import GPU, MILLI, GangId
from gangsched.core.policy import Candidate, Ground, Request
from gangsched.core.queueing.admission import charge_at
from gangsched.core.queueing.candidates import beyond_guarantee, branches, contested
from gangsched.core.queues import Amounts, QuotaKey
from gangsched.core.snapshot import Place


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
class Offer:
    """Makes options of the candidates of one request."""

    request: Request
    prices: Prices
    _limited: frozenset[QuotaKey] = field(init=False)
    _mercies: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree = self.request.usage.tree
        queues = {one.running.gang.queue for one in self.request.candidates}
        queues.add(self.request.waiting.gang.queue)
        self._limited = frozenset(key for name in queues for key in tree.limited(name))

    def all(self) -> list[Option]:
        """Return every option that frees something the gang could use."""
        options = [option for one in self.request.candidates for option in self._options(one)]
        return self._touching(options)

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
            charge = charge_at(
                self.request.snapshot.cluster, self.request.snapshot.rules.kinds, seats
            )
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
            self._mercies[queue] = 1.0 + self.prices.fairness / (
                1.0 + self.request.usage.share(queue)
            )
        return self._mercies[queue]

    def _touching(self, options: list[Option]) -> list[Option]:
        """Drop what frees nothing the gang could use."""
        wanted = {
            name for member in self.request.waiting.members for name, _ in member.needs.requests
        }
        short = self.request.usage.shortfalls(self.request.waiting.gang.queue, self.request.charge)
        return [
            option
            for option in options
            if short
            or any(name in wanted for place in option.places for name, _ in place.needs.requests)
        ]


class Steps:
    """Options given up one after the other, as far as the rules allow.

    A queue is never pushed below its guarantee by more than its last gang. `admitted` is after
    how many of `count` the gang has quota, None if it never has.
    """

    def __init__(self, request: Request, options: list[Option]) -> None:
        self.options = options
        self.count = 0
        self.admitted: int | None = None
        self._taken: list[tuple[int, Option, Option | None]] = []
        usage, ours = request.usage, request.waiting.gang.queue
        ways: dict[str, tuple[str, ...]] = {}
        wanted = contested(usage, ours, request.charge)
        parts: dict[GangId, Option] = {}
        whole: set[GangId] = set()
        charged: list[tuple[str, Amounts, int]] = []

        def charge(queue: str, amounts: Amounts, times: int) -> None:
            usage.charge(queue, amounts, times)
            charged.append((queue, amounts, times))

        def theirs(queue: str) -> tuple[str, ...]:
            if queue not in ways:
                ways[queue] = branches(usage, ours, queue)[1]
            return ways[queue]

        def fair(queue: str) -> bool:
            """Tell whether a queue keeps a share at least as large as ours would be."""
            mine, way = branches(usage, ours, queue)
            return usage.share(mine[-1], request.charge) <= usage.share(way[-1])

        def admitted() -> bool:
            return usage.fits(ours, request.charge)

        try:
            if admitted():
                self.admitted = 0
            for option in options:
                self.count += 1
                gang, queue = option.candidate.running.gang.id, option.candidate.running.gang.queue
                if gang in whole or (gang in parts and not option.whole):
                    continue
                if option.candidate.ground is not Ground.PRIORITY and not all(
                    beyond_guarantee(usage, name, wanted) for name in theirs(queue)
                ):
                    continue
                before = parts.get(gang)
                if before is not None:  # its spare members were counted; now the whole gang is
                    charge(queue, before.charge, 1)
                charge(queue, option.charge, -1)
                if option.candidate.ground is Ground.FAIR and not fair(queue):
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
