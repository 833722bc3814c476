"""Pods of a hostile tenant, with requests from small to absurd."""

import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
NODES = tuple(f"n{index}" for index in range(8))
LEVELS = ("dc", "rack", "host", "kubernetes.io/hostname", "tier-1", "tier-9", "nowhere", "")

SMALL, LARGE, ABSURD = 0, 1, 2
"""The scales of an object; the API server's own limits bound the last."""

_COUNTS = ((1, 1, 2, 3), (1, 2, 8, 30, 64), (1, 64, 500, 2_000, 8_192))
_LENGTHS = (8, 250, 100_000)
_AMOUNTS = (
    ("1", "2", "8"),
    ("0", "1m", "64", "1e3", "500Gi", "0.001"),
    ("1Pi", "1125899906842624", "1125899906842625", "8Ei", "9223372036854775807", "1e18"),
)
_GPUS = (("0", "1", "2"), ("8", "9", "64"), ("1000000", "1125899906842624", "9223372036854775807"))


def count(rng: random.Random, scale: int) -> int:
    """Return a number of objects."""
    return rng.choice(_COUNTS[scale])


def text(rng: random.Random, scale: int) -> str:
    """Return a text of letters, up to 100 KB."""
    return rng.choice("abx") * rng.choice(_LENGTHS[: scale + 1])


def random_label(rng: random.Random) -> str:
    """Return a value that a label may have."""
    return rng.choice(("", "a", "2", "x", "100000", "-".join("ab" * 15)[:63].strip("-"), "9" * 63))


def pod_spec(rng: random.Random, scale: int, scheduler: str = "gangsched") -> Json:
    """Return the spec of a pod with one or two extreme fields."""
    spec: Json = {
        "schedulerName": scheduler,
        "containers": [_container(0, {"cpu": "1", "memory": "1Gi"})],
    }
    for change in rng.sample(_CHANGES, rng.choice((0, 1, 1, 2))):
        change(spec, rng, scale)
    return spec


def _container(index: int, requests: Json, **more: Any) -> Json:
    # Extended resources have a limit, which is what is requested.
    limits = {name: value for name, value in requests.items() if "/" in name}
    resources = {"requests": requests, "limits": limits}
    return {"name": f"c{index}", "image": "none", "resources": resources, **more}


def _gpus(spec: Json, rng: random.Random, scale: int) -> None:
    requests = {"cpu": "1", GPU: rng.choice(_GPUS[rng.randint(0, scale)])}
    spec["containers"] = [_container(0, requests)]


def _amounts(spec: Json, rng: random.Random, scale: int) -> None:
    names = rng.sample(("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"), 2)
    requests = {name: rng.choice(_AMOUNTS[scale]) for name in names}
    spec["containers"] = [_container(index, requests) for index in range(count(rng, scale))]


def _sums(spec: Json, rng: random.Random, scale: int) -> None:
    """Return amounts that each fit a node, while their sum does not."""
    requests = {rng.choice(("memory", "cpu", "a.b/c")): "1Pi"}
    many = [_container(index, requests) for index in range(count(rng, scale))]
    if rng.random() < 0.3:
        policy = {"restartPolicy": "Always"} if rng.random() < 0.5 else {}
        spec["initContainers"] = [one | policy for one in many]
    else:
        spec["containers"] = many


def _names(spec: Json, rng: random.Random, scale: int) -> None:
    stem = rng.choice(("a.b", "nvidia.com", "x" * 60 + ".y"))
    first = rng.randrange(1000)
    requests = {f"{stem}/r{first + index:x}": "1" for index in range(count(rng, scale))}
    spec["containers"] = [_container(0, requests)]


def _selector(spec: Json, rng: random.Random, scale: int) -> None:
    first = rng.randrange(1000)
    keys = count(rng, scale) * (5 if scale == ABSURD and rng.random() < 0.3 else 1)
    spec["nodeSelector"] = {f"k{first + index:x}": "1" for index in range(keys)}


def _hostname(spec: Json, rng: random.Random, scale: int) -> None:
    spec["nodeSelector"] = {"kubernetes.io/hostname": rng.choice(NODES)}


def _affinity(spec: Json, rng: random.Random, scale: int) -> None:
    """Return expressions in terms, many or long."""

    def expression(index: int) -> Json:
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        one: Json = {"key": f"k{index:x}", "operator": operator}
        if operator in ("In", "NotIn"):
            one["values"] = [f"v{value}" for value in range(count(rng, min(scale, LARGE)))]
        elif operator in ("Gt", "Lt"):
            one["values"] = [rng.choice(("1", "-1", "9223372036854775807"))]
        return one

    expressions = [expression(index) for index in range(min(count(rng, scale), 1_000))]
    terms = [{"matchExpressions": expressions} for _ in range(rng.choice((1, 1, 2, 20)))]
    wish = {"weight": 100, "preference": terms[0]}
    affinity: Json = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
    }
    if rng.random() < 0.5:
        many = [wish for _ in range(count(rng, min(scale, LARGE)))]
        affinity = {"preferredDuringSchedulingIgnoredDuringExecution": many}
    spec["affinity"] = {"nodeAffinity": affinity}


def _tolerations(spec: Json, rng: random.Random, scale: int) -> None:
    spec["tolerations"] = [
        {"key": f"t{index}", "operator": "Exists"} for index in range(count(rng, scale))
    ]


def _ports(spec: Json, rng: random.Random, scale: int) -> None:
    first = rng.randrange(1, 50_000)
    ports = [
        {"containerPort": 80, "hostPort": first + index, "protocol": "TCP"}
        for index in range(count(rng, scale))
    ]
    spec["containers"][0]["ports"] = ports


def _beyond(spec: Json, rng: random.Random, scale: int) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    spec["volumes"] = [{"name": f"v{index}", **volume} for index in range(count(rng, scale))]


def _environment(spec: Json, rng: random.Random, scale: int) -> None:
    spec["containers"][0]["env"] = [{"name": "E", "value": text(rng, scale)}]


def _gates(spec: Json, rng: random.Random, scale: int) -> None:
    spec["schedulingGates"] = [{"name": rng.choice(("gangsched.io/gang", "a.b/mine"))}]


_CHANGES: tuple[Callable[[Json, random.Random, int], None], ...] = (
    _gpus,
    _gpus,
    _amounts,
    _sums,
    _names,
    _selector,
    _hostname,
    _affinity,
    _tolerations,
    _ports,
    _beyond,
    _environment,
    _gates,
)


def distinct_spec(index: int) -> Json:
    """Return a spec that differs from every other one, and fits any node."""
    return {
        "schedulerName": "gangsched",
        "containers": [_container(0, {"cpu": f"{1 + index}m", "memory": f"{1 + index}Mi"})],
    }
