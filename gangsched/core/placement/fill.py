"""Filling a gang's roles into nodes, one kind of pod after another, minimum before surplus.

A placer brings one function, `Chooser`: given how many pods each node can take, how many go
where. Everything else (members alike are counted together, the hardest kind goes first, all or
the minimum or nothing, the refusal) is the same for every such placer and lives here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gangsched.core.cluster import Cluster, Ints
from gangsched.core.model import Member, NodeName, PodName, PodNeeds, Waiting
from gangsched.core.placement.capacity import capacity, preference
from gangsched.core.placement.explain import explain
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot, Trial

Chooser = Callable[[Cluster, PodNeeds, Ints, Ints, int], Ints]
"""`(cluster, needs, capacity, preference, wanted) -> count per slot`, summing to `wanted`."""

Kind = tuple[str, PodNeeds]


def fill(waiting: Waiting, snapshot: Snapshot, choose: Chooser) -> Placement | Refusal:
    """Place every member if possible, else as many as fit above the minimum, else refuse.

    A gang of one kind is counted exactly: a refusal is then a proof. With several kinds the
    kinds are filled hardest first, which may miss a placement that exists; the refusal says so.
    """
    kinds = _by_kind(waiting.members)
    everything = {kind: len(members) for kind, members in kinds.items()}
    chosen = _fill_counts(waiting, snapshot, everything, choose)
    if chosen is None and waiting.minimum < len(waiting.members):
        chosen = _fill_counts(waiting, snapshot, _minimum(waiting, kinds), choose, everything)
    if chosen is None:
        return explain(waiting, snapshot.cluster, _minimum(waiting, kinds))
    nodes: list[tuple[PodName, NodeName]] = []
    for kind, members in kinds.items():
        rows = chosen[kind]
        nodes.extend(
            (member.name, snapshot.cluster.names[row])
            for member, row in zip(members, rows, strict=False)
        )
    return Placement(tuple(nodes))


def _by_kind(members: tuple[Member, ...]) -> dict[Kind, list[Member]]:
    kinds: dict[Kind, list[Member]] = {}
    for member in members:
        kinds.setdefault((member.role, member.needs), []).append(member)
    return kinds


def _minimum(waiting: Waiting, kinds: dict[Kind, list[Member]]) -> dict[Kind, int]:
    """Return how many of each kind make the smallest gang that may start."""
    left = waiting.minimum
    wanted = dict.fromkeys(kinds, 0)
    for role, minimum in waiting.role_minimum:
        for kind, members in kinds.items():
            if kind[0] == role:
                take = min(minimum, len(members))
                wanted[kind] += take
                minimum -= take  # noqa: PLW2901 -- the rest comes from the role's other kinds
                left -= take
    for kind, members in kinds.items():
        more = min(max(left, 0), len(members) - wanted[kind])
        wanted[kind] += more
        left -= more
    return wanted


def _fill_counts(
    waiting: Waiting,
    snapshot: Snapshot,
    wanted: dict[Kind, int],
    choose: Chooser,
    at_most: dict[Kind, int] | None = None,
) -> dict[Kind, list[int]] | None:
    """Return the slot of each pod of each kind, or None when `wanted` does not fit.

    With `at_most`, surplus pods are added while there is room.
    """
    with snapshot.trial() as trial:
        filling = _Filling(waiting, snapshot.cluster, trial, choose)
        rows: dict[Kind, list[int]] = {kind: [] for kind in wanted}
        for kind in _hardest_first(wanted, snapshot.cluster, waiting.avoid):
            if not filling.add(rows[kind], kind, wanted[kind]):
                return None
        for kind, most in (at_most or {}).items():
            more = min(most - wanted[kind], int(filling.room(kind).sum()))
            filling.add(rows[kind], kind, more)
        return rows


def _hardest_first(
    wanted: dict[Kind, int], cluster: Cluster, avoid: tuple[NodeName, ...]
) -> list[Kind]:
    """Order kinds by how much of their own capacity they would use up."""
    if len(wanted) == 1:
        return list(wanted)

    def slack(kind: Kind) -> float:
        total = int(capacity(cluster, kind[1], avoid).sum())
        return total / max(wanted[kind], 1)

    return sorted(wanted, key=slack)


@dataclass(slots=True)
class _Filling:
    """One attempt: what it may use, and how many members each slot holds so far."""

    waiting: Waiting
    cluster: Cluster
    trial: Trial
    choose: Chooser
    _members: Ints | None = None

    def room(self, kind: Kind) -> Ints:
        """Return how many more pods of a kind each slot may take."""
        count = capacity(self.cluster, kind[1], self.waiting.avoid)
        if self.waiting.most_per_node is not None:
            held = self._members if self._members is not None else np.zeros_like(count)
            count = np.clip(self.waiting.most_per_node - held, 0, count)
        return count

    def add(self, rows: list[int], kind: Kind, wanted: int) -> bool:
        """Fill `wanted` pods of a kind in, appending the slot of each to `rows`."""
        if wanted <= 0:
            return True
        room = self.room(kind)
        if int(room.sum()) < wanted:
            return False
        needs = kind[1]
        counts = self.choose(self.cluster, needs, room, preference(self.cluster, needs), wanted)
        self._members = counts if self._members is None else self._members + counts
        for row in np.flatnonzero(counts):
            times = int(counts[row])
            self.trial.take(int(row), needs, times)
            rows.extend([int(row)] * times)
        return True
