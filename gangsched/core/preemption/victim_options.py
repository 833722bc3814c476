"""The gangs that can be preempted for a gang: their costs, and what the rules allow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import overload

from gangsched.core.bounds import AMOUNT
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.model.queues import Amounts
from gangsched.core.policy import Candidate, PreemptionReason, PreemptionRequest
from gangsched.core.preemption.candidates import contested_resources, exceeds_nominal
from gangsched.core.quota.charges import charge_on_nodes
from gangsched.core.snapshot import PodPlacement


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """The costs of a preemption beside the lost work.

    `restart_s` are seconds of all GPUs of a gang, `gang` are GPU-seconds for each gang, and
    `fairness` is the discount for queues far above their share.
    """

    restart_s: float = 60.0
    gang: float = 60.0
    fairness: float = 0.5


@dataclass(frozen=True, slots=True)
class VictimOption:
    """A whole running gang, or its surplus pods, that can be preempted.

    The smallest `rank` is first: lower priorities, then surplus pods, then by cost.
    """

    candidate: Candidate
    places: tuple[PodPlacement, ...]
    whole: bool
    cost: int
    charge: Amounts
    rank: "Rank"


_REGARDLESS_OF_QUOTA = frozenset({PreemptionReason.PRIORITY, PreemptionReason.OVERRUN})

Rank = tuple[int, bool, float, GangId]
"""Priority, whether it is a whole gang, cost (or age), and the gang."""

_Priced = tuple[Rank, int, tuple[PodPlacement, ...], Candidate]


class VictimOptions(Sequence[VictimOption]):
    """The options for one request that free something the gang can use, by rank.

    Options are created when they are read. With `youngest`, the latest to start come first,
    whatever they cost.
    """

    def __init__(
        self, request: PreemptionRequest, prices: PreemptionCost, *, youngest: bool = False
    ) -> None:
        tree = request.usage.tree
        queues = {candidate.running.gang.queue for candidate in request.candidates}
        queues.add(request.waiting.gang.queue)
        self._request = request
        self._cost = prices
        self._youngest = youngest
        self._limited = frozenset(key for name in queues for key in tree.quota_keys(name))
        self._discounts: dict[str, float] = {}
        self._wanted = {
            name for candidate in request.waiting.members for name, _ in candidate.needs.requests
        }
        self._short = bool(request.usage.shortfalls(request.waiting.gang.queue, request.charge))
        self._useful: dict[int, bool] = {}
        priced = (
            priced for candidate in request.candidates for priced in self._priced_options(candidate)
        )
        self._priced = sorted(priced, key=itemgetter(0))
        self._options: list[VictimOption] = []

    def __len__(self) -> int:
        return len(self._priced)

    @overload
    def __getitem__(self, at: int) -> VictimOption: ...
    @overload
    def __getitem__(self, at: slice) -> list[VictimOption]: ...
    def __getitem__(self, at: int | slice) -> VictimOption | list[VictimOption]:
        last = at if isinstance(at, int) else at.indices(len(self))[1] - 1
        for priced in self._priced[len(self._options) : last + 1]:
            self._options.append(self._option(*priced))
        return self._options[at]

    def _priced_options(self, candidate: Candidate) -> Iterator[_Priced]:
        running = candidate.running
        if running.surplus_pods:
            names = set(running.surplus_pods)
            spare = tuple(place for place in running.places if place.name in names)
            if spare and len(spare) < len(running.places) and self._frees_something(spare):
                # An elastic gang continues without them.
                yield self._price(candidate, spare, self._cost.gang, whole=False)
        if self._frees_something(running.places):
            gpus = dict(running.charge or self._charge(running.places)).get((GPU, ""), 0) / MILLI
            lost_s = running.lost_s(self._request.now_s)
            price = (lost_s + self._cost.restart_s) * max(gpus, 1) + self._cost.gang
            yield self._price(candidate, running.places, price, whole=True)

    def _price(
        self, candidate: Candidate, places: tuple[PodPlacement, ...], price: float, *, whole: bool
    ) -> _Priced:
        running, cost = (
            candidate.running,
            round(min(price * self._fairness_discount(candidate), AMOUNT.most)),
        )
        first = -running.started_s if self._youngest else float(cost)
        return (running.priority, whole, first, running.gang.id), cost, places, candidate

    def _option(
        self, rank: Rank, cost: int, places: tuple[PodPlacement, ...], candidate: Candidate
    ) -> VictimOption:
        _, whole, *_ = rank
        charge = (candidate.running.charge if whole else ()) or self._charge(places)
        if (
            candidate.ground is not PreemptionReason.FAIR
        ):  # only resources with a quota decide on admission
            charge = tuple(item for item in charge if item[0] in self._limited)
        return VictimOption(candidate, places, whole, cost, charge, rank)

    def _charge(self, places: tuple[PodPlacement, ...]) -> Amounts:
        pods = ((place.node, place.needs) for place in places)
        snapshot = self._request.snapshot
        return charge_on_nodes(snapshot.cluster, snapshot.rules.gpu_types, pods)

    def _fairness_discount(self, candidate: Candidate) -> float:
        """Return the factor of the cost: less for gangs of queues far above their share."""
        if candidate.ground in _REGARDLESS_OF_QUOTA:
            return 1.0
        queue = candidate.running.gang.queue
        if queue not in self._discounts:
            share = self._request.usage.share(queue)
            self._discounts[queue] = 1.0 + self._cost.fairness / (1.0 + share)
        return self._discounts[queue]

    def _frees_something(self, places: tuple[PodPlacement, ...]) -> bool:
        """Return whether these pods use anything that the gang can use."""
        return self._short or any(self._is_useful(place.needs) for place in places)

    def _is_useful(self, needs: PodRequirements) -> bool:
        known = self._useful.get(id(needs))
        if known is None:
            known = self._useful[id(needs)] = any(n in self._wanted for n, _ in needs.requests)
        return known


class VictimSequence:
    """Options that are preempted one after the other, as far as the rules allow; computed lazily.

    A queue never drops below its nominal quota by more than its last gang.
    """

    def __init__(self, request: PreemptionRequest, options: Sequence[VictimOption]) -> None:
        self.options = options
        self._waiting = request.waiting
        self._charge = request.charge
        self._usage = request.usage.copy()
        self._wanted = contested_resources(self._usage, request.waiting.gang.queue, request.charge)
        self._at = 0
        self._admitted_after = 0 if self._has_quota() else None
        self._parts: dict[GangId, VictimOption] = {}
        self._whole: set[GangId] = set()
        self._taken: list[tuple[int, VictimOption, VictimOption | None]] = []

    @property
    def admitted_after(self) -> int | None:
        """Return after how many options the gang has quota, or None if it never has."""
        while self._admitted_after is None and self._at < len(self.options):
            self._step()
        return self._admitted_after

    def first(self, count: int) -> list[VictimOption]:
        """Return which of the first `count` options are preempted."""
        while self._at < min(count, len(self.options)):
            self._step()
        kept: dict[int, VictimOption] = {}
        for at, option, before in self._taken:
            if at > count:
                break
            if before is not None:
                kept.pop(id(before), None)
            kept[id(option)] = option
        return list(kept.values())

    def _step(self) -> None:
        """Preempt the next option, if the rules allow that."""
        option = self.options[self._at]
        self._at += 1
        gang, queue = option.candidate.running.gang.id, option.candidate.running.gang.queue
        if gang in self._whole or (gang in self._parts and not option.whole):
            return
        ground = option.candidate.ground
        if ground not in _REGARDLESS_OF_QUOTA and not self._still_borrows(queue):
            return
        before = self._parts.get(gang)
        if before is not None:  # its surplus pods were counted; now the whole gang is
            self._usage.charge(queue, before.charge)
        self._usage.charge(queue, option.charge, -1)
        if ground is PreemptionReason.FAIR and not self._stays_fair(queue):
            self._usage.charge(queue, option.charge)
            if before is not None:
                self._usage.charge(queue, before.charge, -1)
            return
        self._taken.append((self._at, option, before))
        if option.whole:
            self._whole.add(gang)
        else:
            self._parts[gang] = option
        if self._admitted_after is None and self._has_quota():
            self._admitted_after = self._at

    def _has_quota(self) -> bool:
        return self._usage.fits(self._waiting.gang.queue, self._charge)

    def _still_borrows(self, queue: str) -> bool:
        """Return whether a queue and its ancestors still exceed their nominal quota."""
        _, path = self._usage.tree.paths_below_common_ancestor(self._waiting.gang.queue, queue)
        return all(exceeds_nominal(self._usage, name, self._wanted) for name in path)

    def _stays_fair(self, queue: str) -> bool:
        """Return whether a queue keeps at least the share that the waiting queue would have."""
        own_path, path = self._usage.tree.paths_below_common_ancestor(
            self._waiting.gang.queue, queue
        )
        return self._usage.share(own_path[-1], self._charge) <= self._usage.share(path[-1])
