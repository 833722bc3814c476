"""Users' regular expressions: RE2's, as in the operators that we take over (Go).

Their time grows with the text alone, where Python's own `re` can be kept busy for ever by a short
one. Their memory is bounded, and so is their length.
"""

from typing import TypeAlias

import re2

from gangsched.core.bounds import EXPRESSION_LETTERS
from gangsched.core.model.text import shown

Pattern: TypeAlias = re2._Regexp  # noqa: SLF001 -- the library has no public name for it

_MEMORY = 2**17
"""Bytes of a compiled expression: RE2 rejects a larger one."""


class ExpressionError(Exception):
    """An expression that cannot be used; the message is the reason."""


def compiled(expression: str) -> Pattern:
    """Return an expression to search with.

    Raises:
        ExpressionError: it is none, or too long.

    """
    if len(expression) > EXPRESSION_LETTERS.most:
        raise ExpressionError(
            f"{shown(expression)} has {len(expression)} letters; "
            f"{EXPRESSION_LETTERS.most} are allowed"
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        why = error.args[0]
        said = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise ExpressionError(f"{shown(expression)} is no expression (RE2): {said}") from error


def matching(patterns: list[str], messages: list[str]) -> dict[str, list[str]]:
    """Return which messages each pattern is found in.

    Raises:
        ExpressionError: a pattern is none.

    """
    found = {}
    for one in patterns:
        pattern = compiled(one)
        found[one] = [message for message in messages if pattern.search(message)]
    return found
