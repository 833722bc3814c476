"""What happens in one run, decided by its seed before it begins: gangs that come and go, faults."""

import random
from dataclasses import dataclass
from typing import Literal

Binding = Literal["direct", "extender"]
Kind = Literal["kill", "stop", "weather", "node", "clock"]

FAULTS_S = 20.0
"""How long gangs come and faults happen; then everything is mended, and has to recover."""

NODES, GPUS = 4, 8

_GANGS = 12
_LINE = 3
_FAULTS = 6
_SIZES = (1, 1, 2, 2, 3, 4)
_PER_POD = (1, 2, 4)
_JUMPS_S = (-86_400.0, -3_600.0, -45.0, 45.0, 3_600.0, 86_400.0)

SCHEDULERS = ("gangsched", "gangsched-standby")
EXTENDED = "kube-scheduler-gangsched"
"""The kube-scheduler that asks our extender."""

_CONTROL_PLANE = ("kube-apiserver", "etcd", "kube-controller-manager")


def components(binding: Binding) -> tuple[str, ...]:
    """Return who reaches the API server by a proxy."""
    return SCHEDULERS if binding == "direct" else (*SCHEDULERS, EXTENDED)


def processes(binding: Binding) -> tuple[str, ...]:
    """Return what may be killed."""
    return (*components(binding), *_CONTROL_PLANE)


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that is created `at_s`; one that `leaves_s` is deleted then, or as it was created.

    A `job` is a PyTorchJob, run by our controller; else its pods and PodGroup are a user's, who
    puts back what was lost with a node.
    """

    name: str
    at_s: float
    pods: int
    gpus: int
    job: bool
    leaves_s: float | None


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """How a connection behaves; shares are of requests, or of pieces of a watch.

    `late_s` is the longest delay of a request, `lag_s` that of a piece of a watch. What is `lost`
    was done, and its answer is not heard. In the `dark` nothing gets through: connections are
    refused, or hang.
    """

    late_s: float = 0.0
    lag_s: float = 0.0
    errors: float = 0.0
    lost: float = 0.0
    cuts: float = 0.0
    dark: str = ""


FAIR = NetworkFaults()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong from `at_s` for `lasts_s`, and whose it is.

    A process is killed, or stopped; a component's connection has bad weather; a node is lost with
    its pods; a scheduler's wall clock is off by `jump_s`.
    """

    at_s: float
    lasts_s: float
    kind: Kind
    who: str
    weather: NetworkFaults = FAIR
    jump_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Those of the `line` come once it has recovered; there is room for none of them."""

    seed: int
    binding: Binding
    gangs: tuple[Gang, ...]
    faults: tuple[Fault, ...]
    line: tuple[Gang, ...]


def plan(seed: int) -> Plan:
    """Return what happens with a seed; odd ones bind through kube-scheduler and the extender."""
    rng = random.Random(seed)  # noqa: S311
    binding: Binding = "extender" if seed % 2 else "direct"
    gangs = tuple(
        Gang(
            f"g{number}",
            round(rng.uniform(0.0, FAULTS_S), 2),
            rng.choice(_SIZES),
            rng.choice(_PER_POD),
            rng.random() < 0.5,
            round(rng.uniform(FAULTS_S / 2, FAULTS_S), 2) if rng.random() < 0.5 else None,
        )
        for number in range(_GANGS)
    )
    faults = tuple(_fault(rng, binding) for _ in range(_FAULTS))
    return Plan(seed, binding, gangs, tuple(sorted(faults, key=lambda one: one.at_s)), _line(rng))


def _line(rng: random.Random) -> tuple[Gang, ...]:
    """Return gangs that each need the whole cluster, behind one that has it in part."""
    names = rng.sample("abcdefgh", _LINE)
    first = Gang("first", 0.0, 1, 1, job=False, leaves_s=None)
    return first, *(
        Gang(f"line-{name}", 0.0, NODES, GPUS, job=rng.random() < 0.5, leaves_s=None)
        for name in names
    )


def _fault(rng: random.Random, binding: Binding) -> Fault:
    at_s = round(rng.uniform(0.0, FAULTS_S - 2.0), 2)
    kinds: tuple[Kind, ...] = ("kill", "kill", "stop", "weather", "weather", "weather")
    kind = rng.choice((*kinds, "node", "clock"))
    if kind == "kill":
        return Fault(at_s, round(rng.uniform(0.0, 3.0), 2), kind, rng.choice(processes(binding)))
    lasts_s = round(min(rng.uniform(1.0, 12.0), FAULTS_S - at_s), 2)
    if kind == "node":
        return Fault(at_s, lasts_s, kind, f"n-{rng.randrange(NODES)}")
    if kind == "clock":
        jump_s = rng.choice(_JUMPS_S)
        return Fault(at_s, lasts_s, kind, rng.choice(SCHEDULERS), jump_s=jump_s)
    who = rng.choice(components(binding))
    if kind == "stop":
        return Fault(at_s, lasts_s, kind, who)
    weathers = (
        NetworkFaults(late_s=rng.uniform(0.1, 2.0)),
        NetworkFaults(lag_s=rng.uniform(0.5, 4.0)),
        NetworkFaults(errors=rng.uniform(0.1, 0.7)),
        NetworkFaults(lost=rng.uniform(0.05, 0.4)),
        NetworkFaults(cuts=rng.uniform(0.1, 0.9)),
        NetworkFaults(dark="refuses"),
        NetworkFaults(dark="hangs"),
    )
    return Fault(at_s, lasts_s, kind, who, rng.choice(weathers))
