"""Repartitions idle GPUs (MIG) if a gang lacks GPUs or MIG instances.

A GPU in use is never repartitioned. Only the kubelet knows which GPU of a node a pod uses. So the
GPUs of one layout count as idle only if no resource that they offer is in use on that node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gangsched.core.bounds import AMOUNT, CUTS_TRIED, DOMAINS_TRIED
from gangsched.core.cluster.node_table import Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import NodeName
from gangsched.core.model.mig_profiles import RESOURCE, Model, maximal_layouts, model_of, offers
from gangsched.core.model.nodes import Layout, Node
from gangsched.core.model.placement import Placement, Repartition
from gangsched.core.model.pods import GPU
from gangsched.core.model.refusal import Refusal
from gangsched.core.placement.constraints import (
    MisconfiguredError,
    ResolvedConstraints,
    resolve_constraints,
)
from gangsched.core.placement.demand import pod_classes
from gangsched.core.policy import Placer
from gangsched.core.snapshot import Snapshot
from gangsched.core.solver import cp_model

_SECONDS = 1.0
"""Deterministic seconds for one choice of layouts; the models have tens of integers."""


@dataclass(frozen=True, slots=True)
class GpuPool:
    """Idle GPUs of one node and one layout: their indices, and what each offers now."""

    node: NodeName
    model: Model
    layout: Layout
    indices: tuple[int, ...]


def place_with_repartition(
    waiting: PendingGang, snapshot: Snapshot, placer: Placer
) -> Placement | None:
    """Place a gang by repartitioning the fewest idle GPUs, or return None if none helps."""
    cluster = snapshot.cluster
    wanted = _wanted(waiting)
    if not wanted:
        return None
    pools = list(_pools(cluster))
    if not pools:
        return None
    try:
        scope = resolve_constraints(waiting, cluster)
    except MisconfiguredError:
        return None
    masks = islice(_masks(waiting, scope, cluster), DOMAINS_TRIED.most)
    choices = (_choose(wanted, cluster, pools, mask) for mask in masks)
    for cuts in islice((cuts for cuts in choices if cuts is not None), CUTS_TRIED.most):
        with cluster.with_allocatable({cut.node: (cut.held, cut.gained) for cut in cuts}):
            result = placer.place(waiting, snapshot)
        if isinstance(result, Refusal):
            continue
        used = {node for _, node in result.nodes}
        return Placement(
            nodes=result.nodes,
            devices=result.devices,
            repartitions=tuple(cut for cut in cuts if cut.node in used),
            gpu_type=result.gpu_type,
        )
    return None


def _wanted(waiting: PendingGang) -> dict[str, int]:
    """Return how many MIG instances and whole GPUs the smallest gang needs."""
    wanted: dict[str, int] = {}
    for member in sorted(waiting.members, key=lambda m: m.rank)[: waiting.members_min]:
        for name, quantity in member.needs.requests:
            if name == GPU or name.startswith(RESOURCE):
                wanted[name] = min(wanted.get(name, 0) + quantity, AMOUNT.most)
    return wanted


def _pools(cluster: Cluster) -> Iterator[GpuPool]:
    """Yield the idle GPUs of every node with a known layout."""
    for row in cluster.node_cached("rows with layouts", lambda: _rows_with_layouts(cluster)):
        node = cluster.nodes[row]
        assert node is not None, "it has layouts"  # noqa: S101
        name = node.name
        model = model_of(node.gpu_model, node.gpu_memory_mib)
        if model is None:
            continue
        for layout in sorted(set(node.layouts)):
            if _idle(cluster, row, layout):
                indices = tuple(i for i, present in enumerate(node.layouts) if present == layout)
                yield GpuPool(name, model, layout, indices)


def _rows_with_layouts(cluster: Cluster) -> list[int]:
    """Return the rows of nodes with a known layout; most clusters have few or none."""
    return [row for row, node in enumerate(cluster.nodes) if node is not None and node.layouts]


def _idle(cluster: Cluster, row: int, layout: Layout) -> bool:
    columns = [
        cluster.resources.index(name) for name in offers(layout) if name in cluster.resources
    ]
    return not cluster.used[row, columns].any()


def _masks(waiting: PendingGang, scope: ResolvedConstraints, cluster: Cluster) -> Iterator[Mask]:
    """Yield the nodes where GPUs may be repartitioned: each required domain, or all nodes."""
    level = scope.rules.required
    if level is None:
        for _, mask in scope.gpu_masks:
            yield mask & scope.allowed
        return
    codes = scope.codes(level, len(cluster.names))
    kinds = pod_classes(waiting, scope, cluster)
    for _, mask in scope.gpu_masks:
        inside = mask & scope.allowed & (codes != UNKNOWN)
        for kind in kinds[:1]:
            inside = inside & cluster.eligible(kind.needs)
        for code in np.unique(codes[inside]):
            yield inside & (codes == code)


def _choose(
    wanted: dict[str, int], cluster: Cluster, pools: list[GpuPool], mask: Mask
) -> list[Repartition] | None:
    """Choose the fewest GPUs to repartition, as counts of maximal layouts per node (CP-SAT)."""
    inside = [pool for pool in pools if mask[cluster.rows[pool.node]]]
    short = {
        name: quantity - _free(cluster, name, mask)
        for name, quantity in wanted.items()
        if quantity > _free(cluster, name, mask)
    }
    if not short or not inside:
        return None
    model = cp_model.CpModel()
    cut: dict[tuple[int, Layout], cp_model.IntVar] = {}
    gains: dict[str, list[cp_model.LinearExprT]] = {name: [] for name in short}
    touched: list[cp_model.IntVar] = []
    for index, pool in enumerate(inside):
        targets = [layout for layout in _targets(pool.model, short) if layout != pool.layout]
        here = [model.new_int_var(0, len(pool.indices), "") for _ in targets]
        model.add(sum(here) <= len(pool.indices))
        used = model.new_bool_var("")
        model.add(sum(here) <= len(pool.indices) * used)
        touched.append(used)
        for target, variable in zip(targets, here, strict=True):
            cut[index, target] = variable
            offered = offers(target)
            for name in short:
                gains[name].append(variable * offered.get(name, 0))
        lost = offers(pool.layout)
        for name in short:
            if name in lost:
                gains[name].append(-lost[name] * sum(here))
    for name, missing in short.items():
        model.add(sum(gains[name]) >= missing)
    # Fewest GPUs, then fewest nodes.
    model.minimize(sum(cut.values()) * (len(inside) + 1) + sum(touched))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _SECONDS
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    chosen: dict[NodeName, list[tuple[GpuPool, Layout, int]]] = {}
    for (index, target), variable in cut.items():
        if count := solver.value(variable):
            chosen.setdefault(inside[index].node, []).append((inside[index], target, count))
    return [_repartition(cluster, node, parts) for node, parts in chosen.items()]


def _targets(model: Model, short: dict[str, int]) -> list[Layout]:
    """Return the useful layouts: a whole GPU, and maximal ones that offer a missing resource."""
    useful = [
        layout for layout in maximal_layouts(model) if any(name in offers(layout) for name in short)
    ]
    return [(), *useful] if GPU in short else useful


def _free(cluster: Cluster, name: str, mask: Mask) -> int:
    if name not in cluster.resources:
        return 0
    column = cluster.resources.index(name)
    free = cluster.allocatable[:, column] - cluster.used[:, column]
    return int(np.maximum(free, 0)[mask].sum())


def _repartition(
    cluster: Cluster, name: NodeName, parts: list[tuple[GpuPool, Layout, int]]
) -> Repartition:
    node = cluster.nodes[cluster.rows[name]]
    assert isinstance(node, Node), "pools are of live nodes"  # noqa: S101
    layouts = list(node.layouts)
    held: dict[str, int] = {}
    gained: dict[str, int] = {}
    taken: dict[Layout, int] = {}
    for pool, target, count in parts:
        first = taken.get(pool.layout, 0)
        taken[pool.layout] = first + count
        for index in pool.indices[first : first + count]:
            layouts[index] = target
            for resource, quantity in offers(pool.layout).items():
                held[resource] = held.get(resource, 0) + quantity
            for resource, quantity in offers(target).items():
                gained[resource] = gained.get(resource, 0) + quantity
    return Repartition(
        name, tuple(layouts), tuple(sorted(held.items())), tuple(sorted(gained.items()))
    )
