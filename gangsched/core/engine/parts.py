"""The parts of an engine, each made with what it needs of the others."""

from dataclasses import dataclass

from gangsched.core.engine.admission.admitted_changes import AdmittedChanges
from gangsched.core.engine.admission.drained_gangs import DrainedGangs
from gangsched.core.engine.admission.preemption_history import PreemptionHistory
from gangsched.core.engine.admission.queue_rules import QueueRulesReader
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.allocation.freed_generation import FreedGeneration
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.lifecycle.barrier import Barrier
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.lifecycle.due_gangs import DueGangs
from gangsched.core.engine.lifecycle.gathering import Gathering
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.preemptions import Preemptions
from gangsched.core.engine.lifecycle.reservations import Reservations
from gangsched.core.engine.lifecycle.running import Running
from gangsched.core.engine.lifecycle.stop_notices import StopNotices
from gangsched.core.engine.lifecycle.teardown import Teardown
from gangsched.core.engine.observed.gang_removal import GangRemoval
from gangsched.core.engine.observed.observed_pods import ObservedPods
from gangsched.core.engine.observed.restoration import Restoration
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.engine.pending.start_conditions import StartConditions
from gangsched.core.engine.plans.plan_feedback import PlanFeedback
from gangsched.core.engine.plans.snapshot_builder import SnapshotBuilder
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.minimum_watch import MinimumWatch
from gangsched.core.engine.timing.run_times import RunTimes
from gangsched.core.engine.timing.start_deadlines import StartDeadlines
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.engine.views.pending_views import PendingViews
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.quota.ledger import Ledger
from gangsched.core.quota.runtime_history import RuntimeHistory


@dataclass(frozen=True, slots=True)
class PartClasses:
    """The classes of the parts that a test may replace, to plant a bug in one."""

    allocations: type[Allocations] = Allocations
    barrier: type[Barrier] = Barrier
    lifecycle: type[Lifecycle] = Lifecycle
    members: type[MemberSteps] = MemberSteps
    minimum: type[MinimumWatch] = MinimumWatch
    reservations: type[Reservations] = Reservations
    running: type[Running] = Running
    teardown: type[Teardown] = Teardown


PARTS = PartClasses()


class Parts:
    """Every part of one engine. The order of making them is that of what they know."""

    def __init__(self, settings: Settings, ledger: Ledger, classes: PartClasses = PARTS) -> None:
        self.settings = settings
        # Parts that own state and need no other.
        self.outbox = Outbox()
        self.history = RuntimeHistory()
        self.preemption_history = PreemptionHistory()
        self.feedback = PlanFeedback()
        self.table = GangTable()
        freed = FreedGeneration()
        self.freed = freed
        self.declarations = Declarations(freed)
        gangs = self.table.gangs
        self.allocations = classes.allocations(ledger, self.declarations, gangs, freed)
        self.pending = PendingQueue(gangs, freed)
        self.timers = Timers(self.table.next_deadline_s)
        self.capacity = CapacityWait(self.allocations)
        # Views of gangs, and what is known about their queues.
        declared = (self.declarations, self.allocations)
        self.running = RunningSet(settings, self.table, *declared, self.history)
        self.views = PendingViews(*declared, self.history)
        self.rules = QueueRulesReader(self.table, *declared, self.running, self.preemption_history)
        self.refusals = RefusalReports(self.pending, self.outbox)
        self.conditions = StartConditions(self.table, self.pending, self.refusals)
        self.admitted = AdmittedChanges(
            self.table, self.allocations, self.views, self.rules, self.outbox
        )
        self._make_lifecycle(classes)
        self._make_doors()

    def _make_lifecycle(self, classes: PartClasses) -> None:
        """Make the parts that move gangs through their states."""
        self.deadlines = StartDeadlines(self.settings, self.timers, self.pending, self.refusals)
        self.members = classes.members(
            self.table, self.allocations, self.running, self.deadlines, self.outbox
        )
        self.run_times = RunTimes(self.history, self.allocations, self.pending)
        minimum = classes.minimum(self.admitted, self.deadlines, self.outbox)
        gathering = Gathering(
            self.admitted, self.running, self.deadlines, minimum, self.refusals, self.conditions
        )
        barrier = classes.barrier(self.members)
        running = classes.running(
            self.allocations, self.admitted, self.members, self.deadlines, self.timers,
            minimum, self.run_times, self.refusals, self.outbox, self.conditions,
        )  # fmt: skip
        self.lifecycle = classes.lifecycle(
            {
                State.GATHERING: gathering,
                State.PENDING: gathering,
                State.RESERVED: barrier,
                State.BINDING: barrier,
                State.PLACED: running,
                State.BROKEN: classes.teardown(self.members, self.capacity, self.outbox),
            },
            self.pending,
            self.timers,
            self.conditions,
        )
        self.due = DueGangs(
            self.settings, self.members, self.deadlines, self.run_times, self.lifecycle
        )
        self.stops = StopNotices(
            self.settings, self.table, self.capacity, self.running, self.timers, self.outbox
        )
        self.reservations = classes.reservations(
            self.allocations, self.pending, self.refusals, self.timers, self.deadlines,
            self.admitted, self.capacity, self.stops, self.lifecycle, self.outbox,
        )  # fmt: skip
        self.preemptions = Preemptions(
            self.table, self.declarations, self.preemption_history, self.run_times, self.members,
            self.stops, self.lifecycle, self.outbox,
        )  # fmt: skip

    def _make_doors(self) -> None:
        """Make the parts that facts and questions come to."""
        self.removal = GangRemoval(
            self.table, self.allocations, self.admitted, self.capacity, self.pending,
            self.timers, self.running, self.views, self.conditions,
        )  # fmt: skip
        self.pods = ObservedPods(
            self.settings, self.table, self.allocations, self.running, self.admitted,
            self.deadlines, self.members, self.stops, self.lifecycle, self.removal, self.outbox,
        )  # fmt: skip
        self.restoration = Restoration(
            self.settings, self.table, self.allocations, self.preemption_history, self.feedback,
            self.admitted, self.refusals, self.deadlines, self.lifecycle, self.reservations,
            self.stops, self.outbox, self.conditions,
        )  # fmt: skip
        self.drained = DrainedGangs(self.table, self.declarations, self.allocations)
        self.snapshots = SnapshotBuilder(
            self.settings, self.table, self.allocations, self.pending, self.views, self.rules,
            self.running, self.feedback, self.deadlines, self.conditions, self.declarations,
        )  # fmt: skip
