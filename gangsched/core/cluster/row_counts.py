"""Counts of host ports, members of gangs and unknown resources on each row."""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")


class RowCounts(dict[int, dict[K, int]]):
    """Counts by row and key.

    The inner dict of a row is replaced and never written, so that copies may share it.
    """

    def copy(self) -> "RowCounts[K]":
        """Return an independent copy."""
        return RowCounts(self)

    def add(self, row: int, more: Iterable[tuple[K, int]], times: int) -> None:
        """Add a number to a count of a row; a count of zero is dropped."""
        counts = dict(self.get(row, {}))
        for key, quantity in more:
            counts[key] = counts.get(key, 0) + quantity * times
        self[row] = {key: quantity for key, quantity in counts.items() if quantity > 0}

    def mirror(self, other: "RowCounts[K]", rows: Iterable[int]) -> None:
        """Make some rows equal to those of another."""
        for row in rows:
            if row in other:
                self[row] = other[row]
            else:
                self.pop(row, None)
