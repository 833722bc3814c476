"""The nodes of a cluster as arrays: what does not change when pods come and go.

Copies share these columns until the owner writes them again. What is kept beside them, row by row,
hears of changes through the methods whose names begin with `_on_`.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangsched.core.filters import Filters
from gangsched.core.model import GPU, PODS, Node, NodeName, PodNeeds
from gangsched.core.topology import Topology, Tree

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

T = TypeVar("T")

_GROWTH = 64
_STILL_KEPT = 64


class Nodes:
    """One row a slot, one column a resource; `live` tells which slots hold a node.

    `version` grows whenever a node, a resource or a topology changes.
    """

    def __init__(self) -> None:
        self.names: list[NodeName] = []
        self.resources: list[str] = [PODS, "cpu", "memory", GPU]
        self.live: Mask = np.zeros(0, dtype=np.bool_)
        self.allocatable: Ints = np.zeros((0, len(self.resources)), dtype=np.int64)
        self.trees: dict[str, Tree] = {}
        self.filters = Filters()
        self._columns: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        self._free_rows: list[int] = []
        self.version = 0
        self._static_shared = False
        self._eligible: dict[PodNeeds, Mask] = {}
        self._vectors: dict[PodNeeds, Ints] = {}
        self._still: dict[Hashable, Any] = {}

    @property
    def rows(self) -> dict[NodeName, int]:
        """Return the slot of each node."""
        return self.filters.rows

    @property
    def nodes(self) -> list[Node | None]:
        """Return the node in each slot."""
        return self.filters.nodes

    def _own(self) -> None:
        """Stop sharing the static columns with earlier copies, before they are written."""
        self.version += 1
        self._eligible = {}
        self._still = {}
        self._on_change()
        if not self._static_shared:
            return
        self._static_shared = False
        self.filters = self.filters.reader()
        self.filters.own()
        self.names = list(self.names)
        self.resources = list(self.resources)
        self.trees = {name: tree.copy() for name, tree in self.trees.items()}
        self._columns = dict(self._columns)
        self._free_rows = list(self._free_rows)
        self._vectors = {}
        self.live = self.live.copy()
        self.allocatable = self.allocatable.copy()

    def put_node(self, node: Node) -> bool:
        """Add or replace a node; return whether anything a planner reads changed."""
        row = self.rows.get(node.name)
        if row is not None and self.nodes[row] == node:
            return False
        self._own()
        if row is None:
            row = self._new_row(node.name)
        for name, _ in node.allocatable:
            self._column(name)
        self.allocatable[row] = 0
        for name, quantity in node.allocatable:
            self.allocatable[row, self._columns[name]] = quantity
        self.filters.put(row, node)
        for tree in self.trees.values():
            tree.put(row, node)
        return True

    def remove_node(self, name: NodeName) -> bool:
        """Forget a node; what was charged to it is remembered in case it returns."""
        if name not in self.rows:
            return False
        self._own()
        row = self.rows.pop(name)
        self.live[row] = False
        self.nodes[row] = None
        self.allocatable[row] = 0
        self._on_leaving(row)
        for tree in self.trees.values():
            tree.remove(row)
        self._free_rows.append(row)
        return True

    def set_topologies(self, topologies: tuple[Topology, ...]) -> None:
        """Replace the topologies; the order tells which is the default (the first)."""
        self._own()
        self.trees = {one.name: Tree(one, len(self.names)) for one in topologies}
        for name in sorted(self.rows):
            row = self.rows[name]
            node = self.nodes[row]
            for tree in self.trees.values():
                if node is not None:
                    tree.put(row, node)

    def tree(self, topology: str = "") -> Tree | None:
        """Return a topology's tree; "" for the default one, which a cluster need not have."""
        if topology:
            return self.trees.get(topology)
        return next(iter(self.trees.values()), None)

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
        self._on_arrival(row, name)
        return row

    def _column(self, resource: str) -> int:
        column = self._columns.get(resource)
        if column is None:
            self._own()
            column = self._columns[resource] = len(self.resources)
            self.resources.append(resource)
            blank = np.zeros((len(self.names), 1), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, blank], axis=1)
            self._on_new_resource()
            self._vectors = {}
        return column

    def vector(self, needs: PodNeeds) -> Ints:
        """Return one pod's requests, shape (resources,), with its one of `pods`."""
        vector = self._vectors.get(needs)
        if vector is None or len(vector) != len(self.resources):
            for name, _ in needs.requests:
                self._column(name)
            vector = np.zeros(len(self.resources), dtype=np.int64)
            for name, quantity in needs.requests:
                vector[self._columns[name]] = quantity
            vector[0] = 1
            self._vectors[needs] = vector
        return vector

    def eligible(self, needs: PodNeeds) -> Mask:
        """Return which slots pass every filter but free room: labels, names, taints."""
        mask = self._eligible.get(needs)
        if mask is None:
            mask = self.filters.eligible(self.live, needs)
            mask.flags.writeable = False
            self._eligible[needs] = mask
        return mask

    def still(self, what: Hashable, find: Callable[[], T]) -> T:
        """Return what follows from the nodes alone: found once, until they change."""
        found: T | None = self._still.get(what)
        if found is None:
            if len(self._still) >= _STILL_KEPT:
                self._still = {}
            found = self._still[what] = find()
        return found

    # -- for what is kept beside the columns ---------------------------------------------------

    def _on_change(self) -> None:
        """Hear that a node, a resource or a topology changes."""

    def _on_grown(self, more: int) -> None:
        """Hear that there are more slots."""

    def _on_new_resource(self) -> None:
        """Hear that there is one more column."""

    def _on_arrival(self, row: int, name: NodeName) -> None:
        """Hear that a node took a slot."""

    def _on_leaving(self, row: int) -> None:
        """Hear that a node left its slot."""
