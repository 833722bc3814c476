"""How commands print: as data where `--output` asks for that, else as tables that keep names whole.

A terminal has its width, and other columns fold before names do. What is piped has no width: one
row is one line.
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
_RIGHT = frozenset({"POS", "PRIO", "GPUS", "USED", "NOMINAL", "LOAN", "WAIT", "RUN", "SHARE"})


def console() -> Console:
    """Return standard output, with no width where it is no terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=_NO_WIDTH)


def answer(found: Any, output: str, show: Callable[[], None]) -> None:
    """Print what a command found: as json or yaml, or by `show`."""
    if output == "json":
        typer.echo(json.dumps(_finite(found), indent=2))
    elif output == "yaml":
        typer.echo(yaml.safe_dump(_finite(found), sort_keys=False).rstrip())
    else:
        show()


def _finite(found: Any) -> Any:
    """Return JSON values, of which NaN and infinity are none: null stands for them."""
    match found:
        case dict():
            return {str(key): _finite(one) for key, one in found.items()}
        case list() | tuple():
            return [_finite(one) for one in found]
        case float() if not math.isfinite(found):
            return None
        case _:
            return found


def new_table(*columns: str, right: Container[str] = _RIGHT) -> Table:
    """Return an empty table, whose names `put` keeps whole; numbers stand to the right."""
    made = Table(box=None, pad_edge=False)
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in _NAMES,
        )
    return made


def put(table: Table, console: Console) -> None:
    """Print a table; where its names alone are too wide, the terminal breaks the lines."""
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


def say(console: Console, text: str, strong: str = "") -> None:
    """Print a sentence that begins with something strong; further lines of it are indented."""
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


def moment(stamp: str) -> str:
    """Return a moment of RFC 3339 as tables have it: `2026-11-24 00:35:12Z`."""
    return f"{datetime.fromisoformat(stamp).astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
