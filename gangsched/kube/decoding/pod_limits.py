"""How much a pod may ask by: more of it would cost every pod that waits."""

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
    """Refuse what is beyond a bound.

    Raises:
        DecodeError: it is; the sentence says in what.

    """
    conditions = list(_conditions(needs))
    few(len(needs.requests), RESOURCES_OF_POD)
    few(len({one.key for one in conditions}), SELECTOR_KEYS)
    few(sum(1 + len(one.values) for one in conditions), SELECTOR_VALUES)
    few(len(needs.tolerations), TOLERATIONS)
    few(len(needs.host_ports), HOST_PORTS)
    short(_words(needs, conditions))
    for weight, _ in needs.preferred:
        if weight not in _WEIGHT:
            raise DecodeError(f"the weight of a preference is {shown(weight)}; it must be 1 to 100")


def few(count: int, bound: UpperBound, where: str = "") -> None:
    """Refuse more of something than its bound allows.

    Raises:
        DecodeError: there is more.

    """
    if count > bound.most:
        raise DecodeError(f"{where}there are {count} {bound.what}; {bound.most} are allowed")


def short(words: Iterable[str]) -> None:
    """Refuse words that are longer than any name.

    Raises:
        DecodeError: one is.

    """
    for word in words:
        if len(word) > NAME.most:
            raise DecodeError(f"{shown(word)} has {len(word)} letters; {NAME.most} are allowed")


def _conditions(needs: PodRequirements) -> Iterator[Expression]:
    yield from needs.selector
    for term in (*needs.required, *(term for _, term in needs.preferred)):
        yield from (*term.labels, *term.names)


def _words(needs: PodRequirements, conditions: list[Expression]) -> Iterator[str]:
    """Yield every word that is kept of what users write."""
    for one in conditions:
        yield from (one.key, one.operator, *one.values)
    for protocol, address, _ in needs.host_ports:
        yield from (protocol, address)
    yield from needs.unmodelled_constraints
