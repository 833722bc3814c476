"""Numbers, times and nodes as texts."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gangsched.web.model import NodeTile

_DATES_FROM_S = 10 * 365 * 86_400.0
"""Earlier times are those of a simulation, not dates."""


def summary(nodes: Iterable[NodeTile]) -> str:
    """Say how many nodes and GPUs there are and how many are used."""
    tiles_there = list(nodes)
    gpus = sum(node.gpus for node in tiles_there)
    count = len(tiles_there)
    parts = [f"{count} node{'s' * (count != 1)}"]
    if gpus:
        used = sum(node.used for node in tiles_there if node.gpus)
        parts.append(f"{amount(used)} of {gpus} GPUs used")
    else:
        used = sum(min(node.used, 1.0) for node in tiles_there) / max(count, 1)
        parts.append(f"{used:.0%} of the cores used")
    for attribute, word in (("failing", "not ready"), ("cordoned", "cordoned")):
        number = sum(bool(getattr(node, attribute)) for node in tiles_there)
        if number:
            parts.append(f"{number} {word}")
    reserved = sum(bool(node.reserved_for) for node in tiles_there)
    if reserved:
        parts.append(f"{reserved} reserved")
    return ", ".join(parts)


def describe(node: NodeTile) -> str:
    """Say what a node is and who uses it, in one sentence."""
    used = (
        f"{amount(node.used)} of {node.gpus} GPUs used"
        if node.gpus
        else f"{min(node.used, 1.0):.0%} of the cores used"
    )
    return f"{node.name or f'node {node.number}'}: {used}"


def amount(value: float | None) -> str:
    """Write an amount without needless digits."""
    return (
        "no limit" if value is None else f"{round(value, 2):,g}" if value < 1e6 else f"{value:,.0f}"
    )


def duration(seconds: float | None) -> str:
    """Write how long something takes, in its two largest units."""
    if seconds is None:
        return ""
    left = max(round(seconds), 0)
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def utc_text(at_s: float | None) -> str:
    """Write a moment in UTC; in a simulation that begins at 0, its day and time."""
    if at_s is None:
        return ""
    if abs(at_s) < _DATES_FROM_S:
        day, rest_s = divmod(int(at_s), 86_400)
        return f"day {day}, {rest_s // 3600:02d}:{rest_s // 60 % 60:02d}:{rest_s % 60:02d}"
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return "not a date"
