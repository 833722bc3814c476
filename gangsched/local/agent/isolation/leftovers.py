"""Ends the pods of an agent that was killed: the next agent starts every pod again."""

import contextlib
import os
from pathlib import Path

import psutil

from gangsched.local.processes import MARK, marked

_END_S = 10.0


def end_leftovers() -> int:
    """End what an earlier agent of this control plane left behind; return the number of pods.

    A killed agent cannot end its pods, and their processes would hold ports and GPUs.
    """
    folder = os.environ.get(MARK)
    left = []
    for process in marked(Path(folder)) if folder else ():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if "--kill-child" in process.cmdline():
                process.kill()
                left.append(process)
    psutil.wait_procs(left, timeout=_END_S)
    return len(left)
