"""What a gang or a role asks of the topology."""

from dataclasses import dataclass

from gangsched.core.model.ids import NodeName


@dataclass(frozen=True, slots=True)
class Slices:
    """Every `size` pods in rank order share one domain of a level."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class Spread:
    """At most `most` pods of the gang in one domain of a level."""

    level: str
    most: int


@dataclass(frozen=True, slots=True)
class Near:
    """How near pods must and should be: levels by name or node label.

    `slices` go from the coarsest level to the finest; each size divides the one before.
    """

    required: str | None = None
    preferred: str | None = None
    slices: tuple[Slices, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a gang asks of the topology as a whole.

    `topology` is "" for the cluster's default one. `fabric` names a fabric that must
    (`fabric_required`) or should connect all pods. `exclusive` is a level: domains the gang uses
    hold no other gang. `gpu_kinds` are parts of GPU product names in order of preference; the
    whole gang gets one of them. `avoid` are nodes it must not use.
    """

    topology: str = ""
    near: Near = Near()
    fabric: str | None = None
    fabric_required: bool = False
    spread: tuple[Spread, ...] = ()
    exclusive: str | None = None
    gpu_kinds: tuple[str, ...] = ()
    avoid: tuple[NodeName, ...] = ()

    def is_restrictive(self) -> bool:
        """Tell whether anything here can make a placement invalid."""
        return self != Constraints(topology=self.topology)


NO_CONSTRAINTS = Constraints()
