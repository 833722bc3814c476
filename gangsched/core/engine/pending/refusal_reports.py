"""Reports of why gangs wait."""

from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.model.refusal import Reason, Refusal


class RefusalReports:
    """Records refusals, and orders a report where one is due; it owns nothing."""

    def __init__(self, pending: PendingQueue, outbox: Outbox) -> None:
        self._pending = pending
        self._outbox = outbox

    def refuse(self, gang: GangState, refusal: Refusal, now_s: float) -> None:
        """Record why a gang waits, and report it if that is new."""
        if self._pending.record_refusal(gang.id, refusal, now_s):
            self.report(gang)

    def refuse_given_up(self, gang: GangState, now_s: float) -> None:
        """Record that a gang is not tried again, and why."""
        self.refuse(
            gang, Refusal(gang.id, Reason.GIVEN_UP, f"{gang.retry.failure_message}."), now_s
        )

    def report(self, gang: GangState) -> None:
        """Report why a gang waits."""
        why = self._pending.refusals[gang.id]
        self._outbox.emit(o.Report(gang.id, gang.state.value, why.reason.value, why.message, why))

    def withdraw(self, gang: GangState) -> None:
        """Record that a gang is refused no more."""
        self._pending.refusals.clear(gang.id)
