"""The state of one gang inside the engine: its members, and the questions asked of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gangsched.core.facts import PodSeen
from gangsched.core.members import Limits, MemberState, Stage, State
from gangsched.core.model import (
    Constraints,
    Gang,
    GangId,
    Member,
    Near,
    NodeName,
    PodName,
    PodNeeds,
    Seated,
    Waiting,
)
from gangsched.core.policy import Repartition
from gangsched.core.queues import added
from gangsched.core.refusal import Reason, Refusal
from gangsched.core.snapshot import Place, Running


@dataclass(slots=True)
class GangState:
    """Everything known of one gang."""

    id: GangId
    spec: Gang | None = None
    state: State = State.GATHERING
    members: dict[PodName, MemberState] = field(default_factory=dict)
    version: int = 0
    pod_priority: int = 0
    since_s: float | None = None
    attempts: int = 0
    not_before_s: float | None = None
    deadline_s: float | None = None
    below_since_s: float | None = None
    broken_reason: str = ""
    avoid: dict[NodeName, float] = field(default_factory=dict)
    most_per_node: int | None = None
    most_until_s: float | None = None
    awaits: dict[NodeName, Repartition] = field(default_factory=dict)
    held_back: bool = False
    proof: str = ""
    pod_constraints: dict[str, Constraints] = field(default_factory=dict)
    placed_s: float | None = None
    advised: tuple[str, float] | None = None
    learnt: bool = False
    attained_s: float = 0.0
    stopped_by: str = ""
    ready_by_s: float | None = None
    unready_tries: int = 0
    end_by_s: float | None = None
    given_up: str = ""
    # Counted as members change: a gang of n members hears of 3n happenings, and looking through
    # all members at each of them would cost n * n.
    _runs: int = 0
    _done: int = 0
    _stages: dict[Stage, int] = field(default_factory=lambda: dict.fromkeys(Stage, 0))

    # -- what changes it ----------------------------------------------------------------------

    def declare(self, gang: Gang) -> bool:
        """Take a declaration over; return whether it says anything new."""
        if self.spec == gang:
            return False
        self.spec = gang
        self.version += 1
        self.given_up = ""
        wanted: dict[PodName, tuple[str, PodNeeds]] = {}
        for role in gang.roles:
            if role.needs is not None:
                for name in gang.member_names(role):
                    wanted[name] = (role.name, role.needs)
        for name, (role_name, needs) in wanted.items():
            member = self.members.get(name)
            if member is None:
                self.members[name] = MemberState(name, role_name, needs, declared=True)
            elif member.pod is None:
                member.role, member.needs = role_name, needs
        for name, member in list(self.members.items()):
            if member.declared and name not in wanted and not member.pod and member.stage is None:
                self._count(member, -1)
                del self.members[name]
        return True

    def undeclare(self) -> None:
        """Forget the declaration and the places that no pod fills."""
        self.spec = None
        self.version += 1

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
        before = (*member.word(), self.pod_priority)
        member.pod = fact.uid
        member.bound = fact.node
        member.started = member.started or fact.node is not None
        member.ended = fact.ended
        member.failed = fact.failed
        member.terminating = fact.terminating
        if member.stage is None and not member.declared:
            # A declared place keeps what its role asks: its pod is pinned to one node, and once
            # that pod is gone the place may be anywhere again.
            member.needs = fact.needs
            member.role = fact.role or member.role
        member.rank = fact.rank
        member.devices = fact.devices or member.devices
        member.started_s = fact.started_s
        member.invalid = fact.invalid
        member.ready = fact.ready
        if fact.constraints != Constraints() and fact.role not in self.pod_constraints:
            self.pod_constraints[fact.role] = fact.constraints
        self._count(member, 1)
        self.pod_priority = max(self.pod_priority, fact.priority)
        if self.since_s is None and fact.created_s:
            self.since_s = fact.created_s
        after = (*member.word(), self.pod_priority)
        if before == after:
            return False
        self.version += 1
        return True

    def start_over(self) -> None:
        """Forget that the gang ever ran: every place is open again. It keeps its turn."""
        self.version += 1
        if self.spec is not None and self.spec.started:
            self.spec = replace(self.spec, started=False)
        for member in self.members.values():
            self._count(member, -1)
            member.started = member.evicted = False
            member.ended = member.ended and member.pod is not None
            self._count(member, 1)

    def pod_gone(self, member: MemberState) -> None:
        """Take note that a member's pod no longer exists."""
        self.version += 1
        self._count(member, -1)
        if member.ended and not member.failed and self.state is State.PLACED:
            # Its work is done: cleaning the pod up does not make the gang incomplete.
            member.pod, member.bound, member.terminating = None, None, False
        elif member.declared and self.spec is not None:
            member.pod, member.bound, member.ended = None, None, False
            member.failed = member.terminating = member.evicted = False
        else:
            del self.members[member.name]
            return
        self._count(member, 1)

    def move(self, member: MemberState, stage: Stage | None) -> None:
        """Set how far a member's reservation has come."""
        if member.stage is not None:
            self._stages[member.stage] -= 1
        if stage is not None:
            self._stages[stage] += 1
        member.stage = stage

    def _count(self, member: MemberState, sign: int) -> None:
        self._runs += sign * member.runs
        self._done += sign * member.done

    # -- questions ----------------------------------------------------------------------------

    def minimum(self) -> int:
        """Return how many members must run together."""
        return self.spec.min_member if self.spec is not None else 1

    def timeout_s(self, limits: Limits) -> float:
        """Return how long the gang may take from reservation to start, and be incomplete."""
        return self.spec.schedule_timeout_s if self.spec is not None else limits.barrier_s

    def bound_count(self) -> int:
        """Return how many members are bound and not ended."""
        return self._runs

    def ended_count(self) -> int:
        """Return how many members have done their work."""
        return self._done

    def in_progress(self) -> int:
        """Return how many members are reserved and not yet bound."""
        return sum(self._stages.values())

    def before_barrier(self) -> int:
        """Return how many reserved members have not come to the barrier yet."""
        return self._stages[Stage.RESERVED] + self._stages[Stage.PREPARING]

    def open_members(self) -> list[MemberState]:
        """Return the members that want a node and have none reserved."""
        before_creation = self.spec is not None and self.spec.planned_before_creation
        return [
            m
            for m in self.members.values()
            if m.stage is None
            and not m.bound
            and not m.ended
            and not m.terminating
            and (m.pod is not None or (before_creation and m.declared and not m.started))
        ]

    def missing(self) -> Refusal | None:
        """Return why the gang cannot be planned yet, or None when it can."""
        if self.spec is None:
            name = self.id.split("/", 1)[1]
            return Refusal(
                self.id,
                Reason.NO_GROUP,
                f"the pods name PodGroup {name}, which does not exist in their namespace.",
            )
        wrong = next((m.invalid for m in self.members.values() if m.invalid), "")
        if wrong:
            return Refusal(self.id, Reason.MISCONFIGURED, f"{wrong}.")
        there = len(self.open_members()) + self.bound_count() + self.ended_count()
        if there < self.spec.min_member:
            return Refusal(
                self.id,
                Reason.TOO_FEW_PODS,
                f"{there} of at least {self.spec.min_member} pods exist.",
                wanted=self.spec.min_member,
                possible=there,
            )
        for role in self.spec.roles:
            have = sum(
                1 for m in self.members.values() if m.role == role.name and not m.terminating
            )
            if have < role.min_count:
                return Refusal(
                    self.id,
                    Reason.TOO_FEW_PODS,
                    f"{have} of at least {role.min_count} pods of role {role.name} exist.",
                    role=role.name,
                    wanted=role.min_count,
                    possible=have,
                )
        return None

    def plannable(self) -> bool:
        """Tell whether a planner should look at the gang now."""
        ready = self.state in (State.PENDING, State.PLACED) and self.not_before_s is None
        ready = ready and not self.given_up
        return ready and self.spec is not None and bool(self.open_members())

    def due_s(self) -> float | None:
        """Return the next moment at which time alone changes something for the gang."""
        single = (
            self.deadline_s,
            self.not_before_s,
            self.most_until_s,
            self.ready_by_s,
            self.end_by_s,
        )
        times = [at for at in single if at is not None]
        return min([*times, *self.avoid.values()], default=None)

    def waiting(self) -> Waiting:
        """Return the gang as a planner sees it."""
        spec = self.spec
        assert spec is not None, "only declared gangs are planned"  # noqa: S101
        members = self.open_members()
        settled = self.bound_count() + self.ended_count()
        minimum = max(spec.min_member - settled, 0)
        role_minimum = tuple(
            (role.name, max(role.min_count - self._settled(role.name), 0)) for role in spec.roles
        )
        if self.state is State.PLACED:  # the gang runs: each late member is welcome alone
            minimum, role_minimum = 1, ()
        ranks = self._ranks()
        constraints, near_role = self._constraints()
        return Waiting(
            gang=spec,
            version=self.version,
            members=tuple(Member(m.name, m.role, m.needs, ranks[m.name]) for m in members),
            constraints=constraints,
            near_role=near_role,
            seated=tuple(
                Seated(m.role, ranks[m.name], node)
                for m in self.members.values()
                if (node := m.node or (m.bound if m.runs else None)) is not None
            ),
            minimum=min(max(minimum, 1), len(members)),
            role_minimum=role_minimum,
            priority=self.priority(),
            since_s=self.since_s if self.since_s is not None else spec.created_s,
            avoid=tuple(self.avoid),
            most_per_node=self.most_per_node,
            repair=self.state is State.PLACED and self._lacks(),
            surplus=self.state is State.PLACED and not self._lacks(),
            attained_s=self.attained_s,
        )

    def _lacks(self) -> bool:
        """Tell whether a running gang has fewer members than it needs."""
        spec = self.spec
        assert spec is not None, "only declared gangs run as gangs"  # noqa: S101
        below = any(self._settled(role.name) < role.min_count for role in spec.roles)
        return below or self.bound_count() + self.ended_count() < spec.min_member

    def unready(self) -> int:
        """Return how many more members must become ready for the gang to do its work."""
        ready = sum(1 for m in self.members.values() if (m.runs and m.ready) or m.done)
        return max(self.minimum() - ready, 0)

    def constraints(self) -> Constraints:
        """Return what the gang asks of the topology as a whole."""
        return self._constraints()[0] if self.spec is not None else Constraints()

    def running(self) -> Running:
        """Return the gang as it runs; members that were told to leave are not among its places."""
        return self._running(lambda member: not member.evicted)

    def leaving(self) -> Running | None:
        """Return the part of the gang that was told to leave and still takes room, or None."""
        if self.spec is None or not any(m.runs and m.evicted for m in self.members.values()):
            return None
        return replace(self._running(lambda member: member.evicted), leaving=True, spare=())

    def _running(self, wanted: Callable[[MemberState], bool]) -> Running:
        assert self.spec is not None, "only declared gangs run as gangs"  # noqa: S101
        starts = [m.started_s for m in self.members.values() if m.runs and m.started_s is not None]
        started_s = min(starts, default=self.placed_s or 0.0)
        constraints, near_role = self._constraints()
        ranks = self._ranks()
        runtime_s = self.spec.expected_runtime_s
        members = [
            m
            for m in sorted(self.members.values(), key=lambda m: ranks[m.name])
            if m.bound is not None and not m.ended and wanted(m)
        ]
        counts: dict[PodNeeds, int] = {}
        for member in members:
            counts[member.needs] = counts.get(member.needs, 0) + 1
        return Running(
            gang=self.spec,
            places=tuple(
                Place(m.name, m.role, m.bound, m.needs, m.devices) for m in members if m.bound
            ),
            constraints=constraints,
            near_role=near_role,
            started_s=started_s,
            end_s=None if runtime_s is None else started_s + runtime_s,
            lost_since_s=max(started_s, self.spec.checkpoint_s or 0.0),
            movable=self.spec.movable,
            priority=self.priority(),
            spare=self._spare(members),
            since_s=self.since_s if self.since_s is not None else self.spec.created_s,
            charge=added(counts),
        )

    def _spare(self, members: list[MemberState]) -> tuple[PodName, ...]:
        """Return members beyond the minimum, highest rank first: they can go, the gang stays."""
        spec = self.spec
        assert spec is not None, "only declared gangs run as gangs"  # noqa: S101
        left = len(members) + self.ended_count() - spec.min_member
        roles = {role.name: role.min_count for role in spec.roles}
        have = {name: self._settled(name) for name in roles}
        spare: list[PodName] = []
        for member in reversed(members):
            if left <= 0:
                break
            if member.role in roles and have[member.role] <= roles[member.role]:
                continue
            if member.role in roles:
                have[member.role] -= 1
            left -= 1
            spare.append(member.name)
        return tuple(spare)

    def priority(self) -> int:
        """Return the gang's priority: its own, or the highest of its pods."""
        given = self.spec.priority if self.spec is not None else None
        return given if given is not None else self.pod_priority

    def _ranks(self) -> dict[PodName, int]:
        """Return every member's place in rank order: by role, then by index."""
        planned = self.spec is not None and self.spec.planned_before_creation
        if planned and all(member.declared for member in self.members.values()):
            return {name: rank for rank, name in enumerate(self.members)}  # declared in order
        roles = {role.name: at for at, role in enumerate(self.spec.roles if self.spec else ())}

        def key(member: MemberState) -> tuple[int, str, int, str]:
            index = member.rank if member.rank is not None else _trailing_number(member.name)
            return roles.get(member.role, len(roles)), member.role, index, member.name

        return {m.name: rank for rank, m in enumerate(sorted(self.members.values(), key=key))}

    def _constraints(self) -> tuple[Constraints, tuple[tuple[str, Near], ...]]:
        """Return what the declaration asks of the topology, or else what the pods ask."""
        assert self.spec is not None, "only declared gangs are planned"  # noqa: S101
        near_role = {role.name: role.near for role in self.spec.roles if role.near != Near()}
        constraints = self.spec.constraints
        for role, asked in self.pod_constraints.items():
            if role and asked.near != Near():
                near_role.setdefault(role, asked.near)
                asked = replace(asked, near=Near())  # noqa: PLW2901 -- the rest is the gang's
            if constraints == Constraints():
                constraints = asked
        return constraints, tuple(near_role.items())

    def _settled(self, role: str) -> int:
        return sum(
            1
            for m in self.members.values()
            if m.role == role and (m.bound or m.ended) and not m.failed
        )

    def assignments(self) -> tuple[tuple[PodName, NodeName], ...]:
        """Return where each member is or will be, in member order."""
        places = ((m.name, m.bound or m.node) for m in self.members.values())
        return tuple((name, node) for name, node in places if node is not None)

    def vanished(self) -> bool:
        """Tell whether nothing is left of the gang."""
        if self.members and any(m.pod or m.stage for m in self.members.values()):
            return False
        return self.spec is None or self.spec.implicit


def _trailing_number(name: str) -> int:
    digits = len(name) - len(name.rstrip("0123456789"))
    return int(name[-digits:]) if 0 < digits <= 18 else 0


__all__ = ["GangState", "Limits", "MemberState", "Stage", "State"]
