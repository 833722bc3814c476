"""One run of a sweep."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gangsched import __version__
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.recording.journal import Journal, RecordingEngine
from simulator.invariants.placement_checks import ViolationError
from simulator.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from simulator.traces import Trace

JOURNAL = "journal.jsonl"
"""The facts and decisions of a run, for `gangsched web`."""

MakeEngine = Callable[[Limits], SchedulingEngine]

_WRITTEN = 2
"""Version of the files of a run; a run with an older version is repeated."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with some changed fields; `label` names the changes, `command` runs it."""

    label: str
    scenario: Scenario
    command: str

    @property
    def stamp(self) -> str:
        """Return a hash that identifies the scenario, its traces and the version of the files."""
        text = f"{__version__} {_WRITTEN} {self.scenario.model_dump_json()}"
        digest = hashlib.sha256(text.encode())
        for source in self.scenario.workload.traces:  # changed traces make another scenario
            path = self.scenario.folder / source.path
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a variant with a seed, finished or not; with `journal` it also writes one."""

    variant: Variant
    seed: int
    folder: Path
    journal: bool = False

    def done(self) -> bool:
        """Return whether the folder has all files of this run."""
        try:
            document = json.loads((self.folder / "run.json").read_text())
        except (OSError, ValueError):
            return False
        missing = self.journal and not (self.folder / JOURNAL).is_file()
        return not missing and bool(document.get("stamp") == self.variant.stamp)


def do(task: Task, traces_read: Sequence["Trace"] | None = None) -> None:
    """Run a task and write its files.

    Raises:
        ConfigError, TraceError, ViolationError: see `run`; a violation says how to repeat it.

    """
    from simulator.experiments.results import write  # noqa: PLC0415 -- heavy, and needed in the workers alone
    from simulator.experiments.run import run  # noqa: PLC0415

    about = {"variant": task.variant.label, "stamp": task.variant.stamp}
    try:
        with ExitStack() as files:
            make_engine: MakeEngine = Engine
            if task.journal:
                task.folder.mkdir(parents=True, exist_ok=True)
                journal = Journal(files.enter_context((task.folder / JOURNAL).open("w")))
                make_engine = partial(_recorded, journal)
            outcome = run(task.variant.scenario, task.seed, traces_read, make_engine)
    except ViolationError as error:
        command = f"{task.variant.command} --set 'seeds=[{task.seed}]'"
        raise ViolationError(f"seed {task.seed}: {error}; to repeat it: {command}") from error
    write(outcome, task.folder, about)


def _recorded(journal: Journal, limits: Limits) -> SchedulingEngine:
    return RecordingEngine(Engine(limits), journal)
