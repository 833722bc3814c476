"""Reads the metrics out of a trial's log, as Katib's StdOut collector does.

Filters are a user's expressions. They are RE2's, as in Katib (Go): their time grows with the log
alone, where Python's own `re` can be kept busy for ever by a short one.
"""

from collections.abc import Sequence

import re2

from gangsched.core.jobs.metrics import Series
from gangsched.core.shown import shown

FILTER = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""A name, an equals sign and a number: Katib's default filter."""

_GROUPS = 2


class FilterError(Exception):
    """A filter that cannot be used; the message says why."""


def read(log: str, names: Sequence[str], filters: Sequence[str] = ()) -> Series:
    """Return the values of some metrics in a log; what is not a number is passed over.

    Args:
        log: its text.
        names: the metrics that are looked for.
        filters: expressions whose first two groups are name and value.

    Raises:
        FilterError: a filter is none.

    """
    patterns = [_compiled(one) for one in filters or (FILTER,)]
    series: Series = {name: [] for name in names}
    for line in log.splitlines():
        for pattern in patterns:
            for found in pattern.finditer(line):
                name, value = found.group(1), found.group(2)
                values = series.get((name or "").strip())
                if values is not None:
                    try:
                        values.append(float(value))
                    except (TypeError, ValueError):
                        continue
    return series


def _compiled(expression: str) -> "re2._Regexp":
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(expression, options=options)
    except re2.error as error:
        why = error.args[0]
        said = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise FilterError(f"{shown(expression)} is no expression (RE2): {said}") from error
    if pattern.groups < _GROUPS:
        raise FilterError(f"{shown(expression)} needs two groups, name and value")
    return pattern
