"""Acts on deadlines of gangs that have passed."""

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.run_times import RunTimes
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.model.refusal import plural


class DueGangs:
    """Acts on gangs with a deadline that has passed; it owns nothing."""

    def __init__(
        self,
        settings: Settings,
        members: MemberSteps,
        deadlines: StartDeadlines,
        run_times: RunTimes,
        lifecycle: Lifecycle,
    ) -> None:
        self._settings = settings
        self._members = members
        self._deadlines = deadlines
        self._run_times = run_times
        self._lifecycle = lifecycle

    def act(self, gang: GangState, now_s: float) -> None:
        """Act on a gang with a deadline that has passed."""
        retry, reservation, run = gang.retry, gang.reservation, gang.run
        if _passed(retry.backoff_until_s, now_s):
            retry.backoff_until_s = None
        excluded = retry.excluded_nodes.items()
        if any(until_s <= now_s for _, until_s in excluded):
            retry.excluded_nodes = {node: until_s for node, until_s in excluded if until_s > now_s}
            gang.mark_changed()
        if _passed(retry.pods_per_node_until_s, now_s):
            retry.pods_per_node_max = retry.pods_per_node_until_s = None
            gang.mark_changed()
        if gang.state is State.PLACED:
            self._end_run(gang, now_s)
        if _passed(reservation.refill_by_s, now_s):
            reservation.refill_by_s = None
            self._members.withdraw_late(gang, now_s)
        deadlines = (reservation.start_by_s, reservation.capacity_by_s, run.whole_by_s)
        if any(_passed(at_s, now_s) for at_s in deadlines):
            reservation.start_by_s = reservation.capacity_by_s = run.whole_by_s = None
            self._deadline_passed(gang, now_s)
        self._lifecycle.settle(gang, now_s)

    def _end_run(self, gang: GangState, now_s: float) -> None:
        """Fail a gang that is not ready in time, or that runs for longer than it may."""
        retry, run = gang.retry, gang.run
        if _passed(run.ready_by_s, now_s):
            run.ready_by_s = None
            lacking = plural(gang.unready_count(), "pod")
            retry.unready_tries += 1
            if retry.unready_tries >= self._settings.limits.ready_tries:
                retry.failure_message = (
                    f"it did not become ready in {retry.unready_tries} tries; change its spec or "
                    f"create it again to retry"
                )
            self._lifecycle.fail(gang, f"{lacking} did not become ready in time", now_s)
        elif _passed(run.end_by_s, now_s):
            run.end_by_s = None
            retry.failure_message = (
                f"it ran for the {self._run_times.limit_s(gang) or 0:g} s it may"
            )
            self._lifecycle.fail(gang, retry.failure_message, now_s)

    def _deadline_passed(self, gang: GangState, now_s: float) -> None:
        if gang.reservation.waits_for_capacity:
            self._lifecycle.fail(gang, "capacity for the gang was not freed in time", now_s)
        elif gang.state is State.RESERVED:
            late = [m.name for m in gang.members.values() if m.stage and m.stage.before_barrier]
            named = ", ".join(late[:3]) + (" and others" if len(late) > 3 else "")
            waited_s = self._deadlines.time_to_barrier_s(gang)
            gang.retry.no_shows += gang.members.waits_for_pods()
            self._lifecycle.fail(
                gang,
                f"{plural(len(late), 'member')} did not come to the barrier within "
                f"{waited_s:g} s: {named}",
                now_s,
            )
        elif gang.run.below_minimum_since_s is not None:
            reason = "it stayed below its minimum for longer than its timeout"
            self._lifecycle.fail(gang, reason, now_s)
        elif gang.state is State.PLACED:
            self._members.withdraw_late(gang, now_s)


def _passed(at_s: float | None, now_s: float) -> bool:
    return at_s is not None and now_s >= at_s
