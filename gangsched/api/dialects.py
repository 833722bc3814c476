"""Placement requests in the annotations of gangsched and other schedulers, as PodGroup fields.

Each dialect is a function from annotations, or from a part of another scheduler's object, to
claims. A claim is a field of our spec, its value, and the key that has the value. Two claims with
different values for one field are an error that names both keys.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gangsched.api import names
from gangsched.api.start_conditions import read_dependencies, read_series
from gangsched.core.model.text import WHOLE_MAX, shown, whole

Fields = dict[str, Any]
Claim = tuple[str, Any, str]
"""Field of our spec (dotted), value, and the key that has the value."""


class DialectError(Exception):
    """A request is malformed; the message is the whole sentence."""


OURS = f"{names.GROUP}/"
KUEUE = "kueue.x-k8s.io/"
KAI = "kai.scheduler/"
VOLCANO = "volcano.sh/"
_ADMITTED = (f"{KUEUE}podset", f"{KUEUE}managed")
"""Labels that Kueue writes: into the templates of a job as it starts it, and on pods it manages."""

JOBSET = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def from_annotations(annotations: Mapping[str, str], subject: str) -> Fields:
    """Translate every dialect found in annotations into fields of our PodGroup's spec.

    Raises:
        DialectError: a value is malformed, or two dialects contradict each other.

    """
    claims: list[Claim] = []
    for dialect in (_ours, _kueue, _kai, _volcano, _jobset, _queueing):
        claims.extend(dialect(annotations, subject))
    return settle(claims, subject)


def admitted_elsewhere(*pods: Mapping[str, str] | None) -> bool:
    """Return whether labels of pods or templates show that a running Kueue admitted them."""
    return any(key in labels for labels in pods for key in _ADMITTED if labels)


def queue_of(*keys: Mapping[str, str], admitted: bool = False) -> str | None:
    """Return the queue that labels or annotations name; keys of gangsched.io have precedence.

    If Kueue `admitted` an object, its label names a queue of Kueue, and is ignored.
    """
    for key in names.QUEUE_LABELS:
        if admitted and key.startswith(KUEUE):
            continue
        for values in keys:
            if values.get(key):
                return values[key]
    return None


def from_kai(constraint: Mapping[str, Any], subject: str) -> Fields:
    """Translate topologyConstraint of scheduling.run.ai/v2alpha2."""
    pairs = {
        "topology.name": "topology",
        "topology.required": "requiredTopologyLevel",
        "topology.preferred": "preferredTopologyLevel",
    }
    return settle(
        [
            (field, constraint[key], f"topologyConstraint.{key}")
            for field, key in pairs.items()
            if constraint.get(key)
        ],
        subject,
    )


def from_volcano(constraint: Mapping[str, Any], subject: str) -> Fields:
    """Translate networkTopology of scheduling.volcano.sh/v1beta1; tier 1 is the finest level."""
    field = (
        "topology.required" if constraint.get("mode", "hard") == "hard" else "topology.preferred"
    )
    level = constraint.get("highestTierName")
    if level is None and constraint.get("highestTierAllowed") is not None:
        level = f"tier-{constraint['highestTierAllowed']}"
    return settle([(field, level, "networkTopology")] if level else [], subject)


def from_upstream(constraints: Mapping[str, Any], subject: str) -> Fields:
    """Translate schedulingConstraints of scheduling.k8s.io: exactly one required key."""
    keys = [constraint["key"] for constraint in constraints.get("topology", [])]
    if len(keys) > 1:
        raise DialectError(f"{subject}: schedulingConstraints.topology has {len(keys)} keys, not 1")
    return settle(
        [("topology.required", key, "schedulingConstraints.topology") for key in keys], subject
    )


def merge(spec: Mapping[str, Any], annotated: Fields, subject: str) -> Fields:
    """Return a spec with the fields of annotations added.

    Raises:
        DialectError: the spec has another value for a field.

    """
    claims = [(field, value, "spec") for field, value in _flat(spec, annotated)]
    claims += [(field, value, "an annotation") for field, value in _flat(annotated, annotated)]
    return {**spec, **settle(claims, subject, onto=spec)}


def settle(claims: Iterable[Claim], subject: str, onto: Mapping[str, Any] | None = None) -> Fields:
    """Return the fields of claims; nested fields are added to the objects of `onto`.

    Raises:
        DialectError: two claims have different values for a field.

    """
    first_claims: dict[str, tuple[Any, str]] = {}
    for field, value, key in claims:
        known = first_claims.setdefault(field, (value, key))
        if known[0] != value:
            raise DialectError(
                f"{subject}: {known[1]} asks for {field} {shown(known[0])}, and {key} for "
                f"{shown(value)}; they must agree"
            )
    settled: Fields = {}
    for field, (value, _) in first_claims.items():
        head, _, rest = field.partition(".")
        if rest:
            base = (onto or {}).get(head) or {}
            if not isinstance(base, Mapping):
                raise DialectError(f"{subject}: spec.{head} is {shown(base)}; it must be an object")
            settled.setdefault(head, dict(base))[rest] = value
        else:
            settled[head] = value
    return settled


def _flat(values: Mapping[str, Any], like: Fields) -> Iterator[tuple[str, Any]]:
    """Yield the dotted fields of `values` that `like` has too."""
    for head, wanted in like.items():
        here = values.get(head)
        if isinstance(wanted, dict):
            for field in wanted:
                if isinstance(here, Mapping) and here.get(field) not in (None, [], ""):
                    yield f"{head}.{field}", here[field]
        elif here not in (None, [], ""):
            yield head, here


# -- dialects ------------------------------------------------------------------------------------


def _ours(annotations: Mapping[str, str], subject: str) -> Iterator[Claim]:
    for name, (field, reader) in _OURS.items():
        key = OURS + name
        if key in annotations:
            yield field, reader(annotations[key], f"{subject}: annotation {key}"), key


def _kueue(annotations: Mapping[str, str], subject: str) -> Iterator[Claim]:
    """Kueue's topology-aware scheduling (KEP-2724)."""
    for name in ("required", "preferred"):
        key = f"{KUEUE}podset-{name}-topology"
        if key in annotations:
            yield f"topology.{name}", annotations[key], key
    level, size = f"{KUEUE}podset-slice-required-topology", f"{KUEUE}podset-slice-size"
    if level in annotations or size in annotations:
        yield _pair(annotations, level, size, subject)
    layers = f"{KUEUE}podset-slice-required-topology-constraints"
    if layers in annotations:
        where = f"{subject}: annotation {layers}"
        slices = _slices(annotations[layers], where, level="topology")
        yield "topology.slices", slices, layers


