"""Quantities of the Kubernetes API in the core's units, and the error of whatever is unreadable."""

import math
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from kubernetes.utils.quantity import parse_quantity

from gangsched.core.shown import shown

_MOST = 2**60
_MOST_OF_A_NODE = 2**50
"""A pebibyte: of so many, eight thousand nodes are still summed in 64 bits."""


class DecodeError(Exception):
    """An object cannot be understood; the message names object, field and value."""


class UnknownClassError(DecodeError):
    """An object names a PriorityClass that is not there, or of which we were not told yet."""

    def __init__(self, field: str, name: str, classes: Iterable[str]) -> None:
        known = ", ".join(sorted(classes)) or "none"
        super().__init__(f"{field} {name!r} does not exist; the classes are: {known}")


@lru_cache(maxsize=4096)
def quantity(resource: str, value: str | float) -> int:
    """Return a quantity in the core's unit: thousandths for cpu, else whole units, rounded up.

    Raises:
        DecodeError: it is no quantity, negative, or more than 2^60.

    """
    try:
        exact = parse_quantity(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DecodeError(
            f"{resource}: {shown(value)} is no quantity such as 2, 500m or 4Gi"
        ) from error
    if not exact.is_finite():
        raise DecodeError(f"{resource}: {shown(value)} is no quantity such as 2, 500m or 4Gi")
    if exact < 0:
        raise DecodeError(f"{resource}: {shown(value)} is negative")
    if exact > _MOST:
        raise DecodeError(f"{resource}: {shown(value)} is more than {_MOST}")
    return int(math.ceil(exact * 1000) if resource == "cpu" else math.ceil(exact))


def amounts(values: dict[str, str | int | float]) -> dict[str, int]:
    """Return every quantity of a resource list of a node or a pod.

    Raises:
        DecodeError: one of them is wrong, or more than a node can have.

    """
    found = {resource: quantity(resource, value) for resource, value in values.items()}
    for resource, amount in found.items():
        if amount > _MOST_OF_A_NODE:
            raise DecodeError(f"{resource}: {shown(values[resource])} is more than a node can have")
    return found


@lru_cache(maxsize=4096)
def seconds(timestamp: str) -> float:
    """Return an RFC 3339 timestamp as seconds since the epoch; 0 when there is none."""
    if not timestamp:
        return 0.0
    return datetime.fromisoformat(timestamp).timestamp()
