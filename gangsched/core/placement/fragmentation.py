"""FGD's fragmentation measure: idle GPU thousandths that the usual pods cannot use.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC'23. F(node) = sum over typical pods m, weighted by their share, of all idle
thousandths where m cannot run (or wants no GPU), else of those on GPUs too full for m.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangsched.core.cluster import Cluster
from gangsched.core.devices import share_milli
from gangsched.core.model import GPU, MILLI, PodNeeds, Waiting
from gangsched.core.nodes import Ints
from gangsched.core.snapshot import Snapshot

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Typical:
    """A usual pod and its share of the workload; shares sum to one."""

    needs: PodNeeds
    share: float


@dataclass(frozen=True, slots=True)
class State:
    """GPUs and other free resources of some rows.

    `idle` counts whole idle GPUs, shape (n,); `parts` are the free thousandths of shared GPUs,
    shape (n, d), zero where there is none; `free` is of every resource, shape (n, resources).
    """

    rows: Ints
    idle: Ints
    parts: Ints
    free: Ints


def state_of(cluster: Cluster, rows: Ints) -> State:
    """Read the present state of some rows."""
    free = cluster.allocatable[rows] - cluster.used[rows]
    idle = np.maximum(free[:, cluster.resources.index(GPU)], 0)
    width = max((len(cluster.shared.of(int(row))) for row in rows), default=0)
    parts = np.zeros((len(rows), width), dtype=np.int64)
    for position, row in enumerate(rows if width else ()):
        taken = cluster.shared.of(int(row))
        for index, device in enumerate(sorted(taken)):
            parts[position, index] = max(MILLI - taken[device], 0)
    return State(rows, idle, parts, free)


def measure(cluster: Cluster, state: State, typical: tuple[Typical, ...]) -> Floats:
    """Return F of each row in thousandths of a GPU, shape (n,)."""
    total = state.idle * MILLI + state.parts.sum(axis=1)
    result = np.zeros(len(state.rows))
    gpu = cluster.resources.index(GPU)
    for one in typical:
        vector = cluster.vector(one.needs)
        count, milli = _gpus(cluster, one.needs, state.rows)
        others = np.flatnonzero(vector)
        others = others[others != gpu]
        can = cluster.eligible(one.needs)[state.rows] & (count > 0) & (milli > 0)
        can &= np.all(state.free[:, others] >= vector[others], axis=1)
        room = state.parts >= milli[:, None]
        can &= state.idle + (room & (milli[:, None] < MILLI)).sum(axis=1) >= count
        unusable = np.where(room, 0, state.parts).sum(axis=1)
        result += one.share * np.where(can, unusable, total)
    return result


def growth(
    cluster: Cluster, rows: Ints, needs: PodNeeds, typical: tuple[Typical, ...]
) -> tuple[Floats, Ints]:
    """Return how much F of each row grows by one such pod, and the shared GPU it would best join.

    The second array holds a position among the row's shared GPUs (by index), or -1 for a new one.
    """
    before = state_of(cluster, rows)
    base = measure(cluster, before, typical)
    free = before.free - cluster.vector(needs)
    fresh = np.full(len(rows), -1, dtype=np.int64)
    if needs.share is None:
        whole = int(cluster.vector(needs)[cluster.resources.index(GPU)])
        after = State(rows, before.idle - whole, before.parts, free)
        return measure(cluster, after, typical) - base, fresh
    _, milli = _gpus(cluster, needs, rows)
    opened = np.where(before.idle > 0, MILLI - milli, 0)[:, None]
    after = State(rows, before.idle - 1, np.concatenate([before.parts, opened], axis=1), free)
    best = np.where(before.idle > 0, measure(cluster, after, typical) - base, np.inf)
    device = fresh
    for index in range(before.parts.shape[1]):
        parts = before.parts.copy()
        parts[:, index] -= milli
        possible = (parts[:, index] >= 0) & (before.parts[:, index] > 0)
        value = measure(cluster, State(rows, before.idle, np.maximum(parts, 0), free), typical)
        value = np.where(possible, value - base, np.inf)
        device = np.where(value < best, index, device)
        best = np.minimum(best, value)
    return best, device


def workload(waiting: Waiting, snapshot: Snapshot) -> tuple[Typical, ...]:
    """Return the shapes of all pods in the snapshot with their shares."""
    seen: dict[PodNeeds, int] = dict(snapshot.cluster.shapes)
    others = [gang for line in snapshot.lines for gang in line.gangs]
    for gang in (waiting, *snapshot.waiting, *others):
        for member in gang.members:
            seen[member.needs] = seen.get(member.needs, 0) + 1
    total = sum(seen.values())
    return tuple(Typical(needs, count / total) for needs, count in seen.items())


def _gpus(cluster: Cluster, needs: PodNeeds, rows: Ints) -> tuple[Ints, Ints]:
    """Return how many GPUs a pod wants, and thousandths of each, on each row (0: not possible)."""
    if needs.share is None:
        count = int(cluster.vector(needs)[cluster.resources.index(GPU)])
        milli = np.full(len(rows), MILLI, dtype=np.int64)
        return np.full(len(rows), count, dtype=np.int64), milli
    share = needs.share
    if share.memory_mib:
        asked = [share_milli(cluster.nodes[row], share) or 0 for row in rows]
        return np.full(len(rows), share.devices, dtype=np.int64), np.array(asked, dtype=np.int64)
    milli = np.full(len(rows), share.milli, dtype=np.int64)
    return np.full(len(rows), share.devices, dtype=np.int64), milli
