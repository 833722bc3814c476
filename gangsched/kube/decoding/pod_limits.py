"""Bounds on the spec of a pod: a larger spec would slow the planning of every pending gang."""

from collections.abc import Iterable, Iterator

from gangsched.core.bounds import (
    HOST_PORTS,
    NAME,
    RESOURCES_OF_POD,
    SELECTOR_KEYS,
    SELECTOR_VALUES,
    TOLERATIONS,
    UpperBound,
)
from gangsched.core.model.pods import Expression, PodRequirements
from gangsched.core.model.text import shown
from gangsched.kube.decoding.quantities import DecodeError

_WEIGHT = range(1, 101)


def check(needs: PodRequirements) -> None:
    """Check the requirements of a pod against all bounds.

    Raises:
        DecodeError: a bound is exceeded; the message names the bound.

    """
    conditions = list(_conditions(needs))
    few(len(needs.requests), RESOURCES_OF_POD)
    few(len({condition.key for condition in conditions}), SELECTOR_KEYS)
    few(sum(1 + len(condition.values) for condition in conditions), SELECTOR_VALUES)
    few(len(needs.tolerations), TOLERATIONS)
    few(len(needs.host_ports), HOST_PORTS)
    check_lengths(_words(needs, conditions))
    for weight, _ in needs.preferred:
        if weight not in _WEIGHT:
            raise DecodeError(f"the weight of a preference is {shown(weight)}; it must be 1 to 100")


def few(count: int, bound: UpperBound, where: str = "") -> None:
    """Check a count against its bound.

    Raises:
        DecodeError: the count exceeds the bound.

    """
    if count > bound.most:
        raise DecodeError(f"{where}there are {count} {bound.what}; {bound.most} are allowed")


def check_lengths(words: Iterable[str]) -> None:
    """Check that no word is longer than a name may be.

    Raises:
        DecodeError: a word is too long.

    """
    for word in words:
        if len(word) > NAME.most:
            raise DecodeError(f"{shown(word)} has {len(word)} letters; {NAME.most} are allowed")


def _conditions(needs: PodRequirements) -> Iterator[Expression]:
    yield from needs.selector
    for term in (*needs.required, *(term for _, term in needs.preferred)):
        yield from (*term.labels, *term.names)


def _words(needs: PodRequirements, conditions: list[Expression]) -> Iterator[str]:
    """Yield every word of a user that the scheduler keeps in memory."""
    for condition in conditions:
        yield from (condition.key, condition.operator, *condition.values)
    for protocol, address, _ in needs.host_ports:
        yield from (protocol, address)
    yield from needs.unmodelled_constraints
