"""How far a gang and each of its members have come, and the bounds on how long that may take."""

from dataclasses import dataclass
from enum import StrEnum

from gangsched.core.engine.gangs.pod_templates import with_amounts
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

    `needs` is what the place takes: while it is reserved, what was reserved. `asks` is what its
    pod asks for now (None without a pod), `template` what its role says of such pods (None where
    no role does). `stopped` is the last pod that was told to leave, by us or by anybody.
    The pod of a `late` place is made only once other members run; `kept` tells that room is
    reserved for it before.
    """

    name: PodName
    role: str
    needs: PodRequirements
    pod: PodUid | None = None
    node: NodeName | None = None
    stage: Stage | None = None
    bound: NodeName | None = None
    ended: bool = False
    failed: bool = False
    terminating: bool = False
    evicted: bool = False
    stopped: PodUid | None = None
    template: PodRequirements | None = None
    asks: PodRequirements | None = None
    started: bool = False
    rank: int | None = None
    devices: tuple[int, ...] = ()
    started_s: float | None = None
    invalid: str = ""
    held_by: str = ""
    ready: bool = True
    late: bool = False
    kept: bool = False

    def word(self) -> tuple[object, ...]:
        """Return what a planner reads of its pod."""
        own = self.pod, self.bound, self.ended, self.terminating
        return *own, self.held_by, self.invalid, self.ready, self.started_s, self.asks

    def settle(self) -> None:
        """Let an open place ask for what its pod does, or else what its role says.

        A pod that runs was pinned to its node, and may be anywhere once it starts over: of such
        a pod the amounts count.
        """
        if self.stage is not None:
            return
        if self.asks is None:
            self.needs = self.template or self.needs
        elif self.bound is not None and self.template is not None:
            self.needs = with_amounts(self.template, self.asks)
        else:
            self.needs = self.asks

    @property
    def declared(self) -> bool:
        """True where a role tells what the place needs before there is a pod."""
        return self.template is not None

    @property
    def to_come(self) -> bool:
        """True while room is reserved for a pod that is made only once others run."""
        return self.late and self.pod is None and self.stage is not None

    @property
    def runs(self) -> bool:
        """True while its pod is bound and has not ended."""
        return self.bound is not None and not self.ended

    @property
    def done(self) -> bool:
        """True once its work is done."""
        return self.ended and not self.failed
