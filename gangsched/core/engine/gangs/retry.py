"""What the failures of a gang mean for its next attempt to start."""

from dataclasses import dataclass, field

from gangsched.core.model.ids import NodeName


@dataclass(slots=True)
class Retry:
    """When a gang may be planned again, and where not, after attempts that failed."""

    attempts: int = 0
    """How often it failed to start since it ran last."""
    no_shows: int = 0
    """How often in turn the pods did not come for which nodes were reserved."""
    unready_tries: int = 0
    """How often in turn it started and did not become ready."""
    backoff_until_s: float | None = None
    """No plan contains the gang before this moment."""
    set_aside: bool = False
    """Whether it backs off because no plan can be made for it, until its request changes."""
    excluded_nodes: dict[NodeName, float] = field(default_factory=dict)
    """Nodes that refused a member, and until when the gang is not placed on each."""
    pods_per_node_max: int | None = None
    """A node that refused a member took so many of its gang."""
    pods_per_node_until_s: float | None = None
    """When `pods_per_node_max` no longer holds."""
    teardown_reason: str = ""
    """Why it was torn down last."""
    failure_message: str = ""
    """Why it is not tried again until its declaration changes; empty if it is tried."""
