"""One run of a sweep, and how it is done."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gangsched import __version__
from simulator.invariants.placement_checks import ViolationError
from simulator.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from simulator.traces import Trace

_WRITTEN = 2
"""Grows with what a run writes, so that one written before is done again."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with some of its fields changed; `label` tells which, `command` runs it."""

    label: str
    scenario: Scenario
    command: str

    @property
    def stamp(self) -> str:
        """Return what tells whether a finished run is of this very scenario."""
        what = f"{__version__} {_WRITTEN} {self.scenario.model_dump_json()}"
        found = hashlib.sha256(what.encode())
        for source in self.scenario.workload.traces:  # a file exported anew is another scenario
            path = self.scenario.folder / source.path
            found.update(path.read_bytes() if path.is_file() else b"")
        return found.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Task:
    """One run to do, or done already."""

    variant: Variant
    seed: int
    folder: Path

    def done(self) -> bool:
        """Tell whether its outcome lies there whole."""
        try:
            known = json.loads((self.folder / "run.json").read_text())
        except (OSError, ValueError):
            return False
        return bool(known.get("stamp") == self.variant.stamp)


def do(task: Task, found: Sequence["Trace"] | None = None) -> None:
    """Run a task and write its files.

    Raises:
        ConfigError, TraceError, ViolationError: see `run`; a violation tells how to see it again.

    """
    from simulator.experiments.results import write  # noqa: PLC0415 -- heavy, and needed in the workers alone
    from simulator.experiments.run import run  # noqa: PLC0415

    about = {"variant": task.variant.label, "stamp": task.variant.stamp}
    try:
        outcome = run(task.variant.scenario, task.seed, found)
    except ViolationError as error:
        again = f"{task.variant.command} --set 'seeds=[{task.seed}]'"
        raise ViolationError(f"seed {task.seed}: {error}; to see it again: {again}") from error
    write(outcome, task.folder, about)
