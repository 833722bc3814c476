"""Reads metrics from a trial's log, like Katib's StdOut collector.

Filters are a user's expressions. Lines, letters of a line and values in a line are bounded, so that
the time grows linearly with the log.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from gangsched.core.bounds import FIRST_VALUES, LINE_LETTERS, LOG_LINES, MATCHES_OF_LINE
from gangsched.core.model.text import shown
from gangsched.jobs.katib.metrics import Series
from gangsched.operators.search.expressions import ExpressionError, Pattern, compiled

FILTER = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""A name, an equals sign and a number: Katib's default filter."""

_GROUPS = 2


def read(log: str, names: Sequence[str], filters: Sequence[str] = ()) -> Series:
    """Return the values of metrics in a log; values that are not numbers are skipped.

    Args:
        log: the text of the log.
        names: the metrics to find.
        filters: expressions with the name in the first group and the value in the second.

    Raises:
        ExpressionError: a filter cannot be used.

    """
    patterns = [_filter(filter_text) for filter_text in filters or (FILTER,)]
    series: Series = {name: [] for name in names}
    for line in _lines(log):
        for pattern in patterns:
            for name, value in _matches(pattern, line):
                values = series.get(name.strip())
                number = _number(value)
                if values is not None and number is not None:
                    values.append(number)
    return {name: _thinned(values) for name, values in series.items()}


def _lines(log: str) -> Iterator[str]:
    """Yield the lines that are not empty; of too many, the first and the last."""
    lines = [line for line in log.splitlines() if line]
    half = LOG_LINES.most // 2
    kept = lines if len(lines) <= 2 * half else chain(lines[:half], lines[-half:])
    return (line[: LINE_LETTERS.most] for line in kept)


def _matches(pattern: Pattern, line: str) -> Iterator[tuple[str, str]]:
    for match in islice(pattern.finditer(line), MATCHES_OF_LINE.most):
        yield match.group(1) or "", match.group(2) or ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _thinned(values: list[float]) -> list[float]:
    """Return the first values, and the smallest, the largest and the last of the rest."""
    first, rest = values[: FIRST_VALUES.most], values[FIRST_VALUES.most :]
    return [*first, min(rest), max(rest), rest[-1]] if rest else first


def _filter(expression: str) -> Pattern:
    pattern = compiled(expression)
    if pattern.groups < _GROUPS:
        raise ExpressionError(f"{shown(expression)} needs two groups, name and value")
    return pattern
