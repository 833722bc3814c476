"""What may not be stopped stays within what its queue is guaranteed: a loan has to come back.

Gangs of a queue that may be stopped do not count: they go first when others want back what is
their own. So a queue may lend all it has, and its own gangs that may not be stopped still start.
"""

from typing import NamedTuple

from gangsched.core.model.queues import Amounts, QuotaKey, label
from gangsched.core.quota.queue_tree import QueueTree, number
from gangsched.core.quota.usage import Usage


class NominalShortfall(NamedTuple):
    """What would be more than a queue is guaranteed, and how much of that is left."""

    queue: str
    key: QuotaKey
    wanted: int
    available: int


def nominal_shortfall(usage: Usage, queue: str, charge: Amounts) -> NominalShortfall | None:
    """Return what a gang that may not be stopped would borrow, or None where it may start."""
    tree = usage.tree
    if queue not in tree or tree.firm_loans(queue):
        return None
    for key, quantity in charge:
        if key not in tree.guaranteed():
            continue  # nobody could want it back
        owner, left = _quota_owner(tree, queue, key), 0
        if key in tree.quota_keys(queue):
            left = (tree.nominal(owner, key) or 0) - _firm(usage, owner, key)
            left -= sum(
                _unclaimed_nominal(usage, child, key) for child in tree.children.get(owner, ())
            )
        if quantity > left:
            return NominalShortfall(owner, key, quantity, max(left, 0))
    return None


def describe_shortfall(shortfall: NominalShortfall, queue: str) -> str:
    """Return what may not be borrowed, as a sentence without its end."""
    key = shortfall.key
    owner = (
        f"queue {queue}" if shortfall.queue == queue else f"queue {shortfall.queue}, above {queue},"
    )
    return (
        f"a gang that may not be stopped (preemptible: false) may not borrow: of what {owner} is "
        f"guaranteed, such gangs may have {number(key, shortfall.available)} {label(key)} now, "
        f"and this one needs {number(key, shortfall.wanted)}"
    )


def _quota_owner(tree: QueueTree, queue: str, key: QuotaKey) -> str:
    """Return the nearest queue with a quota of its own, or the top of the tree."""
    path = tree.path(queue)
    return next((name for name in path if tree.quota(name, key) is not None), path[-1])


def _unclaimed_nominal(usage: Usage, name: str, key: QuotaKey) -> int:
    """Return how much of what it is guaranteed a queue, or those below it, may still claim."""
    tree = usage.tree
    if tree.quota(name, key) is None:
        return sum(_unclaimed_nominal(usage, child, key) for child in tree.children.get(name, ()))
    return max((tree.nominal(name, key) or 0) - _firm(usage, name, key), 0)


def _firm(usage: Usage, name: str, key: QuotaKey) -> int:
    return usage.firm.get(name, {}).get(key, 0)
