"""What each key holds on a node: pods that were seen, and places that are reserved."""

from collections.abc import Hashable
from dataclasses import dataclass

from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.pods import PodNeeds


@dataclass(frozen=True, slots=True)
class Charge:
    """What one key holds on one node."""

    node: NodeName
    needs: PodNeeds
    holder: GangId | None
    devices: Devices = ()


class Charges:
    """Charges by key and by node. Those that `wait` are not counted until others have left."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Charge] = {}
        self._on_node: dict[NodeName, dict[Hashable, Charge]] = {}
        self._waiting: dict[NodeName, dict[Hashable, None]] = {}

    def get(self, key: Hashable) -> Charge | None:
        """Return what a key holds, or None."""
        return self._by_key.get(key)

    def all(self) -> dict[Hashable, Charge]:
        """Return every charge by its key."""
        return dict(self._by_key)

    def on(self, node: NodeName) -> list[tuple[Hashable, Charge]]:
        """Return the charges of a node."""
        return list(self._on_node.get(node, {}).items())

    def keep(self, key: Hashable, charge: Charge) -> None:
        """Keep what a key holds from now on."""
        self._by_key[key] = self._on_node.setdefault(charge.node, {})[key] = charge

    def drop(self, key: Hashable) -> None:
        """Forget what a key holds."""
        node = self._by_key.pop(key).node
        del self._on_node[node][key]
        if not self._on_node[node]:
            del self._on_node[node]

    def rename(self, key: Hashable, other: Hashable) -> None:
        """Let another key, which holds nothing, have what a key holds."""
        charge = self._by_key[key]
        self.keep(other, charge)
        self.drop(key)
        if self.settle(key, charge.node):
            self.wait(other, charge.node)

    def wait(self, key: Hashable, node: NodeName) -> None:
        """Have a charge wait to be counted."""
        self._waiting.setdefault(node, {})[key] = None

    def settle(self, key: Hashable, node: NodeName) -> bool:
        """Tell whether a charge waited to be counted; it waits no longer."""
        waiting = self._waiting.get(node)
        if waiting is None or key not in waiting:
            return False
        del waiting[key]
        if not waiting:
            del self._waiting[node]
        return True

    def next(self, node: NodeName) -> Hashable | None:
        """Return the key of the first charge of a node that waits, or None."""
        waiting = self._waiting.get(node)
        return next(iter(waiting)) if waiting else None
