"""How many pods of one kind each node can take, by counting alone."""

import numpy as np

from gangsched.core.cluster import Cluster, Ints
from gangsched.core.model import NodeName, PodNeeds


def capacity(cluster: Cluster, needs: PodNeeds, avoid: tuple[NodeName, ...] = ()) -> Ints:
    """Return for each slot how many more such pods fit there now, shape (slots,)."""
    count = _room(cluster, needs, cluster.free())
    count[~cluster.eligible(needs)] = 0
    if needs.host_ports:
        # Two pods of one kind never share a host port.
        count = np.minimum(count, cluster.ports_free(needs.host_ports))
    for name in avoid:
        row = cluster.rows.get(name)
        if row is not None:
            count[row] = 0
    return count


def capacity_when_empty(cluster: Cluster, needs: PodNeeds) -> Ints:
    """Return for each slot how many such pods an empty node would take, shape (slots,)."""
    count = _room(cluster, needs, cluster.allocatable)
    count[~cluster.eligible(needs)] = 0
    return np.minimum(count, 1) if needs.host_ports else count


def _room(cluster: Cluster, needs: PodNeeds, room: Ints) -> Ints:
    vector = cluster.vector(needs)
    columns = np.flatnonzero(vector)
    # `vector` may have brought a new resource, which widened the cluster after `room` was taken.
    if room.shape[1] < len(vector):
        room = np.pad(room, ((0, 0), (0, len(vector) - room.shape[1])))
    count: Ints = np.min(room[:, columns] // vector[columns], axis=1)
    np.maximum(count, 0, out=count)
    return count


def preference(cluster: Cluster, needs: PodNeeds) -> Ints:
    """Return the sum of preferred-affinity weights each slot earns, shape (slots,)."""
    score = np.zeros(len(cluster.names), dtype=np.int64)
    for weight, term in needs.preferred:
        score += weight * cluster.matches_term(term)
    return score
