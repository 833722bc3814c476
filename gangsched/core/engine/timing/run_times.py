"""How long gangs run: what is learned when they end, and how long they may."""

from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.quota.runtime_history import RuntimeHistory


class RunTimes:
    """Learns run times for the history; it owns nothing."""

    def __init__(
        self, history: RuntimeHistory, allocations: Allocations, pending: PendingQueue
    ) -> None:
        self._history = history
        self._allocations = allocations
        self._pending = pending

    def record_start(self, gang: GangState, now_s: float) -> None:
        """Record that this process started a gang."""
        self._history.starts.record_start(gang.id, now_s)

    def record(self, gang: GangState, now_s: float) -> None:
        """Learn the run time of a gang that ended, once for each run."""
        if gang.spec is None or gang.run.runtime_recorded or gang.run.placed_s is None:
            return
        gang.run.runtime_recorded = True
        self._history.record(gang.spec, now_s - running_view(gang).started_s)
        user = gang.spec.user
        self._pending.runtimes_learned(user, declared=self._history.factor(user) > 1)

    def limit_s(self, gang: GangState) -> float | None:
        """Return how long a gang may run, by its declaration and its queues."""
        spec, tree = gang.spec, self._allocations.ledger.usage.tree
        if spec is None:
            return None
        path = tree.path(tree.charged_queue(spec.queue))
        limits = [spec.max_runtime_s, *(tree.queues[name].max_runtime_s for name in path)]
        return min((limit for limit in limits if limit is not None), default=None)


def is_done(gang: GangState) -> bool:
    """Return whether the work of a gang is done."""
    done = (
        gang.state is State.PLACED
        and gang.members.bound_count() == 0
        and gang.members.in_progress() == 0
    )
    return done and gang.members.ended_count() >= gang.minimum()
