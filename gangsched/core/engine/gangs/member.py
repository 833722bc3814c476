"""The states of a gang, the stages of its members, and the record of one member."""

from dataclasses import dataclass
from enum import StrEnum

from gangsched.core.engine.gangs.pod_templates import with_amounts
from gangsched.core.facts import PodSeen
from gangsched.core.model.ids import NodeName, PodName, PodUid
from gangsched.core.model.pods import PodRequirements


class State(StrEnum):
    """States of a gang; `lifecycle/transition.py` lists the legal changes."""

    GATHERING = "Gathering"
    PENDING = "Pending"
    RESERVED = "Reserved"
    BINDING = "Binding"
    PLACED = "Placed"
    BROKEN = "Broken"


class Stage(StrEnum):
    """The stage of a reserved member on its way to being bound."""

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
    """One member of a gang: its pod, and the node that is reserved for it or that it runs on.

    `needs` are the requirements that it is planned with; while a node is reserved, those that were
    reserved. `pod_needs` are the requirements of its pod now (None without a pod), and `template`
    those that its role declares (None without a role). `terminated_pod` is its last pod that was
    deleted. The pod of a `late` member is created once other members run; with `planned_early`,
    its node is reserved before. `stop_by_s` is the stop that its pod shows.
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
    stop_by_s: float | None = None

    def observe(self, fact: PodSeen) -> None:
        """Take over the state of the pod that was observed."""
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
        self.stop_by_s = fact.stop_by_s

    def planning_fields(self) -> tuple[object, ...]:
        """Return the fields of its pod that a planner reads."""
        own = self.pod, self.bound_node, self.ended, self.terminating
        return *own, self.gated_by, self.invalid, self.ready, self.started_s, self.pod_needs

    def update_needs(self) -> None:
        """Set the requirements of a member without a reserved node: those of its pod or its role.

        A running pod is pinned to its node, but the pod that replaces it may use any node. So only
        the amounts of a running pod count.
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
        """True if its role declares its requirements, so that no pod has to exist."""
        return self.template is not None

    @property
    def awaits_late_pod(self) -> bool:
        """True while a node is reserved for a late pod that does not exist yet."""
        return self.late and self.pod is None and self.stage is not None

    @property
    def runs(self) -> bool:
        """True while its pod is bound and has not ended."""
        return self.bound_node is not None and not self.ended

    @property
    def done(self) -> bool:
        """True once its work is done."""
        return self.ended and not self.failed
