"""What the engine knows of one gang: its declaration and its members, folded from facts."""

from collections import Counter
from dataclasses import dataclass, field, replace

from gangsched.core.engine.gangs.late_pods import LatePodPlaces
from gangsched.core.engine.gangs.member import MemberState, Stage, State
from gangsched.core.engine.gangs.pod_templates import PodTemplates, grown
from gangsched.core.engine.limits import Limits
from gangsched.core.facts import PodSeen
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.gangs import NOBODY, Gang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.placement import Repartition
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import DEFAULT_QUEUE, QuotaKey

_NO_STAGES = dict.fromkeys(Stage, 0)


@dataclass(slots=True)
class GangRecord:
    """Everything known of one gang, and how it changes; the engine's `changes` are shared.

    `asked` is its declaration, `spec` what is believed of that. When the declaration goes before
    the pods do it is `undeclared`, and they stay what they were: charged, and to be stopped.
    """

    id: GangId
    spec: Gang | None = None
    asked: Gang | None = None
    undeclared: bool = False
    state: State = State.GATHERING
    members: dict[PodName, MemberState] = field(default_factory=dict)
    version: int = 0
    changes: dict[GangId, None] = field(default_factory=dict)
    pod_priority: int = 0
    pods_preempt: bool = True
    since_s: float | None = None
    attempts: int = 0
    no_shows: int = 0
    not_before_s: float | None = None
    set_aside: bool = False
    deadline_s: float | None = None
    below_since_s: float | None = None
    refill_by_s: float | None = None
    broken_reason: str = ""
    avoid: dict[NodeName, float] = field(default_factory=dict)
    most_per_node: int | None = None
    most_until_s: float | None = None
    awaits: dict[NodeName, Repartition] = field(default_factory=dict)
    held_back: bool = False
    proof: str = ""
    pod_constraints: dict[str, Constraints] = field(default_factory=dict)
    reserved_s: float | None = None
    placed_s: float | None = None
    advised: tuple[str, float] | None = None
    learnt: bool = False
    attained_s: float = 0.0
    ready_by_s: float | None = None
    unready_tries: int = 0
    end_by_s: float | None = None
    given_up: str = ""
    ran_with: int | None = None
    """Its minimum when it was bound: a declaration that grows asks no more of what runs."""

    account: tuple[str, str] = (DEFAULT_QUEUE, NOBODY)
    """Queue and user that are charged."""

    admitted: dict[QuotaKey, int] = field(default_factory=dict)
    """The most that was charged for it at once since it began: its quota admitted so much."""

    _late: LatePodPlaces | None = None
    """Of a gang some of whose pods are made only once the others run."""

    _templates: PodTemplates = field(default_factory=PodTemplates)

    _open: tuple[int, State, bool] | None = None
    # Counted as members change: a gang of n members hears of 3n happenings, and looking through
    # all members at each of them would cost n * n.
    _runs: int = 0
    _done: int = 0
    _stages: dict[Stage, int] = field(default_factory=_NO_STAGES.copy)

    # -- what changes it ----------------------------------------------------------------------

    def bump(self) -> None:
        """Take note that plans made before are of another gang now; `changes` names it."""
        self.version += 1
        self.changes[self.id] = None
        if self.set_aside:  # it may be another request now, which is worth a plan
            self.set_aside, self.not_before_s = False, None

    def enter(self, state: State) -> None:
        """Come into a state."""
        self.state = state
        self.changes[self.id] = None

    def declare(self, gang: Gang) -> bool:
        """Take a declaration over, as far as it is believed; return whether that is news."""
        if self.spec == gang:
            return False
        self.spec = gang
        if self.ran_with is not None:
            self.ran_with = min(self.ran_with, gang.min_member)
        self.account = gang.account
        self.bump()
        self.given_up = ""
        wanted: dict[PodName, tuple[str, PodRequirements]] = {}
        for role in gang.roles:
            template = self._templates.of(role)
            if template is not None and not role.late:
                for name in gang.member_names(role):
                    wanted[name] = (role.name, template)
        for name, member in list(self.members.items()):
            if name in wanted or not member.declared or member.late:
                continue
            if member.pod:
                member.template = None
                member.settle()
            elif member.stage is None:
                self._count(member, -1)
                del self.members[name]
        others = self.members
        self.members = {}
        for name, (role_name, template) in wanted.items():  # in rank order, whoever came first
            known = others.pop(name) if name in others else None
            member = self.members[name] = known or MemberState(name, role_name, template)
            member.role, member.template = role_name, template
            member.settle()
        self.members |= others
        if gang.late or self._late is not None:
            self._late = LatePodPlaces(gang, self.members, self._templates)
        return True

    def place_taken(self, fact: PodSeen) -> PodName | None:
        """Let a new pod fill a late place; return the name that the place had before, if it did."""
        roles = self.spec.roles if self.spec is not None else ()
        return self._late.fill(self.members, fact, roles) if self._late is not None else None

    def outgrown(self, member: MemberState) -> None:
        """Learn from a pod that asks for more than its role's template: plan so much next time.

        Others that the API server completes (a LimitRange, an injected container) ask for as much.
        """
        roles = self.spec.roles if self.spec is not None else ()
        role = next((one for one in roles if one.name == member.role), None)
        if role is None or member.template is None or member.asks is None:
            return
        enough = self._templates.learn(role, grown(member.template, member.asks))
        for other in self.members.values():
            if other.role == role.name and other.declared:
                other.template = enough
                other.settle()

    def undeclare(self) -> None:
        """Forget the declaration; what runs stays as it was declared last."""
        self.undeclared = True
        if not self.holds():
            self._forget_declaration()
        self.bump()

    def _forget_declaration(self) -> None:
        self.spec = self.asked = None
        self.undeclared = False

    def pod_seen(self, fact: PodSeen) -> bool:
        """Take a pod over; return whether anything a planner reads changed."""
        member = self.members.get(fact.name)
        if member is None:
            member = self.members[fact.name] = MemberState(fact.name, fact.role, fact.needs)
        elif member.pod not in (None, fact.uid):
            if fact.terminating or fact.ended:
                return False  # a late word about a predecessor
            member.evicted = False
        self._count(member, -1)
        before = (*member.word(), self.pod_priority, self.pods_preempt)
        member.pod = fact.uid
        member.kept = False
        member.bound = fact.node
        member.started = member.started or fact.node is not None
        member.ended = fact.ended
        if fact.terminating and not fact.ended:
            member.stopped = fact.uid
        # Who was told to leave has not done its work, whatever its exit code says.
        member.failed = fact.failed or (fact.ended and member.stopped == fact.uid)
        member.terminating = fact.terminating
        member.asks = fact.needs
        if member.stage is None and not member.declared:
            member.role = fact.role or member.role
        member.settle()
        member.rank = fact.rank
        member.started_s = fact.started_s
        member.invalid = fact.invalid
        member.held_by = fact.held_by
        member.ready = fact.ready
        if fact.constraints != Constraints() and fact.role not in self.pod_constraints:
            self.pod_constraints[fact.role] = fact.constraints
        self._count(member, 1)
        counts = member.done or (member.runs and not fact.terminating)
        if fact.minimum and counts and self.state is not State.PLACED:
            self.ran_with = max(self.ran_with or 0, fact.minimum)
        self.pod_priority = max(self.pod_priority, fact.priority)
        self.pods_preempt = self.pods_preempt and fact.preempts
        if fact.created_s:
            earlier_s = self.since_s if self.since_s is not None else fact.created_s
            self.since_s = min(earlier_s, fact.created_s)
        after = (*member.word(), self.pod_priority, self.pods_preempt)
        if before == after:
            return False
        self.bump()
        return True

    def end_run(self) -> None:
        """Forget every moment at which time alone would end the run that is over."""
        self.below_since_s = self.deadline_s = self.refill_by_s = None
        self.ready_by_s = self.end_by_s = None

    def start_over(self) -> None:
        """Forget that the gang ever ran: every place is open again. It keeps its turn."""
        self.bump()
        self.end_run()
        self.ran_with = None
        self.admitted.clear()
        if self.undeclared:
            self._forget_declaration()
        if self.asked is not None and self.asked.started:
            self.asked = replace(self.asked, started=False)
        if self.spec is not None and self.spec.started:
            self.spec = replace(self.spec, started=False)
        for member in self.members.values():
            self._count(member, -1)
            member.started = member.evicted = False
            member.kept = member.late
            member.ended = member.ended and member.pod is not None
            self._count(member, 1)

    def pod_gone(self, member: MemberState) -> None:
        """Take note that a member's pod no longer exists."""
        self.bump()
        self._count(member, -1)
        member.asks = None
        if member.ended and not member.failed and self.state is State.PLACED:
            # Its work is done: cleaning the pod up does not make the gang incomplete.
            member.pod, member.bound, member.terminating = None, None, False
        elif member.declared and self.spec is not None and not self.undeclared:
            member.pod, member.bound, member.ended = None, None, False
            member.failed = member.terminating = member.evicted = False
            member.started = member.started and self.state is State.PLACED
            member.invalid = member.held_by = ""
            member.kept = member.late and self.state is not State.PLACED
        else:
            del self.members[member.name]
            return
        member.settle()
        self._count(member, 1)

    def move(self, member: MemberState, stage: Stage | None) -> None:
        """Set how far a member's reservation has come."""
        if (stage is None) != (member.stage is None):
            self.changes[self.id] = None
        self._count_late(member, -1)
        if member.stage is not None:
            self._stages[member.stage] -= 1
        if stage is not None:
            self._stages[stage] += 1
        member.stage = stage
        member.settle()
        self._count_late(member, 1)

    def _count(self, member: MemberState, sign: int) -> None:
        self._runs += sign * member.runs
        self._done += sign * member.done
        self._count_late(member, sign)

    def _count_late(self, member: MemberState, sign: int) -> None:
        if self._late is not None:
            self._late.count(member, sign)

    # -- questions ----------------------------------------------------------------------------

    def minimum(self) -> int:
        """Return how many members must run together."""
        if self.spec is None or self.undeclared:
            return 1
        least = self.spec.min_member
        return least if self.ran_with is None else min(least, self.ran_with)

    def enough(self) -> int:
        """Return how many members have to be bound for the gang to have started."""
        late = self.spec.late if self.spec is not None and self.ran_with is None else 0
        return max(self.minimum() - late, 1)

    def starts_with(self) -> int:
        """Return the minimum that is written with a pod which is bound now, for later processes."""
        if self.spec is None or not self.spec.late:
            return self.minimum()
        bound = self._runs + self._done + self._stages[Stage.BINDING]
        return max(self.enough(), min(bound, self.spec.min_member))

    def waits_since_s(self) -> float:
        """Return when its owner asked for it, by what the API server keeps: its place in line."""
        declared_s = self.spec.created_s if self.spec is not None else 0.0
        return declared_s or self.since_s or 0.0

    def timeout_s(self, limits: Limits) -> float:
        """Return how long the gang may take from reservation to start, and be incomplete."""
        if self.spec is None or self.undeclared:
            return limits.barrier_s
        return self.spec.schedule_timeout_s

    def pinned(self) -> bool:
        """Tell whether its pods are created for one node each, and have to be made anew."""
        return self.spec is not None and self.spec.planned_before_creation and not self.undeclared

    def holds(self) -> bool:
        """Tell whether anything is charged for it: pods that run, or room that is reserved."""
        return self._runs > 0 or self.in_progress() > 0

    def waits_for_pods(self) -> bool:
        """Tell whether room is reserved for pods that do not exist yet, or may not come yet."""
        return self._stages[Stage.RESERVED] > self.to_come()

    def bound_count(self) -> int:
        """Return how many members are bound and not ended."""
        return self._runs

    def ended_count(self) -> int:
        """Return how many members have done their work."""
        return self._done

    def in_progress(self) -> int:
        """Return how many members are reserved and not yet bound."""
        return sum(self._stages.values())

    def to_come(self) -> int:
        """Return how many members are reserved whose pods are made only once the others run."""
        return self._late.to_come if self._late is not None else 0

    def under_way(self) -> int:
        """Return how many members are reserved, not yet bound, and needed for the start."""
        return self.in_progress() - self.to_come()

    def before_barrier(self) -> int:
        """Return how many members that are needed for the start did not reach the barrier yet."""
        return self._stages[Stage.RESERVED] + self._stages[Stage.PREPARING] - self.to_come()

    def open_members(self) -> list[MemberState]:
        """Return the members that want a node and have none reserved."""
        before_creation = self.pinned()
        # A gang that runs below its minimum gets its lost places back before their pods exist:
        # else a filler would take them in between.
        mending = before_creation and self.state is State.PLACED and self.lacks()
        return [
            m
            for m in self.members.values()
            if m.stage is None
            and not m.bound
            and not m.ended
            and not m.terminating
            and not m.held_by
            and not m.invalid
            and (
                m.pod is not None
                or m.kept
                or (before_creation and m.declared and mending >= m.started)
            )
        ]

    def lacks(self) -> bool:
        """Tell whether fewer members than needed run or have done their work."""
        spec = self.spec
        if spec is None:
            return False
        settled = self._settled()
        grown = self.ran_with is not None and self.ran_with < spec.min_member
        below = not grown and any(settled[role.name] < role.min_count for role in spec.roles)
        return below or self.bound_count() + self.ended_count() < self.minimum()

    def plannable(self) -> bool:
        """Tell whether a planner should look at the gang now."""
        if self.not_before_s is not None or self.given_up or self.spec is None or self.undeclared:
            return False
        known = self._open  # asked of every waiting gang in every cycle
        if known is None or known[0] != self.version or known[1] is not self.state:
            wants = self.state in (State.PENDING, State.PLACED) and bool(self.open_members())
            known = self._open = (self.version, self.state, wants)
        return known[2]

    def _settled(self) -> Counter[str]:
        """Return how many members of each role run or have done their work."""
        return Counter(
            m.role for m in self.members.values() if (m.bound or m.ended) and not m.failed
        )
