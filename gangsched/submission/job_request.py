"""What a user asks for with options of sbatch, checked and completed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gangsched.config import ConfigError
from gangsched.core.model.refusal import plural
from gangsched.core.model.text import shown
from gangsched.submission.batch_options import Given, unsupported
from gangsched.submission.option_values import (
    NODES_MAX,
    TASKS_PER_NODE_MAX,
    ArrayTasks,
    expand_hostlist,
    parse_array,
    parse_count,
    parse_dependency,
    parse_exports,
    parse_gpus,
    parse_gres,
    parse_name,
    parse_nodes,
    parse_path,
    parse_signal,
    parse_size,
    parse_time_limit,
)

_CPUS_MAX = 4096


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job of one or more equal nodes. Memory is in bytes for each node, None: not limited.

    `dependencies` are (condition, job). `warning_s` is how long before its end a job gets `signal`.
    """

    name: str
    nodes: int = 1
    tasks: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    memory: int | None = None
    gpus_per_node: int = 0
    gpu_type: str = ""
    time_s: int | None = None
    time_min_s: int | None = None
    queue: str = ""
    priority_class: str = ""
    array: ArrayTasks | None = None
    dependencies: tuple[tuple[str, str], ...] = ()
    singleton: bool = False
    output: str = ""
    error: str = ""
    append: bool = False
    signal: str = ""
    warning_s: int = 60
    signal_to_script: bool = False
    requeue: bool = True
    exclusive: bool = False
    spread: bool = False
    exclude: tuple[str, ...] = ()
    directory: str = ""
    export: tuple[tuple[str, str], ...] = ()
    hold: bool = False
    comment: str = ""


@dataclass(slots=True)
class _Asked:
    """What the options say of sizes, before they are brought together."""

    nodes: tuple[int, int] | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None


def check_supported(given: Given, ignored: Iterable[str] = ()) -> None:
    """Check that everything that is asked for can be done.

    Raises:
        ConfigError: something cannot; the sentence names all of it.

    """
    missing = unsupported(given, ignored)
    if not missing:
        return
    raise ConfigError(
        f"not supported: {'; '.join(missing)}. Remove the {plural(len(missing), 'option')}, or "
        f"give --ignore NAME for each; nothing was submitted"
    )


def request_of(given: Given, name: str, ignored: Iterable[str] = ()) -> JobRequest:
    """Return the job that options ask for, as sbatch reads them; later options win.

    `name` is the default of its name. Whether it can be done, `check_supported` says.

    Raises:
        ConfigError: an option is malformed, or two contradict each other.

    """
    values = {name: value for name, value in given if name not in set(ignored)}
    if "requeue" in values and "no-requeue" in values:
        last = [key for key, _ in given if key in ("requeue", "no-requeue")][-1]
        del values["no-requeue" if last == "requeue" else "requeue"]
    asked = _Asked()
    request = JobRequest(_name(values.get("job-name") or name))
    for option, value in values.items():
        request = _applied(request, asked, option, value)
    request = _sized(request, asked)
    if request.array is not None and request.singleton:
        raise ConfigError("--dependency: singleton and --array exclude each other")
    return request


def _name(text: str) -> str:
    if not text or len(text) > 200 or not text.isprintable():
        raise ConfigError(f"--job-name: {shown(text)} must have 1 to 200 printable letters")
    return text


def _applied(request: JobRequest, asked: _Asked, option: str, value: str) -> JobRequest:
    """Return the request with an option."""
    match option:
        case "array":
            return replace(request, array=parse_array(value))
        case "chdir":
            return replace(request, directory=parse_path(option, value))
        case "comment":
            return replace(request, comment=value[:200])
        case "cpus-per-task":
            return replace(request, cpus_per_task=parse_count(option, value, _CPUS_MAX))
        case "dependency":
            dependencies, singleton = parse_dependency(value)
            return replace(request, dependencies=dependencies, singleton=singleton)
        case "error":
            return replace(request, error=parse_path(option, value))
        case "exclude":
            return replace(request, exclude=tuple(expand_hostlist(value)))
        case "exclusive":
            if value not in ("", "user"):
                raise ConfigError(f"--exclusive={value}: only --exclusive is supported")
            return replace(request, exclusive=True)
        case "export":
            return replace(request, export=parse_exports(value))
        case "hold":
            return replace(request, hold=True)
        case "mem":
            size = parse_size(option, value)
            return replace(request, memory=size or None)
        case "open-mode":
            if value not in ("append", "truncate"):
                raise ConfigError(f"--open-mode: {shown(value)} must be append or truncate")
            return replace(request, append=value == "append")
        case "output":
            return replace(request, output=parse_path(option, value))
        case "partition":
            return replace(request, queue=parse_name(option, value))
        case "qos":
            return replace(request, priority_class=parse_name(option, value))
        case "requeue" | "no-requeue":
            return replace(request, requeue=option == "requeue")
        case "signal":
            name, warning_s, to_script = parse_signal(value)
            return replace(request, signal=name, warning_s=warning_s, signal_to_script=to_script)
        case "spread-job":
            return replace(request, spread=True)
        case "time":
            return replace(request, time_s=parse_time_limit(option, value))
        case "time-min":
            return replace(request, time_min_s=parse_time_limit(option, value))
    return _with_size(request, asked, option, value)


