"""The nodes that are reserved for a gang, and how long they are kept for it."""

from dataclasses import dataclass, field

from gangsched.core.model.ids import NodeName
from gangsched.core.model.placement import Repartition


@dataclass(slots=True)
class Reservation:
    """What holds of the assignments of a gang as a whole; each member has its own node."""

    reserved_s: float | None = None
    """When nodes were reserved last."""
    proof: str = ""
    """How good the placement is known to be."""
    waits_for_capacity: bool = False
    """Whether its nodes do not yet have what it is charged."""
    awaited_repartitions: dict[NodeName, Repartition] = field(default_factory=dict)
    """MIG layouts that nodes must show before the gang may go on."""
    capacity_by_s: float | None = None
    """When its nodes must have what it is charged."""
    start_by_s: float | None = None
    """When its members must be at the barrier; while it runs, its late members."""
    refill_by_s: float | None = None
    """Until when a gang below its minimum keeps nodes for pods that do not exist."""
