"""The cost of a placement: numbers that are compared from left to right."""

from enum import StrEnum

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.placement.constraints import ResolvedConstraints

Cost = tuple[int, ...]


class PlacementObjective(StrEnum):
    """The objectives to minimise, in the order in which a policy lists them.

    DOMAINS: how many domains of each level are used (the preferred level first, then the coarsest)
    and how many hosts. PREFERENCE: node preferences that are not met. LEFTOVER: how much of the
    gang's main resource was free in all the domains and hosts it touches, level by level summed;
    small means that large holes stay whole. FRAGMENTATION: growth of FGD's measure (ATC'23), in
    thousandths of a GPU.
    """

    DOMAINS = "domains"
    PREFERENCE = "preference"
    LEFTOVER = "leftover"
    FRAGMENTATION = "fragmentation"


DEFAULT = (PlacementObjective.DOMAINS, PlacementObjective.PREFERENCE, PlacementObjective.LEFTOVER)


def main_resource(needs: list[PodRequirements]) -> str:
    """Return the scarcest resource of a gang: GPUs, else its first extended resource, else CPU."""
    names = {name for pod in needs for name, _ in pod.requests}
    if GPU in names or any(pod.share is not None for pod in needs):
        return GPU
    extended = sorted(name for name in names if "/" in name)
    return extended[0] if extended else "cpu"


class PlacementCosts:
    """Computes the costs of placements of one gang; intermediate values are cached.

    `free` is the free amount of the main resource, shape (slots,), never negative. `around` is its
    sum over the domain of each slot at a level (of the slot alone if its domain is unknown).
    `growth` is the fragmentation that one pod of each class adds to each slot.
    """

    def __init__(
        self,
        cluster: Cluster,
        scope: ResolvedConstraints,
        needs: list[PodRequirements],
        objectives: tuple[PlacementObjective, ...] = DEFAULT,
        growth: list[Ints] | None = None,
    ) -> None:
        self.cluster = cluster
        self.scope = scope
        self.needs = needs
        self.objectives = objectives
        self.growth = growth
        self.main = main_resource(needs)
        self.free = _free(cluster, self.main)
        self._around: dict[int, Ints] = {}
        self._preference_weights: list[Ints] | None = None

    def around(self, level: int) -> Ints:
        """Return the free amount in the domain of each slot at a level."""
        free = self._around.get(level)
        if free is None:
            codes = self.scope.codes(level, len(self.free))
            known = codes != UNKNOWN
            sums = np.bincount(codes[known], weights=self.free[known]).astype(np.int64)
            free = self.free.copy()
            free[known] = sums[codes[known]]
            self._around[level] = free
        return free

    def preference_weights(self) -> list[Ints]:
        """Return the preference weight of each slot, for each class."""
        if self._preference_weights is None:
            self._preference_weights = [self.cluster.preference_weights(pod) for pod in self.needs]
        return self._preference_weights

    def cost(self, counts: list[Ints]) -> Cost:
        """Return the cost of the pods of each class on each slot."""
        used = np.flatnonzero(counts[0] if len(counts) == 1 else sum(counts))
        cost: list[int] = []
        for objective in self.objectives:
            match objective:
                case PlacementObjective.DOMAINS:
                    cost.extend(len(self._domains(level, used)) for level in self.scope.order)
                    cost.append(len(used))
                case PlacementObjective.PREFERENCE:
                    cost.append(-self._preference(counts))
                case PlacementObjective.LEFTOVER:
                    cost.append(self._leftover(used))
                case PlacementObjective.FRAGMENTATION:
                    pairs = zip(counts, self.growth or [], strict=False)
                    cost.append(sum(int((count * grows).sum()) for count, grows in pairs))
        return tuple(cost)

    def _domains(self, level: int, rows: Ints) -> Ints:
        """Return one slot of each used domain; a node without a domain is one of its own."""
        codes = self.scope.codes(level, len(self.free))[rows]
        codes = np.where(codes == UNKNOWN, -2 - rows, codes)
        _, first = np.unique(codes, return_index=True)
        return rows[first]

    def _preference(self, counts: list[Ints]) -> int:
        if not any(pod.preferred for pod in self.needs):
            return 0
        pairs = zip(counts, self.preference_weights(), strict=True)
        return sum(int((count * score).sum()) for count, score in pairs)

    def _leftover(self, rows: Ints) -> int:
        total = int(self.free[rows].sum())
        for level in range(self.scope.depth):
            total += int(self.around(level)[self._domains(level, rows)].sum())
        return total


def _free(cluster: Cluster, resource: str) -> Ints:
    if resource not in cluster.resources:
        return np.zeros(len(cluster.names), dtype=np.int64)
    column = cluster.resources.index(resource)
    free: Ints = np.maximum(cluster.allocatable[:, column] - cluster.used[:, column], 0)
    return free
