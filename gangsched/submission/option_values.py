"""The values of options as sbatch reads them: times, sizes, arrays, dependencies, nodes."""

import re
from dataclasses import dataclass

from gangsched.config import ConfigError
from gangsched.core.model.text import shown, whole

NODES_MAX, TASKS_PER_NODE_MAX, ARRAY_TASKS_MAX = 5000, 4096, 1000
_DEPENDENCIES_MAX = 64
_YEAR_S = 365 * 86_400
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_GPU_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SIGNAL = re.compile(r"(?:[A-Z]+:)?(?:SIG)?([A-Z0-9]+?)(?:@(\d{1,6}))?")
_SIZES = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_CONDITIONS = ("after", "afterany", "afternotok", "afterok", "singleton")


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """The tasks of an array job, and how many run at once; None: all."""

    indices: tuple[int, ...]
    at_once: int | None = None
    text: str = ""
    step: int = 1


def parse_count(option: str, value: str, most: int) -> int:
    """Return a whole number from 1 to the most.

    Raises:
        ConfigError: it is none.

    """
    number = whole(value)
    if number is None or not 1 <= number <= most:
        raise ConfigError(f"--{option}: {shown(value)} must be a whole number from 1 to {most:,}")
    return number


def parse_nodes(value: str) -> tuple[int, int]:
    """Return the least and the most nodes; a gang has the least.

    Raises:
        ConfigError: it is neither NUMBER nor MINIMUM-MAXIMUM.

    """
    low, dash, high = value.partition("-")
    least = parse_count("nodes", low, NODES_MAX)
    most = parse_count("nodes", high, NODES_MAX) if dash else least
    if most < least:
        raise ConfigError(f"--nodes: {shown(value)} must be MINIMUM-MAXIMUM")
    return least, most


def parse_gpus(option: str, value: str) -> tuple[str, int]:
    """Return type and number of `[TYPE:]NUMBER`.

    Raises:
        ConfigError: it has another form.

    """
    gpu_type, colon, number = value.rpartition(":")
    if colon and not _GPU_TYPE.fullmatch(gpu_type):
        raise ConfigError(f"--{option}: {shown(value)} must be [TYPE:]NUMBER, such as h100:8")
    return gpu_type, parse_count(option, number, 1024)


def parse_gres(value: str) -> tuple[str, int]:
    """Return type and number of GPUs of `gpu[:TYPE][:NUMBER]`, also several with commas.

    Raises:
        ConfigError: it has another form, or names something else.

    """
    gpu_type, count = "", 0
    for part in value.split(","):
        words = part.removeprefix("gres/").split(":")
        if words[0] != "gpu" or len(words) > 3:
            raise ConfigError(
                f"--gres: {shown(part)} must be gpu[:TYPE][:NUMBER]; others are not known"
            )
        last = words[-1].partition("(")[0]
        if len(words) > 1 and whole(last) is not None:
            count += parse_count("gres", last, 1024)
            words = words[:-1]
        else:
            count += 1
        if len(words) > 1:
            if not _GPU_TYPE.fullmatch(words[1]):
                raise ConfigError(f"--gres: {shown(part)} must be gpu[:TYPE][:NUMBER]")
            if gpu_type not in ("", words[1]):
                raise ConfigError(f"--gres: {shown(value)} names two types of GPUs; a gang has one")
            gpu_type = words[1]
    return gpu_type, count


def parse_size(option: str, value: str) -> int:
    """Return a size in bytes; MB is the default unit.

    Raises:
        ConfigError: it has another form.

    """
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", value.upper())
    if match is None or int(match[1]) * _SIZES[match[2]] > 1 << 50:
        raise ConfigError(f"--{option}: {shown(value)} must be NUMBER[K|M|G|T], such as 64G")
    return int(match[1]) * _SIZES[match[2]]


def parse_time_limit(option: str, value: str) -> int | None:
    """Return a time limit in seconds; None: there is none.

    Forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
    days-hours:minutes:seconds, UNLIMITED.

    Raises:
        ConfigError: it has another form.

    """
    if value.upper() in ("UNLIMITED", "INFINITE", "-1", "0"):
        return None
    match = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,7}))?(?::(\d{1,7}))?", value)
    if match is None:
        raise ConfigError(
            f"--{option}: {shown(value)} must be MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, "
            f"DAYS-HOURS[:MINUTES[:SECONDS]] or UNLIMITED"
        )
    days, first, second, third = match.groups()
    if days is not None:
        seconds = int(days) * 86_400 + int(first) * 3600 + int(second or 0) * 60 + int(third or 0)
    elif third is not None:
        seconds = int(first) * 3600 + int(second) * 60 + int(third)
    else:
        seconds = int(first) * 60 + int(second or 0)
    if not 1 <= seconds <= 10 * _YEAR_S:
        raise ConfigError(f"--{option}: {shown(value)} must be from a second to ten years")
    return seconds


