"""The state of one gang: its declaration and its parts, folded from facts."""

from dataclasses import dataclass, field, replace

from gangsched.core.engine.gangs.member import MemberState, Stage, State
from gangsched.core.engine.gangs.members import Members
from gangsched.core.engine.gangs.reservation import Reservation
from gangsched.core.engine.gangs.retry import Retry
from gangsched.core.engine.gangs.run import GangRun
from gangsched.core.engine.limits import Limits
from gangsched.core.facts import PodSeen
from gangsched.core.model.constraints import Constraints, LevelRequest
from gangsched.core.model.dependencies import Outcome
from gangsched.core.model.gangs import UNKNOWN_USER, Gang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.queues import DEFAULT_QUEUE


@dataclass(slots=True)
class PodDefaults:
    """What the pods of a gang ask for it; it counts where the declaration says nothing."""

    priority: int = 0
    """The highest of its pods."""
    preempts: bool = True
    """Whether no pod forbids it (`preemptionPolicy: Never`)."""
    constraints: dict[str, Constraints] = field(default_factory=dict)
    """What annotations ask of the topology, by role."""


@dataclass(slots=True)
class GangState:
    """One gang, as its parts, and how facts change it.

    `declaration` is what its object says, `spec` as much of that as is admitted. If the object is
    deleted before the pods, the gang is `undeclared`: its pods stay charged as they were, until
    they are evicted.
    """

    id: GangId
    spec: Gang | None = None
    declaration: Gang | None = None
    undeclared: bool = False
    state: State = State.GATHERING
    version: int = 0
    """It grows with every change that a planner can see."""
    changes: dict[GangId, None] = field(default_factory=dict)
    """The gangs that changed, shared by all gangs; this one adds itself."""
    account: tuple[str, str] = (DEFAULT_QUEUE, UNKNOWN_USER)
    """Queue and user that are charged."""
    members: Members = field(default_factory=Members)
    pod_defaults: PodDefaults = field(default_factory=PodDefaults)
    queued_since_s: float | None = None
    """When its first pod was created, or the gang was complete."""
    attained_service_s: float = 0.0
    """For how long it ran before it was preempted, in all runs."""
    last_advice: tuple[str, float] | None = None
    """The refusal that advice was asked for last, and when."""
    outcome: Outcome | None = None
    """How its last run ended; None while it runs, or if it never ran."""
    job_ended: bool = False
    """Whether its job said that this outcome is its last."""
    dependencies_met: bool = True
    """Whether its dependencies held once: they are not asked again."""
    held_for: str = ""
    """Why it is not planned although it is complete: it waits for other gangs."""
    retry: Retry = field(default_factory=Retry)
    reservation: Reservation = field(default_factory=Reservation)
    run: GangRun = field(default_factory=GangRun)
    _plannable: tuple[int, State, bool] | None = None
    """Version and state, and whether members needed a node then."""

    # -- changes ----------------------------------------------------------------------

    def mark_changed(self) -> None:
        """Record that plans made before are of another request now."""
        self.version += 1
        self.changes[self.id] = None
        if self.retry.set_aside:  # the changed request may be worth a plan
            self.retry.set_aside, self.retry.backoff_until_s = False, None

    def enter(self, state: State) -> None:
        """Enter a state."""
        self.state = state
        self.changes[self.id] = None

    def declare(self, gang: Gang) -> bool:
        """Take a declaration over, as far as it is admitted; return whether it is new."""
        if self.spec == gang:
            return False
        self.spec = gang
        if self.run.minimum is not None:
            self.run.minimum = min(self.run.minimum, gang.min_member)
        self.account = gang.account
        self.mark_changed()
        self.retry.failure_message = ""
        self.members.declare(gang)
        return True

    def undeclare(self) -> None:
        """Forget the declaration; running pods keep the last declaration."""
        self.undeclared = True
        if not self.holds_nodes():
            self._forget_declaration()
        self.mark_changed()

    def _forget_declaration(self) -> None:
        self.spec = self.declaration = None
        self.undeclared = False

    def fill_late_place(self, fact: PodSeen) -> PodName | None:
        """Let a new pod fill a late member; return the former name of the member, or None."""
        roles = self.spec.roles if self.spec is not None else ()
        return self.members.fill_late_place(fact, roles)

    def learn_from_pod(self, member: MemberState) -> None:
        """Plan for each pod of a role as much as the pod of this member requests."""
        roles = self.spec.roles if self.spec is not None else ()
        role = next((role for role in roles if role.name == member.role), None)
        if role is None or member.template is None or member.pod_needs is None:
            return
        self.members.learn_from_pod(role, member.template, member.pod_needs)

    def observe_pod(self, fact: PodSeen) -> bool:
        """Apply an observed pod; return whether anything changed that a planner can see."""
        member, defaults = self.members.place_of(fact), self.pod_defaults
        if member is None:
            return False
        before = (*member.planning_fields(), defaults.priority, defaults.preempts)
        self.members.observe(member, fact)
        if fact.constraints != Constraints() and fact.role not in defaults.constraints:
            defaults.constraints[fact.role] = fact.constraints
        counts = member.done or (member.runs and not fact.terminating)
        if fact.minimum and counts and self.state is not State.PLACED:
            self.run.minimum = max(self.run.minimum or 0, fact.minimum)
        defaults.priority = max(defaults.priority, fact.priority)
        defaults.preempts = defaults.preempts and fact.preempts
        if fact.created_s:
            earlier_s = self.queued_since_s if self.queued_since_s is not None else fact.created_s
            self.queued_since_s = min(earlier_s, fact.created_s)
        saved = fact.checkpoint_s is not None and fact.checkpoint_s > (self.run.saved_s or 0.0)
        if saved:
            self.run.saved_s = fact.checkpoint_s
        after = (*member.planning_fields(), defaults.priority, defaults.preempts)
        if before == after and not saved:
            return False
        self.mark_changed()
        return True

    def remove_pod(self, member: MemberState) -> None:
        """Record that the pod of a member no longer exists."""
        self.mark_changed()
        declared = self.spec is not None and not self.undeclared
        self.members.remove_pod(member, placed=self.state is State.PLACED, declared=declared)

    def forget_predecessor(self, last: PodSeen) -> None:
        """Forget the work of a gang of the same name, once the last of its pods is gone.

        A job that is deleted and created again may declare its gang before the pods of the former
        job are known to be gone. These pods ended, so the new gang looked as if it had run.
        """
        spec = self.spec
        if spec is None or not self.is_pinned() or not 0 < last.created_s < spec.created_s:
            return
        if not any(member.pod or member.stage for member in self.members.values()):
            self.members.forget_ended()

    def set_stage(self, member: MemberState, stage: Stage | None) -> None:
        """Set how far the assignment of a member has come."""
        if (stage is None) != (member.stage is None):
            self.changes[self.id] = None
        self.members.set_stage(member, stage)

    def end_run(self) -> None:
        """Clear every moment at which time alone would end the present run or start."""
        run, reservation = self.run, self.reservation
        run.below_minimum_since_s = run.whole_by_s = run.ready_by_s = run.end_by_s = None
        run.stop = None
        reservation.start_by_s = reservation.capacity_by_s = reservation.refill_by_s = None

    def start_over(self) -> None:
        """Forget that the gang ever ran; all members need a node again. It keeps its turn."""
        self.mark_changed()
        self.end_run()
        self.run.minimum = None
        self.run.admitted.clear()
        if self.undeclared:
            self._forget_declaration()
        if self.declaration is not None and self.declaration.started:
            self.declaration = replace(self.declaration, started=False)
        if self.spec is not None and self.spec.started:
            self.spec = replace(self.spec, started=False)
        self.members.start_over()

    # -- how many members ---------------------------------------------------------------------

    def minimum(self) -> int:
        """Return how many members must run together."""
        if self.spec is None or self.undeclared:
            return 1
        least = self.spec.min_member
        return least if self.run.minimum is None else min(least, self.run.minimum)

    def start_minimum(self) -> int:
        """Return how many members have to be bound for the gang to have started."""
        late = self.spec.late if self.spec is not None and self.run.minimum is None else 0
        return max(self.minimum() - late, 1)

    def minimum_to_record(self) -> int:
        """Return the minimum to write on a pod that is bound now, for later processes."""
        if self.spec is None or not self.spec.late:
            return self.minimum()
        members = self.members
        bound = members.bound_count() + members.ended_count() + members.binding_count()
        return max(self.start_minimum(), min(bound, self.spec.min_member))

    def is_below_minimum(self) -> bool:
        """Return whether fewer members than needed run or have done their work."""
        spec, members = self.spec, self.members
        if spec is None:
            return False
        settled = members.settled_by_role()
        grown = self.run.minimum is not None and self.run.minimum < spec.min_member
        below = not grown and any(settled[role.name] < role.min_count for role in spec.roles)
        return below or members.bound_count() + members.ended_count() < self.minimum()

    def unready_count(self) -> int:
        """Return how many more members must become ready for the gang to do its work."""
        members = self.members.values()
        ready = sum(1 for m in members if (m.runs and m.ready) or m.done)
        return max(self.minimum() - ready, 0)

    def unassigned_members(self) -> list[MemberState]:
        """Return the members that need a node and have none assigned."""
        before_creation = self.is_pinned()
        # A gang that runs below its minimum gets its lost places back before their pods exist:
        # otherwise backfill would take them in between.
        refill = before_creation and self.state is State.PLACED and self.is_below_minimum()
        return self.members.unassigned(before_creation=before_creation, refill=refill)

    # -- other questions ----------------------------------------------------------------------

    def waits_since_s(self) -> float:
        """Return when the gang was created, by the API server's clock; this decides its turn."""
        declared_s = self.spec.created_s if self.spec is not None else 0.0
        return declared_s or self.queued_since_s or 0.0

    def last_saved_s(self) -> float | None:
        """Return when its work was saved last, by its declaration and its pods."""
        declared_s = self.spec.checkpoint_s if self.spec is not None else None
        if declared_s is None or self.run.saved_s is None:
            return declared_s if self.run.saved_s is None else self.run.saved_s
        return max(declared_s, self.run.saved_s)

    def timeout_s(self, limits: Limits) -> float:
        """Return how long the gang may take from reservation to start, and be incomplete."""
        if self.spec is None or self.undeclared:
            return limits.schedule_timeout_s
        return self.spec.schedule_timeout_s

    def next_deadline_s(self) -> float | None:
        """Return the next moment at which time alone changes something for the gang."""
        retry, reservation, run = self.retry, self.reservation, self.run
        single = (
            reservation.start_by_s,
            reservation.capacity_by_s,
            reservation.refill_by_s,
            run.whole_by_s,
            run.ready_by_s,
            run.end_by_s,
            run.stop.by_s if run.stop is not None else None,
            retry.backoff_until_s,
            retry.pods_per_node_until_s,
        )
        times = [at_s for at_s in single if at_s is not None]
        return min([*times, *retry.excluded_nodes.values()], default=None)

    def bind_by_s(self) -> float | None:
        """Return when members with an assignment must be bound, None if no deadline is set."""
        start_by_s = self.reservation.start_by_s
        return start_by_s if start_by_s is not None else self.run.whole_by_s

    def is_pinned(self) -> bool:
        """Return whether each pod is created for one node, and has to be created again."""
        return self.spec is not None and self.spec.planned_before_creation and not self.undeclared

    def holds_nodes(self) -> bool:
        """Return whether anything is charged for it: pods that run, or assignments."""
        return self.members.bound_count() > 0 or self.members.in_progress() > 0

    def is_plannable(self) -> bool:
        """Return whether a planner should look at the gang now."""
        retry = self.retry
        if retry.backoff_until_s is not None or retry.failure_message:
            return False
        if self.spec is None or self.undeclared or self.run.stop is not None or self.held_for:
            return False
        known = self._plannable  # asked of every pending gang in every cycle
        if known is None or known[0] != self.version or known[1] is not self.state:
            wants = self.state in (State.PENDING, State.PLACED) and bool(self.unassigned_members())
            known = self._plannable = (self.version, self.state, wants)
        return known[2]

    def is_empty(self) -> bool:
        """Return whether nothing is left of the gang."""
        if any(member.pod or member.stage for member in self.members.values()):
            return False
        return self.spec is None or self.spec.implicit or self.undeclared

    def assignments(self) -> tuple[tuple[PodName, NodeName], ...]:
        """Return where each member is or will be, in member order."""
        places = ((m.name, m.bound_node or m.assigned_node) for m in self.members.values())
        return tuple((name, node) for name, node in places if node is not None)

    def priority(self) -> int:
        """Return the gang's priority: its own, or the highest of its pods."""
        given = self.spec.priority if self.spec is not None else None
        return given if given is not None else self.pod_defaults.priority

    def constraints(self) -> Constraints:
        """Return the topology constraints of the gang as a whole."""
        return self.constraints_by_role()[0] if self.spec is not None else Constraints()

    def constraints_by_role(self) -> tuple[Constraints, tuple[tuple[str, LevelRequest], ...]]:
        """Return the constraints of the declaration, or else those of the pods.

        They are the constraints of the gang as a whole, and the level requests of its roles.
        """
        assert self.spec is not None, "only declared gangs are planned"  # noqa: S101
        near_role = {
            role.name: role.near for role in self.spec.roles if role.near != LevelRequest()
        }
        constraints = self.spec.constraints
        for role, of_pods in self.pod_defaults.constraints.items():
            own = of_pods
            if role and own.near != LevelRequest():
                near_role.setdefault(role, own.near)
                own = replace(
                    own, near=LevelRequest()
                )  # the other constraints apply to the whole gang
            if constraints == Constraints():
                constraints = own
        return constraints, tuple(near_role.items())


__all__ = ["GangState", "Limits", "MemberState", "PodDefaults", "Stage", "State"]
