"""Values worked out once for every row, and then only for the rows that changed since."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KEPT_BYTES, _KEPT_MOST = 2**26, 4096
_TOUCHED_KEPT = 8192

Rows = NDArray[np.int64] | slice


@dataclass(frozen=True, slots=True)
class _Known:
    """One value a row, true up to a position in the list of touched rows."""

    values: NDArray[Any]
    position: int


@dataclass(slots=True)
class RowCache:
    """What is known of rows; whoever changes one adds it to `touched`."""

    touched: list[int] = field(default_factory=list)
    _known: dict[Hashable, _Known] = field(default_factory=dict)

    def copy(self) -> "RowCache":
        """Return a copy that may go on by itself."""
        return RowCache(list(self.touched), dict(self._known))

    def recall(self, what: Hashable, find: Callable[[Rows], NDArray[Any]]) -> NDArray[Any]:
        """Return the values of all rows; `find` works out those of some. Read-only."""
        known = self._known.get(what)
        if len(self.touched) > _TOUCHED_KEPT:
            self._known, self.touched, known = {}, [], None
        if known is None:
            values = find(slice(None))
        elif known.position == len(self.touched):
            return known.values
        else:
            rows = np.array(sorted({*self.touched[known.position :]}), dtype=np.int64)
            values = known.values.copy()
            values[rows] = find(rows)
        values.flags.writeable = False
        kept = len(self._known)
        if kept >= _KEPT_MOST or kept * values.nbytes >= _KEPT_BYTES:
            self._known.clear()
        self._known[what] = _Known(values, len(self.touched))
        return values
