"""The options of sbatch: their spellings, whether they take a value, and what is not supported.

The list is that of sbatch 24.11 (https://slurm.schedmd.com/sbatch.html).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangsched.config import ConfigError


@dataclass(frozen=True, slots=True)
class BatchOption:
    """An option: its long and short name, how many values it takes, and why it is not supported.

    `values` is "one", "none" or "may": an optional value stands after `=` only.
    """

    name: str
    short: str = ""
    values: str = "one"
    missing: str = ""


_FILES = "the nodes of the cluster share no file system with this machine"
_ADMIN = "it has no meaning on Kubernetes"
_ACCOUNTING = "queues are charged, not accounts; name one with --partition"
_LATER = "jobs start as soon as there is capacity"
_MAIL = "gangsched sends no mail"
_LABELS = "nodes are chosen by their GPUs; exclude others with --exclude"
_BINDING = "the kubelet chooses cores and devices of a pod"

_SUPPORTED = (
    BatchOption("array", "a"),
    BatchOption("chdir", "D"),
    BatchOption("comment"),
    BatchOption("cpus-per-gpu"),
    BatchOption("cpus-per-task", "c"),
    BatchOption("dependency", "d"),
    BatchOption("error", "e"),
    BatchOption("exclude", "x"),
    BatchOption("exclusive", values="may"),
    BatchOption("export"),
    BatchOption("gpus", "G"),
    BatchOption("gpus-per-node"),
    BatchOption("gpus-per-task"),
    BatchOption("gres"),
    BatchOption("hold", "H", "none"),
    BatchOption("job-name", "J"),
    BatchOption("mem"),
    BatchOption("mem-per-cpu"),
    BatchOption("mem-per-gpu"),
    BatchOption("nodes", "N"),
    BatchOption("no-requeue", values="none"),
    BatchOption("ntasks", "n"),
    BatchOption("ntasks-per-gpu"),
    BatchOption("ntasks-per-node"),
    BatchOption("open-mode"),
    BatchOption("output", "o"),
    BatchOption("parsable", values="none"),
    BatchOption("partition", "p"),
    BatchOption("qos", "q"),
    BatchOption("quiet", "Q", "none"),
    BatchOption("requeue", values="none"),
    BatchOption("signal"),
    BatchOption("spread-job", values="none"),
    BatchOption("time", "t"),
    BatchOption("time-min"),
    BatchOption("wrap"),
    BatchOption("verbose", "v", "none"),
)
_UNSUPPORTED = (
    BatchOption("account", "A", missing=_ACCOUNTING),
    BatchOption("acctg-freq", missing=_ADMIN),
    BatchOption("batch", missing=_LABELS),
    BatchOption("bb", missing=_ADMIN),
    BatchOption("bbf", missing=_ADMIN),
    BatchOption("begin", "b", missing=_LATER),
    BatchOption("clusters", "M", missing="a kubeconfig names the cluster; use --context"),
    BatchOption("cluster-constraint", missing=_ADMIN),
    BatchOption("constraint", "C", missing=_LABELS),
    BatchOption("container", missing="name an image with --image"),
    BatchOption("container-id", missing="name an image with --image"),
    BatchOption("contiguous", values="none", missing="topology constraints say more; see docs"),
    BatchOption("core-spec", "S", missing=_BINDING),
    BatchOption("cores-per-socket", missing=_BINDING),
    BatchOption("cpu-freq", missing=_ADMIN),
    BatchOption("deadline", missing=_LATER),
    BatchOption("delay-boot", missing=_ADMIN),
    BatchOption("distribution", "m", missing="tasks are placed in blocks: node after node"),
    BatchOption("export-file", missing=_FILES),
    BatchOption("extra", missing=_ADMIN),
    BatchOption("extra-node-info", "B", missing=_BINDING),
    BatchOption("get-user-env", values="may", missing=_FILES),
    BatchOption("gid", missing=_ADMIN),
    BatchOption("gpu-bind", missing=_BINDING),
    BatchOption("gpu-freq", missing=_ADMIN),
    BatchOption("gres-flags", missing=_BINDING),
    BatchOption("hint", missing=_BINDING),
    BatchOption("ignore-pbs", values="none", missing="#PBS lines are never read"),
    BatchOption("input", "i", missing=_FILES),
    BatchOption("kill-on-invalid-dep", missing="`gangsched cancel` removes such a job"),
    BatchOption("licenses", "L", missing=_ADMIN),
    BatchOption("mail-type", missing=_MAIL),
    BatchOption("mail-user", missing=_MAIL),
    BatchOption("mcs-label", missing=_ADMIN),
    BatchOption("mem-bind", missing=_BINDING),
    BatchOption("mincpus", missing="ask for --cpus-per-task"),
    BatchOption("network", missing=_ADMIN),
    BatchOption("nice", values="may", missing="a priority class is named with --qos"),
    BatchOption("no-kill", "k", "may", "a gang runs whole or not at all"),
    BatchOption("nodefile", "F", missing=_FILES),
    BatchOption("nodelist", "w", missing=_LABELS),
    BatchOption("ntasks-per-core", missing=_BINDING),
    BatchOption("ntasks-per-socket", missing=_BINDING),
    BatchOption("oom-kill-step", values="may", missing=_ADMIN),
    BatchOption("overcommit", "O", "none", _BINDING),
    BatchOption("oversubscribe", "s", "none", "share GPUs by gpu-fraction; see docs"),
    BatchOption("power", missing=_ADMIN),
    BatchOption("prefer", missing=_LABELS),
    BatchOption("priority", missing="a priority class is named with --qos"),
    BatchOption("profile", missing=_ADMIN),
    BatchOption("propagate", values="may", missing=_ADMIN),
    BatchOption("reboot", values="none", missing=_ADMIN),
    BatchOption("reservation", missing="a Reservation names queues; use --partition"),
    BatchOption("resv-ports", values="may", missing="pods have ports of their own"),
    BatchOption("segment", missing="use the annotation gangsched.io/slices in a JobSet"),
    BatchOption("sockets-per-node", missing=_BINDING),
    BatchOption("stepmgr", values="none", missing=_ADMIN),
    BatchOption("switches", missing="topology constraints say more; see docs"),
    BatchOption("test-only", values="none", missing="--dry-run prints the objects"),
    BatchOption("thread-spec", missing=_BINDING),
    BatchOption("threads-per-core", missing=_BINDING),
    BatchOption("tmp", missing=_ADMIN),
    BatchOption("tres-bind", missing=_BINDING),
    BatchOption("tres-per-task", missing="ask for --gpus-per-task and --cpus-per-task"),
    BatchOption("uid", missing=_ADMIN),
    BatchOption("use-min-nodes", values="none", missing=_ADMIN),
    BatchOption("wait", "W", "none", "follow the job with `gangsched logs -f`"),
    BatchOption("wait-all-nodes", missing="all nodes of a job start together"),
    BatchOption("wckey", missing=_ACCOUNTING),
)
OPTIONS: dict[str, BatchOption] = {option.name: option for option in (*_SUPPORTED, *_UNSUPPORTED)}
_SHORT = {option.short: option for option in OPTIONS.values() if option.short}

Given = list[tuple[str, str]]
"""Names and values of options, as they are given; "" for an option without value."""


def read_options(words: Sequence[str], where: str) -> tuple[Given, list[str]]:
    """Return the options at the beginning of the words, and the words after them.

    As sbatch does, a unique beginning of a long name is enough, a value stands after `=` or in the
    next word, that of a short option also in the same word. `--` ends the options.

    Raises:
        ConfigError: an option is unknown, ambiguous, or has no value; `where` begins the sentence.

    """
    given: Given = []
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = _long(name, where)
            if option.values == "none" and equals:
                raise ConfigError(f"{where}: --{option.name} takes no value, not {value!r}")
            if option.values == "one" and not equals:
                value = _next(left, f"--{option.name}", where)
            given.append((option.name, value))
            continue
        letters = word[1:]
        while letters:
            short = _SHORT.get(letters[0])
            if short is None:
                raise ConfigError(f"{where}: there is no option -{letters[0]}")
            letters = letters[1:]
            value = ""
            if short.values == "one":
                value = letters.removeprefix("=") or _next(left, f"-{short.short}", where)
                letters = ""
            elif short.values == "may":
                value, letters = letters.removeprefix("="), ""
            given.append((short.name, value))
    return given, left


def _long(name: str, where: str) -> BatchOption:
    exact = OPTIONS.get(name)
    if exact is not None:
        return exact
    near = [option for option in OPTIONS.values() if name and option.name.startswith(name)]
    if not near:
        raise ConfigError(f"{where}: there is no option --{name}")
    if len(near) > 1:
        names = ", ".join(f"--{option.name}" for option in near[:4])
        raise ConfigError(f"{where}: --{name} may mean {names}")
    return near[0]


def _next(left: list[str], option: str, where: str) -> str:
    if not left:
        raise ConfigError(f"{where}: {option} needs a value")
    return left.pop(0)


def unsupported(given: Iterable[tuple[str, str]], ignored: Iterable[str]) -> list[str]:
    """Return a clause for each option that is not supported, unless it is ignored."""
    skip = set(ignored)
    names = dict.fromkeys(name for name, _ in given if OPTIONS[name].missing and name not in skip)
    return [f"--{name}: {OPTIONS[name].missing}" for name in names]
