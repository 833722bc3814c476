"""Quantities of the Kubernetes API in the units of the core, and the error of malformed fields."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from gangsched.core.bounds import AMOUNT, NAME
from gangsched.core.model.text import shown

_MOST = 2**60
_LETTERS = 64
"""Letters of a quantity or a timestamp at most: the functions below cache their arguments."""


class DecodeError(Exception):
    """An object is malformed; the message names object, field and value."""


class UnknownClassError(DecodeError):
    """An object names a PriorityClass that does not exist or is not observed yet."""

    def __init__(self, field: str, name: str, classes: Iterable[str]) -> None:
        known = ", ".join(sorted(classes)) or "none"
        super().__init__(f"{field} {name!r} does not exist; the classes are: {known}")


@lru_cache(maxsize=4096)
def quantity(resource: str, value: str | float) -> int:
    """Return a quantity in the core's unit: thousandths for cpu, else whole units, rounded up.

    Raises:
        DecodeError: the value is no quantity, is negative, or exceeds 2^60.

    """
    exact = _exact(resource, value)
    if exact > _MOST:
        raise DecodeError(f"{resource}: {shown(value)} is more than {_MOST}")
    return _whole(resource, exact)


def _whole(resource: str, exact: Decimal) -> int:
    return math.ceil(exact * 1000) if resource == "cpu" else math.ceil(exact)


def _exact(resource: str, value: str | float) -> Decimal:
    from kubernetes.utils.quantity import parse_quantity  # noqa: PLC0415 -- it takes 0.4 s

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
def parse_amount(resource: str, value: str | float) -> int:
    """Return a quantity of a node or a pod; a value above the bound counts as the bound.

    Raises:
        DecodeError: the value is no quantity, or is negative.

    """
    exact = _exact(resource, value)
    return AMOUNT.most if exact > AMOUNT.most else min(_whole(resource, exact), AMOUNT.most)


def parse_amounts(values: dict[str, str | int | float]) -> dict[str, int]:
    """Return the quantities of a resource list of a node or a pod, each within its bound.

    Raises:
        DecodeError: a quantity is malformed.

    """
    long = next((resource for resource in values if len(resource) > NAME.most), None)
    if long is not None:
        raise DecodeError(f"resource {shown(long)} has a name of more than {NAME.most} letters")
    return {resource: parse_amount(resource, value) for resource, value in values.items()}


def at_most(values: dict[str, str | int | float]) -> dict[str, int]:
    """Return the quantities of a running pod; a value above the bound counts as the bound.

    A malformed value counts as the bound too, so that no capacity is assigned twice.
    """
    capped = {}
    for resource, value in values.items():
        try:
            capped[resource] = min(quantity(resource, value), AMOUNT.most)
        except DecodeError:
            capped[resource] = AMOUNT.most
    return capped


@lru_cache(maxsize=4096)
def parse_timestamp(timestamp: str) -> float:
    """Return an RFC 3339 timestamp as seconds since the epoch; 0 for an empty string.

    Raises:
        ValueError: the text is no timestamp.

    """
    if not timestamp:
        return 0.0
    if len(timestamp) > _LETTERS:
        raise ValueError("too long")
    return datetime.fromisoformat(timestamp).timestamp()


def parse_time_annotation(annotations: Mapping[str, str], key: str) -> float | None:
    """Return the time in an annotation; None if there is none, or it is no RFC 3339 time."""
    text = annotations.get(key)
    if not text:
        return None
    try:
        return parse_timestamp(text)
    except (ValueError, OverflowError):
        return None
