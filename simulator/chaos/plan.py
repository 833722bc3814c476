"""What happens in one run, decided by its seed before it begins: gangs that come and go, faults."""

import random
from dataclasses import dataclass

FAULTS_S = 20.0
"""How long gangs come and faults happen; then everything is mended, and has to recover."""

_GANGS = 12
_FAULTS = 6
_SIZES = (1, 1, 2, 2, 3, 4)
_GPUS = (1, 2, 4)

PROCESSES = ("gangsched", "gangsched-standby", "kube-apiserver", "etcd", "kube-controller-manager")


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that is created `at_s`; one that `leaves_s` is deleted then.

    A `job` is a PyTorchJob, run by our controller; else its pods and PodGroup are a user's.
    """

    name: str
    at_s: float
    pods: int
    gpus: int
    job: bool
    leaves_s: float | None


@dataclass(frozen=True, slots=True)
class Weather:
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


FAIR = Weather()


@dataclass(frozen=True, slots=True)
class Fault:
    """From `at_s` for `lasts_s`: a process is killed or stopped, or a connection's weather is bad.

    `who` is a process, or whose connection it is.
    """

    at_s: float
    lasts_s: float
    kind: str
    who: str
    weather: Weather = FAIR


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    gangs: tuple[Gang, ...]
    faults: tuple[Fault, ...]


def plan(seed: int) -> Plan:
    """Return what happens with a seed."""
    rng = random.Random(seed)  # noqa: S311
    gangs = tuple(
        Gang(
            f"g{number}",
            round(rng.uniform(0.0, FAULTS_S), 2),
            rng.choice(_SIZES),
            rng.choice(_GPUS),
            rng.random() < 0.5,
            round(rng.uniform(FAULTS_S / 2, FAULTS_S), 2) if rng.random() < 0.5 else None,
        )
        for number in range(_GANGS)
    )
    faults = tuple(_fault(rng) for _ in range(_FAULTS))
    return Plan(seed, gangs, tuple(sorted(faults, key=lambda one: one.at_s)))


def _fault(rng: random.Random) -> Fault:
    at_s = round(rng.uniform(0.0, FAULTS_S - 2.0), 2)
    kind = rng.choice(("kill", "stop", "weather", "weather"))
    if kind == "kill":
        return Fault(at_s, round(rng.uniform(0.0, 3.0), 2), kind, rng.choice(PROCESSES))
    lasts_s = round(min(rng.uniform(1.0, 12.0), FAULTS_S - at_s), 2)
    who = rng.choice(PROCESSES[:2])
    if kind == "stop":
        return Fault(at_s, lasts_s, kind, who)
    weathers = (
        Weather(late_s=rng.uniform(0.1, 2.0)),
        Weather(lag_s=rng.uniform(0.5, 4.0)),
        Weather(errors=rng.uniform(0.1, 0.7)),
        Weather(lost=rng.uniform(0.05, 0.4)),
        Weather(cuts=rng.uniform(0.1, 0.9)),
        Weather(dark="refuses"),
        Weather(dark="hangs"),
    )
    return Fault(at_s, lasts_s, kind, who, rng.choice(weathers))
