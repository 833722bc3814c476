"""What queues may spend for nodes that are bought for their gangs."""

from collections.abc import Mapping

from gangsched.core.quota.queue_tree import QueueTree


def spending_refusal(queue: str, price: float, spent: Mapping[str, float], tree: QueueTree) -> str:
    """Return why nodes cost more than a queue or one above it may spend; "" if none is exceeded.

    `price` is for an hour. So is what is `spent` now, by queue, without the queues below it.
    """
    for name in tree.path(queue) if queue in tree else ():
        most = tree.queues[name].price_max
        if most is None:
            continue
        of_subtree = sum(
            amount for one, amount in spent.items() if one in tree and name in tree.path(one)
        )
        if of_subtree + price > most:
            return (
                f"its nodes would cost {price:,.2f} $/h, and queue {name} may spend {most:g}, "
                f"of which {of_subtree:,.2f} are spent"
            )
    return ""
