"""CP-SAT, which is loaded when the first program is built.

It takes nearly a second of CPU and 80 MB, and counting alone proves most placements. Modules that
use it import `annotations` from `__future__`: their signatures would load it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["cp_model"]

if TYPE_CHECKING:
    from ortools.sat.python import cp_model
else:

    class _WhenUsed:
        """The module, by its attributes. The locks of imports keep threads apart."""

        def __getattr__(self, name: str) -> object:
            return getattr(import_module("ortools.sat.python.cp_model"), name)

    cp_model = _WhenUsed()
