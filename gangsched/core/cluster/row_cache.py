"""Values that are computed once for every row, and then only for rows that changed."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BYTES_MAX, _ENTRIES_MAX = 2**26, 4096
_DIRTY_ROWS_MAX = 8192

Rows = NDArray[np.int64] | slice


@dataclass(frozen=True, slots=True)
class _Entry:
    """One value per row, valid up to a position in the list of touched rows."""

    values: NDArray[Any]
    position: int


@dataclass(slots=True)
class RowCache:
    """Cached values of rows; a change of a row adds it to `touched`."""

    dirty_rows: list[int] = field(default_factory=list)
    _entries: dict[Hashable, _Entry] = field(default_factory=dict)

    def copy(self) -> "RowCache":
        """Return an independent copy."""
        return RowCache(list(self.dirty_rows), dict(self._entries))

    def get(self, what: Hashable, find: Callable[[Rows], NDArray[Any]]) -> NDArray[Any]:
        """Return the values of all rows, read-only; `find` computes those of some rows."""
        known = self._entries.get(what)
        if len(self.dirty_rows) > _DIRTY_ROWS_MAX:
            self._entries, self.dirty_rows, known = {}, [], None
        if known is None:
            values = find(slice(None))
        elif known.position == len(self.dirty_rows):
            return known.values
        else:
            rows = np.array(sorted({*self.dirty_rows[known.position :]}), dtype=np.int64)
            values = known.values.copy()
            values[rows] = find(rows)
        values.flags.writeable = False
        kept = len(self._entries)
        if kept >= _ENTRIES_MAX or kept * values.nbytes >= _BYTES_MAX:
            self._entries.clear()
        self._entries[what] = _Entry(values, len(self.dirty_rows))
        return values
