"""The free capacity once running gangs have ended: counted if that is exact, else on a copy."""

from dataclasses import replace

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.placement.fill import is_exactly_countable, is_feasible
from gangsched.core.policy import PreemptionRequest
from gangsched.core.preemption.victim_options import VictimOption
from gangsched.core.snapshot import Snapshot
from gangsched.core.what_if import remove_pods


class FreedCapacity:
    """The free capacity for one request once the gangs of some options have ended."""

    def __init__(self, request: PreemptionRequest) -> None:
        self._waiting = request.waiting
        self._snapshot = request.snapshot
        self._frees: dict[int, tuple[Ints, Ints] | None] = {}
        self._countable = is_exactly_countable(self._waiting)

    def fits(self, gone: list[VictimOption]) -> bool:
        """Return whether the gang fits once these options are preempted."""
        freed = self._released(gone) if self._countable else None
        if freed is None:
            return is_feasible(self._waiting, self.without(gone))
        cluster, (needs,) = self._snapshot.cluster, self._waiting.pod_classes
        rows, amounts = freed
        kept = cluster.used[rows]
        np.subtract.at(cluster.used, rows, amounts)
        touched = np.unique(rows)
        then = cluster.count(needs, touched, cluster.used[touched])
        cluster.used[rows] = kept
        now = cluster.capacity(needs)
        return int(now.sum() - now[touched].sum() + then.sum()) >= self._waiting.members_min

    def without(self, gone: list[VictimOption]) -> Snapshot:
        """Return the snapshot without the pods of these options."""
        cluster, freed = self._snapshot.cluster.copy(), self._released(gone)
        if freed is not None:
            cluster.subtract_used(*freed)
            return replace(self._snapshot, cluster=cluster)
        for option in gone:
            remove_pods(cluster, option.candidate.running.gang.id, option.places)
        return replace(self._snapshot, cluster=cluster)

    def _released(self, gone: list[VictimOption]) -> tuple[Ints, Ints] | None:
        """Return rows and the amounts that come free there, shapes (n,) and (n, resources).

        Return None if amounts are not enough: for shared GPUs, host ports, or exclusive domains.
        """
        cluster = self._snapshot.cluster
        if cluster.exclusive_domains:
            return None
        rows = [np.zeros(0, dtype=np.int64)]
        amounts = [np.zeros((0, len(cluster.resources)), dtype=np.int64)]
        for option in gone:
            freed = self._released_by(option)
            if freed is None:
                return None
            rows.append(freed[0])
            amounts.append(freed[1])
        return np.concatenate(rows), np.concatenate(amounts)

    def _released_by(self, option: VictimOption) -> tuple[Ints, Ints] | None:
        if id(option) not in self._frees:
            cluster = self._snapshot.cluster
            if any(p.needs.share is not None or p.needs.host_ports for p in option.places):
                self._frees[id(option)] = None
                return None
            there = [
                (cluster.rows[p.node], p.needs) for p in option.places if p.node in cluster.rows
            ]
            rows = np.array([row for row, _ in there], dtype=np.int64)
            amounts = np.zeros((len(there), len(cluster.resources)), dtype=np.int64)
            for at, (_, needs) in enumerate(there):
                amounts[at] = cluster.request_vector(needs)
            self._frees[id(option)] = rows, amounts
        return self._frees[id(option)]
