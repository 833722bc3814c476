"""How long a gang may take to start, and how long it waits after that failed."""

from gangsched.core.bounds import ASSIGNMENT_WITHOUT_PODS_S, LATE_PODS_S, NO_SHOW_S
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
"""The most doublings of a wait: a float would overflow after a thousand."""


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
        """Return how long members may take to the barrier: less if some pods do not exist yet."""
        timeout_s = self.timeout_s(gang)
        if gang.state is State.PLACED and gang.members.to_come():
            return max(timeout_s, LATE_PODS_S.most)
        return (
            min(timeout_s, ASSIGNMENT_WITHOUT_PODS_S.most)
            if gang.members.waits_for_pods()
            else timeout_s
        )

    def late_pods_by_s(self, gang: GangState, now_s: float) -> float | None:
        """Return until when a running gang keeps the assignments of its late pods."""
        return now_s + self.time_to_barrier_s(gang) if gang.members.to_come() else None

    def all_pods_exist(self, gang: GangState) -> None:
        """Allow a gang its whole timeout, now that every reserved member has its pod."""
        gang.reservation.refill_by_s = None
        more_s = self.timeout_s(gang) - ASSIGNMENT_WITHOUT_PODS_S.most
        if more_s > 0 and gang.reservation.start_by_s is not None:
            gang.reservation.start_by_s += more_s
            self._timers.watch(gang.id)

    def allow_start(self, gang: GangState, now_s: float) -> None:
        """Set the deadline by which members must reach the barrier."""
        time_s, reservation = self.time_to_barrier_s(gang), gang.reservation
        if gang.run.below_minimum_since_s is None:
            reservation.start_by_s, reservation.capacity_by_s = now_s + time_s, None
        else:
            self._allow_refill(gang, time_s, now_s)

    def allow_capacity(self, gang: GangState, now_s: float, saving_s: float = 0.0) -> None:
        """Set the deadline by which the capacity of a gang must be free.

        Gangs that use it may take `saving_s` to save their work before.
        """
        time_s, reservation = self._settings.limits.repartition_s + saving_s, gang.reservation
        if gang.run.below_minimum_since_s is None:
            reservation.start_by_s, reservation.capacity_by_s = None, now_s + time_s
        else:
            self._allow_refill(gang, time_s, now_s)

    def _allow_refill(self, gang: GangState, time_s: float, now_s: float) -> None:
        """Set the deadline for new pods of a gang below its minimum; its own deadline stays."""
        if gang.members.waits_for_pods():
            gang.reservation.refill_by_s = now_s + min(time_s, ASSIGNMENT_WITHOUT_PODS_S.most)

    def allow_below_minimum(self, gang: GangState, now_s: float) -> float:
        """Set and return the deadline to be complete again, in place of other deadlines."""
        timeout_s, reservation = self.timeout_s(gang), gang.reservation
        gang.run.below_minimum_since_s, gang.run.whole_by_s = now_s, now_s + timeout_s
        reservation.start_by_s = reservation.capacity_by_s = None
        return timeout_s

    def allow_late_pods(self, gang: GangState, now_s: float) -> None:
        """Set the deadline for the late pods of a complete gang, in place of other deadlines."""
        reservation = gang.reservation
        reservation.start_by_s, reservation.capacity_by_s = self.late_pods_by_s(gang, now_s), None
        gang.run.whole_by_s = None

    # -- back-off -----------------------------------------------------------------------------

    def back_off(self, gang: GangState, until_s: float) -> None:
        """Exclude a gang from plans until a moment."""
        gang.retry.backoff_until_s = until_s
        self._timers.watch(gang.id)
        self._pending.remove(gang.id)

    def back_off_shortly(self, gang: GangState, now_s: float) -> None:
        """Exclude a running gang that lost a member from plans for a short time."""
        self.back_off(gang, now_s + self._settings.limits.backoff_s)

    def back_off_after_failure(self, gang: GangState, now_s: float) -> float:
        """Exclude a gang that failed from plans; return for how long."""
        wait_s = self.backoff_s(gang)
        self.back_off(gang, now_s + wait_s)
        return wait_s

    def back_off_after_plan_failure(
        self, gang: GangState, failed: PlanFailed, now_s: float
    ) -> None:
        """Exclude a gang that planning fails for from plans, so that other gangs are planned."""
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
        """Return the back-off of a gang that failed.

        If its pods were not created twice in turn, the gang waits for as long as it had kept nodes
        for them. That wait doubles each time, so that other gangs can use the nodes.
        """
        limits = self._settings.limits
        doubled_s: float = limits.backoff_s * 2 ** min(gang.retry.attempts - 1, _DOUBLINGS)
        wait_s = min(doubled_s, limits.backoff_max_s)
        if gang.retry.no_shows < 2:
            return wait_s
        kept_s: float = min(self.timeout_s(gang), ASSIGNMENT_WITHOUT_PODS_S.most)
        kept_s *= 2 ** min(gang.retry.no_shows - 2, _DOUBLINGS)
        return max(wait_s, min(kept_s, NO_SHOW_S.most))

    # -- excluded nodes -----------------------------------------------------------------------

    def exclude_node(self, gang: GangState, node: NodeName, fits: int, now_s: float) -> None:
        """Exclude a node that refused a member, or allow only `fits` members on it."""
        until_s = now_s + self._settings.limits.node_exclusion_s
        if fits > 0 and gang.state in (State.RESERVED, State.BINDING):
            gang.retry.pods_per_node_max, gang.retry.pods_per_node_until_s = (
                fits,
                until_s,
            )  # first try fewer pods on each node
        else:
            gang.retry.excluded_nodes[node] = until_s

    def shorten_exclusions(self, gang: GangState, now_s: float) -> None:
        """Let a gang that no other node fits try its excluded nodes again soon.

        Many refusals hold only for a moment: kube-scheduler may not have observed yet that a node
        is back.
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