def _kai(annotations: Mapping[str, str], subject: str) -> Iterator[Claim]:
    pairs = {
        "topology": "topology.name",
        "topology-required-placement": "topology.required",
        "topology-preferred-placement": "topology.preferred",
    }
    for name, field in pairs.items():
        if KAI + name in annotations:
            yield field, annotations[KAI + name], KAI + name
    level, size = f"{KAI}segment-topology-required-placement", f"{KAI}segment-size"
    if level in annotations:
        yield _pair(annotations, level, size, subject)


def _volcano(annotations: Mapping[str, str], subject: str) -> Iterator[Claim]:
    mode, tier = f"{VOLCANO}network-topology-mode", f"{VOLCANO}network-topology-highest-tier"
    if mode not in annotations and tier not in annotations:
        return
    strictness = annotations.get(mode, "hard")
    if strictness not in ("hard", "soft"):
        raise DialectError(
            f"{subject}: annotation {mode} is {shown(strictness)}; it must be hard or soft"
        )
    if tier in annotations:
        number = _number(annotations[tier], f"{subject}: annotation {tier}")
        yield (
            f"topology.{'required' if strictness == 'hard' else 'preferred'}",
            f"tier-{number}",
            tier,
        )


def _jobset(annotations: Mapping[str, str], subject: str) -> Iterator[Claim]:
    if JOBSET in annotations:
        yield "topology.required", annotations[JOBSET], JOBSET
        yield "topology.exclusive", annotations[JOBSET], JOBSET


def _queueing(annotations: Mapping[str, str], subject: str) -> Iterator[Claim]:
    """Run time limit and preemptibility, in the annotations of Kueue, KAI and Volcano."""
    key = f"{KUEUE}max-exec-time-seconds"
    if key in annotations:
        yield "maxRuntimeSeconds", _number(annotations[key], f"{subject}: {key}"), key
    key = f"{KAI}preemptibility"
    if key in annotations:
        preemptibility = annotations[key]
        if preemptibility not in ("preemptible", "non-preemptible"):
            raise DialectError(
                f"{subject}: {key} is {shown(preemptibility)}; it must be preemptible or "
                f"non-preemptible"
            )
        yield "preemptible", preemptibility == "preemptible", key
    key = f"{VOLCANO}preemptable"
    if key in annotations:
        yield "preemptible", _flag(annotations[key], f"{subject}: {key}"), key