def parse_array(value: str) -> ArrayTasks:
    """Return the tasks of an array: `0-15`, `1,3,5-7`, `0-20:4`, each with `%8` for eight at once.

    Raises:
        ConfigError: it has another form, or too many tasks.

    """
    text, percent, limit = value.partition("%")
    at_once = parse_count("array", limit, ARRAY_TASKS_MAX) if percent else None
    indices: set[int] = set()
    step = 1
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part)
        if match is None:
            raise ConfigError(f"--array: {shown(value)} must be like 0-15, 1,3,5-7 or 0-20:4%2")
        first = int(match[1])
        last = int(match[2]) if match[2] is not None else first
        step = int(match[3]) if match[3] is not None else step
        if last < first or step < 1:
            raise ConfigError(f"--array: {shown(part)} must be FIRST-LAST[:STEP]")
        if (last - first) // step >= ARRAY_TASKS_MAX or len(indices) >= ARRAY_TASKS_MAX:
            raise ConfigError(f"--array: {shown(value)} has more than {ARRAY_TASKS_MAX} tasks")
        indices.update(range(first, last + 1, step))
    if len(indices) > ARRAY_TASKS_MAX:
        raise ConfigError(f"--array: {shown(value)} has more than {ARRAY_TASKS_MAX} tasks")
    return ArrayTasks(tuple(sorted(indices)), at_once, text, step)


def parse_dependency(value: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return (condition, job) of each dependency, and whether singleton is among them.

    Raises:
        ConfigError: it has another form, or an alternative (`?`) between dependencies.

    """
    if "?" in value:
        raise ConfigError("--dependency: alternatives with ? are not supported; use commas")
    found: list[tuple[str, str]] = []
    singleton = False
    for part in value.split(","):
        condition, *jobs = part.split(":")
        if condition not in _CONDITIONS:
            raise ConfigError(
                f"--dependency: {shown(part)} must be one of {', '.join(_CONDITIONS)}, with :JOB"
            )
        if condition == "singleton":
            singleton = True
            continue
        if not jobs:
            raise ConfigError(f"--dependency: {shown(part)} names no job: {condition}:JOB")
        for job in jobs:
            name = job.partition("+")[0]
            if "+" in job:
                raise ConfigError(f"--dependency: {shown(part)}: a delay (+) is not supported")
            if not _NAME.fullmatch(name):
                raise ConfigError(f"--dependency: {shown(job)} must be the number or name of a job")
            found.append((condition, name))
    if len(found) > _DEPENDENCIES_MAX:
        raise ConfigError(f"--dependency: names more than {_DEPENDENCIES_MAX} jobs")
    return tuple(dict.fromkeys(found)), singleton


def parse_signal(value: str) -> tuple[str, int, bool]:
    """Return a signal, how many seconds before the end it is sent, and whether to the script alone.

    Without `B:` the tasks of srun get it, as with sbatch.

    Raises:
        ConfigError: it is not [B:]SIGNAL[@SECONDS].

    """
    match = _SIGNAL.fullmatch(value.upper())
    if match is None:
        raise ConfigError(
            f"--signal: {shown(value)} must be [B:]SIGNAL[@SECONDS], such as B:USR1@90"
        )
    return match[1], int(match[2] or 60), value.upper().startswith("B:")


def expand_hostlist(value: str) -> list[str]:
    """Return the nodes of a list such as `node[1-3,7],other`.

    Raises:
        ConfigError: it has another form, or too many nodes.

    """
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?[^,\[]*", value):
        match = re.fullmatch(r"([A-Za-z0-9._-]*)\[([0-9,-]+)\]([A-Za-z0-9._-]*)", part)
        if match is None:
            if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", part):
                raise ConfigError(f"--exclude: {shown(part)} is no list of nodes such as node[1-3]")
            found.append(part)
            continue
        for numbers in match[2].split(","):
            first, _, last = numbers.partition("-")
            low, high = whole(first), whole(last or first)
            if low is None or high is None or high < low or high - low > NODES_MAX:
                raise ConfigError(f"--exclude: {shown(part)} is no list of nodes such as node[1-3]")
            width = len(first)
            found += [f"{match[1]}{n:0{width}d}{match[3]}" for n in range(low, high + 1)]
        if len(found) > NODES_MAX:
            raise ConfigError(f"--exclude: names more than {NODES_MAX} nodes")
    return found


def parse_name(option: str, value: str) -> str:
    """Return the name of one object.

    Raises:
        ConfigError: it is none, or several.

    """
    if "," in value:
        raise ConfigError(f"--{option}: {shown(value)} names several; name one")
    if not _NAME.fullmatch(value):
        raise ConfigError(f"--{option}: {shown(value)} is no name")
    return value


def parse_path(option: str, value: str) -> str:
    """Return a path, perhaps with patterns.

    Raises:
        ConfigError: it is none.

    """
    if not value or len(value) > 1000 or not value.isprintable():
        raise ConfigError(f"--{option}: {shown(value)} is no path")
    return value


def parse_exports(value: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that are given with values; ALL and NIL are the same here.

    The variables of this machine are not those of an image, so ALL exports none of them.

    Raises:
        ConfigError: a variable has no value or no name.

    """
    found = []
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if part in ("ALL", "NIL", "NONE"):
            continue
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", name):
            raise ConfigError(
                f"--export: {shown(part)} must be NAME=VALUE: variables of this machine are not "
                f"those of the nodes"
            )
        found.append((name, text))
    return tuple(found)
