"""Our own commands asked in this process: each process of its own takes seconds to start."""

import contextlib
import io
import os
import sys
from unittest import mock

from gangsched import cli
from gangsched.local.plane import environment


def ask(cluster, *arguments: str) -> tuple[int, str]:
    """Run a command as a terminal of 80 columns does; return its exit code and output."""
    shown, code = io.StringIO(), 0
    there = environment(cluster.plane) | {"COLUMNS": "80"}
    with (
        mock.patch.dict(os.environ, there),
        mock.patch.object(sys, "argv", ["gangsched", *arguments]),
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, shown.getvalue()
