"""What an accepted plan leaves for the next plan."""

from gangsched.core.model.ids import GangId
from gangsched.core.planning.planner import Plan
from gangsched.core.snapshot import BackfillReservation


class PlanFeedback:
    """Backfill reservations, and the classes that preemption did not help."""

    def __init__(self) -> None:
        self.backfill_reservations: dict[GangId, BackfillReservation] = {}
        """Backfill reservations of the last accepted plan, and those of an earlier process."""
        self.preemption_infeasible: set[tuple[int, int]] = set()
        """Equivalence classes for which no set of victims was found since the last lapse."""
        self.stale_plans = 0
        """Placements that were dropped because the state had changed since the snapshot."""

    def learn(self, plan: Plan) -> None:
        """Take over the reservations of a plan, and the classes that preemption does not help."""
        self.backfill_reservations = {
            reservation.gang: reservation for reservation in plan.backfill_reservations
        }
        self.preemption_infeasible |= plan.preemption_infeasible

    def restore(self, reservation: BackfillReservation) -> None:
        """Take over a backfill reservation that an earlier process had made."""
        self.backfill_reservations[reservation.gang] = reservation

    def retry_preemption(self) -> None:
        """Let preemption be tried again for every class: time alone may allow it."""
        self.preemption_infeasible.clear()

    def count_stale(self) -> None:
        """Count a placement that no longer fits."""
        self.stale_plans += 1
