"""What a gang or a role asks of the topology."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangsched.core.model.ids import NodeName
from gangsched.core.renamed import RenamedAttribute


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """Every `size` pods in rank order share one domain of a level."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class Spread:
    """At most `most` pods of the gang in one domain of a level."""

    level: str
    pods_max: int


@dataclass(frozen=True, slots=True)
class LevelRequest:
    """How near pods must and should be: levels by name or node label.

    `slices` go from the coarsest level to the finest; each size divides the one before.
    """

    required: str | None = None
    preferred: str | None = None
    slices: tuple[SliceRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a gang asks of the topology as a whole.

    `topology` is "" for the cluster's default one. `fabric` names a fabric that must
    (`fabric_required`) or should connect all pods. `exclusive` is a level: domains the gang uses
    hold no other gang. `gpu_kinds` are parts of GPU product names in order of preference; the
    whole gang gets one of them. `avoid` are nodes it must not use.
    """

    topology: str = ""
    near: LevelRequest = LevelRequest()
    fabric: str | None = None
    fabric_required: bool = False
    spread: tuple[Spread, ...] = ()
    exclusive: str | None = None
    gpu_types: tuple[str, ...] = ()
    avoid: tuple[NodeName, ...] = ()

    if not TYPE_CHECKING:  # a type checker refuses the old names
        gpu_kinds = RenamedAttribute("gpu_types")

    def is_restrictive(self) -> bool:
        """Return whether anything here can make a placement invalid."""
        return self != Constraints(topology=self.topology)


NO_CONSTRAINTS = Constraints()
