"""Gangs that may not be preempted stay within nominal quota: borrowed quota has to be reclaimable.

Preemptible gangs do not count here, because they are preempted first when a queue reclaims its
nominal quota. So a queue may lend all of it, and its gangs with `preemptible: false` still start.
"""

from typing import NamedTuple

from gangsched.core.model.queues import Amounts, QuotaKey, quota_label
from gangsched.core.quota.queue_tree import QueueTree, number
from gangsched.core.quota.usage import Usage


class NominalShortfall(NamedTuple):
    """A charge beyond the nominal quota of a queue, and how much of that quota is left."""

    queue: str
    key: QuotaKey
    wanted: int
    available: int


def nominal_shortfall(usage: Usage, queue: str, charge: Amounts) -> NominalShortfall | None:
    """Return what a gang with `preemptible: false` would borrow, or None if it may start."""
    tree = usage.tree
    if queue not in tree or tree.non_preemptible_may_borrow(queue):
        return None
    for key, quantity in charge:
        if key not in tree.guaranteed():
            continue  # no queue could reclaim it
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
    """Return what may not be borrowed, as a sentence without its full stop."""
    key = shortfall.key
    owner = f"queue {shortfall.queue}" + ("" if shortfall.queue == queue else f", above {queue},")
    return (
        f"A gang with preemptible: false may not borrow quota; {owner} has "
        f"{number(key, shortfall.available)} {quota_label(key)} of nominal quota left for such "
        f"gangs, and the gang needs {number(key, shortfall.wanted)}"
    )


def _quota_owner(tree: QueueTree, queue: str, key: QuotaKey) -> str:
    """Return the nearest queue with a quota of its own, or else the root."""
    path = tree.path(queue)
    return next((name for name in path if tree.quota(name, key) is not None), path[-1])


def _unclaimed_nominal(usage: Usage, name: str, key: QuotaKey) -> int:
    """Return the nominal quota of a subtree that its non-preemptible gangs do not use yet."""
    tree = usage.tree
    if tree.quota(name, key) is None:
        return sum(_unclaimed_nominal(usage, child, key) for child in tree.children.get(name, ()))
    return max((tree.nominal(name, key) or 0) - _firm(usage, name, key), 0)


def _firm(usage: Usage, name: str, key: QuotaKey) -> int:
    return usage.firm.get(name, {}).get(key, 0)
