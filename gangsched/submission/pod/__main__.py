"""The pod itself, or the command of the script that is named."""

from __future__ import annotations

import sys

from .script import run_pod
from .steps import scontrol, srun

_COMMANDS = {"srun": srun, "scontrol": scontrol}


def main() -> None:
    """Be the pod, or a command; end with its exit code."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    command = _COMMANDS.get(name)
    sys.exit(command(sys.argv[2:]) if command is not None else run_pod())
