"""GPUs that pods hold over time, by node and by queue: nominal quota used, borrowed and lent.

The meter counts bound pods only. GPUs that are assigned to a gang while preempted pods still hold
them are so counted once, for the pods that hold them.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangsched.core import facts as f
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.model.queues import Queue, QuotaKey
from gangsched.core.quota.queue_tree import QueueTree
from simulator.jobs import gpus_of

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stays:
    """The time of each pod on its node, with the indices of its node and its queue.

    Pods without a gang have queue -1.
    """

    node: NDArray[np.int64]
    queue: NDArray[np.int64]
    start_s: Numbers
    end_s: Numbers
    gpus: Numbers

    def gpu_s(self, until_s: float) -> Numbers:
        """Return the GPU-seconds that each pod held up to a time."""
        return np.maximum(np.minimum(self.end_s, until_s) - self.start_s, 0.0) * self.gpus


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """GPU-seconds of a queue's subtree: own use, borrowed, lent, and all of its nominal quota."""

    nominal: float | None
    nominal_s: float
    own_s: float
    borrowed_s: float
    lent_s: float


class Meter:
    """Counts GPUs of nodes and queues; a queue counts its whole subtree, as its quota does.

    A queue borrows what it uses above its nominal quota. Children borrow from three sources: the
    quota that their parent gave to no child, what the parent itself borrows, and their siblings.
    Siblings lend in proportion to their unused quota that may be lent.
    """

    def __init__(self, nodes: Iterable[Node], queues: Iterable[Queue]) -> None:
        self.tree = QueueTree(queues)
        self.names = sorted(name for name in self.tree.queues if name in self.tree)
        self._number = {name: at for at, name in enumerate(self.names)}
        self._models = {node.name: node.gpu_model for node in nodes}
        self._node = {name: at for at, name in enumerate(self._models)}
        self._on_node = np.zeros(len(self._node))
        self._open: dict[PodUid, tuple[int, str, NodeName, float, float]] = {}
        self._queue_of: dict[GangId, str] = {}
        self._known: dict[PodRequirements, float] = {}
        self._stays: tuple[array[Any], ...] = tuple(array(kind) for kind in "qqddd")
        self._now_s = 0.0
        self._quotas(self.tree)

    def _quotas(self, tree: QueueTree) -> None:
        """Make a row for each queue and each GPU type that its quotas count."""
        keys = {name: _keys(tree, name) for name in self.names}
        self._rows = [(name, key) for name in self.names for key in keys[name]]
        row = {key: at for at, key in enumerate(self._rows)}
        self._paths: dict[tuple[str, str], list[int]] = {}
        count = len(self._rows)
        self._parent = np.array(
            [row.get((tree.queues[name].parent, key), count) for name, key in self._rows], int
        )
        self._nominal = np.array([tree.nominal(*key) or 0 for key in self._rows], float) / MILLI
        lent = (tree.quota(*key) for key in self._rows)
        self._lendable = np.array(
            [np.inf if q is None or q.lending is None else q.lending / MILLI for q in lent], float
        )
        self._limited = np.array([tree.nominal(*key) is not None for key in self._rows], bool)
        self._ungiven = self._nominal - self._of_children(self._nominal)
        self._held = np.zeros(count)
        self._own, self._borrowed, self._lent = (np.zeros(count) for _ in range(3))

    def _of_children(self, values: Numbers) -> Numbers:
        return np.bincount(self._parent, values, len(self._rows) + 1)[:-1].astype(float)

    # -- facts --------------------------------------------------------------------------------

    def observe(self, fact: f.Fact, now_s: float) -> None:
        """Count a fact that the engine observes as well."""
        match fact:
            case f.PodSeen(uid=uid, ended=True) | f.PodGone(uid) if uid in self._open:
                self._ends(uid, now_s)
            case f.PodSeen() if fact.uid not in self._open and fact.node in self._node:
                self._begins(fact, now_s)
            case f.GangSeen(gang):
                self._queue_of[gang.id] = self.tree.charged_queue(gang.queue)
            case f.GangGone(gang_id):
                self._queue_of.pop(gang_id, None)
            case _:
                pass

    def _begins(self, pod: f.PodSeen, now_s: float) -> None:
        gpus = self._known.get(pod.needs)
        if gpus is None:
            gpus = self._known[pod.needs] = gpus_of(pod.needs)
        assert pod.node is not None, "pods that are counted run"  # noqa: S101
        queue = self._queue_of.get(pod.gang, "") if pod.gang is not None else ""
        self._open[pod.uid] = self._node[pod.node], queue, pod.node, now_s, gpus
        if gpus:
            self._add(queue, pod.node, gpus, now_s)

    def _ends(self, uid: PodUid, now_s: float) -> None:
        node, queue, name, since_s, gpus = self._open.pop(uid)
        if not gpus:
            return
        self._add(queue, name, -gpus, now_s)
        values = (node, self._number.get(queue, -1), since_s, now_s, gpus)
        for column, value in zip(self._stays, values, strict=True):
            column.append(value)

    def _add(self, queue: str, node: NodeName, gpus: float, now_s: float) -> None:
        self._on_node[self._node[node]] += gpus
        if not queue:
            return
        self._advance(now_s)
        model = self._models[node]
        path = self._paths.get((queue, model))
        if path is None:
            above = set(self.tree.path(queue))
            path = self._paths[queue, model] = [
                at for at, (name, key) in enumerate(self._rows) if name in above and key[1] in model
            ]
        self._held[path] += gpus

    def _advance(self, now_s: float) -> None:
        """Add the GPU-seconds since the last change."""
        past_s = now_s - self._now_s
        if past_s <= 0:
            return
        self._now_s = now_s
        held, nominal = self._held, self._nominal
        over = np.where(self._limited, np.maximum(held - nominal, 0), 0)
        self._own += past_s * np.where(self._limited, np.minimum(held, nominal), 0)
        if not over.any():
            return
        self._borrowed += past_s * over
        spare = np.maximum(self._ungiven - (held - self._of_children(held)), 0)
        asked = np.maximum(self._of_children(over) - spare, 0)
        idle = np.minimum(np.maximum(nominal - held, 0), self._lendable)
        there = self._of_children(idle)
        part = np.append(np.minimum(asked, there) / np.maximum(there, 1e-9), 0.0)
        self._lent += past_s * idle * part[self._parent]

    # -- queries ------------------------------------------------------------------------------

    def on_nodes(self) -> Numbers:
        """Return how many GPUs are held on each node now, in the order of the nodes."""
        return self._on_node

    def quota_use(self, now_s: float) -> dict[str, QuotaUse]:
        """Return what each queue used of its nominal quota, borrowed and lent, up to now."""
        self._advance(now_s)
        use_of = {}
        for name in self.names:
            rows = [at for at, (queue, _) in enumerate(self._rows) if queue == name]
            nominal = float(self._nominal[rows].sum()) if self._limited[rows].any() else None
            sums = (float(v[rows].sum()) for v in (self._own, self._borrowed, self._lent))
            use_of[name] = QuotaUse(nominal, (nominal or 0.0) * now_s, *sums)
        return use_of

    def close(self, now_s: float) -> Stays:
        """Return all stays; pods that still run are counted up to now."""
        for uid in list(self._open):
            self._ends(uid, now_s)
        node, queue, *rest = (np.array(column) for column in self._stays)
        return Stays(node, queue, *rest)


def _keys(tree: QueueTree, name: str) -> Sequence[QuotaKey]:
    """Return the keys by which a queue's quotas count GPUs: all together, or by GPU type."""
    keys = [key for key in tree.quota_keys(name) if key[0] == GPU]
    return [(GPU, "")] if (GPU, "") in keys or not keys else keys
