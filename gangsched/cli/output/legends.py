"""The texts of tables about queues: notes, legends, and changes in words."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

LEGEND_OF_QUEUES = "BORROWED: used beyond NOMINAL. SHARE: dominant share, divided by the weight."
LEGEND_OF_STARTS = "?: later than the forecast reaches, or only after a change."


def nominal(quota: Mapping[str, Any]) -> str:
    """Return the nominal quota that counts, and the written one if that is larger."""
    effective, written = quota["nominal"], quota.get("written")
    return f"{effective} of {written}" if written not in (None, effective) else effective or "-"


def print_notes(console: Console, notes: Iterable[tuple[str, str]], legend: str = "") -> None:
    """Print notes on queues, and in a terminal the legend of the columns."""
    for queue, sentence in notes:
        note = escape(f"{queue}: {sentence}")
        console.print(note, highlight=False, soft_wrap=not console.is_terminal)
    if legend and console.is_terminal:
        console.print(legend, style="dim", highlight=False)


def change_in_words(row: Mapping[str, Any]) -> str:
    """Return in words how a change affects a gang if one of the two starts is not known."""
    if row["now"] is None and row["then"] is not None:
        return "starts at all"
    if row["now"] is not None and row["then"] is None:
        return "later or never"
    return "none seen"
