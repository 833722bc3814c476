"""How long a gang may take to start, how long it waits after that failed, and what it is told."""

from gangsched.core import orders as o
from gangsched.core.bounds import LATE_ROOM_S, NO_SHOW_S, ROOM_WITHOUT_PODS_S
from gangsched.core.engine.admitted_changes import Belief
from gangsched.core.engine.gangs.gang_views import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.facts import PlanFailed
from gangsched.core.model.ids import NodeName
from gangsched.core.model.refusal import Reason, Refusal

_DOUBLINGS = 32
"""Of waits, before they are no longer counted: a float does not hold a thousand."""


class Patience(Belief):
    """Sets deadlines and backs gangs off; the machine says when."""

    def _patience_s(self, gang: GangState) -> float:
        """Return how long members may take to come: less where their pods do not even exist."""
        timeout_s = gang.timeout_s(self.limits)
        if gang.state is State.PLACED and gang.to_come():
            return max(timeout_s, LATE_ROOM_S.most)
        return min(timeout_s, ROOM_WITHOUT_PODS_S.most) if gang.waits_for_pods() else timeout_s

    def _keep_until_s(self, gang: GangState, now_s: float) -> float | None:
        """Return until when a gang that runs keeps room for pods which are made later."""
        return now_s + self._patience_s(gang) if gang.to_come() else None

    def _all_came(self, gang: GangState) -> None:
        """Allow a gang its whole timeout, now that every reserved place has its pod."""
        gang.refill_by_s = None
        more_s = gang.timeout_s(self.limits) - ROOM_WITHOUT_PODS_S.most
        if more_s > 0 and gang.deadline_s is not None and gang.below_since_s is None:
            gang.deadline_s += more_s
            self._timers.watch(gang.id)

    def _back_off(self, gang: GangState, until_s: float) -> None:
        gang.not_before_s = until_s
        self._timers.watch(gang.id)
        self._backlog.pause(gang.id)

    def _set_aside(self, failed: PlanFailed, now_s: float) -> None:
        """Leave a gang out of plans for a while, so that the others get theirs."""
        gang = self.gangs.get(failed.gang)
        if gang is None:
            return
        gang.attempts += 1
        wait_s = self._wait_s(gang)
        again = f"trying again in {wait_s:g} s"
        if failed.until_s is not None:
            wait_s = max(failed.until_s - now_s, 0.0)
            again = f"it is tried again once it asks for something else, or in {wait_s:.0f} s"
        self._back_off(gang, now_s + wait_s)
        gang.set_aside = failed.until_s is not None
        message = f"no plan can be made for it ({failed.problem}); {again}."
        self._refuse(gang, Refusal(gang.id, Reason.PLAN_FAILED, message))

    def _allow(self, gang: GangState, time_s: float, now_s: float) -> None:
        """Give members time to come; a gang below its minimum gets no more than it has left."""
        if gang.below_since_s is None:
            gang.deadline_s = now_s + time_s
        elif gang.waits_for_pods():
            gang.refill_by_s = now_s + min(time_s, ROOM_WITHOUT_PODS_S.most)

    def _wait_s(self, gang: GangState) -> float:
        """Return how long a gang that broke waits before it is tried again.

        One whose pods did not come twice in turn waits as long as it kept room for them, then twice
        as long, and so on: others have the room meanwhile.
        """
        doubled_s: float = self.limits.backoff_s * 2 ** min(gang.attempts - 1, _DOUBLINGS)
        wait_s = min(doubled_s, self.limits.backoff_max_s)
        if gang.no_shows < 2:
            return wait_s
        kept_s: float = min(gang.timeout_s(self.limits), ROOM_WITHOUT_PODS_S.most)
        kept_s *= 2 ** min(gang.no_shows - 2, _DOUBLINGS)
        return max(wait_s, min(kept_s, NO_SHOW_S.most))

    def _avoid(self, gang: GangState, node: NodeName, fits: int, now_s: float) -> None:
        """Learn from a node that refused a member, and may take so many of its gang."""
        until_s = now_s + self.limits.avoid_s
        if fits > 0 and gang.state in (State.RESERVED, State.BINDING):
            gang.most_per_node, gang.most_until_s = fits, until_s  # first try fewer a node
        else:
            gang.avoid[node] = until_s

    def _relent(self, gang: GangState, now_s: float) -> None:
        """Let a gang that was refused try again soon what it was to avoid.

        No other place is left, and many a refusal holds for a moment only: kube-scheduler may not
        have heard yet that a node is back.
        """
        if not gang.attempts or not (gang.avoid or gang.most_per_node):
            return
        soon_s = now_s + self._wait_s(gang)
        gang.avoid = {node: min(until_s, soon_s) for node, until_s in gang.avoid.items()}
        if gang.most_until_s is not None:
            gang.most_until_s = min(gang.most_until_s, soon_s)
        self._timers.watch(gang.id)

    def _refuse(self, gang: GangState, refusal: Refusal) -> None:
        if self._backlog.say(gang.id, refusal, self._now_s):
            self._tell(gang)

    def _tell(self, gang: GangState) -> None:
        """Tell a gang why it waits."""
        why = self.refusals[gang.id]
        self._orders.append(o.Report(gang.id, gang.state.value, why.reason.value, why.message, why))
