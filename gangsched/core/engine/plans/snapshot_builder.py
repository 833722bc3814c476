"""Snapshots: frozen views of everything that a planner may see."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from gangsched.core.bounds import KINDS
from gangsched.core.engine.admission.queue_rules import QueueRulesReader
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.plans.plan_feedback import PlanFeedback
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.views.pending_views import PendingViews
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.facts import PlanFailed
from gangsched.core.model.gangs import EquivalenceClassView, PendingGang
from gangsched.core.snapshot import DependentGang, Snapshot

_COUNTED_AHEAD = 1024
"""Classes of pods counted before a plan is made; the others are counted when it is their turn."""


class SnapshotBuilder:
    """Builds snapshots; it owns nothing.

    A gang that cannot be shown to planners is in no snapshot. The next cycle sets the gang aside,
    like a gang for which no plan can be made.
    """

    def __init__(
        self,
        settings: Settings,
        table: GangTable,
        allocations: Allocations,
        pending: PendingQueue,
        views: PendingViews,
        rules: QueueRulesReader,
        running: RunningSet,
        feedback: PlanFeedback,
        deadlines: StartDeadlines,
        conditions: StartConditions,
        declarations: Declarations,
    ) -> None:
        self._settings = settings
        self._table = table
        self._allocations = allocations
        self._pending = pending
        self._views = views
        self._rules = rules
        self._running = running
        self._feedback = feedback
        self._deadlines = deadlines
        self._conditions = conditions
        self._declarations = declarations

    def begin_cycle(self, now_s: float, pods_max: int | None) -> Snapshot:
        """Return a snapshot with the gangs to plan next; planning ends after `pods_max` pods.

        Gangs that were refused on what is free now are left out, but for those that have a
        backfill reservation: a plan must know of them.
        """
        for gang in self._readable_or_set_aside(self._pending.take_unclassified()):
            self._pending.classify(gang, alone=gang.gang.id in self._feedback.backfill_reservations)
        queues = self._allocations.ledger.usage.tree.queues
        strict = {name for name, queue in queues.items() if queue.strict}
        gangs, classes = self._pending.heads(strict)
        return self._build(self._readable_or_set_aside(gangs), classes, now_s, pods_max)

    def with_all(self, now_s: float) -> Snapshot:
        """Return a snapshot with every pending gang, for a forecast; change nothing."""
        gangs = [gang for gang in self._table.gangs.values() if gang.is_plannable()]
        readable, _ = self._readable(gangs)
        return replace(
            self._build(readable, (), now_s, None),
            dependents=self._dependents(now_s),
            node_supply=self._declarations.node_supply,
        )

    def with_none(self, now_s: float) -> Snapshot:
        """Return a snapshot without pending gangs."""
        return self._build([], (), now_s, None)

    def _dependents(self, now_s: float) -> tuple[DependentGang, ...]:
        """Return the gangs that wait for others and can still start."""
        found = []
        for gang in self._conditions.held():
            waits = self._conditions.unmet(gang, now_s)
            readable, _ = self._readable([gang]) if waits is not None else ([], [])
            if waits is not None and readable:
                found.append(DependentGang(readable[0], *waits))
        return tuple(found)

    def _build(
        self,
        waiting: list[PendingGang],
        classes: tuple[EquivalenceClassView, ...],
        now_s: float,
        pods_max: int | None,
    ) -> Snapshot:
        cluster, ledger = self._allocations.cluster, self._allocations.ledger_with_capacity()
        shapes = (*waiting, *(equivalence_class.gangs[0] for equivalence_class in classes))
        ahead = {id(kind): kind for gang in shapes for kind in gang.pod_classes[: KINDS.most]}
        for needs in islice(ahead.values(), _COUNTED_AHEAD):
            with suppress(Exception):  # the plan meets it as well, and its gang is set aside
                cluster.capacity(needs)  # counted here and kept up to date from now on
        return Snapshot(
            cluster.copy(),
            tuple(waiting),
            ledger.usage.at_moment(ledger.historical_gpu_s(now_s)),
            self._settings.driver_checks_unmodelled,
            self._running.running(),
            self._running.terminating(),
            tuple(self._feedback.backfill_reservations.values()),
            frozenset(self._feedback.preemption_infeasible),
            equivalence_classes=classes,
            pods_max=pods_max,
            number=self._pending.number,
            rules=self._rules.rules(shapes, now_s),
            starting=self._running.starting(),
        )

    def _readable(
        self, gangs: Iterable[GangState]
    ) -> tuple[list[PendingGang], list[tuple[GangState, PlanFailed]]]:
        """Return gangs as planners see them, and why others cannot be shown to planners."""
        readable, unreadable = [], []
        for gang in gangs:
            try:
                readable.append(self._views.view(gang))
            except Exception as error:  # noqa: BLE001 -- one gang must not keep others from plans
                failed = PlanFailed(gang.id, f"{type(error).__name__}: {error}")
                unreadable.append((gang, failed))
        return readable, unreadable

    def _readable_or_set_aside(self, gangs: Iterable[GangState]) -> list[PendingGang]:
        """Return gangs as planners see them; back off those that cannot be shown to planners."""
        readable, unreadable = self._readable(gangs)
        for gang, failed in unreadable:
            self._deadlines.back_off_after_plan_failure(gang, failed, self._allocations.now_s)
        return readable
