"""The cluster as arrays: one row a node, one column a resource, and what is taken.

The engine owns one `Cluster` and changes it with every fact; planners get a copy. Copies share
the static columns (labels, taints, allocatable, topology) until the owner writes them again.

Capacities are aggregates kept up to date: how many pods of a kind each node can take is counted
once, and after that only for the nodes whose usage changed since.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangsched.core.devices import Devices, Shared, share_milli
from gangsched.core.filters import clash
from gangsched.core.memory import Memory
from gangsched.core.model import (
    GPU,
    MILLI,
    Constraints,
    GangId,
    HostPort,
    NodeName,
    PodNeeds,
    Requests,
)
from gangsched.core.nodes import Ints, Mask, Nodes

Rows = Ints | slice


@dataclass(frozen=True, slots=True)
class Charge:
    """What one key holds on one node."""

    node: NodeName
    needs: PodNeeds
    holder: GangId | None
    devices: Devices = ()


class Cluster(Nodes):
    """Nodes, what is taken of them and by whom.

    `used` counts observed pods and reservations alike, each under its own key, so that nothing is
    counted twice. `holders` counts the members of each gang by slot, `shapes` pods by needs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used: Ints = np.zeros((0, len(self.resources)), dtype=np.int64)
        self.shared = Shared()
        self.exclusive: dict[GangId, tuple[str, int]] = {}
        self.holders: dict[int, dict[GangId, int]] = {}
        self.shapes: dict[PodNeeds, int] = {}
        self._memory = Memory()
        self._charges: dict[Hashable, Charge] = {}
        self._on_node: dict[NodeName, dict[Hashable, Charge]] = {}
        self._ports: dict[int, dict[HostPort, int]] = {}

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
            _charges={},
            _on_node={},
            # Their inner dicts are replaced, never written.
            _ports=dict(self._ports),
            holders=dict(self.holders),
            # Caches are filled while reading, and a planner may read in another thread.
            _eligible=dict(self._eligible),
            _still=dict(self._still),
            _vectors=dict(self._vectors),
            _memory=self._memory.copy(),
        )
        return other

    def _on_change(self) -> None:
        self._memory = Memory()

    def _on_grown(self, more: int) -> None:
        blank = np.zeros((more, self.used.shape[1]), dtype=np.int64)
        self.used = np.concatenate([self.used, blank])

    def _on_new_resource(self) -> None:
        blank = np.zeros((len(self.names), 1), dtype=np.int64)
        self.used = np.concatenate([self.used, blank], axis=1)

    def _on_arrival(self, row: int, name: NodeName) -> None:
        for key, charge in self._on_node.get(name, {}).items():
            self._charges[key] = self._on_node[name][key] = self._count_charge(row, charge)

    def _on_leaving(self, row: int) -> None:
        self.used[row] = 0
        self.shared.forget(row)
        self._ports.pop(row, None)
        self.holders.pop(row, None)

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
        if known is not None and known == Charge(node, needs, holder, devices or known.devices):
            return known.devices
        self.discharge(key)
        charge = Charge(node, needs, holder, devices)
        row = self.rows.get(node)
        if row is not None:
            charge = self._count_charge(row, charge)
        self._charges[key] = charge
        self._on_node.setdefault(node, {})[key] = charge
        self.shapes[needs] = self.shapes.get(needs, 0) + 1
        return charge.devices

    def _count_charge(self, row: int, charge: Charge) -> Charge:
        chosen = self.take(row, charge.needs, 1, charge.holder, charge.devices)
        devices = chosen[0] if chosen else ()
        return Charge(charge.node, charge.needs, charge.holder, devices)

    def discharge(self, key: Hashable) -> bool:
        """Give back what the key was charged; return whether there was anything."""
        charge = self._charges.pop(key, None)
        if charge is None:
            return False
        self.shapes[charge.needs] -= 1
        if not self.shapes[charge.needs]:
            del self.shapes[charge.needs]
        on_node = self._on_node[charge.node]
        del on_node[key]
        if not on_node:
            del self._on_node[charge.node]
        row = self.rows.get(charge.node)
        if row is not None:
            self.give(row, charge.needs, 1, charge.holder, (charge.devices,))
        return True

    def charged(self, key: Hashable) -> tuple[NodeName, PodNeeds] | None:
        """Return on which node a key is charged, and what."""
        charge = self._charges.get(key)
        return (charge.node, charge.needs) if charge is not None else None

    def rename(self, key: Hashable, other: Hashable) -> None:
        """Let another key, which was charged nothing, have what a key was charged."""
        charge = self._charges[other] = self._charges.pop(key)
        on_node = self._on_node[charge.node]
        del on_node[key]
        on_node[other] = charge

    def claim(self, gang: GangId, asked: Constraints) -> None:
        """Keep other gangs out of the domains of a gang that wants them for itself."""
        tree = self.tree(asked.topology)
        if asked.exclusive is None:
            return
        level = tree.topology.index(asked.exclusive) if tree is not None else 0
        if level is not None:
            self.exclusive[gang] = (asked.topology, level)

    def charges(self) -> dict[Hashable, Charge]:
        """Return every charge, for checkers."""
        return dict(self._charges)

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
            idle = int(self.allocatable[row, gpu] - self.used[row, gpu])
            on = devices or self.shared.choose(row, milli, needs.share.devices, idle)
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
        vector = self.vector(needs)  # first: a resource that no node has widens what is used
        self.used[row] += vector * times
        self._memory.touched.append(row)
        if needs.host_ports:
            ports = dict(self._ports.get(row, {}))
            for port in needs.host_ports:
                ports[port] = ports.get(port, 0) + times
            self._ports[row] = {port: n for port, n in ports.items() if n > 0}
        if holder is not None:
            held = dict(self.holders.get(row, {}))
            held[holder] = held.get(holder, 0) + times
            self.holders[row] = {gang: n for gang, n in held.items() if n > 0}

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
        self._memory = Memory()

    def put_used(self, rows: list[int], used: Ints) -> None:
        """Set what is used on some rows of a copy."""
        self.used[rows] = used
        self._memory.touched.extend(rows)

    def release(self, rows: Ints, amounts: Ints) -> None:
        """Give back amounts, shape (n, resources), on n rows of a copy in one go."""
        np.subtract.at(self.used, rows, amounts)
        self._memory.touched.extend(rows.tolist())

    @contextmanager
    def offering(self, changes: Mapping[NodeName, tuple[Requests, Requests]]) -> Iterator[None]:
        """Look at the cluster as if nodes offered other resources: (less, more) by node."""
        if not changes:
            yield
            return
        for requests in (part for change in changes.values() for part in change):
            for name, _ in requests:
                self._column(name)
        kept = self.allocatable
        self.allocatable = self.allocatable.copy()
        self._memory = Memory()
        for node, (less, more) in changes.items():
            for sign, requests in ((-1, less), (1, more)):
                for name, quantity in requests:
                    self.allocatable[self.rows[node], self._columns[name]] += sign * quantity
        try:
            yield
        finally:
            self._memory = Memory()
            self.allocatable = kept

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Look at the cluster as if nothing ran there."""
        names = ("used", "shared", "holders", "_ports", "_memory")
        kept = {name: getattr(self, name) for name in names}
        self.used = np.zeros_like(self.used)
        self.shared, self.holders, self._ports = Shared(), {}, {}
        self._memory = Memory()
        try:
            yield
        finally:
            if self.used.shape != kept["used"].shape:  # a resource nobody has was asked for
                more = self.used.shape[1] - kept["used"].shape[1]
                kept["used"] = np.pad(kept["used"], ((0, 0), (0, more)))
                kept["_memory"] = Memory()
            self.__dict__.update(kept)

    # -- questions ----------------------------------------------------------------------------

    def free(self) -> Ints:
        """Return what is free, shape (slots, resources); negative where a node shrank."""
        return self.allocatable - self.used

    def capacity(self, needs: PodNeeds) -> Ints:
        """Return how many more such pods each slot takes now, every filter included; read-only."""
        self.vector(needs)  # may bring a new resource, which empties the caches
        counts: Ints = self.known(needs, lambda rows: self.count(needs, rows, self.used[rows]))
        return counts

    def known(self, what: Hashable, find: Callable[[Rows], NDArray[Any]]) -> NDArray[Any]:
        """Return one value a slot, found once and then only where usage changed since; read-only.

        The value of a slot must depend on nothing else that changes.
        """
        return self._memory.recall(what, find)

    def capacity_when_empty(self, needs: PodNeeds) -> Ints:
        """Return how many such pods each slot would take if nothing else ran there."""
        self.vector(needs)
        return self.count(needs, slice(None), None)

    def count(self, needs: PodNeeds, rows: Rows, used: Ints | None) -> Ints:
        """Count from scratch; `used` None stands for an empty cluster."""
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
            shared = self.shared if used is not None else Shared()
            slots = np.arange(len(self.names))[rows]
            np.minimum(counts, shared.capacities(slots, idle, self.nodes, needs.share), out=counts)
        if needs.host_ports:  # two pods of one kind never share a host port
            free = self.ports_free(needs.host_ports)[rows] if used is not None else 1
            np.minimum(counts, free, out=counts)
        return counts

    def ports_free(self, ports: tuple[HostPort, ...]) -> Mask:
        """Return which slots have all these host ports free."""
        mask = np.ones(len(self.names), dtype=np.bool_)
        for row, taken in self._ports.items():
            if any(clash(port, other) for port in ports for other in taken):
                mask[row] = False
        return mask

    def fits(self, row: int, needs: PodNeeds) -> bool:
        """Tell whether one more pod fits on the row now, every filter included."""
        rows = np.array([row], dtype=np.int64)
        return bool(self.count(needs, rows, self.used[rows])[0])

    def overcommitted(self) -> list[NodeName]:
        """Return the nodes that hold more than they have."""
        bad = np.flatnonzero(np.any(self.used > self.allocatable, axis=1) & self.live)
        return [self.names[row] for row in bad]
