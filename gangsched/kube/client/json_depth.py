"""JSON that is nested too deep to be read.

An API server stores what is nested ten thousand levels deep wherever a kind's schema is open, as
templates are; decoders give up after some nine hundred. Such an object must not end a watch.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

DEPTH_MAX = 100
"""Levels that are read; a pod has a dozen."""

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_MARGIN = 64
"""Spare levels for decoders that are called with a deeper stack than here."""

_skim = msgspec.json.Decoder(msgspec.Raw).decode


def decode_bounded(read: Callable[[bytes], _T], raw: bytes) -> _T:
    """Read JSON; a value that is nested too deep is read as null."""
    try:
        return read(raw)
    except RecursionError:
        return read(truncate_depth(raw))


def readable(raw: bytes) -> bytes:
    """Return JSON unchanged if any decoder can read it, else with null for too deep values."""
    try:
        _skim(b"[" * _MARGIN + raw + b"]" * _MARGIN)
    except RecursionError:
        return truncate_depth(raw)
    except msgspec.DecodeError:
        pass  # the caller's decoder reports the error
    return raw


def truncate_depth(raw: bytes) -> bytes:
    """Return JSON with null in place of values that are nested deeper than DEPTH_MAX."""
    kept, depth, since = [], 0, 0
    for token in _STRING_OR_BRACKET.finditer(raw):
        match raw[token.start()]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == DEPTH_MAX + 1:
                    kept += [raw[since : token.start()], b"null"]
            case 0x5D | 0x7D:  # ] }
                if depth == DEPTH_MAX + 1:
                    since = token.end()
                depth -= 1
    return b"".join([*kept, raw[since:]])


def too_deep(value: dict[str, Any] | list[Any]) -> bool:
    """Return whether a decoded value is nested deeper than DEPTH_MAX."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for container in level
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
