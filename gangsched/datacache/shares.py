"""Who reads which rows: shares of readers, and the home worker of each group of rows."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence


def share_of_rows(rows: int, index: int, total: int) -> tuple[int, int]:
    """Return the rows of one of `total` shares: together they are all rows, each row once."""
    return rows * index // total, rows * (index + 1) // total


def home(group: int, groups: int, workers: int) -> int:
    """Return the worker that keeps a group in memory: neighbours are together."""
    return group * workers // groups


def pieces(
    starts: Sequence[int], first: int, end: int, workers: int
) -> Iterator[tuple[int, int, int]]:
    """Yield rows with one home each: first row, end and worker.

    `starts` has the first row of each group, and the number of all rows at its end.
    """
    groups = len(starts) - 1
    while first < end:
        group = group_with_row(starts, first)
        worker = home(group, groups, workers)
        # The last group of the worker.
        last = min(((worker + 1) * groups - 1) // workers, groups - 1)
        stop = min(starts[last + 1], end)
        yield first, stop, worker
        first = stop


def group_with_row(starts: Sequence[int], row: int) -> int:
    """Return the group that has a row; groups without rows have none."""
    return bisect_right(starts, row) - 1
