"""How long a gang may take to start, and how long it waits after that failed."""

from gangsched.core.bounds import LATE_ROOM_S, NO_SHOW_S, ROOM_WITHOUT_PODS_S
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.facts import PlanFailed
from gangsched.core.model.ids import NodeName
from gangsched.core.model.refusal import Reason, Refusal

_DOUBLINGS = 32
"""Of waits, before they are no longer counted: a float does not hold a thousand."""


class StartDeadlines:
    """Sets the deadlines of gangs, and makes them back off; the deadlines are kept by each gang."""

    def __init__(
        self,
        settings: Settings,
        timers: Timers,
        pending: PendingQueue,
        refusals: RefusalReports,
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._pending = pending
        self._refusals = refusals

    def timeout_s(self, gang: GangState) -> float:
        """Return how long a gang may take to start, and how long it may be incomplete."""
        return gang.timeout_s(self._settings.limits)

    def time_to_barrier_s(self, gang: GangState) -> float:
        """Return how long members may take to come: less where their pods do not even exist."""
        timeout_s = self.timeout_s(gang)
        if gang.state is State.PLACED and gang.members.to_come():
            return max(timeout_s, LATE_ROOM_S.most)
        return (
            min(timeout_s, ROOM_WITHOUT_PODS_S.most) if gang.members.waits_for_pods() else timeout_s
        )

    def late_pods_by_s(self, gang: GangState, now_s: float) -> float | None:
        """Return until when a gang that runs keeps places for pods which are made later."""
        return now_s + self.time_to_barrier_s(gang) if gang.members.to_come() else None

    def all_pods_exist(self, gang: GangState) -> None:
        """Allow a gang its whole timeout, now that every reserved place has its pod."""
        gang.reservation.refill_by_s = None
        more_s = self.timeout_s(gang) - ROOM_WITHOUT_PODS_S.most
        if more_s > 0 and gang.reservation.start_by_s is not None:
            gang.reservation.start_by_s += more_s
            self._timers.watch(gang.id)

    def allow_start(self, gang: GangState, now_s: float) -> None:
        """Give members the time that they may take to come to the barrier."""
        time_s, reservation = self.time_to_barrier_s(gang), gang.reservation
        if gang.run.below_minimum_since_s is None:
            reservation.start_by_s, reservation.capacity_by_s = now_s + time_s, None
        else:
            self._allow_refill(gang, time_s, now_s)

    def allow_capacity(self, gang: GangState, now_s: float) -> None:
        """Give the nodes of a gang the time that they may take to have what it is charged."""
        time_s, reservation = self._settings.limits.repartition_s, gang.reservation
        if gang.run.below_minimum_since_s is None:
            reservation.start_by_s, reservation.capacity_by_s = None, now_s + time_s
        else:
            self._allow_refill(gang, time_s, now_s)

    def _allow_refill(self, gang: GangState, time_s: float, now_s: float) -> None:
        """Keep nodes for pods of a gang below its minimum; it has no more time than it had."""
        if gang.members.waits_for_pods():
            gang.reservation.refill_by_s = now_s + min(time_s, ROOM_WITHOUT_PODS_S.most)

    def allow_below_minimum(self, gang: GangState, now_s: float) -> float:
        """Give a gang its timeout to be whole again, in place of other deadlines; return it."""
        timeout_s, reservation = self.timeout_s(gang), gang.reservation
        gang.run.below_minimum_since_s, gang.run.whole_by_s = now_s, now_s + timeout_s
        reservation.start_by_s = reservation.capacity_by_s = None
        return timeout_s

    def allow_late_pods(self, gang: GangState, now_s: float) -> None:
        """Give a whole gang that runs the time for its late pods, in place of other deadlines."""
        reservation = gang.reservation
        reservation.start_by_s, reservation.capacity_by_s = self.late_pods_by_s(gang, now_s), None
        gang.run.whole_by_s = None

    # -- back-off -----------------------------------------------------------------------------

    def back_off(self, gang: GangState, until_s: float) -> None:
        """Leave a gang out of plans until a moment."""
        gang.retry.backoff_until_s = until_s
        self._timers.watch(gang.id)
        self._pending.remove(gang.id)

    def back_off_shortly(self, gang: GangState, now_s: float) -> None:
        """Leave a gang that lost one of its members, and goes on, out of the next plans."""
        self.back_off(gang, now_s + self._settings.limits.backoff_s)

    def back_off_after_failure(self, gang: GangState, now_s: float) -> float:
        """Leave a gang that failed out of plans for a while; return for how long."""
        wait_s = self.backoff_s(gang)
        self.back_off(gang, now_s + wait_s)
        return wait_s

    def back_off_after_plan_failure(
        self, gang: GangState, failed: PlanFailed, now_s: float
    ) -> None:
        """Leave a gang that no plan can be made for out of plans, so that the others get theirs."""
        gang.retry.attempts += 1
        wait_s = self.backoff_s(gang)
        again = f"in {wait_s:g} s"
        if failed.until_s is not None:
            wait_s = max(failed.until_s - now_s, 0.0)
            again = f"when the gang's request changes, or in {wait_s:.0f} s"
        self.back_off(gang, now_s + wait_s)
        gang.retry.set_aside = failed.until_s is not None
        problem = f"Planning of gang {gang.id} failed ({failed.problem})"
        message = f"{problem}; the scheduler tries again {again}."
        self._refusals.refuse(gang, Refusal(gang.id, Reason.PLAN_FAILED, message), now_s)

    def backoff_s(self, gang: GangState) -> float:
        """Return how long a gang that failed waits before it is tried again.

        One whose pods did not come twice in turn waits as long as it kept its places for them, then
        twice as long, and so on: others have the nodes meanwhile.
        """
        limits = self._settings.limits
        doubled_s: float = limits.backoff_s * 2 ** min(gang.retry.attempts - 1, _DOUBLINGS)
        wait_s = min(doubled_s, limits.backoff_max_s)
        if gang.retry.no_shows < 2:
            return wait_s
        kept_s: float = min(self.timeout_s(gang), ROOM_WITHOUT_PODS_S.most)
        kept_s *= 2 ** min(gang.retry.no_shows - 2, _DOUBLINGS)
        return max(wait_s, min(kept_s, NO_SHOW_S.most))

    # -- excluded nodes -----------------------------------------------------------------------

    def exclude_node(self, gang: GangState, node: NodeName, fits: int, now_s: float) -> None:
        """Learn from a node that refused a member, and may take so many of its gang."""
        until_s = now_s + self._settings.limits.node_exclusion_s
        if fits > 0 and gang.state in (State.RESERVED, State.BINDING):
            gang.retry.pods_per_node_max, gang.retry.pods_per_node_until_s = (
                fits,
                until_s,
            )  # first try fewer a node
        else:
            gang.retry.excluded_nodes[node] = until_s

    def shorten_exclusions(self, gang: GangState, now_s: float) -> None:
        """Let a gang that was refused soon try again the nodes that it excludes.

        No other place is left, and many a refusal holds for a moment only: kube-scheduler may not
        have seen yet that a node is back.
        """
        if not gang.retry.attempts or not (
            gang.retry.excluded_nodes or gang.retry.pods_per_node_max
        ):
            return
        soon_s = now_s + self.backoff_s(gang)
        gang.retry.excluded_nodes = {
            node: min(until_s, soon_s) for node, until_s in gang.retry.excluded_nodes.items()
        }
        if gang.retry.pods_per_node_until_s is not None:
            gang.retry.pods_per_node_until_s = min(gang.retry.pods_per_node_until_s, soon_s)
        self._timers.watch(gang.id)
