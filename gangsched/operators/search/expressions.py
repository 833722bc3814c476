"""Users' regular expressions: those of RE2, as in the operators of which gangsched runs the jobs.

Their time grows linearly with the text; a short expression can keep Python's `re` busy for ever.
Their memory and their length are bounded.
"""

from typing import TypeAlias

import re2

from gangsched.core.bounds import EXPRESSION_LETTERS
from gangsched.core.model.text import shown

Pattern: TypeAlias = re2._Regexp  # noqa: SLF001 -- the library has no public name for it

_MEMORY = 2**17
"""Largest size of a compiled expression, in bytes: RE2 rejects a larger one."""


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
        reason = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise ExpressionError(
            f"{shown(expression)} is not an expression of RE2: {reason}"
        ) from error


def matching(patterns: list[str], messages: list[str]) -> dict[str, list[str]]:
    """Return the messages that match, by pattern.

    Raises:
        ExpressionError: a pattern is none.

    """
    matching_messages = {}
    for text in patterns:
        pattern = compiled(text)
        matching_messages[text] = [message for message in messages if pattern.search(message)]
    return matching_messages
