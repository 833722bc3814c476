"""Gangs that run below their minimum."""

from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.orders import ReportReason


class MinimumWatch:
    """Gives a gang below its minimum a timeout to be complete again; it owns nothing."""

    def __init__(
        self, admitted: AdmittedChanges, deadlines: StartDeadlines, outbox: Outbox
    ) -> None:
        self._admitted = admitted
        self._deadlines = deadlines
        self._outbox = outbox

    def is_empty(self, gang: GangState, now_s: float) -> bool:
        """Check whether a gang is below its minimum; return whether it runs without any pod."""
        bound, runs = gang.members.bound_count(), gang.state is State.PLACED
        if runs and gang.spec is not None and gang.spec.late:
            # Late pods that came belong to what runs: from now on it does not do without them.
            came = min(bound + gang.members.ended_count(), gang.spec.min_member)
            gang.run.minimum = max(gang.run.minimum or 0, came)
        whole = bound + gang.members.ended_count() >= gang.minimum()
        if not whole and bound:
            self._start(gang, bound, now_s)
            return False
        if gang.run.below_minimum_since_s is not None:
            gang.run.below_minimum_since_s = gang.reservation.refill_by_s = None
            self._deadlines.allow_late_pods(gang, now_s)
            gang.retry.no_shows = 0
            if whole and runs and gang.run.placed_s != now_s:
                self._admitted.report_whole(gang)
        return runs and not whole

    def _start(self, gang: GangState, bound: int, now_s: float) -> None:
        if gang.run.below_minimum_since_s is not None:
            return
        timeout_s = self._deadlines.allow_below_minimum(gang, now_s)
        self._outbox.report(
            gang,
            ReportReason.BELOW_MINIMUM,
            f"{bound} of at least {gang.minimum()} members run; the gang is stopped and "
            f"queued again unless it is whole within {timeout_s:g} s.",
        )
