"""Others' values in our sentences: long ones are cut in their middle, so that the rest is read."""

import reprlib

_LETTERS = 60


def _clipping() -> reprlib.Repr:
    found = reprlib.Repr()
    found.maxstring = found.maxother = found.maxlong = _LETTERS
    return found


shown = _clipping().repr
"""`repr` of at most some sixty letters (an annotation may have 256 thousand)."""