def _with_size(request: JobRequest, asked: _Asked, option: str, value: str) -> JobRequest:
    """Note an option on sizes in `asked`; return the request, with its type of GPUs."""
    gpu_type = ""
    match option:
        case "cpus-per-gpu":
            asked.cpus_per_gpu = parse_count(option, value, _CPUS_MAX)
        case "mem-per-cpu":
            asked.memory_per_cpu = parse_size(option, value)
        case "mem-per-gpu":
            asked.memory_per_gpu = parse_size(option, value)
        case "nodes":
            asked.nodes = parse_nodes(value)
        case "ntasks":
            asked.tasks = parse_count(option, value, NODES_MAX * TASKS_PER_NODE_MAX)
        case "ntasks-per-node":
            asked.tasks_per_node = parse_count(option, value, TASKS_PER_NODE_MAX)
        case "ntasks-per-gpu":
            asked.tasks_per_gpu = parse_count(option, value, TASKS_PER_NODE_MAX)
        case "gpus":
            gpu_type, asked.gpus = parse_gpus(option, value)
        case "gpus-per-node":
            gpu_type, asked.gpus_per_node = parse_gpus(option, value)
        case "gres":
            gpu_type, asked.gpus_per_node = parse_gres(value)
        case "gpus-per-task":
            gpu_type, asked.gpus_per_task = parse_gpus(option, value)
    return replace(request, gpu_type=gpu_type or request.gpu_type)


# -- sizes --------------------------------------------------------------------------------------


def _sized(request: JobRequest, asked: _Asked) -> JobRequest:
    """Bring nodes, tasks, GPUs and cores together, as sbatch does."""
    per_node = asked.tasks_per_node
    nodes, tasks = (asked.nodes[0] if asked.nodes else None), asked.tasks
    if asked.tasks_per_gpu is not None and asked.gpus_per_node is not None and per_node is None:
        per_node = asked.tasks_per_gpu * asked.gpus_per_node
    if nodes is None and tasks is not None and per_node is not None:
        nodes = -(-tasks // per_node)
    if nodes is None and asked.gpus is not None and asked.gpus_per_node:
        nodes = -(-asked.gpus // asked.gpus_per_node)
    nodes = nodes or 1
    if tasks is None:
        tasks = nodes * (per_node or 1)
    if per_node is None:
        per_node = -(-tasks // nodes)
    nodes = min(nodes, tasks)
    if tasks > nodes * per_node:
        raise ConfigError(
            f"--ntasks: {tasks} tasks do not fit on {nodes} nodes with {per_node} tasks each"
        )
    gpus = asked.gpus_per_node
    if gpus is None and asked.gpus_per_task is not None:
        gpus = asked.gpus_per_task * per_node
    if asked.gpus is not None:
        if asked.gpus % nodes:
            raise ConfigError(
                f"--gpus: {asked.gpus} GPUs cannot be shared equally by {nodes} nodes; "
                f"use --gpus-per-node"
            )
        if gpus not in (None, asked.gpus // nodes):
            raise ConfigError(
                f"--gpus: {asked.gpus} contradicts {gpus} GPUs for each of {nodes} nodes"
            )
        gpus = asked.gpus // nodes
    cpus = request.cpus_per_task
    if asked.cpus_per_gpu is not None and gpus:
        cpus = max(-(-asked.cpus_per_gpu * gpus // per_node), 1)
    memory = request.memory
    if asked.memory_per_cpu is not None:
        memory = asked.memory_per_cpu * cpus * per_node
    if asked.memory_per_gpu is not None and gpus:
        memory = asked.memory_per_gpu * gpus
    return replace(
        request,
        nodes=nodes,
        tasks=tasks,
        tasks_per_node=per_node,
        cpus_per_task=cpus,
        gpus_per_node=gpus or 0,
        memory=memory,
    )
