"""The topology: ordered levels of node labels, and the tree of domains they make.

A domain is named by its whole path (spine, then rack), never by a bare label value: rack names
repeat across spines in real clusters (Alibaba's Lingjun trace: 48 names, 119 racks). The host is
always the last level and needs no label.
"""

import numpy as np
from numpy.typing import NDArray

from gangsched.core.model.nodes import Node
from gangsched.core.model.topology import Fabric, Topology

Ints = NDArray[np.int64]
Path = tuple[str, ...]


_UNUSED_DOMAINS_MAX = 64
"""Empty domains are kept until there are more than this, and as many as nodes."""

UNKNOWN = -1
"""The domain code of a node without labels for its place."""


class TopologyTree:
    """The domain of every node slot at each level.

    `codes[level]` has shape (slots,) and is UNKNOWN where a node lacks the label of the level or
    of a coarser one. Ids of NVLink domains are unique in a cluster: when nodes of two racks claim
    the same one, none of them is believed below the rack.
    """

    def __init__(self, topology: Topology, slots: int) -> None:
        self.topology = topology
        depth = len(topology.levels)
        self.codes: list[Ints] = [np.full(slots, UNKNOWN, dtype=np.int64) for _ in range(depth)]
        self.paths: list[list[Path]] = [[] for _ in range(depth)]
        self._by_path: list[dict[Path, int]] = [{} for _ in range(depth)]
        self._label_paths: dict[int, Path] = {}
        self._unique = [i for i, lv in enumerate(topology.levels) if lv.fabric is Fabric.NVLINK]
        self._claims: dict[tuple[int, str], dict[Path, set[int]]] = {}

    def copy(self) -> "TopologyTree":
        """Return an independent copy."""
        other = TopologyTree.__new__(TopologyTree)
        other.__dict__.update(
            self.__dict__,
            codes=[codes.copy() for codes in self.codes],
            paths=[list(paths) for paths in self.paths],
            _by_path=[dict(known) for known in self._by_path],
            _label_paths=dict(self._label_paths),
            _claims={
                key: {path: set(rows) for path, rows in claims.items()}
                for key, claims in self._claims.items()
            },
        )
        return other

    def grow(self, slots: int) -> None:
        """Grow to more node slots."""
        more = slots - len(self.codes[0]) if self.codes else 0
        if more > 0:
            blank = np.full(more, UNKNOWN, dtype=np.int64)
            self.codes = [np.concatenate([codes, blank]) for codes in self.codes]

    def put(self, row: int, node: Node) -> None:
        """Record the domains of a node."""
        path: list[str] = []
        for level in self.topology.levels:
            value = node.labels.get(level.label)
            if not value:
                break
            path.append(value)
        if self._label_paths.get(row) == tuple(path):
            return
        self.remove(row)
        self._label_paths[row] = tuple(path)
        self._register_domain(row, add=True)
        self._renumber()

    def _renumber(self) -> None:
        """Remove empty domains, once they are more than the others."""
        if max(map(len, self.paths), default=0) <= 2 * len(self._label_paths) + _UNUSED_DOMAINS_MAX:
            return
        self.paths = [[] for _ in self.codes]
        self._by_path = [{} for _ in self.codes]
        for row in sorted(self._label_paths):
            self._write_codes(row)

    def remove(self, row: int) -> None:
        """Remove a node from its domains."""
        if row in self._label_paths:
            self._register_domain(row, add=False)
            del self._label_paths[row]
            for codes in self.codes:
                codes[row] = UNKNOWN

    def label_problem(self, row: int) -> str | None:
        """Return what is wrong with a node's labels, or None when its place is known."""
        raw = self._label_paths.get(row, ())
        path = self._trusted_path(row)
        if len(path) == len(self.topology.levels):
            return None
        level = self.topology.levels[len(path)]
        if len(path) == len(raw):
            return f"has no label {level.label}"
        claims = self._claims[len(path), raw[len(path)]]
        places = " and ".join(sorted("/".join(claim) or "(top)" for claim in claims))
        return f"label {level.label}={raw[len(path)]} is claimed in {places} at once"

    def name(self, level: int, code: int) -> str:
        """Return a domain's name for users: its path."""
        return "/".join(self.paths[level][code])

    def parents(self, level: int) -> Ints:
        """Return the domain of the next coarser level for each domain, shape (domains,)."""
        above = self._by_path[level - 1]
        return np.array([above[path[:-1]] for path in self.paths[level]], dtype=np.int64)

    def _register_domain(self, row: int, *, add: bool) -> None:
        """Add or remove the labels of a row, and update each row that they make (in)credible."""
        raw = self._label_paths[row]
        touched = {row} if add else set()
        for index in self._unique:
            if index >= len(raw):
                break
            claims = self._claims.setdefault((index, raw[index]), {})
            before = len(claims)
            if add:
                claims.setdefault(raw[:index], set()).add(row)
            else:
                claims[raw[:index]].discard(row)
                if not claims[raw[:index]]:
                    del claims[raw[:index]]
            if len(claims) != before:
                touched.update(other for rows in claims.values() for other in rows)
            if not claims:
                del self._claims[index, raw[index]]
        for other in touched:
            self._write_codes(other)

    def _write_codes(self, row: int) -> None:
        """Write the codes of a node's domains, as far as its labels are credible."""
        path = self._trusted_path(row)
        for level, codes in enumerate(self.codes):
            known = level < len(path)
            codes[row] = self._code(level, path[: level + 1]) if known else UNKNOWN

    def _trusted_path(self, row: int) -> Path:
        raw = self._label_paths.get(row, ())
        for index in self._unique:
            if index < len(raw) and len(self._claims.get((index, raw[index]), ())) > 1:
                return raw[:index]
        return raw

    def _code(self, level: int, path: Path) -> int:
        known = self._by_path[level]
        code = known.get(path)
        if code is None:
            code = known[path] = len(self.paths[level])
            self.paths[level].append(path)
        return code
