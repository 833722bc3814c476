"""Texts of others: values as they are shown in our sentences, and numbers in labels."""

import reprlib

_LETTERS = 60


def _clipping() -> reprlib.Repr:
    clipping = reprlib.Repr()
    clipping.maxstring = clipping.maxother = clipping.maxlong = _LETTERS
    return clipping


shown = _clipping().repr
"""`repr` of at most some sixty letters (an annotation may have 256 thousand)."""

WHOLE_MAX = 999_999_999
_DIGITS = 18
"""int() gives up on thousands of them, and plans are made with 64 bits."""


def whole(text: str, most: int = WHOLE_MAX) -> int | None:
    """Return a whole number up to `most`, or None where the text is no such number."""
    number = int(text) if text.isdecimal() and len(text) <= _DIGITS else None
    return number if number is not None and number <= most else None
