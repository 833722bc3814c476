"""What may not be stopped stays within what its queue is guaranteed: a loan has to come back.

Gangs of a queue that may be stopped do not count: they go first when others want back what is
their own. So a queue may lend all it has, and its own gangs that may not be stopped still start.
"""

from typing import NamedTuple

from gangsched.core.model.queues import Amounts, QuotaKey, label
from gangsched.core.quota.queue_tree import QueueTree, number
from gangsched.core.quota.usage import Usage


class Loan(NamedTuple):
    """What would be more than a queue is guaranteed, and how much of that is left."""

    queue: str
    key: QuotaKey
    wanted: int
    left: int


def loan(usage: Usage, queue: str, charge: Amounts) -> Loan | None:
    """Return what a gang that may not be stopped would borrow, or None where it may start."""
    tree = usage.tree
    if queue not in tree or tree.firm_loans(queue):
        return None
    for key, quantity in charge:
        if key not in tree.guaranteed():
            continue  # nobody could want it back
        whose, left = _lender(tree, queue, key), 0
        if key in tree.limited(queue):
            left = (tree.nominal(whose, key) or 0) - _firm(usage, whose, key)
            left -= sum(_owed(usage, child, key) for child in tree.children.get(whose, ()))
        if quantity > left:
            return Loan(whose, key, quantity, max(left, 0))
    return None


def sentence(found: Loan, queue: str) -> str:
    """Say what may not be borrowed."""
    whose = f"queue {queue}" if found.queue == queue else f"queue {found.queue}, above {queue},"
    return (
        f"a gang that may not be stopped (preemptible: false) may not borrow: of what {whose} is "
        f"guaranteed, such gangs may have {number(found.key, found.left)} {label(found.key)} now, "
        f"and this one needs {number(found.key, found.wanted)}"
    )


def _lender(tree: QueueTree, queue: str, key: QuotaKey) -> str:
    """Return the nearest queue with a quota of its own, or the top of the tree."""
    path = tree.path(queue)
    return next((name for name in path if tree.quota(name, key) is not None), path[-1])


def _owed(usage: Usage, name: str, key: QuotaKey) -> int:
    """Return how much of what it is guaranteed a queue, or those below it, may still claim."""
    tree = usage.tree
    if tree.quota(name, key) is None:
        return sum(_owed(usage, child, key) for child in tree.children.get(name, ()))
    return max((tree.nominal(name, key) or 0) - _firm(usage, name, key), 0)


def _firm(usage: Usage, name: str, key: QuotaKey) -> int:
    return usage.firm.get(name, {}).get(key, 0)
