"""Prints answers of commands: as data for `--output json|yaml`, else as tables with whole names.

In a terminal, other columns fold before names do. In a pipe there is no width: a row is a line.
"""

import json
import math
import textwrap
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import Any

import typer
import yaml
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NO_WIDTH = 100_000
_NAMES = frozenset({"GANG", "QUEUE", "NAME", "PROGRAM", "VARIANT"})
_RIGHT = frozenset({"POS", "PRIO", "GPUS", "USED", "NOMINAL", "BORROWED", "WAIT", "RUN", "SHARE"})


def console() -> Console:
    """Return the console of standard output; a pipe has no width."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_NO_WIDTH)


def print_answer(data: Any, output: str, show: Callable[[], None]) -> None:
    """Print the answer of a command: as json or yaml, or by `show`."""
    if output == "json":
        typer.echo(json.dumps(_without_nan(data), indent=2))
    elif output == "yaml":
        typer.echo(yaml.safe_dump(_without_nan(data), sort_keys=False).rstrip())
    else:
        show()


def _without_nan(value: Any) -> Any:
    """Return JSON values: NaN and infinity become null."""
    match value:
        case dict():
            return {str(key): _without_nan(part) for key, part in value.items()}
        case list() | tuple():
            return [_without_nan(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def new_table(*columns: str, right: Container[str] = _RIGHT) -> Table:
    """Return an empty table for `print_table`; the columns in `right` are aligned right."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in _NAMES,
        )
    return table


def print_table(table: Table, console: Console) -> None:
    """Print a table; names are never folded, even if the table becomes wider than the terminal."""
    for column in table.columns:
        if column.no_wrap:
            column.min_width = max((cell_len(str(cell)) for cell in column.cells), default=0)
    least = Measurement.get(console, console.options.update_width(_NO_WIDTH), table).minimum
    width = console.width
    console.width = max(width, least)
    try:
        console.print(table)
    finally:
        console.width = width


def print_sentence(console: Console, text: str, strong: str = "") -> None:
    """Print a sentence with its first words, `strong`, in bold; further lines are indented."""
    lines = textwrap.fill(
        text,
        console.width,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    printed = Text(lines)
    printed.stylize("bold", 0, len(strong))
    console.print(printed, soft_wrap=True)


def format_time(stamp: str) -> str:
    """Return a time of RFC 3339 in the form of tables: `2026-11-24 00:35:12Z`."""
    return f"{datetime.fromisoformat(stamp).astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
