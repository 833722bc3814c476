"""The present run of a gang."""

from dataclasses import dataclass, field

from gangsched.core.model.ids import PodUid
from gangsched.core.model.queues import QuotaKey
from gangsched.core.orders import DrainReason

_DRAINS = {reason.value: reason for reason in DrainReason}


@dataclass(slots=True)
class AnnouncedStop:
    """A stop that is announced to a gang, which may save its work until then."""

    of: str
    """The gang, queue, reservation or node for which it is stopped."""
    cause: str
    """The rule that allows it: of an eviction, or a `DrainReason`."""
    since_s: float = 0.0
    """When it was announced; a later checkpoint is the answer."""
    by_s: float = 0.0
    """When the gang is stopped without an answer."""
    announced: set[PodUid] = field(default_factory=set)
    """The pods on which the stop is announced."""
    version: int | None = None
    """The version of the gang when its pods were looked through last."""
    restored: bool = False
    """Whether an earlier process announced it, and no tick came since."""

    @property
    def drain(self) -> DrainReason | None:
        """Return what an administrator declared; None if another gang needs the capacity."""
        return _DRAINS.get(self.cause)


@dataclass(slots=True)
class GangRun:
    """What holds of a gang from its first bound pod until it starts over."""

    placed_s: float | None = None
    """When the gang entered PLACED last."""
    minimum: int | None = None
    """The minimum when it was bound: a declaration that grows does not raise it."""
    admitted: dict[QuotaKey, int] = field(default_factory=dict)
    """The most that was charged for it at once: its quota admitted so much."""
    runtime_recorded: bool = False
    """Whether the history has the run time of this run."""
    below_minimum_since_s: float | None = None
    """Since when fewer members than the minimum run."""
    whole_by_s: float | None = None
    """When a gang below its minimum must be whole again; set with `below_minimum_since_s`."""
    ready_by_s: float | None = None
    """When enough of its members must be ready."""
    end_by_s: float | None = None
    """When it has run for as long as it may."""
    saved_s: float | None = None
    """When a pod said last that the work of the gang was saved."""
    stop: AnnouncedStop | None = None
    """The stop that is announced to it, while it may still save its work."""
