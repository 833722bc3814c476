"""A search space as Katib declares it: one dimension for each parameter.

Values are counted, never listed: the values of a range may not fit into memory.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.experiment import Assignments

LOGARITHMIC = ("logUniform", "logNormal")
"""Distributions that are uniform or normal in the logarithm."""

_NONE = Decimal(0)


class SpaceError(Exception):
    """A search space that an algorithm cannot search; the message names the parameter."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One parameter: the `listed` values, or those from `low` to `high` by `step`.

    Without a step, the values are continuous. Numbers are exact, as the user wrote them.
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
        """Return the dimension of an Experiment's parameter."""
        name, kind = parameter["name"], parameter["parameterType"]
        space = parameter["feasibleSpace"]
        if kind in ("categorical", "discrete"):
            return cls(name, kind, listed=tuple(dict.fromkeys(space["list"])))

        def number(key: str) -> Decimal:
            text = space[key]
            return Decimal(int(text)) if kind == "int" else Decimal(repr(float(text)))

        default = Decimal(1) if kind == "int" else None
        step = number("step") if space.get("step") else default
        logarithmic = space.get("distribution") in LOGARITHMIC
        return cls(name, kind, (), number("min"), number("max"), step, logarithmic)

    @property
    def count(self) -> int | None:
        """Return the number of values, or None if they are continuous."""
        if self.listed:
            return len(self.listed)
        return None if self.step is None else int((self.high - self.low) / self.step) + 1

    @property
    def is_point(self) -> bool:
        """Return whether a range has one value."""
        return not self.listed and self.low == self.high

    def value(self, index: int) -> str:
        """Return a value by its index."""
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
        nearest = min(max(Decimal(repr(float(number))), self.low), self.high)
        if self.step is not None and self.count is not None:
            index = int(((nearest - self.low) / self.step).to_integral_value())
            return self.value(min(index, self.count - 1))
        return self._written(nearest)

    def read(self, value: str) -> int | float | str:
        """Return the value of a text.

        Raises:
            ValueError: the text is not a value of this dimension.

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
        self.dimensions = tuple(Dimension.of(parameter) for parameter in parameters)

    def at(self, shares: list[float]) -> Assignments:
        """Return the point at a share of each dimension's range."""
        pairs = zip(self.dimensions, shares, strict=True)
        return {dimension.name: dimension.at(share) for dimension, share in pairs}

    def point(self, drawn: dict[str, object]) -> Assignments:
        """Return the texts of a point that a library has drawn."""
        return {
            dimension.name: str(drawn[dimension.name])
            if dimension.listed
            else dimension.nearest(drawn[dimension.name])  # type: ignore[arg-type]
            for dimension in self.dimensions
        }

    def read(self, point: Assignments) -> dict[str, int | float | str] | None:
        """Return the values of a point's texts, or None if the point is not in this space.

        That happens if the parameters changed after the point was tried.
        """
        try:
            return {
                dimension.name: dimension.read(point[dimension.name])
                for dimension in self.dimensions
            }
        except (KeyError, ValueError):
            return None
