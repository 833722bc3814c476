"""The plan of one run, made from its seed: gangs that are created and deleted, and faults."""

import random
from dataclasses import dataclass
from typing import Literal

Binding = Literal["direct", "extender"]
Kind = Literal["kill", "stop", "network", "node", "clock"]

FAULTS_S = 20.0
"""How long gangs are created and faults last; then everything has to recover."""

NODES, GPUS = 4, 8

_GANGS = 12
_LINE = 3
_FAULTS = 6
_SIZES = (1, 1, 2, 2, 3, 4)
_PER_POD = (1, 2, 4)
_JUMPS_S = (-86_400.0, -3_600.0, -45.0, 45.0, 3_600.0, 86_400.0)

SCHEDULERS = ("gangsched", "gangsched-standby")
EXTENDED = "kube-scheduler-gangsched"
"""The kube-scheduler that calls our extender."""

_CONTROL_PLANE = ("kube-apiserver", "etcd", "kube-controller-manager")


def components(binding: Binding) -> tuple[str, ...]:
    """Return the components that reach the API server through a proxy."""
    return SCHEDULERS if binding == "direct" else (*SCHEDULERS, EXTENDED)


def processes(binding: Binding) -> tuple[str, ...]:
    """Return the processes that may be killed."""
    return (*components(binding), *_CONTROL_PLANE)


@dataclass(frozen=True, slots=True)
class ChaosGang:
    """A gang that is created at `at_s`, and deleted at `leaves_s` unless that is None.

    A `job` is a PyTorchJob of our controller. Else a user creates the pods and the PodGroup, and
    creates pods again that are lost with a node.
    """

    name: str
    at_s: float
    pods: int
    gpus: int
    job: bool
    leaves_s: float | None


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """The faults of a connection; `errors`, `lost` and `cuts` are shares of requests or chunks.

    `late_s` is the longest delay of a request, `lag_s` that of a chunk of a watch. A `lost` request
    is carried out, but its answer is dropped. `cuts` end a watch. In an `outage`, connections are
    refused or hang.
    """

    late_s: float = 0.0
    lag_s: float = 0.0
    errors: float = 0.0
    lost: float = 0.0
    cuts: float = 0.0
    outage: str = ""


NO_FAULTS = NetworkFaults()


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `target` from `at_s` on, for `lasts_s`.

    A process is killed or stopped, the connection of a component has network faults, a node is lost
    with its pods, or the wall clock of a scheduler is off by `jump_s`.
    """

    at_s: float
    lasts_s: float
    kind: Kind
    target: str
    network: NetworkFaults = NO_FAULTS
    jump_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """One run. The gangs of `line` are created after recovery, without free capacity for them."""

    seed: int
    binding: Binding
    gangs: tuple[ChaosGang, ...]
    faults: tuple[Fault, ...]
    line: tuple[ChaosGang, ...]


def plan(seed: int) -> ChaosPlan:
    """Return the plan of a seed; odd seeds bind through kube-scheduler and the extender."""
    rng = random.Random(seed)  # noqa: S311
    binding: Binding = "extender" if seed % 2 else "direct"
    gangs = tuple(
        ChaosGang(
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
    return ChaosPlan(
        seed, binding, gangs, tuple(sorted(faults, key=lambda fault: fault.at_s)), _line(rng)
    )


def _line(rng: random.Random) -> tuple[ChaosGang, ...]:
    """Return gangs that each need the whole cluster, after one that uses a part of it."""
    names = rng.sample("abcdefgh", _LINE)
    first = ChaosGang("first", 0.0, 1, 1, job=False, leaves_s=None)
    return first, *(
        ChaosGang(f"line-{name}", 0.0, NODES, GPUS, job=rng.random() < 0.5, leaves_s=None)
        for name in names
    )


def _fault(rng: random.Random, binding: Binding) -> Fault:
    at_s = round(rng.uniform(0.0, FAULTS_S - 2.0), 2)
    kinds: tuple[Kind, ...] = ("kill", "kill", "stop", "network", "network", "network")
    kind = rng.choice((*kinds, "node", "clock"))
    if kind == "kill":
        return Fault(at_s, round(rng.uniform(0.0, 3.0), 2), kind, rng.choice(processes(binding)))
    lasts_s = round(min(rng.uniform(1.0, 12.0), FAULTS_S - at_s), 2)
    if kind == "node":
        return Fault(at_s, lasts_s, kind, f"n-{rng.randrange(NODES)}")
    if kind == "clock":
        jump_s = rng.choice(_JUMPS_S)
        return Fault(at_s, lasts_s, kind, rng.choice(SCHEDULERS), jump_s=jump_s)
    target = rng.choice(components(binding))
    if kind == "stop":
        return Fault(at_s, lasts_s, kind, target)
    network_faults = (
        NetworkFaults(late_s=rng.uniform(0.1, 2.0)),
        NetworkFaults(lag_s=rng.uniform(0.5, 4.0)),
        NetworkFaults(errors=rng.uniform(0.1, 0.7)),
        NetworkFaults(lost=rng.uniform(0.05, 0.4)),
        NetworkFaults(cuts=rng.uniform(0.1, 0.9)),
        NetworkFaults(outage="refuses"),
        NetworkFaults(outage="hangs"),
    )
    return Fault(at_s, lasts_s, kind, target, rng.choice(network_faults))
