"""Many runs: variants and seeds, over the cores of one machine. What is finished stays finished."""

import hashlib
import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gangsched import __version__
from gangsched.config import ConfigError
from simulator.checkers import ViolationError
from simulator.scenario import PolicyChoice, Scenario, load

if TYPE_CHECKING:
    from simulator.traces import Trace

POLICIES = ("order", "placer", "sharing", "backfill", "preemptor")


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with some of its fields changed; `label` tells which, `command` runs it."""

    label: str
    scenario: Scenario
    command: str

    @property
    def stamp(self) -> str:
        """Return what tells whether a finished run is of this very scenario."""
        found = hashlib.sha256(f"{__version__} {self.scenario.model_dump_json()}".encode())
        for source in self.scenario.workload.traces:  # a file exported anew is another scenario
            path = self.scenario.folder / source.path
            found.update(path.read_bytes() if path.is_file() else b"")
        return found.hexdigest()[:16]


def variants(path: Path, changes: Sequence[str], compare: Sequence[str]) -> list[Variant]:
    """Return a variant for each combination of what is compared, the scenario itself if nothing is.

    Raises:
        ConfigError: the scenario, a change or a comparison is wrong.

    """
    axes = []
    for one in compare:
        name, equals, values = one.partition("=")
        options = [value for value in values.split(",") if value]
        if not equals or not options:
            raise ConfigError(f"--compare: {one!r} must be FIELD=A,B, such as order=fifo,shortest")
        field = f"policies.{name}" if name in PolicyChoice.model_fields else name
        axes.append([(f"{name}={value}", f"{field}={value}") for value in options])
    found = []
    for chosen in itertools.product(*axes):
        label = " ".join(label for label, _ in chosen)
        every = (*changes, *(change for _, change in chosen))
        scenario = load(path, every)
        said = (f"--set {shlex.quote(change)}" for change in every)
        command = " ".join(("gangsched simulate", shlex.quote(str(path)), *said))
        found.append(Variant(label or scenario.name, scenario, command))
    return found


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


def tasks(found: Sequence[Variant], seeds: Sequence[int] | None, out: Path) -> list[Task]:
    """Return every run of every variant; its folder is named after the variant and the seed."""
    listed = []
    for variant in found:
        name = "".join(c if c.isalnum() or c in "-_=." else "_" for c in variant.label)
        wanted = seeds if seeds is not None else variant.scenario.seeds
        listed += [Task(variant, seed, out / name / f"seed-{seed}") for seed in wanted]
    return listed


def work(listed: Sequence[Task], processes: int, ray: str = "") -> Iterator[Task]:
    """Do what is not done yet; yield each run as it is finished.

    With the address of a Ray cluster ("auto" for one on this machine) the runs go there; their
    files come back here.

    Raises:
        ConfigError, TraceError, ViolationError: a run failed; what was finished stays.

    """
    whole = [task.done() for task in listed]
    left = [task for task, done in zip(listed, whole, strict=True) if not done]
    yield from (task for task, done in zip(listed, whole, strict=True) if done)
    if ray and left:
        from simulator.on_ray import on_ray  # noqa: PLC0415 -- an extra

        yield from on_ray(left, ray)
        return
    if processes == 1 or len(left) == 1:
        for task in left:
            do(task)
            yield task
        return
    with ProcessPoolExecutor(min(processes, len(left)) or 1) as pool:
        waiting = {pool.submit(do, task): task for task in left}
        try:
            for future in as_completed(waiting):
                future.result()
                yield waiting[future]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def do(task: Task, found: Sequence["Trace"] | None = None) -> None:
    """Run a task and write its files.

    Raises:
        ConfigError, TraceError, ViolationError: see `run`; a violation tells how to see it again.

    """
    from simulator.results import write  # noqa: PLC0415 -- heavy, and needed in the workers alone
    from simulator.run import run  # noqa: PLC0415

    about = {"variant": task.variant.label, "stamp": task.variant.stamp}
    try:
        outcome = run(task.variant.scenario, task.seed, found)
    except ViolationError as error:
        again = f"{task.variant.command} --set 'seeds=[{task.seed}]'"
        raise ViolationError(f"seed {task.seed}: {error}; to see it again: {again}") from error
    write(outcome, task.folder, about)
