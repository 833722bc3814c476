"""How far a gang and each of its members have come, and the bounds on how long that may take."""

from dataclasses import dataclass
from enum import StrEnum

from gangsched.core.engine.gangs.pod_templates import with_amounts
from gangsched.core.facts import PodSeen
from gangsched.core.model.ids import NodeName, PodName, PodUid
from gangsched.core.model.pods import PodRequirements


class State(StrEnum):
    """States of a gang; `lifecycle.py` draws the ways between them."""

    GATHERING = "Gathering"
    PENDING = "Pending"
    RESERVED = "Reserved"
    BINDING = "Binding"
    PLACED = "Placed"
    BROKEN = "Broken"


class Stage(StrEnum):
    """How far a reserved member has come."""

    RESERVED = "reserved"
    PREPARING = "preparing"
    PREPARED = "prepared"
    BINDING = "binding"

    @property
    def before_barrier(self) -> bool:
        """True until the member waits at the barrier."""
        return self in (Stage.RESERVED, Stage.PREPARING)


@dataclass(slots=True)
class MemberState:
    """One place of a gang: the pod that fills it, and how far it is reserved or bound.

    `needs` are the requirements of the place; while it is reserved, those that were reserved.
    `pod_needs` are those of its pod now (None without a pod), `template` those that its role
    declares (None without a role). `terminated_pod` is the last pod of the place that was deleted.
    The pod of a `late` place is created once other members run; `planned_early` says that its node
    is reserved before.
    """

    name: PodName
    role: str
    needs: PodRequirements
    pod: PodUid | None = None
    assigned_node: NodeName | None = None
    stage: Stage | None = None
    bound_node: NodeName | None = None
    ended: bool = False
    failed: bool = False
    terminating: bool = False
    evicted: bool = False
    terminated_pod: PodUid | None = None
    template: PodRequirements | None = None
    pod_needs: PodRequirements | None = None
    started: bool = False
    rank: int | None = None
    devices: tuple[int, ...] = ()
    started_s: float | None = None
    invalid: str = ""
    gated_by: str = ""
    ready: bool = True
    late: bool = False
    planned_early: bool = False

    def observe(self, fact: PodSeen) -> None:
        """Have the pod as it was observed."""
        self.pod = fact.uid
        self.planned_early = False
        self.bound_node = fact.node
        self.started = self.started or fact.node is not None
        self.ended = fact.ended
        if fact.terminating and not fact.ended:
            self.terminated_pod = fact.uid
        # The work of a pod that was deleted is not done, whatever its exit code says.
        self.failed = fact.failed or (fact.ended and self.terminated_pod == fact.uid)
        self.terminating = fact.terminating
        self.pod_needs = fact.needs
        if self.stage is None and not self.declared:
            self.role = fact.role or self.role
        self.update_needs()
        self.rank = fact.rank
        self.started_s = fact.started_s
        self.invalid = fact.invalid
        self.gated_by = fact.gated_by
        self.ready = fact.ready

    def planning_fields(self) -> tuple[object, ...]:
        """Return what a planner reads of its pod."""
        own = self.pod, self.bound_node, self.ended, self.terminating
        return *own, self.gated_by, self.invalid, self.ready, self.started_s, self.pod_needs

    def update_needs(self) -> None:
        """Let an open place ask for what its pod does, or else what its role says.

        A pod that runs was pinned to its node, and may be anywhere once it starts over: of such
        a pod the amounts count.
        """
        if self.stage is not None:
            return
        if self.pod_needs is None:
            self.needs = self.template or self.needs
        elif self.bound_node is not None and self.template is not None:
            self.needs = with_amounts(self.template, self.pod_needs)
        else:
            self.needs = self.pod_needs

    @property
    def declared(self) -> bool:
        """True where a role tells what the place needs before there is a pod."""
        return self.template is not None

    @property
    def awaits_late_pod(self) -> bool:
        """True while room is reserved for a pod that is made only once others run."""
        return self.late and self.pod is None and self.stage is not None

    @property
    def runs(self) -> bool:
        """True while its pod is bound and has not ended."""
        return self.bound_node is not None and not self.ended

    @property
    def done(self) -> bool:
        """True once its work is done."""
        return self.ended and not self.failed
