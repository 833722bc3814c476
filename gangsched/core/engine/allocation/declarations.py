"""What administrators declare: queues, advance reservations, topologies, quotas of namespaces.

Pools of nodes are among it.
"""

from enum import Enum

from gangsched.core import facts as f
from gangsched.core.engine.allocation.freed_generation import FreedGeneration
from gangsched.core.model.ids import GangId
from gangsched.core.model.node_pools import NodeSupply
from gangsched.core.model.queues import AdvanceReservation, Queue
from gangsched.core.model.topology import Topology


class Change(Enum):
    """What else a declaration changes."""

    NOTHING = 0
    REQUESTS = 1
    """What pending gangs need of queues and quotas: each is classified again."""
    TOPOLOGIES = 2


class Declarations:
    """The latest declaration of each name."""

    def __init__(self, freed: FreedGeneration) -> None:
        self.queues: dict[str, Queue] = {}
        """Queues by name."""
        self.bookings: dict[str, AdvanceReservation] = {}
        """Advance reservations by name."""
        self.topologies: dict[str, Topology] = {}
        """Topologies by name."""
        self.namespaces: dict[str, dict[str, dict[str, int]]] = {}
        """The amounts that ResourceQuotas leave, by namespace and quota; no entry is empty."""
        self.protected: frozenset[GangId] = frozenset()
        """Gangs that a PodDisruptionBudget protects now."""
        self.node_supply = NodeSupply()
        """The nodes that can be bought, and those that come."""
        self.queues_version = 0
        """Grows with every change of a queue."""
        self.version = 0
        """Grows with every change that pending gangs must be classified again for."""
        self._freed = freed

    def fold(self, fact: f.Fact) -> Change:
        """Apply a declaration; other facts change nothing."""
        match fact:
            case f.QueueSeen(queue):
                if self.queues.get(queue.name) != queue:
                    self.queues[queue.name] = queue
                    return self._queues_changed()
            case f.QueueGone(name):
                if self.queues.pop(name, None) is not None:
                    return self._queues_changed()
            case f.AdvanceReservationSeen(booking):
                self.bookings[booking.name] = booking
                self._freed.advance()
            case f.AdvanceReservationGone(name):
                if self.bookings.pop(name, None) is not None:
                    self._freed.advance()
            case f.NamespaceQuotaSeen(namespace, name, left):
                return self._quota_seen(namespace, name, dict(left))
            case f.NamespaceQuotaGone(namespace, name):
                self._quota_gone(namespace, name)
            case f.TopologySeen(topology):
                return self._take_topologies({**self.topologies, topology.name: topology})
            case f.TopologyGone(name):
                left_over = {k: v for k, v in self.topologies.items() if k != name}
                return self._take_topologies(left_over)
            case f.BudgetsSeen(gangs):
                self.protected = frozenset(gangs)
            case f.NodeSupplySeen(supply):
                self.node_supply = supply
            case _:
                pass
        return Change.NOTHING

    def topologies_in_order(self) -> tuple[Topology, ...]:
        """Return the topologies; one called "default" is the default, else the first by name."""
        order = sorted(
            self.topologies.values(),
            key=lambda topology: (topology.name != "default", topology.name),
        )
        return tuple(order)

    def _queues_changed(self) -> Change:
        self.queues_version += 1
        self.version += 1
        return Change.REQUESTS

    def _quota_seen(self, namespace: str, name: str, left: dict[str, int]) -> Change:
        """Record the amounts that a ResourceQuota leaves."""
        if not left:  # it counts nothing that is reserved
            self._quota_gone(namespace, name)
            return Change.NOTHING
        first = namespace not in self.namespaces
        self.namespaces.setdefault(namespace, {})[name] = left
        if first:
            self.version += 1  # from now on it matters which pods exist
            return Change.REQUESTS
        return Change.NOTHING

    def _quota_gone(self, namespace: str, name: str) -> None:
        quotas = self.namespaces.get(namespace, {})
        if quotas.pop(name, None) is not None and not quotas:
            del self.namespaces[namespace]

    def _take_topologies(self, topologies: dict[str, Topology]) -> Change:
        if topologies == self.topologies:
            return Change.NOTHING
        self.topologies = topologies
        self._freed.advance()
        return Change.TOPOLOGIES
