"""The cluster as arrays: one row per node, one column per resource, and the usage.

The engine owns one `Cluster` and changes it with every fact; planners get a copy. Copies share
the static columns (labels, taints, allocatable, topology) until the owner writes them again.

Capacities are aggregates kept up to date: how many pods of a kind each node can take is counted
once, and after that only for the nodes with changed usage.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gangsched.core.bounds import PODS_OF_NODE
from gangsched.core.cluster.gpu_sharing import Devices, SharedGpus, share_milli
from gangsched.core.cluster.node_allocations import NodeAllocation, NodeAllocations
from gangsched.core.cluster.node_filters import clash
from gangsched.core.cluster.node_table import Ints, NodeTable
from gangsched.core.cluster.row_cache import RowCache
from gangsched.core.cluster.row_counts import RowCounts
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.pods import GPU, MILLI, HostPort, PodRequirements, Requests
from gangsched.core.renamed import RenamedAttribute

Rows = Ints | slice


class Cluster(NodeTable):
    """The nodes, their usage, and the gangs on them.

    `used` counts both observed pods and reservations, each under its own key, so that nothing is
    counted twice. `gangs_by_row` counts the members of each gang on each row.
    """

    if not TYPE_CHECKING:  # a type checker refuses the old names
        take = RenamedAttribute("add_pods")
        give = RenamedAttribute("remove_pods")

    def __init__(self) -> None:
        super().__init__()
        self.used: Ints = np.zeros((0, len(self.resources)), dtype=np.int64)
        self.shared = SharedGpus()
        self.exclusive_domains: dict[GangId, tuple[str, int]] = {}
        self.gangs_by_row: RowCounts[GangId] = RowCounts()
        self.pods_by_needs: dict[PodRequirements, int] = {}
        self._row_cache = RowCache()
        self._allocations = NodeAllocations()
        self._ports: RowCounts[HostPort] = RowCounts()
        # Taken on a row of resources that no node has: they may get their columns yet.
        self._columnless: RowCounts[str] = RowCounts()

    # -- copies -------------------------------------------------------------------------------

    def copy(self) -> "Cluster":
        """Return a copy without charges; its usage may be changed freely."""
        self._static_shared = True
        other = Cluster.__new__(Cluster)
        other.__dict__.update(
            self.__dict__,
            used=self.used.copy(),
            shared=self.shared.copy(),
            exclusive_domains=dict(self.exclusive_domains),
            pods_by_needs=dict(self.pods_by_needs),
            filters=self.filters.read_copy(),
            _allocations=NodeAllocations(),
            _ports=self._ports.copy(),
            _columnless=self._columnless.copy(),
            gangs_by_row=self.gangs_by_row.copy(),
            # Caches are filled while reading, and a planner may read in another thread.
            _eligible=dict(self._eligible),
            _node_cache=dict(self._node_cache),
            _vectors=dict(self._vectors),
            _row_cache=self._row_cache.copy(),
        )
        return other

    def _on_change(self) -> None:
        self._row_cache = RowCache()

    def _on_grown(self, more: int) -> None:
        blank = np.zeros((more, self.used.shape[1]), dtype=np.int64)
        self.used = np.concatenate([self.used, blank])

    def _on_new_resource(self, name: str) -> None:
        taken = np.zeros((len(self.names), 1), dtype=np.int64)
        for row, there in self._columnless.items():
            if name in there:
                taken[row] = there[name]
                self._columnless[row] = {other: n for other, n in there.items() if other != name}
        self.used = np.concatenate([self.used, taken], axis=1)

    def _on_dropping(self, names: list[str]) -> None:
        for name in names:
            column = self.used[:, self._columns[name]]
            for row in np.flatnonzero(column).tolist():
                self._columnless[row] = {**self._columnless.get(row, {}), name: int(column[row])}

    def _on_columns_kept(self, columns: list[int]) -> None:
        self.used = self.used[:, columns]

    def _on_arrival(self, row: int, name: NodeName) -> None:
        for key, charge in self._allocations.on(name):
            self._allocations.end_deferral(key, name)
            self._allocations.put(key, self._count_allocation(row, key, charge))

    def _on_departure(self, row: int) -> None:
        self.used[row] = 0
        self.shared.forget(row)
        self._ports.pop(row, None)
        self.gangs_by_row.pop(row, None)
        self._columnless.pop(row, None)

    # -- usage --------------------------------------------------------------------------------

    def allocate(
        self,
        key: Hashable,
        node: NodeName,
        needs: PodRequirements,
        holder: GangId | None = None,
        devices: Devices = (),
    ) -> Devices:
        """Charge `needs` to `node` under `key`, in place of the previous charge of the key.

        `holder` is the gang it is for. Returns the GPUs chosen for a share.
        """
        known = self._allocations.get(key)
        if known is not None and (known.node, known.needs, known.holder) == (node, needs, holder):
            return known.devices  # chosen once, whatever later facts report
        self.release(key)
        charge = NodeAllocation(node, needs, holder, devices)
        row = self.rows.get(node)
        if row is not None:
            charge = self._count_allocation(row, key, charge)
        self._allocations.put(key, charge)
        self.pods_by_needs[needs] = self.pods_by_needs.get(needs, 0) + 1
        return charge.devices

    def _count_allocation(self, row: int, key: Hashable, charge: NodeAllocation) -> NodeAllocation:
        if self.used[row, 0] >= PODS_OF_NODE.most:  # no other pod fits there: it may wait
            self._allocations.defer(key, charge.node)
            return replace(charge, devices=())
        gpus, share = int(self.allocatable[row, self._columns[GPU]]), charge.needs.share
        believed = share is not None and self.shared.can_hold(
            row, share_milli(self.nodes[row], share) or MILLI, charge.devices, share.devices, gpus
        )
        devices = charge.devices if believed else ()
        chosen = self.add_pods(row, charge.needs, 1, charge.holder, devices)
        return replace(charge, devices=chosen[0] if chosen else ())

    def release(self, key: Hashable) -> bool:
        """Release the charge of a key; return whether there was one."""
        charge = self._allocations.get(key)
        if charge is None:
            return False
        self._allocations.remove(key)
        self.pods_by_needs[charge.needs] -= 1
        if not self.pods_by_needs[charge.needs]:
            del self.pods_by_needs[charge.needs]
        row, node = self.rows.get(charge.node), charge.node
        if self._allocations.end_deferral(key, node) or row is None:
            return True
        self.remove_pods(row, charge.needs, 1, charge.holder, (charge.devices,))
        other = self._allocations.first_deferred(node)
        waiting = self._allocations.get(other) if other is not None else None
        if waiting is not None:
            self._allocations.end_deferral(other, node)
            self._allocations.put(other, self._count_allocation(row, other, waiting))
        return True

    def allocated(self, key: Hashable) -> tuple[NodeName, PodRequirements] | None:
        """Return the node and the requirements that a key is charged for, or None."""
        charge = self._allocations.get(key)
        return (charge.node, charge.needs) if charge is not None else None

    def shared_devices(self, node: NodeName) -> dict[Hashable, Devices]:
        """Return the pods that share GPUs of a node, with these GPUs."""
        return {key: charge.devices for key, charge in self._allocations.on(node) if charge.devices}

    def rekey(self, key: Hashable, other: Hashable) -> None:
        """Move the charge of a key to another key, which has none."""
        self._allocations.rekey(key, other)

    def set_exclusive_domains(self, gang: GangId, asked: Constraints) -> None:
        """Reserve the domains of a gang for it alone, if its constraints require that."""
        level = self.level(asked.topology, asked.exclusive) if asked.exclusive else None
        if level is None:
            self.exclusive_domains.pop(gang, None)
        else:
            self.exclusive_domains[gang] = (asked.topology, level)

    def allocations(self) -> dict[Hashable, NodeAllocation]:
        """Return every charge, for checkers."""
        return self._allocations.all()

    def add_pods(
        self,
        row: int,
        needs: PodRequirements,
        times: int = 1,
        holder: GangId | None = None,
        devices: Devices = (),
    ) -> tuple[Devices, ...]:
        """Add `times` pods with these requirements to a row; trials do this on a copy.

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
            self.used[row, gpu] += self.shared.add_share(row, milli, on)
            chosen.append(on)
        return tuple(chosen)

    def remove_pods(
        self,
        row: int,
        needs: PodRequirements,
        times: int = 1,
        holder: GangId | None = None,
        devices: tuple[Devices, ...] = (),
    ) -> None:
        """Undo `add_pods`, which returned the devices."""
        self._count(row, needs, -times, holder)
        if needs.share is not None:
            milli = share_milli(self.nodes[row], needs.share) or MILLI
            for on in devices:
                self.used[row, self._columns[GPU]] -= self.shared.remove_share(row, milli, on)

    def _count(self, row: int, needs: PodRequirements, times: int, holder: GangId | None) -> None:
        vector, unknown = self._split_requests(needs)
        self.used[row] += vector * times
        self._row_cache.dirty_rows.append(row)
        if unknown:
            self._columnless.add(row, unknown, times)
        if needs.host_ports:
            self._ports.add(row, ((port, 1) for port in needs.host_ports), times)
        if holder is not None:
            self.gangs_by_row.add(row, ((holder, 1),), times)

    def gpu_model(self, row: int) -> str:
        """Return the GPU product of a row's node, "" where it is not known."""
        node = self.nodes[row]
        return node.gpu_model if node is not None else ""

    def whole_unit_requests(self, needs: PodRequirements, sign: int = 1) -> Ints:
        """Return the usage of a pod in whole amounts.

        A share is believed to take its GPUs for itself, and to leave them in use when it goes.
        """
        vector = self.request_vector(needs)
        if needs.share is not None and sign > 0:
            vector = vector.copy()
            vector[self._columns[GPU]] += needs.share.devices
        return vector

    def with_used(self, used: Ints) -> "Cluster":
        """Return a copy with another usage."""
        other = self.copy()
        other.used = used
        other.drop_cached_counts()
        return other

    def drop_cached_counts(self) -> None:
        """Drop cached values: usage changed without a note of the rows."""
        self._row_cache = RowCache()

    def mirror(self, other: "Cluster", rows: list[int], used: Ints) -> None:
        """Copy some rows from another cluster, and set their usage."""
        self.used[rows] = used
        self.shared.follow(other.shared, rows)
        self.gangs_by_row.mirror(other.gangs_by_row, rows)
        self._ports.mirror(other._ports, rows)  # noqa: SLF001
        self._columnless.mirror(other._columnless, rows)  # noqa: SLF001
        self.exclusive_domains = dict(other.exclusive_domains)
        self._row_cache.dirty_rows.extend(rows)

    def subtract_used(self, rows: Ints, amounts: Ints) -> None:
        """Release amounts, shape (n, resources), on n rows of a copy at once."""
        np.subtract.at(self.used, rows, amounts)
        self._row_cache.dirty_rows.extend(rows.tolist())

    @contextmanager
    def with_allocatable(
        self, changes: Mapping[NodeName, tuple[Requests, Requests]]
    ) -> Iterator[None]:
        """Show the cluster with other resources on nodes: (less, more) by node.

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
        self._row_cache = RowCache()
        for node, (less, more) in changes.items():
            for sign, requests in ((-1, less), (1, more)):
                for name, quantity in requests:
                    self.allocatable[self.rows[node], self._columns[name]] += sign * quantity
        try:
            yield
        finally:
            self._row_cache = RowCache()
            self.allocatable = kept
            if blank:
                self._drop(blank)

    @contextmanager
    def when_empty(self) -> Iterator[None]:
        """Show the cluster as if nothing ran."""
        names = ("used", "shared", "gangs_by_row", "_ports", "_columnless", "_row_cache")
        kept = {name: getattr(self, name) for name in names}
        self.used = np.zeros_like(self.used)
        self.shared, self.gangs_by_row = SharedGpus(), RowCounts()
        self._ports, self._columnless = RowCounts(), RowCounts()
        self._row_cache = RowCache()
        try:
            yield
        finally:
            self.__dict__.update(kept)

    # -- questions ----------------------------------------------------------------------------

    def free(self) -> Ints:
        """Return the free resources, shape (slots, resources); negative if a node shrank."""
        return self.allocatable - self.used

    def capacity(self, needs: PodRequirements) -> Ints:
        """Return how many more such pods each slot takes now, every filter included; read-only."""
        counts: Ints = self.usage_cached(
            needs, lambda rows: self.count(needs, rows, self.used[rows])
        )
        return counts

    def usage_cached(self, what: Hashable, find: Callable[[Rows], NDArray[Any]]) -> NDArray[Any]:
        """Return one value per slot, read-only; it is computed again only where usage changed.

        The value of a slot must depend on nothing else that changes.
        """
        return self._row_cache.get(what, find)

    def capacity_when_empty(self, needs: PodRequirements) -> Ints:
        """Return how many such pods each slot takes while nothing else runs there."""
        return self.count(needs, slice(None), None)

    def count(self, needs: PodRequirements, rows: Rows, used: Ints | None) -> Ints:
        """Count without a cache; `used` None stands for an empty cluster."""
        if self.unknown_requests(needs):
            return np.zeros(len(self.live[rows]), dtype=np.int64)
        vector = self.request_vector(needs)
        columns = np.flatnonzero(vector)
        free = self.allocatable[rows][:, columns]
        if used is not None:
            free = free - used[:, columns]
        counts: Ints = np.min(free // vector[columns], axis=1)
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

    def fits(self, row: int, needs: PodRequirements) -> bool:
        """Return whether one more pod fits on the row now, every filter included."""
        rows = np.array([row], dtype=np.int64)
        return bool(self.count(needs, rows, self.used[rows])[0])

    def overcommitted(self) -> list[NodeName]:
        """Return the nodes that are overcommitted."""
        bad = np.flatnonzero(np.any(self.used > self.allocatable, axis=1) & self.live)
        return [self.names[row] for row in bad]
