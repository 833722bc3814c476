"""Removes gangs that have neither a declaration nor pods nor charges."""

from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.engine.views.pending_views import PendingViews
from gangsched.core.engine.views.running_set import RunningSet


class GangRemoval:
    """Removes a gang from every part of the engine; it owns nothing."""

    def __init__(
        self,
        table: GangTable,
        allocations: Allocations,
        admitted: AdmittedChanges,
        capacity: CapacityWait,
        pending: PendingQueue,
        timers: Timers,
        running: RunningSet,
        views: PendingViews,
        conditions: StartConditions,
    ) -> None:
        self._table = table
        self._allocations = allocations
        self._admitted = admitted
        self._capacity = capacity
        self._pending = pending
        self._timers = timers
        self._running = running
        self._views = views
        self._conditions = conditions

    def remove_if_vanished(self, gang: GangState) -> None:
        """Remove a gang if nothing is left of it."""
        if not gang.is_empty():
            return
        if gang.spec is not None and gang.spec.implicit and not gang.undeclared:
            self._conditions.record_deleted(gang, self._allocations.now_s)
        self._allocations.forget(gang)
        self._table.remove(gang.id)
        self._admitted.forget(gang.id)
        self._capacity.drop(gang)
        self._pending.forget(gang.id)
        self._timers.forget(gang.id)
        self._running.all_left(gang.id)
        self._views.forget(gang.id)
        self._conditions.forget(gang.id)
