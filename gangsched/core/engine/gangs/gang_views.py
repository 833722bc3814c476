"""One gang, and what planners see of it: as it waits, as it runs, as it leaves."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from gangsched.core.engine.gangs.gang import GangRecord
from gangsched.core.engine.gangs.member import MemberState, Stage, State
from gangsched.core.engine.limits import Limits
from gangsched.core.model.constraints import Constraints, TopologyRequest
from gangsched.core.model.gangs import Gang, Member, PendingGang, PlacedMember
from gangsched.core.model.ids import NodeName, PodName
from gangsched.core.model.queues import Queue
from gangsched.core.snapshot import PodPlacement, RunningGang


@dataclass(slots=True)
class GangState(GangRecord):
    """Everything known of one gang, and the questions planners ask."""

    def waiting(self, complete: Callable[[PendingGang], PendingGang]) -> PendingGang:
        """Return the gang as a planner sees it; `complete` adds what follows from its queue.

        `Engine.pending` is the way to it: a pending gang is never seen without the addition.
        """
        spec = self.spec
        assert spec is not None, "only declared gangs are planned"  # noqa: S101
        members = self.open_members()
        settled = self.bound_count() + self.ended_count()
        minimum = max(self.minimum() - settled, 0)
        done = self._settled()
        role_minimum = tuple(
            (role.name, max(role.min_count - done[role.name], 0)) for role in spec.roles
        )
        if self.state is State.PLACED:  # the gang runs: each late member is welcome alone
            minimum, role_minimum = 1, ()
        ranks = self._ranks()
        constraints, near_role = self._constraints()
        made = PendingGang(
            gang=spec,
            version=self.version,
            members=tuple(Member(m.name, m.role, m.needs, ranks[m.name]) for m in members),
            constraints=constraints,
            near_role=near_role,
            seated=tuple(
                PlacedMember(m.role, ranks[m.name], node)
                for m in self.members.values()
                if (node := m.node or (m.bound if m.runs else None)) is not None
            ),
            minimum=min(max(minimum, 1), len(members)),
            role_minimum=role_minimum,
            priority=self.priority(),
            since_s=self.waits_since_s(),
            avoid=tuple(self.avoid),
            most_per_node=self.most_per_node,
            repair=self.state is State.PLACED and self.lacks(),
            surplus=self.state is State.PLACED and not self.lacks(),
            attained_s=self.attained_s,
            preempts=spec.preempts and self.pods_preempt,
        )
        return complete(made)

    def due_s(self) -> float | None:
        """Return the next moment at which time alone changes something for the gang."""
        single = (
            self.deadline_s,
            self.not_before_s,
            self.most_until_s,
            self.ready_by_s,
            self.end_by_s,
            self.refill_by_s,
        )
        times = [at for at in single if at is not None]
        return min([*times, *self.avoid.values()], default=None)

    def assignments(self) -> tuple[tuple[PodName, NodeName], ...]:
        """Return where each member is or will be, in member order."""
        places = ((m.name, m.bound or m.node) for m in self.members.values())
        return tuple((name, node) for name, node in places if node is not None)

    def vanished(self) -> bool:
        """Tell whether nothing is left of the gang."""
        if self.members and any(m.pod or m.stage for m in self.members.values()):
            return False
        return self.spec is None or self.spec.implicit or self.undeclared

    def unready(self) -> int:
        """Return how many more members must become ready for the gang to do its work."""
        ready = sum(1 for m in self.members.values() if (m.runs and m.ready) or m.done)
        return max(self.minimum() - ready, 0)

    def constraints(self) -> Constraints:
        """Return what the gang asks of the topology as a whole."""
        return self._constraints()[0] if self.spec is not None else Constraints()

    def running(self) -> RunningGang:
        """Return the gang as it runs; members that were told to leave are not among its places."""
        return self._running(lambda member: member.bound is not None and not member.evicted)

    def coming(self) -> RunningGang | None:
        """Return the part that takes room and does not count as running yet, or None.

        Those are reserved members, and bound ones of a gang that is not placed.
        """
        early = self.state is not State.PLACED
        if self.spec is None or not (self.in_progress() or (early and self.bound_count())):
            return None

        def comes(member: MemberState) -> bool:
            return member.stage is not None or (early and member.runs and not member.evicted)

        return replace(self._running(comes), surplus_pods=())

    def leaving(self) -> RunningGang | None:
        """Return the part of the gang that was told to leave and still takes room, or None."""
        if self.spec is None or not any(m.runs and m.evicted for m in self.members.values()):
            return None
        gone = self._running(lambda member: member.bound is not None and member.evicted)
        return replace(gone, terminating=True, surplus_pods=())

    def terminating(self) -> RunningGang | None:
        """Return the part that somebody has told to leave, us or others, or None."""
        if self.spec is None or not any(m.runs and m.terminating for m in self.members.values()):
            return None
        return self._running(lambda member: member.bound is not None and member.terminating)

    def _running(self, wanted: Callable[[MemberState], bool]) -> RunningGang:
        assert self.spec is not None, "only declared gangs run as gangs"  # noqa: S101
        starts = [m.started_s for m in self.members.values() if m.runs and m.started_s is not None]
        began_s = self.placed_s if self.state is State.PLACED else self.reserved_s
        started_s = min(starts, default=began_s or 0.0)
        constraints, near_role = self._constraints()
        ranks = self._ranks()
        runtime_s = self.spec.expected_runtime_s
        members = [
            m
            for m in sorted(self.members.values(), key=lambda m: ranks[m.name])
            if not m.ended and wanted(m)
        ]
        return RunningGang(
            gang=self.spec,
            places=tuple(
                PodPlacement(m.name, m.role, node, m.needs, m.devices)
                for m in members
                if (node := m.bound or m.node) is not None
            ),
            constraints=constraints,
            near_role=near_role,
            started_s=started_s,
            end_s=None if runtime_s is None else started_s + runtime_s,
            # Of a gang some of whose members are leaving nothing more is lost: a leader that
            # died may have told them to, and who leads now goes on with that gang.
            last_checkpoint_s=inf
            if self._stops()
            else max(started_s, self.spec.checkpoint_s or 0.0),
            movable=self.spec.movable,
            priority=self.priority(),
            surplus_pods=self._spare(members),
            since_s=self.waits_since_s(),
            declared=self.asked,
        )

    def _stops(self) -> bool:
        """Tell whether too few members will stay for the gang to go on."""
        if self.state is not State.PLACED:
            return False
        stay = sum(1 for m in self.members.values() if m.runs and not m.terminating)
        return stay + self.ended_count() < self.minimum()

    def _spare(self, members: list[MemberState]) -> tuple[PodName, ...]:
        """Return members beyond the minimum, highest rank first: they can go, the gang stays."""
        spec = self.spec
        assert spec is not None, "only declared gangs run as gangs"  # noqa: S101
        if spec.inseparable:
            return ()
        left = len(members) + self.ended_count() - self.minimum()
        roles = {role.name: role.min_count for role in spec.roles}
        have = self._settled()
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

    def _constraints(self) -> tuple[Constraints, tuple[tuple[str, TopologyRequest], ...]]:
        """Return what the declaration asks of the topology, or else what the pods ask."""
        assert self.spec is not None, "only declared gangs are planned"  # noqa: S101
        near_role = {
            role.name: role.near for role in self.spec.roles if role.near != TopologyRequest()
        }
        constraints = self.spec.constraints
        for role, asked in self.pod_constraints.items():
            if role and asked.near != TopologyRequest():
                near_role.setdefault(role, asked.near)
                asked = replace(asked, near=TopologyRequest())  # noqa: PLW2901 -- the rest is the gang's
            if constraints == Constraints():
                constraints = asked
        return constraints, tuple(near_role.items())


def priority_in(queue: Queue | None, gang: Gang, given: int) -> int:
    """Return a gang's priority in a queue: its own or its pods', else the queue's default."""
    if gang.priority is None and not given and queue is not None:
        return queue.default_priority or 0
    return given


def _trailing_number(name: str) -> int:
    digits = len(name) - len(name.rstrip("0123456789"))
    return int(name[-digits:]) if 0 < digits <= 18 else 0


__all__ = ["GangState", "Limits", "MemberState", "Stage", "State"]
