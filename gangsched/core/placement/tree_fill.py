"""Distributes the pods of one class over the tree of domains, from the root to the nodes.

Capacity is summed up level by level; then each domain gets a share of the pods.
"""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.placement.choosers import BinChooser, Bins, fewest_bins
from gangsched.core.placement.constraints import ResolvedConstraints
from gangsched.core.placement.demand import PodClass

_LAST = -(10**9)
"""Preference of nodes without a known domain."""


@dataclass(frozen=True, slots=True)
class FillStrategy:
    """How a placer distributes pods: its chooser, and whether it uses every topology level.

    Without `descend`, only the levels that constraints name count.
    """

    choose: BinChooser
    descend: bool = False


TOPOLOGY_FILL = FillStrategy(fewest_bins, descend=True)
"""The strategy by which the planner checks whether a gang fits, whatever placer is configured."""


@dataclass(slots=True)
class TreeFill:
    """Distributes the pods of one class; `members` of the gang are placed on each slot already."""

    cluster: Cluster
    scope: ResolvedConstraints
    style: FillStrategy
    kind: PodClass
    members: Ints

    def fill(self, capacity: Ints, wanted: int) -> Ints | None:
        """Return counts per slot that sum to `wanted`, or None if the pods do not fit."""
        levels = self._levels()
        capacity = self._capped(capacity)
        if not levels:  # only nodes: the common case, kept fast
            if int(capacity.sum()) < wanted:
                return None
            counts = np.zeros(len(capacity), dtype=np.int64)
            self._distribute_to_hosts(np.flatnonzero(capacity), capacity, wanted, counts)
            return counts
        sums = self._sums(capacity, levels)
        if int(sums[levels[0]].sum()) < wanted:
            return None
        counts = np.zeros(len(capacity), dtype=np.int64)
        self._distribute(levels, 0, np.flatnonzero(capacity), sums, capacity, wanted, counts)
        return counts

    def capacities(self, capacity: Ints, level: int) -> Ints:
        """Return how many pods each domain of a level takes, by capacity, slices and spread."""
        levels = sorted({*self._levels(), level} - {self.scope.depth})
        capacity = self._capped(capacity)
        if level >= self.scope.depth:
            return capacity
        return self._sums(capacity, levels)[level]

    def _levels(self) -> list[int]:
        depth = self.scope.depth
        levels = set(range(depth)) if self.style.descend else set()
        levels.update(at for at, _ in self.kind.rules.slices)
        levels.update(self.scope.spread)
        return sorted(level for level in levels if level < depth)

    def _capped(self, capacity: Ints) -> Ints:
        """Apply the spread and the slices of the host level."""
        host = self.scope.depth
        if host in self.scope.spread:
            capacity = np.clip(self.scope.spread[host] - self.members, 0, capacity)
        unit = self.kind.rules.unit(host)
        return capacity // unit * unit if unit > 1 else capacity

    def _sums(self, capacity: Ints, levels: list[int]) -> dict[int, Ints]:
        """Return the capacity of each bin by level.

        Each level is summed from the next finer one, rounded down to whole slices.
        """
        slots = len(capacity)
        sums: dict[int, Ints] = {}
        finer, finer_codes = capacity, np.arange(slots, dtype=np.int64)
        for level in reversed(levels):
            codes = self._bins(level, slots)
            size = self._domains(level) + slots
            domain_of = np.zeros(len(finer), dtype=np.int64)
            domain_of[finer_codes] = codes
            total = np.bincount(domain_of, weights=finer, minlength=size).astype(np.int64)
            most = self.scope.spread.get(level)
            if most is not None:
                held = np.bincount(codes, weights=self.members, minlength=size).astype(np.int64)
                total = np.clip(most - held, 0, total)
            unit = self.kind.rules.unit(level)
            sums[level] = total // unit * unit
            finer, finer_codes = sums[level], codes
        return sums

    def _bins(self, level: int, slots: int) -> Ints:
        """Return the bin of each slot: its domain, or a bin of its own if the domain is unknown."""
        codes = self.scope.codes(level, slots)
        return np.where(codes == UNKNOWN, self._domains(level) + np.arange(slots), codes)

    def _domains(self, level: int) -> int:
        return len(self.scope.tree.paths[level]) if self.scope.tree is not None else 0

    def _distribute(
        self,
        levels: list[int],
        at: int,
        rows: Ints,
        sums: dict[int, Ints],
        capacity: Ints,
        wanted: int,
        counts: Ints,
    ) -> None:
        """Distribute `wanted` pods over the domains or nodes of one domain, with slots `rows`."""
        if at == len(levels):
            self._distribute_to_hosts(rows, capacity, wanted, counts)
            return
        level = levels[at]
        unit = self.kind.rules.unit(level)
        bins = self._bins(level, len(capacity))[rows]
        domains, position = np.unique(bins, return_inverse=True)
        units = sums[level][domains] // unit
        preference = self.cluster.preference_weights(self.kind.needs)[rows]
        liked = np.bincount(position, weights=preference * capacity[rows])
        of_pod = (liked / np.maximum(np.bincount(position, weights=capacity[rows]), 1)).astype(
            np.int64
        )
        of_pod[domains >= self._domains(level)] = _LAST
        shares = self._choose(None, units, of_pod, wanted // unit)
        for index in np.flatnonzero(shares):
            inside = rows[position == index]
            self._distribute(
                levels, at + 1, inside, sums, capacity, int(shares[index]) * unit, counts
            )

    def _distribute_to_hosts(self, rows: Ints, capacity: Ints, wanted: int, counts: Ints) -> None:
        unit = self.kind.rules.unit(self.scope.depth)
        preference = self.cluster.preference_weights(self.kind.needs)[rows]
        counts[rows] = self._choose(rows, capacity[rows] // unit, preference, wanted // unit) * unit

    def _choose(self, rows: Ints | None, capacity: Ints, preference: Ints, wanted: int) -> Ints:
        needs = self.kind.needs
        return self.style.choose(Bins(self.cluster, needs, rows, capacity, preference, wanted))
