"""The allocation of each key on a node: of observed pods, and of assigned members."""

from collections.abc import Hashable
from dataclasses import dataclass

from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.pods import PodRequirements


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """The allocation of one key on one node."""

    node: NodeName
    needs: PodRequirements
    holder: GangId | None
    devices: Devices = ()


class NodeAllocations:
    """Allocations by key and by node.

    A deferred allocation is not counted until pods have left its full node.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, NodeAllocation] = {}
        self._on_node: dict[NodeName, dict[Hashable, NodeAllocation]] = {}
        self._deferred: dict[NodeName, dict[Hashable, None]] = {}

    def get(self, key: Hashable) -> NodeAllocation | None:
        """Return the allocation of a key, or None."""
        return self._by_key.get(key)

    def all(self) -> dict[Hashable, NodeAllocation]:
        """Return every allocation by its key."""
        return dict(self._by_key)

    def on(self, node: NodeName) -> list[tuple[Hashable, NodeAllocation]]:
        """Return the allocations of a node."""
        return list(self._on_node.get(node, {}).items())

    def put(self, key: Hashable, allocation: NodeAllocation) -> None:
        """Set the allocation of a key."""
        self._by_key[key] = self._on_node.setdefault(allocation.node, {})[key] = allocation

    def remove(self, key: Hashable) -> None:
        """Remove the allocation of a key."""
        node = self._by_key.pop(key).node
        del self._on_node[node][key]
        if not self._on_node[node]:
            del self._on_node[node]

    def rekey(self, key: Hashable, other: Hashable) -> None:
        """Move the allocation of a key to another key, which has none."""
        allocation = self._by_key[key]
        self.put(other, allocation)
        self.remove(key)
        if self.end_deferral(key, allocation.node):
            self.defer(other, allocation.node)

    def defer(self, key: Hashable, node: NodeName) -> None:
        """Defer the count of an allocation."""
        self._deferred.setdefault(node, {})[key] = None

    def end_deferral(self, key: Hashable, node: NodeName) -> bool:
        """Return whether an allocation was deferred, and end that."""
        deferred = self._deferred.get(node)
        if deferred is None or key not in deferred:
            return False
        del deferred[key]
        if not deferred:
            del self._deferred[node]
        return True

    def first_deferred(self, node: NodeName) -> Hashable | None:
        """Return the key of the first deferred allocation of a node, or None."""
        deferred = self._deferred.get(node)
        return next(iter(deferred)) if deferred else None
