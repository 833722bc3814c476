"""Running gangs that must end: in drained queues, or on nodes of an advance reservation."""

from collections.abc import Iterator
from dataclasses import dataclass

from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.model.ids import NodeName
from gangsched.core.model.queues import AdvanceReservation
from gangsched.core.orders import DrainReason
from gangsched.core.planning.profiles.node_profile import reserved_rows


@dataclass(frozen=True, slots=True)
class Drained:
    """A gang that must end; `of` names the drained queue, the advance reservation or the node.

    It has to be gone at `by_s`; None: it has as long as it may take to save its work.
    """

    gang: GangState
    cause: DrainReason
    of: str
    reason: str
    by_s: float | None = None


class DrainedGangs:
    """Finds the running gangs that an administrator's object ends; it owns nothing."""

    def __init__(
        self, table: GangTable, declarations: Declarations, allocations: Allocations
    ) -> None:
        self._table = table
        self._declarations = declarations
        self._allocations = allocations

    def find(self, now_s: float) -> Iterator[Drained]:
        """Yield each running gang that must end, and why."""
        tree = self._allocations.ledger.usage.tree
        drained, booked = tree.drained, self._booked(now_s)
        stopping = self._allocations.stopping
        if not drained and not booked and not stopping:
            return
        for gang in list(self._table.gangs.values()):
            if gang.state is not State.PLACED or gang.spec is None or not gang.holds_nodes():
                continue  # a gang that has done its work has no pods to end
            queue = tree.charged_queue(gang.spec.queue)
            where = drained.intersection(tree.path(queue))
            if where:
                of = min(where)
                yield Drained(gang, DrainReason.QUEUE, of, f"queue {of} is drained")
                continue
            nodes = {member.bound_node for member in gang.members.values() if member.runs}
            keeps = next((booked[node] for node in nodes if node in booked), None)
            if keeps is not None and not keeps.admits(gang.id.split("/", 1)[0], queue):
                reason = f"its nodes belong to advance reservation {keeps.name}"
                yield Drained(gang, DrainReason.RESERVATION, keeps.name, reason)
                continue
            leaving = [(stopping[node], node) for node in nodes if node in stopping]
            if leaving:
                by_s, node = min(leaving)
                reason = f"node {node} is about to stop"
                yield Drained(gang, DrainReason.NODE, node, reason, by_s)

    def _booked(self, now_s: float) -> dict[NodeName, AdvanceReservation]:
        """Return the nodes that an advance reservation which evicts holds now."""
        cluster, reservations = self._allocations.cluster, {}
        for booking in self._declarations.bookings.values():
            window = booking.window(now_s) if booking.evicts else None
            if window is not None and window[0] <= now_s:
                for row in reserved_rows(cluster, booking):
                    reservations[cluster.names[row]] = booking
        return reservations
