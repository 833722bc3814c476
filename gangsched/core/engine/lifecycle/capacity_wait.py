"""Reserved gangs that wait for capacity: GPUs are being repartitioned, or other gangs terminate.

Their members are charged at once, beyond what their nodes have at present, so that no other gang
gets the capacity when it comes free. Before that, none of their pods is created or bound.
"""

from collections.abc import Collection

from gangsched.core import orders as o
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Repartition
from gangsched.core.model.pods import PodRequirements


class CapacityWait:
    """Records what reserved gangs wait for; the engine asks after each fact that frees capacity.

    A gang waits for its nodes, and until its queues are within their limits, terminating gangs
    included.
    """

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations
        self._gangs: dict[GangId, GangState] = {}
        """Gangs that are held back."""

    def hold(self, gang: GangState, cuts: tuple[Repartition, ...]) -> list[o.Order]:
        """Hold a gang back until its nodes have what it is charged; order the repartitions.

        These GPUs stay charged until their node shows the new layout: in between no gang may use
        them.
        """
        self._gangs[gang.id] = gang
        gang.reservation.waits_for_capacity = True
        orders: list[o.Order] = []
        for cut in cuts:
            gang.reservation.awaited_repartitions[cut.node] = cut
            self._allocations.charge(
                _key(gang, cut.node), cut.node, PodRequirements(cut.held), None
            )
            orders.append(o.RepartitionGpus(gang.id, cut.node, cut.layouts))
        return orders

    def node_seen(self, node: Node) -> list[GangState]:
        """Record the MIG layout of a node; return the gangs that its repartition failed for."""
        failed = []
        for gang in self._gangs.values():
            cut = gang.reservation.awaited_repartitions.get(node.name)
            if cut is not None and node.mig_failed:
                failed.append(gang)
            elif cut is not None and node.layouts == cut.layouts:
                self._repartition_done(gang, node.name)
        return failed

    def ready(self) -> list[GangState]:
        """Return the gangs that have their capacity now, and stop holding them back."""
        gangs = [
            gang
            for gang in self._gangs.values()
            if not gang.reservation.awaited_repartitions
            and self._has_capacity(gang)
            and self._allocations.within_limits(gang)
        ]
        for gang in gangs:
            self.drop(gang)
        return gangs

    def drop(self, gang: GangState) -> None:
        """Stop holding a gang back, whatever it waited for."""
        for node in list(gang.reservation.awaited_repartitions):
            self._repartition_done(gang, node)
        gang.reservation.waits_for_capacity = False
        self._gangs.pop(gang.id, None)

    def is_anything_held(self) -> bool:
        """Return whether any gang is held back."""
        return bool(self._gangs)

    def first_short(self, nodes: Collection[NodeName | None]) -> GangId | None:
        """Return the first gang that waits for one of these nodes, or for quota; None for none."""
        for gang in self._gangs.values():
            its = {m.assigned_node for m in gang.members.values() if m.stage}
            short = not its.isdisjoint(nodes) and not self._has_capacity(gang)
            if short or not self._allocations.within_limits(gang):
                return gang.id
        return None

    def _repartition_done(self, gang: GangState, node: NodeName) -> None:
        del gang.reservation.awaited_repartitions[node]
        self._allocations.release(_key(gang, node))

    def _has_capacity(self, gang: GangState) -> bool:
        cluster = self._allocations.cluster
        rows = {
            cluster.rows.get(m.assigned_node)
            for m in gang.members.values()
            if m.stage and m.assigned_node
        }
        return None not in rows and not any(
            (cluster.used[row] > cluster.allocatable[row]).any() for row in rows
        )


def _key(gang: GangState, node: NodeName) -> tuple[GangId, str, NodeName]:
    return (gang.id, "cut", node)
