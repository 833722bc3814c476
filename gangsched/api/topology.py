"""The Topology of gangsched.io/v1beta1, and the topology constraints of gangs."""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gangsched.api.base import ApiModel, Condition
from gangsched.core.model.topology import HOST, HOST_LABEL, Fabric, Level, Topology

FabricName = Literal["nvlink", "infiniband", "roce", "ethernet"]

_LABEL = r"^([a-z0-9A-Z]([-a-z0-9A-Z.]*[a-z0-9A-Z])?/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"


class LevelSpec(ApiModel):
    """One level of the topology."""

    nodeLabel: str = Field(  # noqa: N815 -- the API's case
        min_length=1,
        max_length=316,
        pattern=_LABEL,
        description="Node label. Its value names a domain inside the domain of the level above.",
    )
    name: str = Field(
        "",
        max_length=63,
        description="Short name of the level, instead of the label. Default: the last part of the "
        "label.",
    )
    fabric: FabricName | None = Field(
        None, description="What connects the nodes inside one domain of this level."
    )

    def short(self) -> str:
        """Return the name users see."""
        return self.name or re.split(r"[/.]", self.nodeLabel)[-1]


class TopologySpec(ApiModel):
    """Levels from the coarsest to the finest; the host is always the last level."""

    levels: list[LevelSpec] = Field(
        min_length=1,
        max_length=8,
        description="From the coarsest (datacenter, spine) to the finest (rack, NVLink domain).",
    )

    @field_validator("levels")
    @classmethod
    def _acyclic(cls, levels: list[LevelSpec]) -> list[LevelSpec]:
        seen: set[str] = set()
        for level in levels:
            for word in {level.nodeLabel, level.short()}:
                if word in seen:
                    raise ValueError(f"{word!r} names two levels, so the levels would be a circle")
                if word in (HOST, HOST_LABEL):
                    raise ValueError(f"{word!r} is always the last level and must not be listed")
            seen |= {level.nodeLabel, level.short()}
        return levels

    def topology(self, name: str) -> Topology:
        """Return the topology as a value of the core."""
        levels = tuple(
            Level(level.nodeLabel, level.short(), Fabric(level.fabric) if level.fabric else None)
            for level in self.levels
        )
        return Topology(name, levels)


class Misplaced(ApiModel):
    """A node without a valid domain at some level."""

    node: str
    problem: str


class LevelStatus(ApiModel):
    """Number of domains of a level."""

    name: str
    domains: int


class TopologyStatus(ApiModel):
    """State of the topology by the labels of the nodes, written by gangsched alone."""

    nodes: int = Field(0, description="Nodes with a valid domain at every level.")
    misplacedCount: int = Field(0, description="Nodes without a valid domain at some level.")  # noqa: N815
    message: str = ""
    levels: list[LevelStatus] = Field(default_factory=list)
    misplaced: list[Misplaced] = Field(
        default_factory=list,
        max_length=20,
        description="The first 20 misplaced nodes, with the reason.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


# -- what gangs ask ------------------------------------------------------------------------------


class SliceSpec(ApiModel):
    """Every `size` pods in rank order share one domain of a level."""

    level: str = Field(min_length=1, max_length=316)
    size: int = Field(ge=1, le=100_000)


class SpreadSpec(ApiModel):
    """At most so many pods of the gang in one domain of a level."""

    level: str = Field(min_length=1, max_length=316)
    maxPods: int = Field(ge=1, le=100_000)  # noqa: N815


class NearSpec(ApiModel):
    """How near pods must or should be to each other; levels by name or node label."""

    required: str | None = Field(
        None,
        max_length=316,
        description="Level in one domain of which all pods must be, or the gang does not start.",
    )
    preferred: str | None = Field(
        None, max_length=316, description="Level of which the pods use as few domains as possible."
    )
    slices: list[SliceSpec] = Field(
        default_factory=list,
        max_length=4,
        description="Slices from the coarsest to the finest level; each size divides the size "
        "before.",
    )


class TopologyRequest(NearSpec):
    """Topology constraints of the gang as a whole."""

    name: str = Field(
        "", max_length=253, description="Name of the Topology. Default: the default Topology."
    )
    requiredFabric: FabricName | None = Field(  # noqa: N815
        None, description="Fabric that must connect all pods, inside one domain."
    )
    preferredFabric: FabricName | None = None  # noqa: N815
    spread: list[SpreadSpec] = Field(default_factory=list, max_length=8)
    exclusive: str | None = Field(
        None,
        max_length=316,
        description="Level of which the gang shares no domain with other gangs. The Queue has to "
        "allow it (spec.exclusive).",
    )

    @model_validator(mode="after")
    def _one_fabric(self) -> "TopologyRequest":
        if self.requiredFabric and self.preferredFabric:
            raise ValueError("give requiredFabric or preferredFabric, not both")
        return self
