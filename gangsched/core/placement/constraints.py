"""Resolves the constraints of a gang on the cluster: names become levels, levels become masks."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gangsched.core.bounds import KINDS
from gangsched.core.cluster.node_table import Ints, Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN, TopologyTree
from gangsched.core.model.constraints import LevelRequest
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.topology import Fabric

_NAMED = 8
"""The number of roles that a message names."""


class MisconfiguredError(Exception):
    """A constraint has no meaning on this cluster; the message is a whole sentence."""


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """Constraints on the pods of one class, as levels; the host is the last level.

    `slices` are (level, size), coarsest first. `preferred` is tried like a required level first,
    and then ignored.
    """

    required: int | None = None
    preferred: int | None = None
    slices: tuple[tuple[int, int], ...] = ()

    def unit(self, level: int) -> int:
        """Return the slice size at a level: the pods in one domain must be a multiple of it."""
        return next((size for at, size in self.slices if at >= level), 1)


@dataclass(frozen=True, slots=True)
class ResolvedConstraints:
    """A gang's constraints resolved against the cluster.

    `order` lists the topology levels by importance for using few domains: the preferred level is
    first. `allowed` excludes nodes to avoid, and domains that belong exclusively to other gangs.
    `gpu_masks` has the nodes of each allowed GPU type; they are tried in turn.
    """

    tree: TopologyTree | None
    depth: int
    rules: PodConstraints
    roles: dict[str, PodConstraints]
    order: tuple[int, ...]
    spread: dict[int, int]
    exclusive: int | None
    allowed: Mask
    gpu_masks: tuple[tuple[str, Mask], ...]

    def of_role(self, role: str) -> PodConstraints:
        """Return the constraints of a role; without its own, those are the slices of the gang."""
        return self.roles.get(role, PodConstraints(slices=self.rules.slices))

    def codes(self, level: int, slots: int) -> Ints:
        """Return the domain of each slot at a level; the host's domain is the slot itself."""
        if self.tree is None or level >= self.depth:
            return np.arange(slots, dtype=np.int64)
        return self.tree.codes[level]

    def name(self, level: int, code: int, cluster: Cluster) -> str:
        """Return a domain's name for users."""
        if self.tree is None or level >= self.depth:
            return cluster.names[code]
        return self.tree.name(level, code) if code >= 0 else "(no label)"

    def level_name(self, level: int) -> str:
        """Return a level's name for users."""
        return "host" if self.tree is None else self.tree.topology.level_name(level)

    def located(self, slots: int, rules: PodConstraints | None = None) -> Mask:
        """Return the slots that have a known domain at every level that constraints name.

        With `rules`, these are the constraints of one class, else those of the whole gang.
        """
        if rules is None:
            levels = {*self.spread, self.rules.required, self.exclusive}
        else:
            levels = {rules.required, *(level for level, _ in rules.slices)}
        mask = np.ones(slots, dtype=np.bool_)
        for level in levels - {None}:
            assert level is not None  # noqa: S101
            mask &= self.codes(level, slots) != UNKNOWN
        return mask


