"""FGD's fragmentation measure: idle GPU thousandths that the usual pods cannot use.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC'23. F(node) = sum over typical pods m, weighted by their share, of all idle
thousandths where m cannot run (or requests no GPU), else of those on GPUs too full for m.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangsched.core.cluster.gpu_sharing import share_milli
from gangsched.core.cluster.node_table import Ints, Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.snapshot import Snapshot

Floats = NDArray[np.float64]

_TYPICAL_PODS_MAX = 256
"""How many of the most frequent requirements the measure uses; each is tried on every node."""


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """The requirements of a typical pod, and its share of the workload; shares sum to one."""

    needs: PodRequirements
    share: float


@dataclass(frozen=True, slots=True)
class FreeResources:
    """GPUs and other free resources of some rows.

    `idle` counts whole idle GPUs, shape (n,); `parts` are the free thousandths of shared GPUs,
    shape (n, d), zero where there is none; `free` is of every resource, shape (n, resources).
    """

    rows: Ints
    idle: Ints
    parts: Ints
    free: Ints


def state_of(cluster: Cluster, rows: Ints) -> FreeResources:
    """Read the present state of some rows."""
    free = cluster.allocatable[rows] - cluster.used[rows]
    idle = np.maximum(free[:, cluster.resources.index(GPU)], 0)
    width = max((len(cluster.shared.of(int(row))) for row in rows), default=0)
    parts = np.zeros((len(rows), width), dtype=np.int64)
    for position, row in enumerate(rows if width else ()):
        taken = cluster.shared.of(int(row))
        for index, device in enumerate(sorted(taken)):
            parts[position, index] = max(MILLI - taken[device], 0)
    return FreeResources(rows, idle, parts, free)


@dataclass(frozen=True, slots=True)
class _TypicalArrays:
    """Typical pods as arrays. `can` and `milli` are of shape (slots, typical).

    `milli` are the requested thousandths of one GPU, 0 on nodes that cannot serve the request.
    """

    wants: Ints
    others: Ints
    count: Ints
    can: NDArray[np.bool_]
    milli: Ints
    shares: Floats


def _typical_arrays(cluster: Cluster, typical: tuple[TypicalPod, ...]) -> _TypicalArrays:
    gpu = cluster.resources.index(GPU)
    vectors = np.stack(
        [cluster.request_vector(pod.needs) for pod in typical]
    )  # (typical, resources)
    others = np.delete(np.arange(vectors.shape[1]), gpu)
    every = np.arange(len(cluster.names))
    asked = [_gpus(cluster, pod.needs, every) for pod in typical]
    return _TypicalArrays(
        vectors[:, others],
        others,
        np.array([count for count, _ in asked]),
        np.stack([_able(cluster, pod.needs) for pod in typical], axis=1),
        np.stack([milli for _, milli in asked], axis=1),
        np.array([pod.share for pod in typical]),
    )


def _able(cluster: Cluster, needs: PodRequirements) -> Mask:
    """Return which slots could take such a pod if they were large enough."""
    able = cluster.eligible(needs)
    return np.zeros_like(able) if cluster.unknown_requests(needs) else able


def measure(cluster: Cluster, state: FreeResources, typical: tuple[TypicalPod, ...]) -> Floats:
    """Return F of each row in thousandths of a GPU, shape (n,)."""
    usual = cluster.node_cached(("usual", typical), lambda: _typical_arrays(cluster, typical))
    milli = usual.milli[state.rows]
    free = state.free[:, None, usual.others]
    can = usual.can[state.rows] & np.all((free >= usual.wants) | (usual.wants == 0), axis=2)
    fits = state.parts[:, None, :] >= milli[:, :, None]  # (n, typical, devices)
    shared = np.where(milli < MILLI, fits.sum(axis=2), 0)
    can &= (usual.count > 0) & (milli > 0) & (state.idle[:, None] + shared >= usual.count)
    total = state.idle * MILLI + state.parts.sum(axis=1)
    unusable = np.where(fits, 0, state.parts[:, None, :]).sum(axis=2)
    result: Floats = (np.where(can, unusable, total[:, None]) * usual.shares).sum(axis=1)
    return result


def growth(
    cluster: Cluster, rows: Ints, needs: PodRequirements, typical: tuple[TypicalPod, ...]
) -> tuple[Floats, Ints]:
    """Return how much F of each row grows by one such pod, and the best shared GPU for the pod.

    The second array holds a position among the row's shared GPUs (by index), or -1 for a new one.
    """
    before = state_of(cluster, rows)
    every = np.arange(len(cluster.names))
    base = cluster.usage_cached(
        ("fragmentation", typical),
        lambda some: measure(cluster, state_of(cluster, every[some]), typical),
    )[rows]
    free = before.free - cluster.request_vector(needs)
    device = np.full(len(rows), -1, dtype=np.int64)
    if needs.share is None:
        whole = int(cluster.request_vector(needs)[cluster.resources.index(GPU)])
        after = FreeResources(rows, before.idle - whole, before.parts, free)
        return measure(cluster, after, typical) - base, device
    # Every way to place it, as a row of its own: a new GPU first, then each that is shared.
    _, milli = _gpus(cluster, needs, rows)
    fits = (before.parts >= np.maximum(milli, 1)[:, None]) & (before.parts > 0)
    which, at = np.nonzero(np.concatenate([(before.idle > 0)[:, None], fits], axis=1))
    parts = np.concatenate([np.zeros_like(before.idle)[:, None], before.parts], axis=1)[which]
    opens = at == 0
    parts[opens, 0] = MILLI
    parts[np.arange(len(at)), at] -= milli[which]
    after = FreeResources(rows[which], before.idle[which] - opens, parts, free[which])
    grows = measure(cluster, after, typical) - base[which]
    best = np.full(len(rows), np.inf)
    np.minimum.at(best, which, grows)
    chosen = np.flatnonzero(grows == best[which])[::-1]  # the first of the best is written last
    device[which[chosen]] = at[chosen] - 1
    return best, device


def workload(waiting: PendingGang, snapshot: Snapshot) -> tuple[TypicalPod, ...]:
    """Return the most frequent requirements of all pods in the snapshot, with their shares."""
    seen: dict[PodRequirements, int] = dict(snapshot.cluster.pods_by_needs)
    others = [gang for view in snapshot.equivalence_classes for gang in view.gangs]
    for gang in (waiting, *snapshot.pending, *others):
        for member in gang.members:
            seen[member.needs] = seen.get(member.needs, 0) + 1
    usual = sorted(seen.items(), key=lambda item: -item[1])[
        :_TYPICAL_PODS_MAX
    ]  # the first of equals stay
    chosen = {needs for needs, _ in usual}
    total = sum(count for _, count in usual)
    return tuple(TypicalPod(n, count / total) for n, count in seen.items() if n in chosen)


def _gpus(cluster: Cluster, needs: PodRequirements, rows: Ints) -> tuple[int, Ints]:
    """Return the GPUs a pod requests, and thousandths of each on each row (0: not possible)."""
    if needs.share is None:
        count = int(cluster.request_vector(needs)[cluster.resources.index(GPU)])
        return count, np.full(len(rows), MILLI, dtype=np.int64)
    share = needs.share
    if share.memory_mib:
        asked = [share_milli(cluster.nodes[row], share) or 0 for row in rows]
        return share.devices, np.array(asked, dtype=np.int64)
    return share.devices, np.full(len(rows), share.milli, dtype=np.int64)
