"""The cluster as arrays: one row a node, one column a resource, and what is taken.

The engine owns one `Cluster` and changes it with every fact; planners get a copy. Copies share
the static columns (labels, taints, allocatable, topology) until the owner writes them again.

Capacities are aggregates kept up to date: how many pods of a kind each node can take is counted
once, and after that only for the nodes whose usage changed since.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangsched.core.bounds import PODS_OF_NODE
from gangsched.core.cluster.charges import Charge, Charges
from gangsched.core.cluster.gpu_sharing import Devices, SharedGpus, share_milli
from gangsched.core.cluster.node_filters import clash
from gangsched.core.cluster.node_table import Ints, NodeTable
from gangsched.core.cluster.row_cache import RowCache
from gangsched.core.cluster.row_counts import RowCounts
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.pods import GPU, MILLI, HostPort, PodNeeds, Requests

Rows = Ints | slice


class Cluster(NodeTable):
    """Nodes, what is taken of them and by whom.

    `used` counts observed pods and reservations alike, each under its own key, so that nothing is
    counted twice. `holders` counts the members of each gang by slot, `shapes` pods by needs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used: Ints = np.zeros((0, len(self.resources)), dtype=np.int64)
        self.shared = SharedGpus()
        self.exclusive: dict[GangId, tuple[str, int]] = {}
        self.holders: RowCounts[GangId] = RowCounts()
        self.shapes: dict[PodNeeds, int] = {}
        self._memory = RowCache()
        self._charges = Charges()
        self._ports: RowCounts[HostPort] = RowCounts()
        # Taken on a row of resources that no node has: they may get their columns yet.
        self._unnamed: RowCounts[str] = RowCounts()

    # -- copies -------------------------------------------------------------------------------

    def copy(self) -> "Cluster":
        """Return a copy whose usage may be changed freely; it knows nothing of charges."""
        self._static_shared = True
        other = Cluster.__new__(Cluster)
        other.__dict__.update(
            self.__dict__,
            used=self.used.copy(),
            shared=self.shared.copy(),
            exclusive=dict(self.exclusive),
            shapes=dict(self.shapes),
            filters=self.filters.reader(),
            _charges=Charges(),
            _ports=self._ports.copy(),
            _unnamed=self._unnamed.copy(),
            holders=self.holders.copy(),
            # Caches are filled while reading, and a planner may read in another thread.
            _eligible=dict(self._eligible),
            _still=dict(self._still),
            _vectors=dict(self._vectors),
            _memory=self._memory.copy(),
        )
        return other

    def _on_change(self) -> None:
        self._memory = RowCache()

    def _on_grown(self, more: int) -> None:
        blank = np.zeros((more, self.used.shape[1]), dtype=np.int64)
        self.used = np.concatenate([self.used, blank])

    def _on_new_resource(self, name: str) -> None:
        taken = np.zeros((len(self.names), 1), dtype=np.int64)
        for row, there in self._unnamed.items():
            if name in there:
                taken[row] = there[name]
                self._unnamed[row] = {one: n for one, n in there.items() if one != name}
        self.used = np.concatenate([self.used, taken], axis=1)

    def _on_dropping(self, names: list[str]) -> None:
        for name in names:
            column = self.used[:, self._columns[name]]
            for row in np.flatnonzero(column).tolist():
                self._unnamed[row] = {**self._unnamed.get(row, {}), name: int(column[row])}

    def _on_kept(self, columns: list[int]) -> None:
        self.used = self.used[:, columns]

    def _on_arrival(self, row: int, name: NodeName) -> None:
        for key, charge in self._charges.on(name):
            self._charges.settle(key, name)
            self._charges.keep(key, self._count_charge(row, key, charge))

    def _on_leaving(self, row: int) -> None:
        self.used[row] = 0
        self.shared.forget(row)
        self._ports.pop(row, None)
        self.holders.pop(row, None)
        self._unnamed.pop(row, None)

    # -- usage --------------------------------------------------------------------------------

    def charge(
        self,
        key: Hashable,
        node: NodeName,
        needs: PodNeeds,
        holder: GangId | None = None,
        devices: Devices = (),
    ) -> Devices:
        """Count `needs` against `node` under `key`, in place of what the key was charged before.

        `holder` is the gang it is for. Returns the GPUs chosen for a share.
        """
        known = self._charges.get(key)
        if known is not None and (known.node, known.needs, known.holder) == (node, needs, holder):
            return known.devices  # chosen once, whatever is said of them later
        self.discharge(key)
        charge = Charge(node, needs, holder, devices)
        row = self.rows.get(node)
        if row is not None:
            charge = self._count_charge(row, key, charge)
        self._charges.keep(key, charge)
        self.shapes[needs] = self.shapes.get(needs, 0) + 1
        return charge.devices

    def _count_charge(self, row: int, key: Hashable, charge: Charge) -> Charge:
        if self.used[row, 0] >= PODS_OF_NODE.most:  # nobody else fits there: it may wait
            self._charges.wait(key, charge.node)
            return replace(charge, devices=())
        gpus, share = int(self.allocatable[row, self._columns[GPU]]), charge.needs.share
        believed = share is not None and self.shared.believes(
            row, share_milli(self.nodes[row], share) or MILLI, charge.devices, share.devices, gpus
        )
        devices = charge.devices if believed else ()
        chosen = self.take(row, charge.needs, 1, charge.holder, devices)
        return replace(charge, devices=chosen[0] if chosen else ())

    def discharge(self, key: Hashable) -> bool:
        """Give back what the key was charged; return whether there was anything."""
        charge = self._charges.get(key)
        if charge is None:
            return False
        self._charges.drop(key)
        self.shapes[charge.needs] -= 1
        if not self.shapes[charge.needs]:
            del self.shapes[charge.needs]
        row, node = self.rows.get(charge.node), charge.node
        if self._charges.settle(key, node) or row is None:
            return True
        self.give(row, charge.needs, 1, charge.holder, (charge.devices,))
        other = self._charges.next(node)
        waiting = self._charges.get(other) if other is not None else None
        if waiting is not None:
            self._charges.settle(other, node)
            self._charges.keep(other, self._count_charge(row, other, waiting))
        return True

    def charged(self, key: Hashable) -> tuple[NodeName, PodNeeds] | None:
        """Return on which node a key is charged, and what."""
        charge = self._charges.get(key)
        return (charge.node, charge.needs) if charge is not None else None

    def sharing(self, node: NodeName) -> dict[Hashable, Devices]:
        """Return who shares which GPUs of a node."""
        return {key: charge.devices for key, charge in self._charges.on(node) if charge.devices}

    def rename(self, key: Hashable, other: Hashable) -> None:
        """Let another key, which was charged nothing, have what a key was charged."""
        self._charges.rename(key, other)

    def claim(self, gang: GangId, asked: Constraints) -> None:
        """Keep other gangs out of the domains of a gang that wants them for itself."""
        level = self.level(asked.topology, asked.exclusive) if asked.exclusive else None
        if level is None:
            self.exclusive.pop(gang, None)
        else:
            self.exclusive[gang] = (asked.topology, level)

    def charges(self) -> dict[Hashable, Charge]:
        """Return every charge, for checkers."""
        return self._charges.all()

    def take(
        self,
        row: int,
        needs: PodNeeds,
        times: int = 1,
        holder: GangId | None = None,
        devices: Devices = (),
    ) -> tuple[Devices, ...]:
        """Count `times` pods of these needs on a row (also used to try things out on a copy).

        Returns the GPUs each of them shares; nothing for needs without a share.
        """
        self._count(row, needs, times, holder)
        if needs.share is None:
            return ()
        milli = share_milli(self.nodes[row], needs.share) or MILLI
        gpu = self._columns[GPU]
        chosen = []
        for _ in range(times):
            gpus = int(self.allocatable[row, gpu])
            idle = gpus - int(self.used[row, gpu])
            on = devices or self.shared.choose(row, milli, needs.share.devices, idle, gpus)
            self.used[row, gpu] += self.shared.take(row, milli, on)
            chosen.append(on)
        return tuple(chosen)

    def give(
        self,
        row: int,
        needs: PodNeeds,
        times: int = 1,
        holder: GangId | None = None,
        devices: tuple[Devices, ...] = (),
    ) -> None:
        """Undo `take`, which told the devices."""
        self._count(row, needs, -times, holder)
        if needs.share is not None:
            milli = share_milli(self.nodes[row], needs.share) or MILLI
            for on in devices:
                self.used[row, self._columns[GPU]] -= self.shared.give(row, milli, on)

    def _count(self, row: int, needs: PodNeeds, times: int, holder: GangId | None) -> None:
        vector, unknown = self._asked(needs)
        self.used[row] += vector * times
        self._memory.touched.append(row)
        if unknown:
            self._unnamed.add(row, unknown, times)
        if needs.host_ports:
            self._ports.add(row, ((port, 1) for port in needs.host_ports), times)
        if holder is not None:
            self.holders.add(row, ((holder, 1),), times)

    def gpu_model(self, row: int) -> str:
        """Return the GPU product of a row's node, "" where it is not known."""
        node = self.nodes[row]
        return node.gpu_model if node is not None else ""

    def footprint(self, needs: PodNeeds, sign: int = 1) -> Ints:
        """Return what a pod takes in whole amounts.

        A share is believed to take its GPUs for itself, and to leave them in use when it goes.
        """
        vector = self.vector(needs)
        if needs.share is not None and sign > 0:
            vector = vector.copy()
            vector[self._columns[GPU]] += needs.share.devices
        return vector

    def with_used(self, used: Ints) -> "Cluster":
        """Return a copy in which something else is used."""
        other = self.copy()
        other.used = used
        other.forget_counts()
        return other

    def forget_counts(self) -> None:
        """Count anew: usage changed in ways that were not noted row by row."""
        self._memory = RowCache()

    def mirror(self, other: "Cluster", rows: list[int], used: Ints) -> None:
        """Take over from another cluster what stands on some rows; set what is used there."""
        self.used[rows] = used
        self.shared.follow(other.shared, rows)
        self.holders.mirror(other.holders, rows)
        self._ports.mirror(other._ports, rows)  # noqa: SLF001
        self._unnamed.mirror(other._unnamed, rows)  # noqa: SLF001
        self.exclusive = dict(other.exclusive)
        self._memory.touched.extend(rows)

    def release(self, rows: Ints, amounts: Ints) -> None:
        """Give back amounts, shape (n, resources), on n rows of a copy in one go."""
        np.subtract.at(self.used, rows, amounts)
        self._memory.touched.extend(rows.tolist())

    @contextmanager
    def offering(self, changes: Mapping[NodeName, tuple[Requests, Requests]]) -> Iterator[None]:
        """Look at the cluster as if nodes offered other resources: (less, more) by node.

        A resource that no node has gets its column for that time alone.
        """
        if not changes:
            yield
            return
        asked = {name for change in changes.values() for part in change for name, _ in part}
        blank = asked.difference(self._columns)
        for name in sorted(blank):
            self._column(name)
        kept = self.allocatable
        self.allocatable = self.allocatable.copy()
        self._memory = RowCache()
        for node, (less, more) in changes.items():
            for sign, requests in ((-1, less), (1, more)):
                for name, quantity in requests:
                    self.allocatable[self.rows[node], self._columns[name]] += sign * quantity
        try:
            yield
        finally:
            self._memory = RowCache()
            self.allocatable = kept
            if blank:
                self._drop(blank)

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Look at the cluster as if nothing ran there."""
        names = ("used", "shared", "holders", "_ports", "_unnamed", "_memory")
        kept = {name: getattr(self, name) for name in names}
        self.used = np.zeros_like(self.used)
        self.shared, self.holders = SharedGpus(), RowCounts()
        self._ports, self._unnamed = RowCounts(), RowCounts()
        self._memory = RowCache()
        try:
            yield
        finally:
            self.__dict__.update(kept)

    # -- questions ----------------------------------------------------------------------------

    def free(self) -> Ints:
        """Return what is free, shape (slots, resources); negative where a node shrank."""
        return self.allocatable - self.used

    def capacity(self, needs: PodNeeds) -> Ints:
        """Return how many more such pods each slot takes now, every filter included; read-only."""
        counts: Ints = self.known(needs, lambda rows: self.count(needs, rows, self.used[rows]))
        return counts

    def known(self, what: Hashable, find: Callable[[Rows], NDArray[Any]]) -> NDArray[Any]:
        """Return one value a slot, found once and then only where usage changed since; read-only.

        The value of a slot must depend on nothing else that changes.
        """
        return self._memory.recall(what, find)

    def capacity_when_empty(self, needs: PodNeeds) -> Ints:
        """Return how many such pods each slot would take if nothing else ran there."""
        return self.count(needs, slice(None), None)

    def count(self, needs: PodNeeds, rows: Rows, used: Ints | None) -> Ints:
        """Count from scratch; `used` None stands for an empty cluster."""
        if self.unknown(needs):
            return np.zeros(len(self.live[rows]), dtype=np.int64)
        vector = self.vector(needs)
        columns = np.flatnonzero(vector)
        room = self.allocatable[rows][:, columns]
        if used is not None:
            room = room - used[:, columns]
        counts: Ints = np.min(room // vector[columns], axis=1)
        np.maximum(counts, 0, out=counts)
        counts[~self.eligible(needs)[rows]] = 0
        if needs.share is not None:
            gpu = self._columns[GPU]
            idle = self.allocatable[rows][:, gpu] - (used[:, gpu] if used is not None else 0)
            shared = self.shared if used is not None else SharedGpus()
            slots = np.arange(len(self.names))[rows]
            np.minimum(counts, shared.capacities(slots, idle, self.nodes, needs.share), out=counts)
        if needs.host_ports:  # two pods of one kind never share a host port
            np.minimum(counts, 1, out=counts)
            slots = np.arange(len(self.names))[rows].tolist() if used is not None else []
            for at, row in enumerate(slots):
                if row in self._ports and clash(needs.host_ports, self._ports[row]):
                    counts[at] = 0
        return counts

    def fits(self, row: int, needs: PodNeeds) -> bool:
        """Tell whether one more pod fits on the row now, every filter included."""
        rows = np.array([row], dtype=np.int64)
        return bool(self.count(needs, rows, self.used[rows])[0])

    def overcommitted(self) -> list[NodeName]:
        """Return the nodes that hold more than they have."""
        bad = np.flatnonzero(np.any(self.used > self.allocatable, axis=1) & self.live)
        return [self.names[row] for row in bad]