def resolve_constraints(waiting: PendingGang, cluster: Cluster) -> ResolvedConstraints:
    """Resolve a gang's constraints.

    Raises:
        MisconfiguredError: a topology, level or fabric does not exist, sizes do not divide, or
            its pods differ too much.

    """
    _check_class_count(waiting)
    asked = waiting.constraints
    tree = cluster.tree(asked.topology)
    if asked.topology and tree is None:
        known = ", ".join(cluster.trees) or "none"
        raise MisconfiguredError(f"Topology {asked.topology!r} does not exist; there are: {known}.")
    names = _Names(tree, cluster)
    near = asked.near
    required = names.level(near.required, "Required level")
    preferred = names.level(near.preferred, "Preferred level")
    if asked.fabric is not None:
        level = names.fabric(asked.fabric)
        if asked.fabric_required:
            required = level if required is None else max(required, level)
        elif preferred is None:
            preferred = level
    rules = PodConstraints(required, None, _slices(names, near, _counts(waiting, gang=True)))
    roles = {
        role: PodConstraints(
            names.level(request.required, f"Required level of role {role}"),
            names.level(request.preferred, f"Preferred level of role {role}"),
            _slices(names, request, _counts(waiting, role=role)) or rules.slices,
        )
        for role, request in waiting.near_role
        if request != LevelRequest()
    }
    exclusive = names.level(asked.exclusive, "Exclusive level")
    spread = {names.must(limit.level, "Spread level"): limit.pods_max for limit in asked.spread}
    depth = len(tree.codes) if tree is not None else 0
    order = list(range(depth))
    if preferred is not None and preferred < depth:
        order.remove(preferred)
        order.insert(0, preferred)
    _check_equal_slices(waiting, rules)
    return ResolvedConstraints(
        tree=tree,
        depth=depth,
        rules=rules,
        roles=roles,
        order=tuple(order),
        spread=spread,
        exclusive=exclusive,
        allowed=_allowed(waiting, cluster, exclusive),
        gpu_masks=_gpu_masks(asked.gpu_types, cluster),
    )


def _check_class_count(waiting: PendingGang) -> None:
    kinds = len(waiting.pod_classes or {member.needs for member in waiting.members})
    if kinds > KINDS.most:
        raise MisconfiguredError(
            f"The pods of the gang have {kinds} different sets of requirements, and a gang may "
            f"have {KINDS.most}; give more pods the same requests, node selectors and tolerations."
        )


class _Names:
    """Looks up level names of one topology; errors list the names that exist."""

    def __init__(self, tree: TopologyTree | None, cluster: Cluster) -> None:
        self._tree = tree
        self._cluster = cluster

    def level(self, wanted: str | None, what: str) -> int | None:
        return None if wanted is None else self.must(wanted, what)

    def must(self, wanted: str, what: str) -> int:
        if self._tree is None:
            if wanted in ("host", "kubernetes.io/hostname"):
                return 0
            raise MisconfiguredError(
                f"{what} {wanted!r} needs a Topology, and the cluster has none; create a Topology "
                f"with the node labels as its levels."
            )
        topology = self._tree.topology
        index = topology.index(wanted)
        if index is None:
            raise MisconfiguredError(
                f"{what} {wanted!r} is not a level of topology {topology.name!r}; "
                f"its levels are: {topology.known()}."
            )
        if index < len(topology.levels) and not self._tree.paths[index]:
            raise MisconfiguredError(
                f"{what} {wanted!r}: no node has label {topology.levels[index].label}, which "
                f"topology {topology.name!r} reads it from."
            )
        return index

    def fabric(self, wanted: str) -> int:
        index = None if self._tree is None else self._tree.topology.fabric(Fabric(wanted))
        if index is None:
            where = (
                "the cluster has no Topology"
                if self._tree is None
                else (f"it connects no level of topology {self._tree.topology.name!r}")
            )
            raise MisconfiguredError(f"Fabric {wanted!r}: {where}.")
        return index


def _slices(
    names: _Names, near: LevelRequest, counts: Iterable[tuple[str, int]]
) -> tuple[tuple[int, int], ...]:
    slices: list[tuple[int, int]] = []
    for slice_request in near.slices:
        level = names.must(slice_request.level, "Slice level")
        if slices and level <= slices[-1][0]:
            raise MisconfiguredError(
                f"Slice level {slice_request.level!r} must be finer than the slice level before it."
            )
        if slices and slices[-1][1] % slice_request.size:
            raise MisconfiguredError(
                f"Slice size {slice_request.size} at level {slice_request.level!r} does not divide "
                f"the slice size before it, {slices[-1][1]}."
            )
        slices.append((level, slice_request.size))
    for pods, count in counts if slices else ():
        if count % slices[0][1]:
            raise MisconfiguredError(
                f"Slice size {slices[0][1]} does not divide the {count} {pods}."
            )
    return tuple(slices)


