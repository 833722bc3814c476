"""The Topology of gangsched.io/v1beta1, and what gangs ask of it."""

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
        description="Node label whose value names the domain inside that of the level above.",
    )
    name: str = Field(
        "",
        max_length=63,
        description="Short name users may write instead of the label; default: its last part.",
    )
    fabric: FabricName | None = Field(
        None, description="What connects the nodes inside one domain of this level."
    )

    def short(self) -> str:
        """Return the name users see."""
        return self.name or re.split(r"[/.]", self.nodeLabel)[-1]


class TopologySpec(ApiModel):
    """Levels from the coarsest to the finest; the host follows by itself."""

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
        """Return it as the core knows it."""
        levels = tuple(
            Level(one.nodeLabel, one.short(), Fabric(one.fabric) if one.fabric else None)
            for one in self.levels
        )
        return Topology(name, levels)


class Misplaced(ApiModel):
    """A node whose place is not known."""

    node: str
    problem: str


class LevelStatus(ApiModel):
    """How many domains a level has."""

    name: str
    domains: int


class TopologyStatus(ApiModel):
    """What the nodes' labels make of the topology; written by gangsched alone."""

    nodes: int = Field(0, description="Nodes whose place is known at every level.")
    misplacedCount: int = Field(0, description="Nodes whose place is not.")  # noqa: N815
    message: str = ""
    levels: list[LevelStatus] = Field(default_factory=list)
    misplaced: list[Misplaced] = Field(
        default_factory=list, max_length=20, description="The first of them, with the reason."
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
    """How near pods must and should be; levels by name or node label."""

    required: str | None = Field(
        None, max_length=316, description="All pods in one domain of this level, or none starts."
    )
    preferred: str | None = Field(
        None, max_length=316, description="As few domains of this level as possible."
    )
    slices: list[SliceSpec] = Field(
        default_factory=list,
        max_length=4,
        description="From the coarsest to the finest level; each size divides the one before.",
    )


class TopologyRequest(NearSpec):
    """What the gang as a whole asks of the topology."""

    name: str = Field("", max_length=253, description="Which Topology; default: the default one.")
    requiredFabric: FabricName | None = Field(  # noqa: N815
        None, description="All pods inside one domain that this fabric connects."
    )
    preferredFabric: FabricName | None = None  # noqa: N815
    spread: list[SpreadSpec] = Field(default_factory=list, max_length=8)
    exclusive: str | None = Field(
        None,
        max_length=316,
        description="Domains of this level are not shared with other gangs; the Queue has to allow "
        "it (spec.exclusive).",
    )

    @model_validator(mode="after")
    def _one_fabric(self) -> "TopologyRequest":
        if self.requiredFabric and self.preferredFabric:
            raise ValueError("give requiredFabric or preferredFabric, not both")
        return self
