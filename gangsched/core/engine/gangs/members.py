"""The members of one gang, and their number in each stage."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, ValuesView

from gangsched.core.engine.gangs.late_pods import LatePodPlaces
from gangsched.core.engine.gangs.member import MemberState, Stage
from gangsched.core.engine.gangs.pod_templates import PodTemplates, grown
from gangsched.core.facts import PodSeen
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import PodName
from gangsched.core.model.pods import PodRequirements

_NO_STAGES = dict.fromkeys(Stage, 0)


class Members(Mapping[PodName, MemberState]):
    """The members by name: declared members in rank order, then the others as they came.

    Members are counted as they change. A gang of n members observes 3n facts, and a look through
    all members at each of them would cost n * n.
    """

    __slots__ = ("_by_name", "_ended", "_late", "_running", "_stages", "_templates")

    def __init__(self) -> None:
        self._by_name: dict[PodName, MemberState] = {}
        self._running = 0
        """Members that are bound and have not ended."""
        self._ended = 0
        """Members that have done their work."""
        self._stages: dict[Stage, int] = _NO_STAGES.copy()
        """Members with an assignment, by stage."""
        self._late: LatePodPlaces | None = None
        """Places of pods that are created after the others run; None in a gang without any."""
        self._templates = PodTemplates()

    def __getitem__(self, name: PodName) -> MemberState:
        return self._by_name[name]

    def __iter__(self) -> Iterator[PodName]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def values(self) -> ValuesView[MemberState]:
        """Return the members, at the cost of a dict."""
        return self._by_name.values()

    # -- changes --------------------------------------------------------------------

    def declare(self, gang: Gang) -> None:
        """Add and remove members so that they match a declaration."""
        wanted: dict[PodName, tuple[str, PodRequirements]] = {}
        for role in gang.roles:
            template = self._templates.of(role)
            if template is not None and not role.late:
                for name in gang.member_names(role):
                    wanted[name] = (role.name, template)
        for name, member in list(self._by_name.items()):
            if name in wanted or not member.declared or member.late:
                continue
            if member.pod:
                member.template = None
                member.update_needs()
            elif member.stage is None:
                self._count(member, -1)
                del self._by_name[name]
        others = self._by_name
        self._by_name = {}
        for name, (
            role_name,
            template,
        ) in wanted.items():  # in rank order, not in the order of arrival
            known = others.pop(name) if name in others else None
            member = self._by_name[name] = known or MemberState(name, role_name, template)
            member.role, member.template = role_name, template
            member.update_needs()
        self._by_name |= others
        if gang.late or self._late is not None:
            self._late = LatePodPlaces(gang, self._by_name, self._templates)

    def fill_late_place(self, fact: PodSeen, roles: Iterable[Role]) -> PodName | None:
        """Let a new pod fill a late member; return the former name of the member, or None."""
        return self._late.fill(self._by_name, fact, roles) if self._late is not None else None

    def learn_from_pod(self, role: Role, template: PodRequirements, pod: PodRequirements) -> None:
        """Plan for each pod of a role as much as one of its pods requests.

        What the API server adds to that pod (a LimitRange, an injected container), it adds to the
        other pods of the role.
        """
        enough = self._templates.learn(role, grown(template, pod))
        for member in self._by_name.values():
            if member.role == role.name and member.declared:
                member.template = enough
                member.update_needs()

    def place_of(self, fact: PodSeen) -> MemberState | None:
        """Return the member of a pod, or a new one; None if a later pod has replaced the pod."""
        member = self._by_name.get(fact.name)
        if member is None:
            member = self._by_name[fact.name] = MemberState(fact.name, fact.role, fact.needs)
        elif member.pod not in (None, fact.uid):
            if fact.terminating or fact.ended:
                return None
            member.evicted = False
        return member

    def observe(self, member: MemberState, fact: PodSeen) -> None:
        """Update a member with its pod as it was observed."""
        self._count(member, -1)
        member.observe(fact)
        self._count(member, 1)

    def remove_pod(self, member: MemberState, *, placed: bool, declared: bool) -> None:
        """Remove the pod of a member; `placed` and `declared` describe its gang."""
        self._count(member, -1)
        member.pod_needs = None
        if member.ended and not member.failed and placed:
            # Its work is done: cleaning the pod up does not make the gang incomplete.
            member.pod, member.bound_node, member.terminating = None, None, False
        elif member.declared and declared:
            member.pod, member.bound_node, member.ended = None, None, False
            member.failed = member.terminating = member.evicted = False
            member.started = member.started and placed
            member.invalid = member.gated_by = ""
            member.planned_early = member.late and not placed
        else:
            del self._by_name[member.name]
            return
        member.update_needs()
        self._count(member, 1)

    def forget_ended(self) -> None:
        """Forget which members have done their work."""
        for member in self._by_name.values():
            self._count(member, -1)
            member.ended = False
            member.update_needs()
            self._count(member, 1)

    def start_over(self) -> None:
        """Reset all members, as if no pod had ever run."""
        for member in self._by_name.values():
            self._count(member, -1)
            member.started = member.evicted = False
            member.planned_early = member.late
            member.ended = member.ended and member.pod is not None
            self._count(member, 1)

    def set_stage(self, member: MemberState, stage: Stage | None) -> None:
        """Set how far the assignment of a member has come."""
        if self._late is not None:
            self._late.count(member, -1)
        if member.stage is not None:
            self._stages[member.stage] -= 1
        if stage is not None:
            self._stages[stage] += 1
        member.stage = stage
        member.update_needs()
        if self._late is not None:
            self._late.count(member, 1)

    def _count(self, member: MemberState, sign: int) -> None:
        self._running += sign * member.runs
        self._ended += sign * member.done
        if self._late is not None:
            self._late.count(member, sign)

    # -- questions ----------------------------------------------------------------------------

    def bound_count(self) -> int:
        """Return how many members are bound and not ended."""
        return self._running

    def ended_count(self) -> int:
        """Return how many members have done their work."""
        return self._ended

    def binding_count(self) -> int:
        """Return how many binds are in flight."""
        return self._stages[Stage.BINDING]

    def in_progress(self) -> int:
        """Return how many members have an assignment, and are not bound."""
        return sum(self._stages.values())

    def to_come(self) -> int:
        """Return how many assignments are for pods that are created after the others run."""
        return self._late.to_come if self._late is not None else 0

    def under_way(self) -> int:
        """Return how many members with an assignment are needed for the start."""
        return self.in_progress() - self.to_come()

    def before_barrier(self) -> int:
        """Return how many members that are needed for the start are not at the barrier yet."""
        return self._stages[Stage.RESERVED] + self._stages[Stage.PREPARING] - self.to_come()

    def waits_for_pods(self) -> bool:
        """Return whether nodes are reserved for pods that do not exist, or are gated."""
        return self._stages[Stage.RESERVED] > self.to_come()

    def settled_by_role(self) -> Counter[str]:
        """Return how many members of each role run or have done their work."""
        return Counter(
            m.role for m in self._by_name.values() if (m.bound_node or m.ended) and not m.failed
        )

    def unassigned(self, *, before_creation: bool, refill: bool) -> list[MemberState]:
        """Return the members that need a node and have none assigned.

        With `before_creation`, declared members need one before their pods exist: those that never
        started, and in a `refill` those that did.
        """
        return [
            m
            for m in self._by_name.values()
            if m.stage is None
            and not m.bound_node
            and not m.ended
            and not m.terminating
            and not m.gated_by
            and not m.invalid
            and (
                m.pod is not None
                or m.planned_early
                or (before_creation and m.declared and refill >= m.started)
            )
        ]

    def ranks(self, gang: Gang | None) -> dict[PodName, int]:
        """Return the rank of every member: by role as declared, then by index."""
        planned = gang is not None and gang.planned_before_creation
        if planned and all(member.declared for member in self._by_name.values()):
            return {name: rank for rank, name in enumerate(self._by_name)}  # declared in order
        roles = {role.name: at for at, role in enumerate(gang.roles if gang else ())}

        def key(member: MemberState) -> tuple[int, str, int, str]:
            index = member.rank if member.rank is not None else _trailing_number(member.name)
            return roles.get(member.role, len(roles)), member.role, index, member.name

        ordered = sorted(self._by_name.values(), key=key)
        return {member.name: rank for rank, member in enumerate(ordered)}


def _trailing_number(name: str) -> int:
    digits = len(name) - len(name.rstrip("0123456789"))
    return int(name[-digits:]) if 0 < digits <= 18 else 0
