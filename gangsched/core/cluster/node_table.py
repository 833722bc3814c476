"""The nodes of a cluster as arrays: the properties that pods do not change.

Copies share these columns until the owner writes them again. Subclasses keep other data row by row
and receive changes through the methods with names that begin with `_on_`.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangsched.core.bounds import AMOUNT, PODS_OF_NODE
from gangsched.core.cluster.node_filters import Filters
from gangsched.core.cluster.supply import Supply
from gangsched.core.cluster.topology_tree import TopologyTree
from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, PODS, PodRequirements, Requests
from gangsched.core.model.queues import MIG_PREFIX
from gangsched.core.model.topology import HOST, HOST_LABEL, Topology

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

T = TypeVar("T")

_ALWAYS = (PODS, "cpu", "memory", GPU)
_GROWTH = 64
_NODE_CACHE_MAX = 64
_VECTORS_MAX = 4096
_UNUSED_COLUMNS_MAX = 64
"""How many columns of resources are kept that no node has any more: they often come back."""


class NodeTable:
    """One row per slot, one column per resource; `live` marks the slots that have a node.

    Only what nodes have gets a column: what pods ask for beside that (`unknown`) fits nowhere.
    `version` grows whenever a node, a resource or a topology changes.
    """

    def __init__(self) -> None:
        self.names: list[NodeName] = []
        self.resources: list[str] = list(_ALWAYS)
        self.live: Mask = np.zeros(0, dtype=np.bool_)
        self.allocatable: Ints = np.zeros((0, len(self.resources)), dtype=np.int64)
        self.trees: dict[str, TopologyTree] = {}
        self.filters = Filters()
        self._columns: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        self._nodes_with_resource: dict[str, int] = {}  # how many nodes have a resource
        self._free_rows: list[int] = []
        self.version = 0
        self._static_shared = False
        self._eligible: dict[PodRequirements, Mask] = {}
        self._vectors: dict[PodRequirements, tuple[Ints, Requests]] = {}
        self._node_cache: dict[Hashable, Any] = {}

    @property
    def rows(self) -> dict[NodeName, int]:
        """Return the slot of each node."""
        return self.filters.rows

    @property
    def nodes(self) -> list[Node | None]:
        """Return the node in each slot."""
        return self.filters.nodes

    def _detach(self) -> None:
        """Stop sharing the static columns with earlier copies, before they are written."""
        self.version += 1
        self._eligible = {}
        self._node_cache = {}
        self._on_change()
        if not self._static_shared:
            return
        self._static_shared = False
        self.filters = self.filters.read_copy()
        self.filters.detach()
        self.names = list(self.names)
        self.resources = list(self.resources)
        self.trees = {name: tree.copy() for name, tree in self.trees.items()}
        self._columns = dict(self._columns)
        self._nodes_with_resource = dict(self._nodes_with_resource)
        self._free_rows = list(self._free_rows)
        self._vectors = {}
        self.live = self.live.copy()
        self.allocatable = self.allocatable.copy()

    def put_node(self, node: Node) -> bool:
        """Add or replace a node; return whether anything a planner reads changed."""
        row = self.rows.get(node.name)
        before = None if row is None else self.nodes[row]
        if row is not None and before == node:
            return False
        self._detach()
        if row is None:
            row = self._new_row(node.name)
        self._count_resources(before, -1)
        self._count_resources(node, 1)
        for name, _ in node.allocatable:
            self._column(name)
        recount = before is None or before.gpu_memory_mib != node.gpu_memory_mib
        if before is not None and recount:  # shares of its GPUs by memory change
            self._on_departure(row)
        self.allocatable[row] = 0
        for name, quantity in node.allocatable:
            most = PODS_OF_NODE.most if name == PODS else AMOUNT.most
            self.allocatable[row, self._columns[name]] = min(quantity, most)
        self.filters.put(row, node)
        for tree in self.trees.values():
            tree.put(row, node)
        if recount:
            self._on_arrival(row, node.name)
        self._drop_columns()
        return True

    def remove_node(self, name: NodeName) -> bool:
        """Remove a node; its charges are kept in case it returns."""
        if name not in self.rows:
            return False
        self._detach()
        row = self.rows.pop(name)
        self.live[row] = False
        self._count_resources(self.nodes[row], -1)
        self.filters.remove(row)
        self.allocatable[row] = 0
        self._on_departure(row)
        for tree in self.trees.values():
            tree.remove(row)
        self._free_rows.append(row)
        self._drop_columns()
        return True

    def set_topologies(self, topologies: tuple[Topology, ...]) -> None:
        """Replace the topologies; the first is the default."""
        self._detach()
        self.trees = {
            topology.name: TopologyTree(topology, len(self.names)) for topology in topologies
        }
        for name in sorted(self.rows):
            row = self.rows[name]
            node = self.nodes[row]
            for tree in self.trees.values():
                if node is not None:
                    tree.put(row, node)

    def tree(self, topology: str = "") -> TopologyTree | None:
        """Return a topology's tree; "" for the default one, which a cluster need not have."""
        if topology:
            return self.trees.get(topology)
        return next(iter(self.trees.values()), None)

    def level(self, topology: str, name: str) -> int | None:
        """Return the index of a topology level; without a topology, the host is the only one."""
        tree = self.tree(topology)
        if tree is not None:
            return tree.topology.index(name)
        return 0 if name in (HOST, HOST_LABEL) else None

    def _new_row(self, name: NodeName) -> int:
        if not self._free_rows:
            size = len(self.names)
            grown = max(_GROWTH, size)
            self.names.extend([NodeName("")] * grown)
            self.live = np.concatenate([self.live, np.zeros(grown, dtype=np.bool_)])
            empty = np.zeros((grown, len(self.resources)), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, empty])
            self._on_grown(grown)
            self.filters.grow(grown)
            for tree in self.trees.values():
                tree.grow(size + grown)
            self._free_rows.extend(range(size + grown - 1, size - 1, -1))
        row = self._free_rows.pop()
        self.rows[name] = row
        self.names[row] = name
        self.live[row] = True
        return row

    def _column(self, resource: str) -> int:
        column = self._columns.get(resource)
        if column is None:
            self._detach()
            column = self._columns[resource] = len(self.resources)
            self.resources.append(resource)
            blank = np.zeros((len(self.names), 1), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, blank], axis=1)
            self._on_new_resource(resource)
            self._vectors = {}
        return column

    def _count_resources(self, node: Node | None, sign: int) -> None:
        """Count which resources a node has."""
        for name, _ in node.allocatable if node is not None else ():
            count = self._nodes_with_resource.get(name, 0) + sign
            if count:
                self._nodes_with_resource[name] = count
            else:
                del self._nodes_with_resource[name]

    def _drop_columns(self) -> None:
        """Drop the columns of resources that no node has, once there are many of them."""
        if len(self.resources) > len(self._nodes_with_resource) + _UNUSED_COLUMNS_MAX:
            self._drop(
                {
                    n
                    for n in self.resources
                    if n not in _ALWAYS and n not in self._nodes_with_resource
                }
            )

    def _drop(self, names: set[str]) -> None:
        """Drop the columns of some resources; their usage is kept elsewhere."""
        self._on_dropping([name for name in self.resources if name in names])
        self.resources = [name for name in self.resources if name not in names]
        kept = [self._columns[name] for name in self.resources]
        self._columns = {name: i for i, name in enumerate(self.resources)}
        self.allocatable = self.allocatable[:, kept]
        self._on_columns_kept(kept)
        self._vectors = {}

    def request_vector(self, needs: PodRequirements) -> Ints:
        """Return one pod's requests, shape (resources,), with its one of `pods`.

        Resources that no node has are omitted; see `unknown_requests`.
        """
        return self._split_requests(needs)[0]

    def unknown_requests(self, needs: PodRequirements) -> Requests:
        """Return the requests of one pod for resources that no node has."""
        return self._split_requests(needs)[1]

    def _split_requests(self, needs: PodRequirements) -> tuple[Ints, Requests]:
        asked = self._vectors.get(needs)
        if asked is None:
            vector = np.zeros(len(self.resources), dtype=np.int64)
            unknown = []
            for name, quantity in needs.requests:
                column = self._columns.get(name)
                if column is None:
                    unknown.append((name, min(quantity, AMOUNT.most)))
                else:
                    vector[column] = min(quantity, AMOUNT.most)
            vector[0] = 1
            asked = vector, tuple(unknown)
            if len(self._vectors) >= _VECTORS_MAX:
                self._vectors = {}
            self._vectors[needs] = asked
        return asked

    def eligible(self, needs: PodRequirements) -> Mask:
        """Return the slots that pass all filters except free capacity: labels, names, taints."""
        mask = self._eligible.get(needs)
        if mask is None:
            mask = self.filters.eligible(self.live, needs)
            mask.flags.writeable = False
            if len(self._eligible) >= _VECTORS_MAX:
                self._eligible = {}
            self._eligible[needs] = mask
        return mask

    def preference_weights(self, needs: PodRequirements) -> Ints:
        """Return the sum of the preferred affinity weights of each slot; read-only."""
        what = ("liked", needs) if needs.preferred else "nothing is liked"
        return self.node_cached(what, lambda: self._sum_preference_weights(needs))

    def _sum_preference_weights(self, needs: PodRequirements) -> Ints:
        score = np.zeros(len(self.names), dtype=np.int64)
        for weight, term in needs.preferred:
            score += weight * self.filters.matches_term(self.live, term)
        score.flags.writeable = False
        return score

    def supply(self) -> Supply:
        """Return the resources and GPU types that queues may have quotas for."""
        return self.node_cached("supply", self._supply)

    def _supply(self) -> Supply:
        most = self.allocatable[self.live].max(axis=0, initial=0)
        names = {name for name, topology in zip(self.resources, most, strict=True) if topology > 0}
        if any(name.startswith(MIG_PREFIX) for name in names):
            names.add(GPU)  # parts of GPUs count as such
        models = {node.gpu_model for node in self.nodes if node is not None} - {""}
        return Supply(frozenset(names), frozenset(models))

    def node_cached(self, what: Hashable, find: Callable[[], T]) -> T:
        """Return a value that depends on the nodes alone; it is computed once until they change."""
        value: T | None = self._node_cache.get(what)
        if value is None:
            if len(self._node_cache) >= _NODE_CACHE_MAX:
                self._node_cache = {}
            value = self._node_cache[what] = find()
        return value

    # -- for what is kept beside the columns ---------------------------------------------------

    def _on_change(self) -> None:
        """Handle that a node, a resource or a topology changes."""

    def _on_grown(self, more: int) -> None:
        """Handle that there are more slots."""

    def _on_new_resource(self, name: str) -> None:
        """Handle that a resource has a new column, the last."""

    def _on_dropping(self, names: list[str]) -> None:
        """Handle that some resources are about to lose their columns."""

    def _on_columns_kept(self, columns: list[int]) -> None:
        """Handle the list of columns that are left."""

    def _on_arrival(self, row: int, name: NodeName) -> None:
        """Handle a node that took a slot, or is counted again there."""

    def _on_departure(self, row: int) -> None:
        """Handle that a node left its slot."""
