"""What tables about queues say beside their numbers: notes, legends, and changes in words."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

LEGEND_OF_QUEUES = "LOAN: used beyond NOMINAL. SHARE: largest part of a resource, over its weight."
LEGEND_OF_STARTS = "?: not within reach of the forecast, or not before something changes."


def nominal(quota: Mapping[str, Any]) -> str:
    """Return what a queue is guaranteed, and what is written where that is more."""
    counts, written = quota["nominal"], quota.get("written")
    return f"{counts} of {written}" if written not in (None, counts) else counts or "-"


def explain(console: Console, notes: Iterable[tuple[str, str]], legend: str = "") -> None:
    """Print what is to be known of some queues, and in a terminal what the columns are."""
    for queue, sentence in notes:
        said = escape(f"{queue}: {sentence}")
        console.print(said, highlight=False, soft_wrap=not console.is_terminal)
    if legend and console.is_terminal:
        console.print(legend, style="dim", highlight=False)


def changed(row: Mapping[str, Any]) -> str:
    """Return in words what a change does to a gang where one of the two starts is not known."""
    if row["now"] is None and row["then"] is not None:
        return "starts at all"
    if row["now"] is not None and row["then"] is None:
        return "later or never"
    return "none seen"
