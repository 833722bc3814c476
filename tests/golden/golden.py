"""Golden files: outputs that are compared byte for byte with checked-in files.

`GOLDEN=write` (make golden) writes them in place of comparing; look at the difference before it is
committed. `GOLDEN=record` records the journals again, too.
"""

import gzip
import os
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gangsched.recording.wire import ADDED

DATA = Path(__file__).parent / "data"
MODE = os.environ.get("GOLDEN", "")
_SHOWN = 600


def stored(name: str) -> str:
    """Return the text of a golden file."""
    raw = (DATA / name).read_bytes()
    return (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()


def store(name: str, text: str) -> None:
    """Write a golden file; the same text gives the same bytes."""
    raw = text.encode()
    (DATA / name).write_bytes(gzip.compress(raw, 9, mtime=0) if name.endswith(".gz") else raw)


def agrees(name: str, text: str) -> None:
    """Compare a text with its golden file, or write that."""
    if MODE:
        if not (DATA / name).exists() or stored(name) != text:
            store(name, text)
        return
    wanted = stored(name)
    if text == wanted:
        return
    lines = zip_longest(wanted.splitlines(), text.splitlines())
    number, before, after = next(
        ((number, *pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1]),
        (0, "(the ends of lines differ)", ""),
    )
    raise AssertionError(
        f"{name}, line {number} differs; `make golden` writes the file, if that is meant\n"
        f"  golden: {_short(before)}\n  now:    {_short(after)}"
    )


def _short(line: str | None) -> str:
    text = "(no such line)" if line is None else line
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def plain(value: Any) -> Any:
    """Return JSON values in which objects are lists of their fields' values, without names."""
    if is_dataclass(value) and not isinstance(value, type):
        later = ADDED.get(type(value), {})
        shown = (one.name for one in fields(value) if not one.name.startswith("_"))
        values = ((name, getattr(value, name)) for name in shown)
        return [plain(part) for name, part in values if name not in later or part != later[name]]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(one) for one in value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
