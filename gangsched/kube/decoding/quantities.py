"""Quantities of the Kubernetes API in the core's units, and the error of whatever is unreadable."""

import math
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from kubernetes.utils.quantity import parse_quantity

from gangsched.core.bounds import AMOUNT, NAME
from gangsched.core.model.text import shown

_MOST = 2**60
_LETTERS = 64
"""Of a quantity or a timestamp: what was read is remembered."""


class DecodeError(Exception):
    """An object cannot be understood; the message names object, field and value."""


class UnknownClassError(DecodeError):
    """An object names a PriorityClass that does not exist, or was not observed yet."""

    def __init__(self, field: str, name: str, classes: Iterable[str]) -> None:
        known = ", ".join(sorted(classes)) or "none"
        super().__init__(f"{field} {name!r} does not exist; the classes are: {known}")


@lru_cache(maxsize=4096)
def quantity(resource: str, value: str | float) -> int:
    """Return a quantity in the core's unit: thousandths for cpu, else whole units, rounded up.

    Raises:
        DecodeError: it is no quantity, negative, or more than 2^60.

    """
    exact = _exact(resource, value)
    if exact > _MOST:
        raise DecodeError(f"{resource}: {shown(value)} is more than {_MOST}")
    return _whole(resource, exact)


def _whole(resource: str, exact: Decimal) -> int:
    return math.ceil(exact * 1000) if resource == "cpu" else math.ceil(exact)


def _exact(resource: str, value: str | float) -> Decimal:
    try:
        exact: Decimal = parse_quantity(value if len(str(value)) <= _LETTERS else "")
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DecodeError(
            f"{resource}: {shown(value)} is no quantity such as 2, 500m or 4Gi"
        ) from error
    if not exact.is_finite():
        raise DecodeError(f"{resource}: {shown(value)} is no quantity such as 2, 500m or 4Gi")
    if exact < 0:
        raise DecodeError(f"{resource}: {shown(value)} is negative")
    return exact


@lru_cache(maxsize=4096)
def amount(resource: str, value: str | float) -> int:
    """Return a quantity of a node or a pod; one that is beyond the bound counts as much as that.

    Raises:
        DecodeError: it is no quantity, or negative.

    """
    exact = _exact(resource, value)
    return AMOUNT.most if exact > AMOUNT.most else min(_whole(resource, exact), AMOUNT.most)


def amounts(values: dict[str, str | int | float]) -> dict[str, int]:
    """Return every quantity of a resource list of a node or a pod, each within its bound.

    Raises:
        DecodeError: one of them is wrong.

    """
    long = next((resource for resource in values if len(resource) > NAME.most), None)
    if long is not None:
        raise DecodeError(f"resource {shown(long)} has a name of more than {NAME.most} letters")
    return {resource: amount(resource, value) for resource, value in values.items()}


def at_most(values: dict[str, str | int | float]) -> dict[str, int]:
    """Return every quantity of a pod that runs: what is more than a node can have counts as that.

    What cannot be read counts as much: nothing may be given away twice.
    """
    found = {}
    for resource, value in values.items():
        try:
            found[resource] = min(quantity(resource, value), AMOUNT.most)
        except DecodeError:
            found[resource] = AMOUNT.most
    return found


@lru_cache(maxsize=4096)
def seconds(timestamp: str) -> float:
    """Return an RFC 3339 timestamp as seconds since the epoch; 0 when there is none.

    Raises:
        ValueError: it is no timestamp.

    """
    if not timestamp:
        return 0.0
    if len(timestamp) > _LETTERS:
        raise ValueError("too long")
    return datetime.fromisoformat(timestamp).timestamp()
