"""The gangs that run, start or terminate, as planners see them."""

from dataclasses import replace

from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.pending_view import priority_in
from gangsched.core.engine.gangs.running_views import evicted_view, running_view, starting_view
from gangsched.core.engine.settings import Settings
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Amounts
from gangsched.core.quota.charges import charge_on_nodes
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import RunningGang


class RunningSet:
    """Views of gangs that take nodes; only those of gangs that changed are made again."""

    def __init__(
        self,
        settings: Settings,
        table: GangTable,
        declarations: Declarations,
        allocations: Allocations,
        history: RuntimeHistory,
    ) -> None:
        self._settings = settings
        self._table = table
        self._declarations = declarations
        self._allocations = allocations
        self._history = history
        self._running: dict[GangId, RunningGang] = {}
        """Placed gangs, as of the last update."""
        self._starting: dict[GangId, RunningGang] = {}
        """Parts of gangs that use nodes and do not count as running yet, as of the last update."""
        self._evicted: dict[GangId, None] = {}
        """Gangs with an evicted pod or an announced stop; some of these pods may be gone since."""
        self._version = declarations.version
        """The version of the declarations that the views are made with."""

    def running(self) -> tuple[RunningGang, ...]:
        """Return every placed gang, with an estimate of its run time."""
        self._follow()
        return tuple(self._running.values())

    def starting(self) -> tuple[RunningGang, ...]:
        """Return what is reserved, or bound before its gang is whole, with an estimate."""
        self._follow()
        return tuple(self._starting.values())

    def terminating(self) -> tuple[RunningGang, ...]:
        """Return the parts of gangs that are evicted and still use nodes."""
        gangs = self._table.gangs
        parts = (evicted_view(gangs[gang]) for gang in self._evicted if gang in gangs)
        return tuple(
            replace(self._in_charged_queue(part), charge=self._charge_of(part))
            for part in parts
            if part is not None
        )

    def mark_evicted(self, gang: GangId) -> None:
        """Record that a pod of a gang was evicted."""
        self._evicted[gang] = None

    def pod_left(self, gang: GangState) -> None:
        """Record that a pod of a gang is gone."""
        if gang.id in self._evicted and evicted_view(gang) is None:
            del self._evicted[gang.id]

    def all_left(self, gang: GangId) -> None:
        """Record that no evicted pod of a gang is left."""
        self._evicted.pop(gang, None)

    def renamed(self, gang: GangId) -> None:
        """Record that a member of a starting gang has another name."""
        self._starting.pop(gang, None)

    def estimated(self, view: RunningGang) -> RunningGang:
        """Return a running gang with its priority, charge and estimate."""
        view, tree = self._in_charged_queue(view), self._allocations.ledger.usage.tree
        queue = tree.queues.get(view.gang.queue)
        # One that runs may be declared again with any class: it counts for no more than it may.
        most = tree.priority_max(view.gang.queue, view.gang.id.split("/", 1)[0])[0]
        return replace(
            view,
            save_s=self._settings.limits.allowed_grace_s(view.gang),
            priority=min(priority_in(queue, view.gang, view.priority), most),
            charge=self._charge_of(view),
            estimate=self._history.estimate(view.gang, queue),
        )

    def _follow(self) -> None:
        """Update the views of gangs that changed."""
        changes = self._table.take_changes()
        revalued = self._version != self._declarations.version  # what they are worth has changed
        if revalued:
            self._version = self._declarations.version
            changes = list(dict.fromkeys((*changes, *self._running, *self._starting)))
        for gang_id in changes:
            gang = self._table.gangs.get(gang_id)
            whole = (
                gang is not None
                and gang.state is State.PLACED
                and gang.spec is not None
                and gang.run.stop is None
            )
            self._store(self._running, gang_id, running_view(gang) if gang and whole else None)
            if revalued or gang is None or not self._starts_as_before(gang):
                self._store(self._starting, gang_id, starting_view(gang) if gang else None)

    def _starts_as_before(self, gang: GangState) -> bool:
        """Return whether a gang still takes what is kept of it: binding its pods changes nothing.

        Its places are given once, by a plan; only members that fail make them fewer.
        """
        kept = self._starting.get(gang.id)
        if kept is None or kept.gang is not gang.spec:
            return False
        on_its_way = gang.state in (State.RESERVED, State.BINDING)
        return (
            on_its_way
            and len(kept.places) == gang.members.in_progress() + gang.members.bound_count()
        )

    def _store(
        self, kept: dict[GangId, RunningGang], gang: GangId, view: RunningGang | None
    ) -> None:
        if view is not None and view.places:
            kept[gang] = self.estimated(view)
        else:
            kept.pop(gang, None)

    def _in_charged_queue(self, view: RunningGang) -> RunningGang:
        """Return a running gang in the queue that is charged for it."""
        home = self._allocations.ledger.usage.tree.charged_queue(view.gang.queue)
        return (
            view if home == view.gang.queue else replace(view, gang=replace(view.gang, queue=home))
        )

    def _charge_of(self, running: RunningGang) -> Amounts:
        places = ((place.node, place.needs) for place in running.places)
        allocations = self._allocations
        return charge_on_nodes(allocations.cluster, allocations.ledger.gpu_types, places)
