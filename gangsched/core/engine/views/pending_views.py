"""Pending gangs as planners see them, with data of their queues."""

from dataclasses import replace

from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.pending_view import pending_view, priority_in
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import PodRequirements, Requests
from gangsched.core.planning.namespace_quotas import total_requests
from gangsched.core.quota.charges import charge_of, split_required_optional
from gangsched.core.quota.runtime_history import RuntimeHistory

_NEEDS_KEPT = 4096


class PendingViews:
    """Makes the view of a pending gang, once for each version of it."""

    def __init__(
        self, declarations: Declarations, allocations: Allocations, history: RuntimeHistory
    ) -> None:
        self._declarations = declarations
        self._allocations = allocations
        self._history = history
        self._known: dict[GangId, tuple[tuple[int, int], PendingGang, tuple[int, int]]] = {}
        """By gang: versions of gang and declarations, the view, and how much was learned then."""
        self._needs: dict[PodRequirements, PodRequirements] = {}
        """Each requirement once, so that equal ones are one object."""

    def view(self, gang: GangState) -> PendingGang:
        """Return a pending gang with the data of its queue."""
        known = self._known.get(gang.id)
        stamp = (gang.version, self._declarations.version)
        if known is not None and known[0] == stamp:
            view = known[1]
            learned = self._history.version(view.gang.user)
            if known[2] == learned:
                return view
            queue = self._allocations.ledger.usage.tree.queues.get(view.gang.queue)
            view = replace(view, estimate=self._history.estimate(view.gang, queue))
        else:
            view = self.make(gang)
            learned = self._history.version(view.gang.user)
        self._known[gang.id] = (stamp, view, learned)
        return view

    def forget(self, gang: GangId) -> None:
        """Forget a gang."""
        self._known.pop(gang, None)

    def make(self, gang: GangState) -> PendingGang:
        """Make the view of a gang."""
        return pending_view(gang, lambda view: self._complete(gang, view))

    def _complete(self, gang: GangState, view: PendingGang) -> PendingGang:
        """Add charge, pod classes, fingerprint, priority and estimate of the run time."""
        ledger = self._allocations.ledger
        queue = ledger.usage.tree.queues.get(view.gang.queue)
        counts: dict[PodRequirements, int] = {}
        for member in view.members:
            counts[member.needs] = counts.get(member.needs, 0) + 1
        namespace = gang.id.split("/", 1)[0]
        unborn: Requests = ()
        if self._declarations.namespaces.get(namespace):
            must, _ = split_required_optional(view)
            unborn = total_requests(m.needs for m in must if gang.members[m.name].pod is None)
        shape = hash(
            (
                (
                    namespace,
                    view.gang.queue,
                    view.gang.user,
                    view.members_min,
                    view.role_members_min,
                ),
                (
                    view.constraints,
                    view.near_role,
                    view.placed_members,
                    view.excluded_nodes,
                    view.pods_per_node_max,
                ),
                (tuple(counts.items()), view.is_refill, view.is_scale_up, unborn),
                (view.gang.preemptible, view.preempts),
            )
        )
        if len(self._needs) > _NEEDS_KEPT:
            self._needs.clear()
        kinds = tuple(self._needs.setdefault(needs, needs) for needs in counts)
        charge = charge_of(view)
        if view.is_refill:
            held = ledger.usage_of_gang(gang.id)
            view = replace(
                view,
                # More than it ever had is admitted like the request of any gang.
                is_refill=all(
                    held.get(key, 0) + more <= gang.run.admitted.get(key, 0) for key, more in charge
                ),
            )
        return replace(
            view,
            priority=priority_in(queue, view.gang, view.priority),
            charge=charge,
            unborn=unborn,
            request_fingerprint=shape or 1,
            pod_classes=kinds,
            estimate=self._history.estimate(view.gang, queue),
        )
