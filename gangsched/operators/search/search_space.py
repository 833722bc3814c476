"""A search space as Katib declares it: one dimension for each parameter.

Values are counted, never listed: a range may have more of them than there is memory.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.experiment import Assignments

LOGARITHMIC = ("logUniform", "logNormal")
"""Distributions that are drawn by the logarithm."""

_NONE = Decimal(0)


class SpaceError(Exception):
    """A search space that an algorithm cannot search; the message names the parameter."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One parameter: the values that are `listed`, or those from `low` to `high` by `step`.

    Without a step it is everything between; numbers are exact, as they are written.
    """

    name: str
    kind: str
    listed: tuple[str, ...] = ()
    low: Decimal = _NONE
    high: Decimal = _NONE
    step: Decimal | None = None
    logarithmic: bool = False

    @classmethod
    def of(cls, parameter: Json) -> "Dimension":
        """Return the dimension that an Experiment's parameter is."""
        name, kind = parameter["name"], parameter["parameterType"]
        space = parameter["feasibleSpace"]
        if kind in ("categorical", "discrete"):
            return cls(name, kind, listed=tuple(dict.fromkeys(space["list"])))

        def number(key: str) -> Decimal:
            text = space[key]
            return Decimal(int(text)) if kind == "int" else Decimal(repr(float(text)))

        every = Decimal(1) if kind == "int" else None
        step = number("step") if space.get("step") else every
        logarithmic = space.get("distribution") in LOGARITHMIC
        return cls(name, kind, (), number("min"), number("max"), step, logarithmic)

    @property
    def count(self) -> int | None:
        """Return how many values there are, None where they cannot be counted."""
        if self.listed:
            return len(self.listed)
        return None if self.step is None else int((self.high - self.low) / self.step) + 1

    def value(self, index: int) -> str:
        """Return one of the values that can be counted."""
        if self.listed:
            return self.listed[index]
        return self._written(self.low + (self.step or 0) * index)

    def at(self, share: float) -> str:
        """Return the value at a share of the range, from 0 to 1."""
        if self.count is not None and not self.logarithmic:
            return self.value(min(int(share * self.count), self.count - 1))
        low, high = float(self.low), float(self.high)
        if self.logarithmic:
            return self.nearest(math.exp(math.log(low) * (1 - share) + math.log(high) * share))
        return self.nearest(low * (1 - share) + high * share)

    def nearest(self, number: float) -> str:
        """Return the value that is nearest to a number."""
        found = min(max(Decimal(repr(float(number))), self.low), self.high)
        if self.step is not None and self.count is not None:
            index = int(((found - self.low) / self.step).to_integral_value())
            return self.value(min(index, self.count - 1))
        return self._written(found)

    def read(self, value: str) -> int | float | str:
        """Return a value as what it is.

        Raises:
            ValueError: it is no value of this dimension.

        """
        if self.kind in ("int", "double"):
            read = int(value) if self.kind == "int" else float(value)
            if self.low <= Decimal(repr(read)) <= self.high:
                return read
        elif value in self.listed:
            return value
        raise ValueError(value)

    def _written(self, number: Decimal) -> str:
        return str(int(number)) if self.kind == "int" else f"{number.normalize():f}"


class Space:
    """A search space: its dimensions, in the order of the spec."""

    def __init__(self, parameters: list[Json]) -> None:
        self.dimensions = tuple(Dimension.of(one) for one in parameters)

    def at(self, shares: list[float]) -> Assignments:
        """Return the point at some share of each dimension's range."""
        pairs = zip(self.dimensions, shares, strict=True)
        return {one.name: one.at(share) for one, share in pairs}

    def point(self, drawn: dict[str, object]) -> Assignments:
        """Return a point as it is written, from one that a library has drawn."""
        return {
            one.name: str(drawn[one.name]) if one.listed else one.nearest(drawn[one.name])  # type: ignore[arg-type]
            for one in self.dimensions
        }

    def read(self, point: Assignments) -> dict[str, int | float | str] | None:
        """Return a point's values as what they are; None where it is not of this space.

        A point is not where parameters were changed after it was tried.
        """
        try:
            return {one.name: one.read(point[one.name]) for one in self.dimensions}
        except (KeyError, ValueError):
            return None