def _pair(annotations: Mapping[str, str], level: str, size: str, subject: str) -> Claim:
    for key, other in ((level, size), (size, level)):
        if key not in annotations:
            raise DialectError(f"{subject}: annotation {other} needs {key} beside it")
    number = _number(annotations[size], f"{subject}: annotation {size}")
    return "topology.slices", [{"level": annotations[level], "size": number}], level


# -- values --------------------------------------------------------------------------------------


def _text(value: str, where: str) -> str:
    if not value:
        raise DialectError(f"{where} is empty")
    return value


def _list(value: str, where: str) -> list[str]:
    parts = [part.strip() for part in value.split(",")]
    if not all(parts):
        raise DialectError(f"{where} is {shown(value)}; it must be names with commas between")
    return parts


def _number(value: str, where: str) -> int:
    number = whole(value)
    if not number:
        raise DialectError(
            f"{where} is {shown(value)}; it must be a whole number from 1 to {WHOLE_MAX}"
        )
    return number


def _flag(value: str, where: str) -> bool:
    if value not in ("true", "false"):
        raise DialectError(f"{where} is {shown(value)}; it must be true or false")
    return value == "true"


def _spread(value: str, where: str) -> list[Fields]:
    spreads = []
    for part in _list(value, where):
        level, _, most = part.partition("=")
        spreads.append({"level": level, "maxPods": _number(most, f"{where}: {level}")})
    return spreads


def _slices(value: str, where: str, level: str = "level") -> list[Fields]:
    example = json.dumps([{level: "rack", "size": 4}])
    try:
        layers = json.loads(value)
        return [{"level": str(layer[level]), "size": int(layer["size"])} for layer in layers]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DialectError(
            f"{where} is {shown(value)}; it must be JSON such as {example}"
        ) from error


def _dependencies(value: str, where: str) -> list[Fields]:
    try:
        return read_dependencies(value, where)
    except ValueError as error:
        raise DialectError(str(error)) from error


def _series(value: str, where: str) -> Fields:
    try:
        return read_series(value, where)
    except ValueError as error:
        raise DialectError(str(error)) from error


_OURS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "topology": ("topology.name", _text),
    "topology-required": ("topology.required", _text),
    "topology-preferred": ("topology.preferred", _text),
    "slices": ("topology.slices", _slices),
    "fabric-required": ("topology.requiredFabric", _text),
    "fabric-preferred": ("topology.preferredFabric", _text),
    "spread": ("topology.spread", _spread),
    "exclusive-topology": ("topology.exclusive", _text),
    "gpu-kinds": ("gpuKinds", _list),
    "avoid-nodes": ("avoidNodes", _list),
    "movable": ("movable", _flag),
    "min-runtime-seconds": ("minRuntimeSeconds", _number),
    "checkpoint-at": ("checkpointAt", _text),
    "checkpoint-grace-seconds": ("checkpointGraceSeconds", _number),
    "expected-runtime-seconds": ("expectedRuntimeSeconds", _number),
    "max-runtime-seconds": ("maxRuntimeSeconds", _number),
    "ready-timeout-seconds": ("readyTimeoutSeconds", _number),
    "preemptible": ("preemptible", _flag),
    "schedule-timeout-seconds": ("scheduleTimeoutSeconds", _number),
    "after": ("dependencies", _dependencies),
    "series": ("series", _series),
    "max-price-per-hour": ("maxPricePerHour", _number),
    "max-wait-seconds": ("maxWaitSeconds", _number),
}

KEYS = frozenset(
    {
        *(OURS + name for name in _OURS),
        *(f"{KUEUE}podset-{name}" for name in ("required-topology", "preferred-topology")),
        f"{KUEUE}podset-slice-required-topology",
        f"{KUEUE}podset-slice-size",
        f"{KUEUE}podset-slice-required-topology-constraints",
        f"{KAI}topology",
        f"{KAI}topology-required-placement",
        f"{KAI}topology-preferred-placement",
        f"{KAI}segment-size",
        f"{KAI}segment-topology-required-placement",
        f"{VOLCANO}network-topology-mode",
        f"{VOLCANO}network-topology-highest-tier",
        JOBSET,
        f"{KUEUE}max-exec-time-seconds",
        f"{KAI}preemptibility",
        f"{VOLCANO}preemptable",
    }
)
"""All annotations of dialects, for a quick check whether a pod has any."""
