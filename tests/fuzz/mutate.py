"""Turns good documents into bad ones, by a seed: fields lost, values hostile, bytes flipped."""

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


def bad(document: Any, rng: random.Random, *, free: bool) -> bytes:
    """Return a document with faults: text, JSON of anybody (`free`) or an object of the API."""
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
