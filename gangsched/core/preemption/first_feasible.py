"""Finds the smallest count that works without trying all."""

from collections.abc import Callable


def smallest_feasible_count(most: int, works: Callable[[int], bool], least: int = 1) -> int | None:
    """Return the smallest count up to `most` that works, or None.

    If a count works, each larger count must work too; fewer than `least` is known not to work. The
    count is doubled until it works, because small counts are cheap to try.
    """
    if most < 1:
        return None
    high = min(max(least, 1), most)
    while not works(high):
        if high == most:
            return None
        high = min(high * 2, most)
    low = max(high // 2, least - 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high
