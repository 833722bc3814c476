"""Many runs: variants and seeds, over the cores of one machine. What is finished stays finished."""

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
    """Return a variant for each combination of what is compared, the scenario itself if nothing is.

    Raises:
        ConfigError: the scenario, a change or a comparison is wrong.

    """
    axes: dict[str, list[str]] = {}
    for one in compare:
        name, equals, values = one.partition("=")
        options = [value for value in values.split(",") if value]
        if not equals or not options:
            raise ConfigError(f"--compare: {one!r} must be FIELD=A,B, such as order=fifo,shortest")
        field = f"policies.{name}" if name in PolicyChoice.model_fields else name
        axes.setdefault(field, []).extend(options)
    for field, options in axes.items():
        again = next((value for value in options if options.count(value) > 1), None)
        if again is not None:
            raise ConfigError(f"--compare: {field}={again} is there twice")
    short = _short(list(axes))
    found = []
    for chosen in itertools.product(*axes.values()):
        changed = tuple(zip(axes, chosen, strict=True))
        label = " ".join(f"{short[field]}={value}" for field, value in changed)
        every = (*changes, *(f"{field}={value}" for field, value in changed))
        scenario = load(path, every)
        said = (f"--set {shlex.quote(change)}" for change in every)
        command = " ".join(("gangsched simulate", shlex.quote(str(path)), *said))
        found.append(Variant(label or scenario.name, scenario, command))
    return found


def _short(fields: Sequence[str]) -> dict[str, str]:
    """Return as much of the end of each field as tells it from the others; no number alone."""
    found = {}
    for field in fields:
        parts = field.split(".")
        others = [other.split(".") for other in fields if other != field]
        ends = (parts[-count:] for count in range(1, len(parts) + 1))
        alone = (
            end
            for end in ends
            if not end[0].isdigit() and all(other[-len(end) :] != end for other in others)
        )
        found[field] = ".".join(next(alone, parts))
    return found


def tasks(found: Sequence[Variant], seeds: Sequence[int] | None, out: Path) -> list[Task]:
    """Return every run of every variant; its folder is named after the variant and the seed."""
    listed = []
    for variant, name in zip(found, _folders([variant.label for variant in found]), strict=True):
        wanted = seeds if seeds is not None else variant.scenario.seeds
        listed += [Task(variant, seed, out / name / f"seed-{seed}") for seed in wanted]
    return listed


def _folders(labels: Sequence[str]) -> list[str]:
    """Return a folder for each label: its name as far as files may have it, and no other's."""
    found: list[str] = []
    for label in labels:
        plain = (c if (c.isascii() and c.isalnum()) or c in "-_=." else "_" for c in label)
        name = "".join(plain)
        if name in found or len(name) > _NAME_LETTERS or name.startswith("."):
            name = f"{name[:_NAME_LETTERS]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"
        found.append(name)
    return found


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
