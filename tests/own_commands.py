"""Our own command, run in the process of a test: another would take two seconds to begin."""

import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from gangsched.cli.main import main


def run_here(
    words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> tuple[int, str]:
    """Run `gangsched` with some words; return its exit code, and what it wrote to either stream."""
    said = io.StringIO()
    code = 0
    with (
        patch.dict(os.environ, environment),
        patch.object(sys, "argv", ["gangsched", *words]),
        contextlib.chdir(folder or Path.cwd()),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return code, said.getvalue()
