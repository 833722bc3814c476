"""Many runs: variants and seeds, on all cores of one machine. Finished runs are not repeated."""

import hashlib
import itertools
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from gangsched.config import ConfigError
from simulator.experiments.task import Task, Variant, do
from simulator.scenarios.scenario import PolicyChoice, load

_NAME_LETTERS = 80


def variants(path: Path, changes: Sequence[str], compare: Sequence[str]) -> list[Variant]:
    """Return a variant for each combination of compared values; without any, the scenario itself.

    Raises:
        ConfigError: the scenario, a change or a comparison is wrong.

    """
    axes: dict[str, list[str]] = {}
    for comparison in compare:
        name, equals, values = comparison.partition("=")
        options = [value for value in values.split(",") if value]
        if not equals or not options:
            raise ConfigError(
                f"--compare: {comparison!r} must be FIELD=A,B, such as order=fifo,shortest"
            )
        field = f"policies.{name}" if name in PolicyChoice.model_fields else name
        axes.setdefault(field, []).extend(options)
    for field, options in axes.items():
        twice = next((value for value in options if options.count(value) > 1), None)
        if twice is not None:
            raise ConfigError(f"--compare: {field}={twice} appears twice")
    short = _short(list(axes))
    listed = []
    for chosen in itertools.product(*axes.values()):
        changed = tuple(zip(axes, chosen, strict=True))
        label = " ".join(f"{short[field]}={value}" for field, value in changed)
        all_changes = (*changes, *(f"{field}={value}" for field, value in changed))
        scenario = load(path, all_changes)
        arguments = (f"--set {shlex.quote(change)}" for change in all_changes)
        command = " ".join(("gangsched simulate", shlex.quote(str(path)), *arguments))
        listed.append(Variant(label or scenario.name, scenario, command))
    return listed


def _short(fields: Sequence[str]) -> dict[str, str]:
    """Return the shortest unique ending of each field's path; an index alone is not enough."""
    short = {}
    for field in fields:
        parts = field.split(".")
        others = [other.split(".") for other in fields if other != field]
        ends = (parts[-count:] for count in range(1, len(parts) + 1))
        alone = (
            end
            for end in ends
            if not end[0].isdigit() and all(other[-len(end) :] != end for other in others)
        )
        short[field] = ".".join(next(alone, parts))
    return short


def tasks(
    compared: Sequence[Variant], seeds: Sequence[int] | None, out: Path, *, journal: bool = False
) -> list[Task]:
    """Return every run of every variant; variant and seed name its folder."""
    listed = []
    for variant, name in zip(
        compared, _folders([variant.label for variant in compared]), strict=True
    ):
        seeds_of_variant = seeds if seeds is not None else variant.scenario.seeds
        folder = out / name
        listed += [
            Task(variant, seed, folder / f"seed-{seed}", journal) for seed in seeds_of_variant
        ]
    return listed


def _folders(labels: Sequence[str]) -> list[str]:
    """Return a unique folder name for each label, with only letters that file names may have."""
    names: list[str] = []
    for label in labels:
        plain = (c if (c.isascii() and c.isalnum()) or c in "-_=." else "_" for c in label)
        name = "".join(plain)
        if name in names or len(name) > _NAME_LETTERS or name.startswith("."):
            name = f"{name[:_NAME_LETTERS]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"
        names.append(name)
    return names


def work(listed: Sequence[Task], processes: int, ray: str = "") -> Iterator[Task]:
    """Run the unfinished tasks; yield each run when it is finished.

    With the address of a Ray cluster ("auto" for one on this machine), the tasks run there; their
    files are copied to this machine.

    Raises:
        ConfigError, TraceError, ViolationError: a run failed; finished runs are kept.

    """
    finished = [task.done() for task in listed]
    left = [task for task, done in zip(listed, finished, strict=True) if not done]
    yield from (task for task, done in zip(listed, finished, strict=True) if done)
    if ray and left:
        from simulator.experiments.ray_executor import on_ray  # noqa: PLC0415 -- an extra

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
