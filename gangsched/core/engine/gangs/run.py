"""The present run of a gang."""

from dataclasses import dataclass, field

from gangsched.core.model.queues import QuotaKey


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
