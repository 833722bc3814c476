"""The cluster as arrays: one row a node, one column a resource or a label key.

The engine owns one `Cluster` and changes it with every fact; planners get a copy. Copies share
the static columns (labels, taints, allocatable) until the owner writes them again.
"""

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from gangsched.core.model import (
    PODS,
    Expression,
    HostPort,
    Node,
    NodeName,
    NodeTerm,
    PodNeeds,
    Taint,
)

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_GROWTH = 64


class Cluster:
    """Nodes, what they have, what is taken and by whom.

    Arrays have one row a slot; `live` tells which slots hold a node. `used` counts observed pods
    and reservations alike, each under its own key, so that nothing is counted twice.
    """

    def __init__(self) -> None:
        self.rows: dict[NodeName, int] = {}
        self.names: list[NodeName] = []
        self.resources: list[str] = [PODS, "cpu", "memory"]
        self.live: Mask = np.zeros(0, dtype=np.bool_)
        self.allocatable: Ints = np.zeros((0, 3), dtype=np.int64)
        self.used: Ints = np.zeros((0, 3), dtype=np.int64)
        self.nodes: list[Node | None] = []
        self._columns: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        self._free_rows: list[int] = []
        self._labels: dict[str, Ints] = {}
        self._label_codes: dict[str, dict[str, int]] = {}
        self._taints: Ints = np.zeros(0, dtype=np.int64)
        self._taint_codes: dict[tuple[Taint, ...], int] = {}
        self._shared = False
        self._eligible: dict[PodNeeds, Mask] = {}
        self._vectors: dict[PodNeeds, Ints] = {}
        self._charges: dict[Hashable, tuple[NodeName, PodNeeds]] = {}
        self._on_node: dict[NodeName, dict[Hashable, PodNeeds]] = {}
        self._ports: dict[int, dict[HostPort, int]] = {}

    # -- copies -------------------------------------------------------------------------------

    def copy(self) -> "Cluster":
        """Return a copy whose usage may be changed freely; it knows nothing of charges."""
        self._shared = True
        other = Cluster.__new__(Cluster)
        other.__dict__.update(
            self.__dict__,
            used=self.used.copy(),
            _charges={},
            _on_node={},
            _ports={row: dict(ports) for row, ports in self._ports.items()},
            # Caches are filled while reading, and a planner may read in another thread.
            _eligible=dict(self._eligible),
            _vectors=dict(self._vectors),
            _labels=dict(self._labels),
            _label_codes={key: dict(codes) for key, codes in self._label_codes.items()},
        )
        return other

    def _own(self) -> None:
        """Stop sharing the static columns with earlier copies, before they are written."""
        self._eligible = {}
        if not self._shared:
            return
        self._shared = False
        self.rows = dict(self.rows)
        self.names = list(self.names)
        self.nodes = list(self.nodes)
        self.resources = list(self.resources)
        self._columns = dict(self._columns)
        self._free_rows = list(self._free_rows)
        self._vectors = {}
        self.live = self.live.copy()
        self.allocatable = self.allocatable.copy()
        self._taints = self._taints.copy()
        self._taint_codes = dict(self._taint_codes)
        self._labels = {key: column.copy() for key, column in self._labels.items()}
        self._label_codes = {key: dict(codes) for key, codes in self._label_codes.items()}

    # -- nodes --------------------------------------------------------------------------------

    def put_node(self, node: Node) -> bool:
        """Add or replace a node; return whether anything a planner reads changed."""
        row = self.rows.get(node.name)
        if row is not None and self.nodes[row] == node:
            return False
        self._own()
        if row is None:
            row = self._new_row(node.name)
        self.nodes[row] = node
        for name, _ in node.allocatable:
            self._column(name)
        self.allocatable[row] = 0
        for name, quantity in node.allocatable:
            self.allocatable[row, self._columns[name]] = quantity
        for key in self._labels:
            self._labels[key][row] = self._label_code(key, node.labels.get(key))
        taints = node.taints
        if node.unschedulable and UNSCHEDULABLE not in taints:
            taints = (*taints, UNSCHEDULABLE)
        self._taints[row] = self._taint_codes.setdefault(taints, len(self._taint_codes))
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
        self.used[row] = 0
        self._ports.pop(row, None)
        self._free_rows.append(row)
        return True

    def _new_row(self, name: NodeName) -> int:
        if not self._free_rows:
            size = len(self.names)
            grown = max(_GROWTH, size)
            self.names.extend([NodeName("")] * grown)
            self.nodes.extend([None] * grown)
            self.live = np.concatenate([self.live, np.zeros(grown, dtype=np.bool_)])
            empty = np.zeros((grown, len(self.resources)), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, empty])
            self.used = np.concatenate([self.used, empty])
            self._taints = np.concatenate([self._taints, np.zeros(grown, dtype=np.int64)])
            for key, column in self._labels.items():
                self._labels[key] = np.concatenate([column, np.full(grown, -1, dtype=np.int64)])
            self._free_rows.extend(range(size + grown - 1, size - 1, -1))
        row = self._free_rows.pop()
        self.rows[name] = row
        self.names[row] = name
        self.live[row] = True
        for needs in self._on_node.get(name, {}).values():
            self.take(row, needs)
        return row

    def _column(self, resource: str) -> int:
        column = self._columns.get(resource)
        if column is None:
            self._own()
            column = self._columns[resource] = len(self.resources)
            self.resources.append(resource)
            blank = np.zeros((len(self.names), 1), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, blank], axis=1)
            self.used = np.concatenate([self.used, blank], axis=1)
            self._vectors = {}
        return column

    # -- usage --------------------------------------------------------------------------------

    def charge(self, key: Hashable, node: NodeName, needs: PodNeeds) -> None:
        """Count `needs` against `node` under `key`, in place of what the key was charged before."""
        if self._charges.get(key) == (node, needs):
            return
        self.discharge(key)
        self._charges[key] = (node, needs)
        self._on_node.setdefault(node, {})[key] = needs
        row = self.rows.get(node)
        if row is not None:
            self.take(row, needs)

    def discharge(self, key: Hashable) -> bool:
        """Give back what the key was charged; return whether there was anything."""
        charged = self._charges.pop(key, None)
        if charged is None:
            return False
        node, needs = charged
        on_node = self._on_node[node]
        del on_node[key]
        if not on_node:
            del self._on_node[node]
        row = self.rows.get(node)
        if row is not None:
            self.give(row, needs)
        return True

    def charges(self) -> dict[Hashable, tuple[NodeName, PodNeeds]]:
        """Return every charge, for checkers."""
        return dict(self._charges)

    def take(self, row: int, needs: PodNeeds, times: int = 1) -> None:
        """Count `times` pods of these needs on a row (also used to try things out on a copy)."""
        vector = self.vector(needs)
        self.used[row] += vector * times
        if needs.host_ports:
            ports = self._ports.setdefault(row, {})
            for port in needs.host_ports:
                ports[port] = ports.get(port, 0) + times

    def give(self, row: int, needs: PodNeeds, times: int = 1) -> None:
        """Undo `take`."""
        self.take(row, needs, -times)
        if needs.host_ports:
            ports = self._ports[row]
            self._ports[row] = {port: n for port, n in ports.items() if n > 0}

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

    # -- questions ----------------------------------------------------------------------------

    def free(self) -> Ints:
        """Return what is free, shape (slots, resources); negative where a node shrank."""
        return self.allocatable - self.used

    def eligible(self, needs: PodNeeds) -> Mask:
        """Return which slots pass every filter but free room: labels, names, taints."""
        mask = self._eligible.get(needs)
        if mask is None:
            mask = self.live & self._tolerated(needs)
            for expression in needs.selector:
                mask &= self._matches(expression)
            if needs.required:
                any_term = np.zeros_like(mask)
                for term in needs.required:
                    any_term |= self.matches_term(term)
                mask &= any_term
            mask.flags.writeable = False
            self._eligible[needs] = mask
        return mask

    def matches_term(self, term: NodeTerm) -> Mask:
        """Return which slots match every condition of a term; an empty term matches none."""
        if not term.labels and not term.names:
            return np.zeros_like(self.live)
        mask = self.live.copy()
        for expression in term.labels:
            mask &= self._matches(expression)
        for expression in term.names:
            named = np.zeros_like(mask)
            for value in expression.values:
                row = self.rows.get(NodeName(value))
                if row is not None:
                    named[row] = True
            mask &= named if expression.operator == "In" else ~named
        return mask

    def ports_free(self, ports: tuple[HostPort, ...]) -> Mask:
        """Return which slots have all these host ports free."""
        mask = np.ones(len(self.names), dtype=np.bool_)
        for row, taken in self._ports.items():
            if any(_clash(port, other) for port in ports for other in taken):
                mask[row] = False
        return mask

    def fits(self, row: int, needs: PodNeeds) -> bool:
        """Tell whether one more pod fits on the row now, every filter included."""
        vector = self.vector(needs)
        room = self.allocatable[row] - self.used[row]
        if not self.eligible(needs)[row] or bool(np.any((vector > 0) & (vector > room))):
            return False
        return not needs.host_ports or bool(self.ports_free(needs.host_ports)[row])

    def overcommitted(self) -> list[NodeName]:
        """Return the nodes that hold more than they have."""
        bad = np.flatnonzero(np.any(self.used > self.allocatable, axis=1) & self.live)
        return [self.names[row] for row in bad]

    # -- labels and taints --------------------------------------------------------------------

    def _label_code(self, key: str, value: str | None) -> int:
        if value is None:
            return -1
        codes = self._label_codes[key]
        return codes.setdefault(value, len(codes))

    def _label_column(self, key: str) -> Ints:
        column = self._labels.get(key)
        if column is None:
            self._label_codes[key] = {}
            values = (None if node is None else node.labels.get(key) for node in self.nodes)
            codes = [self._label_code(key, value) for value in values]
            column = self._labels[key] = np.array(codes, dtype=np.int64)
        return column

    def _matches(self, expression: Expression) -> Mask:
        column = self._label_column(expression.key)
        codes = self._label_codes[expression.key]
        match expression.operator:
            case "Exists":
                return column >= 0
            case "DoesNotExist":
                return column < 0
            case "In" | "NotIn":
                wanted = [codes[value] for value in expression.values if value in codes]
                inside = np.isin(column, wanted)
                return inside if expression.operator == "In" else ~inside
            case "Gt" | "Lt":
                good = list(_beyond(codes, expression))
                return np.isin(column, good)
        return np.zeros_like(self.live)

    def _tolerated(self, needs: PodNeeds) -> Mask:
        good = [
            code
            for taints, code in self._taint_codes.items()
            if all(
                taint.effect == "PreferNoSchedule"
                or any(toleration.tolerates(taint) for toleration in needs.tolerations)
                for taint in taints
            )
        ]
        return np.isin(self._taints, good)


def _clash(port: HostPort, other: HostPort) -> bool:
    """Two host ports clash on one protocol and port, when either listens on every address."""
    same = port[0] == other[0] and port[2] == other[2]
    return same and (port[1] == other[1] or "0.0.0.0" in (port[1], other[1]))


def _beyond(codes: dict[str, int], expression: Expression) -> Iterable[int]:
    """Yield the codes of label values above (Gt) or below (Lt) the expression's number."""
    try:
        limit = int(expression.values[0])
    except (IndexError, ValueError):
        return
    for value, code in codes.items():
        try:
            number = int(value)
        except ValueError:
            continue
        if (number > limit) if expression.operator == "Gt" else (number < limit):
            yield code
