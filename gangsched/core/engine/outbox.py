"""The orders that one call of the engine gives, in their order."""

from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.model.refusal import Reason, plural


class Outbox:
    """Collects orders until the engine returns them to its driver."""

    def __init__(self) -> None:
        self._orders: list[o.Order] = []
        """Given since the last `drain`, in their order; empty between two calls of the engine."""

    def emit(self, *orders: o.Order) -> None:
        """Give orders."""
        self._orders.extend(orders)

    def report(
        self,
        gang: GangState,
        reason: o.ReportReason | Reason,
        message: str,
        *,
        adopted: bool = False,
    ) -> None:
        """Report the state of a gang that is not refused, with a reason and a sentence."""
        state, queue = gang.state.value, gang.account[0] if gang.holds_nodes() else ""
        self.emit(
            o.Report(
                gang.id, state, reason.value, message, None, gang.reservation.proof, adopted, queue
            )
        )

    def report_placed(self, gang: GangState, *, adopted: bool) -> None:
        """Report that all pods of a gang are bound; `adopted` if this process did not start it."""
        nodes = len({m.bound_node for m in gang.members.values() if m.bound_node})
        self.report(
            gang,
            o.ReportReason.PLACED,
            f"all {plural(gang.members.bound_count(), 'pod')} of the gang are bound, "
            f"to {plural(nodes, 'node')}.",
            adopted=adopted,
        )

    def drain(self) -> tuple[o.Order, ...]:
        """Return the orders, and start again without any."""
        if not self._orders:
            return ()
        taken = tuple(self._orders)
        self._orders.clear()
        return taken
