"""What time alone changes for a gang."""

from gangsched.core.engine.gangs.gang_views import GangState, State
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.run_times import RunTimes
from gangsched.core.engine.lifecycle.start_deadlines import StartDeadlines
from gangsched.core.engine.settings import Settings
from gangsched.core.model.refusal import plural


class DueGangs:
    """Acts on gangs a moment of which has come; it owns nothing."""

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
        """Act on a gang a moment of which has come."""
        if gang.not_before_s is not None and now_s >= gang.not_before_s:
            gang.not_before_s = None
        if any(until_s <= now_s for until_s in gang.avoid.values()):
            gang.avoid = {node: until_s for node, until_s in gang.avoid.items() if until_s > now_s}
            gang.bump()
        if gang.most_until_s is not None and now_s >= gang.most_until_s:
            gang.most_per_node = gang.most_until_s = None
            gang.bump()
        if gang.state is State.PLACED:
            self._end_run(gang, now_s)
        if gang.refill_by_s is not None and now_s >= gang.refill_by_s:
            gang.refill_by_s = None
            self._members.withdraw_late(gang, now_s)
        if gang.deadline_s is not None and now_s >= gang.deadline_s:
            gang.deadline_s = None
            self._deadline_passed(gang, now_s)
        self._lifecycle.settle(gang, now_s)

    def _end_run(self, gang: GangState, now_s: float) -> None:
        """End a gang that is not ready in time, or runs for longer than it may."""
        if gang.ready_by_s is not None and now_s >= gang.ready_by_s:
            gang.ready_by_s = None
            lacking = plural(gang.unready(), "pod")
            gang.unready_tries += 1
            if gang.unready_tries >= self._settings.limits.ready_tries:
                gang.given_up = (
                    f"it did not become ready in {gang.unready_tries} tries; change its spec or "
                    f"create it anew to have it tried again"
                )
            self._lifecycle.fail(gang, f"{lacking} did not become ready in time", now_s)
        elif gang.end_by_s is not None and now_s >= gang.end_by_s:
            gang.end_by_s = None
            gang.given_up = f"it ran for the {self._run_times.limit_s(gang) or 0:g} s it may"
            self._lifecycle.fail(gang, gang.given_up, now_s)

    def _deadline_passed(self, gang: GangState, now_s: float) -> None:
        if gang.held_back:
            self._lifecycle.fail(gang, "the room it was promised did not come in time", now_s)
        elif gang.state is State.RESERVED:
            late = [m.name for m in gang.members.values() if m.stage and m.stage.before_barrier]
            named = ", ".join(late[:3]) + (" and others" if len(late) > 3 else "")
            waited_s = self._deadlines.patience_s(gang)
            gang.no_shows += gang.waits_for_pods()
            self._lifecycle.fail(
                gang,
                f"{plural(len(late), 'member')} did not come to the barrier within "
                f"{waited_s:g} s: {named}",
                now_s,
            )
        elif gang.below_since_s is not None:
            reason = "it stayed below its minimum for longer than its timeout"
            self._lifecycle.fail(gang, reason, now_s)
        elif gang.state is State.PLACED:
            self._members.withdraw_late(gang, now_s)
