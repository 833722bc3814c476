"""A topology as an administrator declares it: ordered levels of node labels, and fabrics."""

from dataclasses import dataclass
from enum import StrEnum

from gangsched.core.model.text import whole

HOST = "host"


HOST_LABEL = "kubernetes.io/hostname"


TIER = "tier-"
"""Volcano counts levels as tiers from the finest, which is tier 1."""


class Fabric(StrEnum):
    """What connects the nodes inside one domain of a level."""

    NVLINK = "nvlink"
    INFINIBAND = "infiniband"
    ROCE = "roce"
    ETHERNET = "ethernet"


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a topology: a node label, and a short name for users."""

    label: str
    name: str
    fabric: Fabric | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels from the coarsest to the finest; the host follows by itself."""

    name: str
    levels: tuple[Level, ...]

    def index(self, wanted: str) -> int | None:
        """Return which level is meant by a level's name or label, or None; the host comes last."""
        if wanted in (HOST, HOST_LABEL):
            return len(self.levels)
        if wanted.startswith(TIER):
            tier = whole(wanted.removeprefix(TIER))
            if tier is not None:
                index = len(self.levels) - tier
                return index if 0 <= index < len(self.levels) else None
        for index, level in enumerate(self.levels):
            if wanted in (level.name, level.label):
                return index
        return None

    def fabric(self, wanted: Fabric) -> int | None:
        """Return the coarsest level inside which this fabric connects everything, or None."""
        return next((i for i, level in enumerate(self.levels) if level.fabric is wanted), None)

    def level_name(self, index: int) -> str:
        """Return a level's name as users write it."""
        return HOST if index >= len(self.levels) else self.levels[index].name

    def known(self) -> str:
        """Return the names of all levels, for messages."""
        return ", ".join([*(level.name for level in self.levels), HOST])
