"""Shows the progress of a build or a start: a changing line on a terminal, lines in a log."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console

from gangsched.local.gobuild import Progress

_LOG_EVERY_S = 15.0
_STAYS = ("built", "installing")
"""First words of the lines that stay on the screen."""


@contextlib.contextmanager
def show_progress(console: Console, first: str) -> Iterator[Progress]:
    """Show `first`, and then each line that the yielded function is called with."""
    printed_s = time.monotonic()
    with console.status(first) as status:

        def progress(line: str) -> None:
            nonlocal printed_s
            status.update(line)
            quiet = console.is_terminal or time.monotonic() - printed_s < _LOG_EVERY_S
            if line.startswith(_STAYS) or not quiet:
                printed_s = time.monotonic()
                console.print(f"  {line}")

        yield progress
