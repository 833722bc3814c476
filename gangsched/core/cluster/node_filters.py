"""Node labels and taints as columns of codes, and the filters of pods on them."""

from collections.abc import Iterable, Sized

import numpy as np
from numpy.typing import NDArray

from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Expression, HostPort, NodeTerm, PodRequirements, Taint

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
PRODUCT = "nvidia.com/gpu.product"
_EVERY = "0.0.0.0"
_UNUSED_CODES_MAX = 64
"""Unused codes are kept until there are more than this, and as many as nodes.
"""


class Filters:
    """Label columns (created when a pod first needs one) and taints, one entry per node slot.

    Only labels that a node has get a column; no node matches other labels.
    """

    def __init__(self) -> None:
        self.nodes: list[Node | None] = []
        self.rows: dict[NodeName, int] = {}
        self._nodes_with_label: dict[str, int] = {}  # how many nodes have a label
        self._labels: dict[str, Ints] = {}
        self._label_codes: dict[str, dict[str, int]] = {}
        self._taints: Ints = np.zeros(0, dtype=np.int64)
        self._taint_codes: dict[tuple[Taint, ...], int] = {}

    def read_copy(self) -> "Filters":
        """Return a copy for reading; it shares the columns and has caches of its own."""
        other = Filters.__new__(Filters)
        other.__dict__.update(
            self.__dict__,
            _labels=dict(self._labels),
            _label_codes={key: dict(codes) for key, codes in self._label_codes.items()},
        )
        return other

    def detach(self) -> None:
        """Stop sharing with earlier readers, before anything is written."""
        self.nodes = list(self.nodes)
        self.rows = dict(self.rows)
        self._nodes_with_label = dict(self._nodes_with_label)
        self._taints = self._taints.copy()
        self._taint_codes = dict(self._taint_codes)
        self._labels = {key: column.copy() for key, column in self._labels.items()}
        self._label_codes = {key: dict(codes) for key, codes in self._label_codes.items()}

    def grow(self, more: int) -> None:
        """Grow to more slots."""
        self.nodes.extend([None] * more)
        self._taints = np.concatenate([self._taints, np.zeros(more, dtype=np.int64)])
        for key, column in self._labels.items():
            self._labels[key] = np.concatenate([column, np.full(more, -1, dtype=np.int64)])

    def put(self, row: int, node: Node) -> None:
        """Set the labels and taints of a node."""
        self._count_labels(self.nodes[row], -1)
        self._count_labels(node, 1)
        self.nodes[row] = node
        for key in list(self._labels):
            self._labels[key][row] = self._code(key, node.labels.get(key))
            if key not in self._nodes_with_label or self._outdated(self._label_codes[key]):
                del self._labels[key], self._label_codes[key]
        self._taints[row] = self._taint_code(node)
        if self._outdated(self._taint_codes):
            self._taint_codes = {}
            for at, one in enumerate(self.nodes):
                self._taints[at] = 0 if one is None else self._taint_code(one)

    def remove(self, row: int) -> None:
        """Forget the node of a slot."""
        self._count_labels(self.nodes[row], -1)
        self.nodes[row] = None
        for key in list(self._labels):
            self._labels[key][row] = -1
            if key not in self._nodes_with_label:
                del self._labels[key], self._label_codes[key]

    def _count_labels(self, node: Node | None, sign: int) -> None:
        """Count which labels a node has."""
        for key in node.labels if node is not None else ():
            count = self._nodes_with_label.get(key, 0) + sign
            if count:
                self._nodes_with_label[key] = count
            else:
                del self._nodes_with_label[key]

    def _outdated(self, codes: Sized) -> bool:
        return len(codes) > 2 * len(self.rows) + _UNUSED_CODES_MAX

    def _taint_code(self, node: Node) -> int:
        taints = node.taints
        if node.unschedulable and UNSCHEDULABLE not in taints:
            taints = (*taints, UNSCHEDULABLE)
        return self._taint_codes.setdefault(taints, len(self._taint_codes))

    def eligible(self, live: Mask, needs: PodRequirements) -> Mask:
        """Return which live slots pass the pod's selector, affinity and tolerations."""
        mask = live & self._tolerated(needs)
        for expression in needs.selector:
            mask &= self._matches(live, expression)
        if needs.required:
            any_term = np.zeros_like(mask)
            for term in needs.required:
                any_term |= self.matches_term(live, term)
            mask &= any_term
        return mask

    def matches_term(self, live: Mask, term: NodeTerm) -> Mask:
        """Return which slots match every condition of a term; an empty term matches none."""
        if not term.labels and not term.names:
            return np.zeros_like(live)
        mask = live.copy()
        for expression in term.labels:
            mask &= self._matches(live, expression)
        for expression in term.names:
            named = np.zeros_like(mask)
            for value in expression.values:
                row = self.rows.get(NodeName(value))
                if row is not None:
                    named[row] = True
            mask &= named if expression.operator == "In" else ~named
        return mask

    def of_gpu_type(self, kind: str) -> Mask:
        """Return which slots have a GPU product name that contains `kind`, in any case."""
        column, codes = self._column(PRODUCT)
        wanted = [code for value, code in codes.items() if kind.lower() in value.lower()]
        return np.isin(column, wanted)

    def has_label(self, key: str) -> bool:
        """Return whether any node carries the label."""
        return key in self._nodes_with_label

    def _code(self, key: str, value: str | None) -> int:
        if value is None:
            return -1
        codes = self._label_codes[key]
        return codes.setdefault(value, len(codes))

    def _column(self, key: str) -> tuple[Ints, dict[str, int]]:
        """Return each slot's code of a label, -1 for none, and the codes by value."""
        if key not in self._nodes_with_label:
            return np.full(len(self.nodes), -1, dtype=np.int64), {}
        column = self._labels.get(key)
        if column is None:
            self._label_codes[key] = {}
            values = (None if node is None else node.labels.get(key) for node in self.nodes)
            codes = [self._code(key, value) for value in values]
            column = self._labels[key] = np.array(codes, dtype=np.int64)
        return column, self._label_codes[key]

    def _matches(self, live: Mask, expression: Expression) -> Mask:
        column, codes = self._column(expression.key)
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
                good = list(_codes_beyond(codes, expression))
                return np.isin(column, good)
        return np.zeros_like(live)

    def _tolerated(self, needs: PodRequirements) -> Mask:
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


def clash(ports: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Return whether a host port clashes with one that is taken.

    Two clash on one protocol and port, when either listens on every address.
    """
    wanted: dict[tuple[str, int], set[str]] = {}
    for protocol, address, port in ports:
        wanted.setdefault((protocol, port), set()).add(address)
    for protocol, address, port in taken:
        there = wanted.get((protocol, port), ())
        if there and (address == _EVERY or _EVERY in there or address in there):
            return True
    return False


def _codes_beyond(codes: dict[str, int], expression: Expression) -> Iterable[int]:
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
