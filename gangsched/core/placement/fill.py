"""Places a gang by counting how many pods each node and each domain takes.

A placer supplies one function, a `BinChooser`. It receives the capacity of each bin, and returns
how many pods go to each. Bins are nodes, or domains of a level, counted in whole slices. This
module has what such placers share: constraints, the minimum, the order of pod classes, the ranks of
members, and the refusal.

For one pod class the counts are exact, so that a refusal is a proof. Several classes are placed one
after the other, which may miss a placement that exists; then the refusal says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gangsched.core.bounds import DOMAINS_TRIED
from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.cluster.node_table import Ints, Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import NodeName, PodName
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.choosers import BinChooser
from gangsched.core.placement.constraints import (
    MisconfiguredError,
    ResolvedConstraints,
    resolve_constraints,
)
from gangsched.core.placement.demand import (
    PodClass,
    placed_members_mask,
    pod_classes,
    select_members,
)
from gangsched.core.placement.explain import explain
from gangsched.core.placement.objectives import Cost, PlacementCosts, PlacementObjective
from gangsched.core.placement.tree_fill import TOPOLOGY_FILL, FillStrategy, TreeFill
from gangsched.core.renamed import renamed
from gangsched.core.snapshot import Snapshot

Counts = list[Ints]
"""For each pod class, how many of its pods go to each slot."""

_DOMAINS_COMPARED = 8


@dataclass(frozen=True, slots=True)
class CountedPlacement:
    """A placement as counts: the pod classes, their pods in each slot, and the GPU type.

    `order` is the order in which the classes were placed: shares of GPUs fit in this order.
    """

    kinds: list[PodClass]
    counts: Counts
    gpu: str
    mask: Mask
    order: tuple[int, ...] = ()


def fill(
    waiting: PendingGang, snapshot: Snapshot, style: FillStrategy | BinChooser
) -> Placement | Refusal:
    """Place every member, or else as many as fit above the minimum, or else refuse."""
    if not isinstance(style, FillStrategy):
        style = FillStrategy(style)
    cluster = snapshot.cluster
    try:
        scope = resolve_constraints(waiting, cluster)
    except MisconfiguredError as error:
        return Refusal(waiting.gang.id, Reason.MISCONFIGURED, str(error))
    counted = search(waiting, snapshot, scope, style)
    if counted is None:
        return explain(waiting, snapshot, scope, lambda trial: _fills(trial, snapshot, style))
    return placement(waiting, snapshot, scope, counted)


def is_feasible(waiting: PendingGang, snapshot: Snapshot) -> bool:
    """Return whether a gang, changed in some way, fits."""
    return _fills(waiting, snapshot, TOPOLOGY_FILL)


def _fills(waiting: PendingGang, snapshot: Snapshot, style: FillStrategy) -> bool:
    if is_exactly_countable(waiting) and not snapshot.cluster.exclusive_domains:
        return may_be_feasible(waiting, snapshot.cluster)
    try:
        scope = resolve_constraints(waiting, snapshot.cluster)
    except MisconfiguredError:
        return False
    return search(waiting, snapshot, scope, style) is not None


def may_be_feasible(waiting: PendingGang, cluster: Cluster) -> bool:
    """Return whether counting alone allows a placement; a False is always right, and cheap."""
    if len(waiting.pod_classes) != 1:
        return True
    return int(cluster.capacity(waiting.pod_classes[0]).sum()) >= waiting.members_min


def is_exactly_countable(waiting: PendingGang) -> bool:
    """Return whether a gang fits if and only if nodes together take enough of its pods."""
    plain = not (
        waiting.constraints.is_restrictive()
        or waiting.constraints.gpu_types
        or waiting.excluded_nodes
    )
    plain = plain and not (waiting.near_role or waiting.placed_members or waiting.pods_per_node_max)
    if not plain or len(waiting.pod_classes) != 1:
        return False
    return waiting.pod_classes[0].share is None and not waiting.pod_classes[0].host_ports


def search(
    waiting: PendingGang, snapshot: Snapshot, scope: ResolvedConstraints, style: FillStrategy
) -> CountedPlacement | None:
    """Find counts for as many members as possible, on the first GPU type that takes the gang."""
    kinds = pod_classes(waiting, scope, snapshot.cluster)
    if any(kind.split for kind in kinds) or not any(kind.members for kind in kinds):
        return None
    for gpu, mask in scope.gpu_masks:
        filling = Filling(waiting, snapshot, scope, style, kinds)
        counts = _fill_most(filling, mask & scope.allowed)
        if counts is not None:
            return CountedPlacement(kinds, counts, gpu, mask & scope.allowed, tuple(filling.order))
    return None


def _fill_most(filling: "Filling", mask: Mask) -> Counts | None:
    """Place all members, or the largest number that fits and is not below the minimum."""
    kinds = filling.kinds
    everything = [kind.pods_max for kind in kinds]
    least = [kind.pods_min for kind in kinds]
    counts = filling.attempt(everything, mask)
    if counts is not None or everything == least:
        return counts
    best = filling.attempt(least, mask)
    if best is None:
        return None
    low, high = 0, sum(everything) - sum(least)
    while low + 1 < high:  # `low` pods above the minimum fit, `high` do not
        middle = (low + high) // 2
        counts = filling.attempt(_with_surplus(kinds, middle), mask)
        if counts is None:
            high = middle
        else:
            low, best = middle, counts
    return best


def _with_surplus(kinds: list[PodClass], surplus: int) -> list[int]:
    wanted = []
    for kind in kinds:
        unit = kind.rules.unit(0)
        more = min(surplus, kind.pods_max - kind.pods_min) // unit * unit
        wanted.append(kind.pods_min + more)
        surplus -= more
    return wanted


def placement(
    waiting: PendingGang, snapshot: Snapshot, scope: ResolvedConstraints, counted: CountedPlacement
) -> Placement:
    """Assign members to the counted nodes: neighbouring ranks get neighbouring nodes."""
    cluster = snapshot.cluster
    slots = len(cluster.names)
    nodes: list[tuple[PodName, NodeName]] = []
    keys = [scope.codes(level, slots) for level in reversed(range(scope.depth))]
    for kind, counts in zip(counted.kinds, counted.counts, strict=True):
        rows = np.flatnonzero(counts)
        order = rows[np.lexsort((rows, *(key[rows] for key in keys)))]
        members = select_members(kind, int(counts.sum()), waiting)
        places = np.repeat(order, counts[order])
        nodes.extend(
            (member.name, cluster.names[row]) for member, row in zip(members, places, strict=True)
        )
    devices = _devices(counted, nodes, snapshot)
    return Placement(tuple(nodes), devices=devices, gpu_type=counted.gpu)


def _devices(
    counted: CountedPlacement, nodes: list[tuple[PodName, NodeName]], snapshot: Snapshot
) -> tuple[tuple[PodName, Devices], ...]:
    """Choose GPUs for members that share GPUs, in the order in which the classes were placed."""
    if all(kind.needs.share is None for kind in counted.kinds):
        return ()
    places = dict(nodes)
    chosen: list[tuple[PodName, Devices]] = []
    with snapshot.trial() as trial:
        for index in counted.order or range(len(counted.kinds)):
            kind = counted.kinds[index]
            for member in kind.members:
                if member.name in places:
                    row = snapshot.cluster.rows[places[member.name]]
                    taken = trial.add_pods(row, kind.needs)
                    chosen.extend((member.name, devices) for devices in taken)
    return tuple(chosen)


@dataclass(slots=True)
class Filling:
    """Attempts to place one gang; members that are placed already count for spread."""

    waiting: PendingGang
    snapshot: Snapshot
    scope: ResolvedConstraints
    style: FillStrategy
    kinds: list[PodClass]
    order: list[int] = field(default_factory=list)
    _members: Ints = field(init=False)

    def attempt(self, wanted: list[int], mask: Mask) -> Counts | None:
        """Return counts for `wanted` pods of each class, or None if none were found."""
        mask = mask & self.scope.located(len(mask))
        fixed = placed_members_mask(self.waiting, self.scope, self.snapshot.cluster, None)
        if fixed is not None:
            return self._fill(wanted, mask & fixed)
        level = self.scope.rules.required
        if level is None:
            return self._fill(wanted, mask)
        best: tuple[Cost, Counts] | None = None
        needs = [kind.needs for kind in self.kinds]
        prices = PlacementCosts(
            self.snapshot.cluster, self.scope, needs, (PlacementObjective.DOMAINS,)
        )
        compared = 0
        for domain in self._domains(level, wanted, mask):
            counts = self._fill(wanted, domain)
            if counts is None:
                continue
            if not self.style.descend:
                return counts
            cost = prices.cost(counts)
            if best is None or cost < best[0]:
                best = cost, counts
            compared += 1
            if compared == _DOMAINS_COMPARED:
                break
        return best[1] if best is not None else None

    def _domains(self, level: int, wanted: list[int], mask: Mask) -> Iterator[Mask]:
        """Yield the domains of a level that may take the gang, the tightest first.

        Of very many domains, half of those tried are the tightest, and half those with the most
        capacity.
        """
        codes = self.scope.codes(level, len(mask))
        possible: Mask | None = None
        slack: Ints | None = None
        for kind, count in zip(self.kinds, wanted, strict=True):
            if not count:
                continue
            capacity = self.snapshot.cluster.capacity(kind.needs) * mask
            total = np.bincount(codes[mask], weights=capacity[mask]).astype(np.int64)
            large_enough = total >= count
            possible = large_enough if possible is None else possible & large_enough
            slack = total - count if slack is None else np.minimum(slack, total - count)
        if possible is None or slack is None:
            return
        most = tries(self.kinds)
        order = sorted(np.flatnonzero(possible), key=lambda code: (slack[code], code))
        if len(order) > most:
            order = [*order[: most // 2], *order[: -most // 2 - 1 : -1]]
        for code in order:
            yield mask & (codes == code)

    def _fill(self, wanted: list[int], mask: Mask) -> Counts | None:
        """Place every class within the mask, the hardest first."""
        self.snapshot.progress.check()
        cluster = self.snapshot.cluster
        counts: Counts = [np.zeros(len(mask), dtype=np.int64) for _ in self.kinds]
        self._members = _placed_members_by_row(self.waiting, cluster)
        with self.snapshot.trial() as trial:
            self.order = self._hardest_first(wanted, mask)
            for index in self.order:
                kind = self.kinds[index]
                if not wanted[index]:
                    continue
                filled = self._one_kind(kind, wanted[index], mask)
                if filled is None:
                    return None
                counts[index] = filled
                self._members = self._members + filled
                if len(self.kinds) > 1:
                    for row in np.flatnonzero(filled):
                        trial.add_pods(int(row), kind.needs, int(filled[row]))
        return counts

    def _hardest_first(self, wanted: list[int], mask: Mask) -> list[int]:
        """Order classes by the ratio of their capacity to their pods, the smallest ratio first."""
        if len(wanted) == 1:
            return [0]
        slack = []
        for kind, count in zip(self.kinds, wanted, strict=True):
            total = int((self.snapshot.cluster.capacity(kind.needs) * mask).sum())
            slack.append(total / max(count, 1))
        return sorted(range(len(wanted)), key=lambda index: slack[index])

    def _one_kind(self, kind: PodClass, wanted: int, mask: Mask) -> Ints | None:
        cluster = self.snapshot.cluster
        mask = mask & self.scope.located(len(mask), kind.rules)
        if kind.allowed is not None:
            mask = mask & kind.allowed
        capacity = cluster.capacity(kind.needs) * mask
        if self.waiting.pods_per_node_max is not None:
            capacity = np.clip(self.waiting.pods_per_node_max - self._members, 0, capacity)
        descent = TreeFill(cluster, self.scope, self.style, kind, self._members)
        fixed = placed_members_mask(self.waiting, self.scope, cluster, kind)
        level = kind.rules.required
        if fixed is not None:
            return descent.fill(capacity * fixed, wanted)
        if level is None and kind.rules.preferred is not None:
            counts = self._in_one_domain(descent, capacity, wanted, kind.rules.preferred)
            if counts is not None:
                return counts
        if level is None:
            return descent.fill(capacity, wanted)
        return self._in_one_domain(descent, capacity, wanted, level)

    def _in_one_domain(
        self, descent: "TreeFill", capacity: Ints, wanted: int, level: int
    ) -> Ints | None:
        """Place all pods of a class in one domain, the tightest that takes them."""
        codes = self.scope.codes(level, len(capacity))
        totals = descent.capacities(capacity, level)
        for code in np.lexsort((np.arange(len(totals)), totals)):
            if totals[code] >= wanted and code <= codes.max(initial=-1):
                counts = descent.fill(capacity * (codes == code), wanted)
                if counts is not None:
                    return counts
        return None


def tries(kinds: list[PodClass]) -> int:
    """Return the number of domains to try for these classes."""
    return max(DOMAINS_TRIED.most // max(len(kinds), 1), _DOMAINS_COMPARED)


def _placed_members_by_row(waiting: PendingGang, cluster: Cluster) -> Ints:
    """Return how many placed members each slot has."""
    members = np.zeros(len(cluster.names), dtype=np.int64)
    for placed in waiting.placed_members:
        row = cluster.rows.get(placed.node)
        if row is not None:
            members[row] += 1
    return members


if not TYPE_CHECKING:  # a type checker refuses the old names
    __getattr__ = renamed(
        __name__,
        {
            "Chooser": "gangsched.core.placement.choosers:BinChooser",
            "Style": "gangsched.core.placement.tree_fill:FillStrategy",
            "countable": "gangsched.core.placement.fill:is_exactly_countable",
            "enough": "gangsched.core.placement.fill:may_be_feasible",
            "fits": "gangsched.core.placement.fill:is_feasible",
        },
    )
