"""One kind of pod going down the tree of domains: capacity is summed up, shares are handed down."""

from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.placement.choosers import BinChooser, Bins, fewest_bins
from gangsched.core.placement.constraints import ResolvedConstraints
from gangsched.core.placement.demand import PodClass

_LAST = -(10**9)
"""Preference of nodes at an unknown place in the topology."""


@dataclass(frozen=True, slots=True)
class FillStrategy:
    """How a placer fills: its chooser, and whether it goes down the tree level by level.

    Without `descend` only levels that constraints name are looked at.
    """

    choose: BinChooser
    descend: bool = False


TOPOLOGY_FILL = FillStrategy(fewest_bins, descend=True)
"""How the planner asks whether a gang fits at all, whatever placer is configured."""


@dataclass(slots=True)
class TreeFill:
    """One kind of pod going down the tree: capacity is summed up, then shares are handed down."""

    cluster: Cluster
    scope: ResolvedConstraints
    style: FillStrategy
    kind: PodClass
    members: Ints

    def fill(self, room: Ints, wanted: int) -> Ints | None:
        """Return counts per slot that sum to `wanted`, or None when they do not fit."""
        levels = self._levels()
        room = self._capped(room)
        if not levels:  # only nodes: the common case, kept short
            if int(room.sum()) < wanted:
                return None
            counts = np.zeros(len(room), dtype=np.int64)
            self._distribute_to_hosts(np.flatnonzero(room), room, wanted, counts)
            return counts
        sums = self._sums(room, levels)
        if int(sums[levels[0]].sum()) < wanted:
            return None
        counts = np.zeros(len(room), dtype=np.int64)
        self._distribute(levels, 0, np.flatnonzero(room), sums, room, wanted, counts)
        return counts

    def capacities(self, room: Ints, level: int) -> Ints:
        """Return how many pods each domain of a level takes, whole slices and spread counted."""
        levels = sorted({*self._levels(), level} - {self.scope.depth})
        room = self._capped(room)
        if level >= self.scope.depth:
            return room
        return self._sums(room, levels)[level]

    def _levels(self) -> list[int]:
        depth = self.scope.depth
        levels = set(range(depth)) if self.style.descend else set()
        levels.update(at for at, _ in self.kind.rules.slices)
        levels.update(self.scope.spread)
        return sorted(level for level in levels if level < depth)

    def _capped(self, room: Ints) -> Ints:
        """Apply spread and slices that name the host itself."""
        host = self.scope.depth
        if host in self.scope.spread:
            room = np.clip(self.scope.spread[host] - self.members, 0, room)
        unit = self.kind.rules.unit(host)
        return room // unit * unit if unit > 1 else room

    def _sums(self, room: Ints, levels: list[int]) -> dict[int, Ints]:
        """Return the capacity of each bin by level.

        Each level is summed from the next finer one, after that was cut to whole slices.
        """
        slots = len(room)
        sums: dict[int, Ints] = {}
        finer, finer_codes = room, np.arange(slots, dtype=np.int64)
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
        """Return the bin of each slot: its domain, or a bin of its own where that is unknown."""
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
        room: Ints,
        wanted: int,
        counts: Ints,
    ) -> None:
        """Give `wanted` pods to the domains (or nodes) under one domain, with slots `rows`."""
        if at == len(levels):
            self._distribute_to_hosts(rows, room, wanted, counts)
            return
        level = levels[at]
        unit = self.kind.rules.unit(level)
        bins = self._bins(level, len(room))[rows]
        domains, position = np.unique(bins, return_inverse=True)
        units = sums[level][domains] // unit
        preference = self.cluster.preference_weights(self.kind.needs)[rows]
        liked = np.bincount(position, weights=preference * room[rows])
        of_pod = (liked / np.maximum(np.bincount(position, weights=room[rows]), 1)).astype(np.int64)
        of_pod[domains >= self._domains(level)] = _LAST
        shares = self._choose(None, units, of_pod, wanted // unit)
        for index in np.flatnonzero(shares):
            inside = rows[position == index]
            self._distribute(levels, at + 1, inside, sums, room, int(shares[index]) * unit, counts)

    def _distribute_to_hosts(self, rows: Ints, room: Ints, wanted: int, counts: Ints) -> None:
        unit = self.kind.rules.unit(self.scope.depth)
        preference = self.cluster.preference_weights(self.kind.needs)[rows]
        counts[rows] = self._choose(rows, room[rows] // unit, preference, wanted // unit) * unit

    def _choose(self, rows: Ints | None, room: Ints, preference: Ints, wanted: int) -> Ints:
        needs = self.kind.needs
        return self.style.choose(Bins(self.cluster, needs, rows, room, preference, wanted))
