"""Makes invalid documents from valid ones by seed: lost fields, hostile values, flipped bytes.

What grows stays an object that an API server takes: lists and mappings of thousands, long texts,
deep nesting, large numbers, and amounts whose sum is larger still.
"""

import copy
import json
import random
import re
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    10**40,
    1e308,
    -0.5,
    "",
    " ",
    "-1",
    "1e400",
    "9" * 25,
    "9" * 400,
    "9" * 5_000,
    "tier-" + "9" * 5_000,
    "[" * 5_000,
    '[{"level": "rack", "topology": "rack", "size": 1e999}]',
    "NaN",
    "\u0000",
    "é" * 300,
    "../../etc/passwd",
    "x" * 10_000,
    "2026-13-45T99:99:99Z",
    "10Gi5",
    "a/b/c",
    [],
    {},
    [[[[[[[]]]]]]],
    [None],
    [{}],
    {"": ""},
    {"a": {"b": {"c": {}}}},
)


OBJECT_BYTES = 1_500_000
"""What etcd takes in one request."""

SIZED = 0.08
"""The share of large inputs where few are tried: each takes as long as many small ones."""

_COUNTS = (9, 64, 65, 500, 2_000, 8_192, 20_000)
_LENGTHS = (64, 254, 1_001, 5_000, 100_000, 1_000_000)
_NUMBERS = (64, 100_000, 2**31 - 1, 2**50, 2**50 + 1, 2**62, 2**63 - 1, -(2**63), 1e308, 1e-300)
_AMOUNTS = ("1Pi", "1125899906842624", "8Ei", "9223372036854775807", "0.000000001", "1e18", "1m")
_AROUND = (
    ("(", ")"),
    ("(", ")+"),
    ("[@this,", "]"),
    ("${trialSpec.", "}"),
    ("../", ""),
    ("a|", ""),
    ("[", "]"),
)


def bad(document: Any, rng: random.Random, *, free: bool, sized: float = SIZED) -> bytes:
    """Return a document with faults: text, JSON of anybody (`free`) or an object of the API.

    A share of them, `sized`, are whole but large.
    """
    if not isinstance(document, str) and rng.random() < sized:
        return large(document, rng)
    if isinstance(document, str):
        return mutated_text(document, rng)
    return mutated(document, rng) if free else mutated_object(document, rng)


def mutated(document: Any, rng: random.Random, *, torn: bool = True) -> bytes:
    """Return a document with one to four faults, as bytes; if `torn`, those now and then break."""
    made = copy.deepcopy(document)
    for _ in range(rng.randrange(1, 5)):
        made = _change(made, rng)
    raw = bytearray(json.dumps(made).encode())
    if torn and rng.random() < 0.05:
        for _ in range(rng.randrange(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def mutated_text(text: str, rng: random.Random) -> bytes:
    """Return lines of cells with one to four faults, as bytes that now and then break or end."""
    lines = text.splitlines()
    for _ in range(rng.randrange(1, 5)):
        if not lines:
            break
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines.insert(at, lines[at])
            case 1:
                del lines[at]
            case _:
                cells = re.split(r"([,|\t ]+)", lines[at])
                cells[rng.randrange(0, len(cells), 2)] = str(rng.choice(HOSTILE))
                lines[at] = "".join(cells)
    raw = bytearray("\n".join(lines).encode() + b"\n")
    if rng.random() < 0.1:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.1 else raw)


def mutated_object(document: dict[str, Any], rng: random.Random) -> bytes:
    """Return an object of the API with faults: it is JSON, and its metadata has the right types."""
    rest = {key: value for key, value in document.items() if key != "metadata"}
    made = json.loads(mutated(rest, rng, torn=False))
    body = made if isinstance(made, dict) else {}
    for key in ("spec", "status"):  # every kind says so much of itself
        if not isinstance(body.get(key, {}), dict):
            del body[key]
    metadata = copy.deepcopy(document["metadata"])
    for key in ("labels", "annotations"):
        for name in metadata.get(key) or {}:
            if rng.random() < 0.2:
                metadata[key][name] = str(rng.choice(HOSTILE))
    return json.dumps({**body, "metadata": metadata}).encode()


# -- sizes ---------------------------------------------------------------------------------------


def large(document: dict[str, Any], rng: random.Random) -> bytes:
    """Return a document in which up to three things have grown, as far as an API server takes."""
    metadata = dict(document.get("metadata") or {})
    rest = {key: value for key, value in document.items() if key != "metadata"}
    if metadata and (not rest or rng.random() < 0.2):
        said = metadata.get("annotations") or {"a.b/c": ""}
        metadata["annotations"] = _many(said, rng) if rng.random() < 0.5 else _long(said, rng)
    raw = json.dumps(rest)
    for _ in range(rng.choice((1, 1, 2, 3)) if rest else 0):
        larger = json.dumps(_grow(json.loads(raw), rng))
        if len(larger) > OBJECT_BYTES:
            break
        raw = larger
    whole = json.loads(raw)
    return json.dumps(whole | {"metadata": metadata} if metadata else whole).encode()


def _grow(value: Any, rng: random.Random) -> Any:
    """Have something grow somewhere in a value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        value[key] = _grow(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        value[at] = _grow(value[at], rng)
        return value
    match value:
        case dict() if value:
            return _many(value, rng)
        case list() if value:
            return [_another(value[-1], number) for number in range(_times(value[-1], rng))]
        case str() if rng.random() < 0.3:
            return rng.choice(_AMOUNTS)
        case str() if rng.random() < 0.4:
            before, after = rng.choice(_AROUND)
            times = _times(value + before, rng)
            return before * times + value + after * times
        case str():
            return _longer(value, rng)
        case bool() | None:
            return value
        case int() | float():
            return rng.choice(_NUMBERS)
        case _:
            return [value] * _times(value, rng)


def _many(values: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a mapping with thousands of entries like one of its own."""
    key = rng.choice(list(values))
    more = _times(values[key], rng)
    return values | {f"{key}{number:x}": _another(values[key], number) for number in range(more)}


def _times(value: Any, rng: random.Random) -> int:
    """Return how often a value is to be there: as often as an object can hold it, at most."""
    return min(rng.choice(_COUNTS), OBJECT_BYTES // (len(json.dumps(value)) + 8))


def _long(said: dict[str, str], rng: random.Random) -> dict[str, str]:
    """Return annotations of which one is long; all together may have 256 KiB."""
    key = rng.choice(list(said))
    return said | {key: _longer(said[key], rng)[:200_000]}


def _longer(text: str, rng: random.Random) -> str:
    length = rng.choice(_LENGTHS)
    return ((text or "x") * (length // len(text or "x") + 1))[:length]


def _another(value: Any, number: int) -> Any:
    """Return a copy that has another name, or another amount."""
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {**value, "name": f"{value['name']}{number}"}
    return value


# -- faults --------------------------------------------------------------------------------------


def _change(value: Any, rng: random.Random) -> Any:
    """Change something somewhere in a value: the deeper, the likelier."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                del value[key]
            case 1:
                value[key] = copy.deepcopy(rng.choice(HOSTILE))
            case 2:
                value[rng.choice(("", "x" * 300, "spec", "status", "metadata"))] = value[key]
            case _:
                value[key] = _change(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        match rng.randrange(6):
            case 0:
                value.extend(copy.deepcopy(value[at]) for _ in range(rng.choice((1, 40))))
            case 1:
                del value[at]
            case _:
                value[at] = _change(value[at], rng)
        return value
    return copy.deepcopy(rng.choice(HOSTILE))