def _counts(waiting: PendingGang, *, gang: bool = False, role: str = "") -> list[tuple[str, int]]:
    """Return the pod counts that slice sizes have to divide; surplus pods do not count."""
    roles = waiting.gang.roles
    if gang:
        own = {name for name, near in waiting.near_role if near.slices}
        total = sum(declared.count for declared in roles if declared.name not in own)
        return [("pods of the gang", total or waiting.gang.min_member)]
    return [(f"pods of role {role}", declared.count) for declared in roles if declared.name == role]


def _check_equal_slices(waiting: PendingGang, rules: PodConstraints) -> None:
    """Refuse slices across pods with different requirements: a slice would have no single size."""
    if not rules.slices:
        return
    own = {name for name, near in waiting.near_role if near.slices}
    for name, near in waiting.near_role:
        if not near.slices and (near.required or near.preferred):
            raise MisconfiguredError(
                f"Slices of the whole gang cannot be combined with a level of role {name} alone; "
                f"give the slices on the roles."
            )
    kinds = {member.needs for member in waiting.members if member.role not in own}
    if len(kinds) > 1:
        roles = sorted({m.role for m in waiting.members if m.role not in own})
        names = " and ".join(roles if len(roles) <= _NAMED else [*roles[:_NAMED], "others"])
        raise MisconfiguredError(
            f"Slices of the whole gang need pods with equal requests, and roles {names} differ; "
            f"give the slices on one role."
        )


def _allowed(waiting: PendingGang, cluster: Cluster, exclusive: int | None) -> Mask:
    mask = cluster.live.copy()
    for name in (*waiting.excluded_nodes, *waiting.constraints.avoid):
        row = cluster.rows.get(name)
        if row is not None:
            mask[row] = False
    if exclusive is not None or cluster.exclusive_domains:
        mask &= ~barred_rows(waiting.gang.id, cluster, waiting.constraints.topology, exclusive)
    return mask


def barred_rows(gang: GangId, cluster: Cluster, topology: str, exclusive: int | None) -> Mask:
    """Return the rows in exclusive domains of other gangs.

    With `exclusive`, those in domains of that level where other gangs run are included.
    """
    held: dict[tuple[str, int], set[int]] = {}  # rows in barred domains, by level
    for row, gangs in cluster.gangs_by_row.items():
        for other in gangs:
            if other == gang:
                continue
            if other in cluster.exclusive_domains:
                held.setdefault(cluster.exclusive_domains[other], set()).add(row)
            if exclusive is not None:
                held.setdefault((topology, exclusive), set()).add(row)
    barred = np.zeros(len(cluster.names), dtype=np.bool_)
    for (other_topology, level), rows in held.items():
        barred |= _domains_of(
            cluster, np.array(sorted(rows), dtype=np.int64), other_topology, level
        )
    return barred


def _domains_of(cluster: Cluster, rows: Ints, topology: str, level: int) -> Mask:
    """Return the slots of the rows, and those that share a domain with one of them."""
    tree = cluster.tree(topology)
    mask = np.zeros(len(cluster.names), dtype=np.bool_)
    mask[rows] = True
    if tree is not None and level < len(tree.codes):
        codes = tree.codes[level]
        mask |= (codes != UNKNOWN) & np.isin(codes, codes[rows])
    return mask


def _gpu_masks(kinds: tuple[str, ...], cluster: Cluster) -> tuple[tuple[str, Mask], ...]:
    if not kinds:
        return (("", cluster.live),)
    masks = tuple((kind, cluster.filters.of_gpu_type(kind)) for kind in kinds)
    if not any(mask.any() for _, mask in masks):
        raise MisconfiguredError(f"No node has a GPU of type {' or '.join(kinds)}.")
    return masks
