"""The usage of queues: nominal quota, borrowed quota and shares.

Usage is counted in two ways. `_borrowed_usage` follows the arithmetic of the tree: the use of a
queue beyond the quota that it keeps counts in its parent. `subtree_usage` is the real usage of a
subtree, for shares; `firm` is the part of it that belongs to gangs with `preemptible: false`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from gangsched.core.model.queues import Amounts, QuotaKey
from gangsched.core.quota.queue_tree import UNLIMITED, QueueTree, format_quota, number

Totals = dict[QuotaKey, int]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A queue on the path to the root that lacks quota for a charge."""

    queue: str
    key: QuotaKey
    wanted: int
    available: int


class Usage:
    """The usage of every queue; planners get a copy.

    `capacity` is that of the whole cluster, of which shares are fractions. `historical_gpu_s` has
    the decayed GPU-seconds of each queue at one moment; only the usage of a snapshot has them.
    """

    def __init__(
        self,
        tree: QueueTree,
        capacity: Mapping[QuotaKey, int] | None = None,
        borrowed: dict[str, Totals] | None = None,
        historical_gpu_s: Mapping[str, float] | None = None,
    ) -> None:
        self.tree = tree
        self.capacity = dict(capacity or {})
        self.subtree_usage: dict[str, Totals] = {}
        self.firm: dict[str, Totals] = {}
        self.historical_gpu_s: Mapping[str, float] = historical_gpu_s or {}
        self._borrowed_usage = borrowed or {}
        self._availability: dict[tuple[str, QuotaKey], tuple[int, str]] = {}
        self._empty: Usage | None = None
        # Queues with totals of their own here: copies share the others until one is charged.
        self._owned: set[str] = set()

    def at_moment(self, historical_gpu_s: Mapping[str, float]) -> "Usage":
        """Return a copy with the historical usage of queues at one moment, for a snapshot."""
        return self._copied("", historical_gpu_s)

    def copy(self, top: str = "") -> "Usage":
        """Return a copy that may be charged freely; with `top`, only of the tree below it."""
        return self._copied(top, self.historical_gpu_s)

    def _copied(self, top: str, historical_gpu_s: Mapping[str, float]) -> "Usage":
        held, borrowed, firm = dict(self.subtree_usage), dict(self._borrowed_usage), dict(self.firm)
        if top:
            names = self.tree.subtree(top)
            held = {name: held[name] for name in names if name in held}
            borrowed = {name: borrowed[name] for name in names if name in borrowed}
            firm = {name: firm[name] for name in names if name in firm}
        other = Usage(self.tree, self.capacity, borrowed, historical_gpu_s)
        other.subtree_usage, other.firm = held, firm
        self._owned.clear()
        other._empty = self._empty
        return other

    @property
    def empty(self) -> "Usage":
        """Return the usage without any gang, by which the maximum is known."""
        if self._empty is None:
            self._empty = Usage(self.tree)
        return self._empty

    def charge(self, queue: str, amounts: Amounts, times: int = 1, *, firm: bool = False) -> None:
        """Charge amounts to a queue and the queues above it; negative times release them.

        Charges of a gang that may not be preempted are `firm`. A gang of an unusable queue is
        charged to the default queue.
        """
        self._availability.clear()
        path = self.tree.path(self.tree.charged_queue(queue))
        for name in path:
            if name not in self._owned:
                self._owned.add(name)
                self.subtree_usage[name] = dict(self.subtree_usage.get(name, _NONE))
                self._borrowed_usage[name] = dict(self._borrowed_usage.get(name, _NONE))
                self.firm[name] = dict(self.firm.get(name, _NONE))
        for name in path:
            for totals in (
                (self.subtree_usage[name], self.firm[name]) if firm else (self.subtree_usage[name],)
            ):
                for key, quantity in amounts:
                    totals[key] = totals.get(key, 0) + quantity * times
        levels = [(self._borrowed_usage[name], self.tree.guaranteed_quotas(name)) for name in path]
        for key, quantity in amounts:
            change = quantity * times
            for borrowed, keeps in levels:
                before = borrowed.get(key, 0)
                after = borrowed[key] = before + change
                kept = keeps.get(key, 0)
                change = (after - kept if after > kept else 0) - (
                    before - kept if before > kept else 0
                )
                if not change:
                    break

    # -- questions ----------------------------------------------------------------------------

    def used(self, queue: str, key: QuotaKey) -> int:
        """Return the usage of a queue's subtree."""
        return self.subtree_usage.get(queue, {}).get(key, 0)

    def available(self, queue: str, key: QuotaKey) -> int:
        """Return how much more a queue may take, including borrowed quota."""
        return self._available(self.tree.path(queue), key)[0]

    def _available(self, path: tuple[str, ...], key: QuotaKey) -> tuple[int, str]:
        """Return the available amount and the queue that bounds it."""
        known = self._availability.get((path[0], key))
        if known is None:
            known = self._availability[(path[0], key)] = self._compute_available(path, key)
        return known

    def _compute_available(self, path: tuple[str, ...], key: QuotaKey) -> tuple[int, str]:
        name, above = path[0], path[1:]
        nominal = self.tree.nominal(name, key)
        if nominal is None:
            return UNLIMITED, ""
        used = self._borrowed_usage.get(name, {}).get(key, 0)
        quota = self.tree.quota(name, key)
        if not above:
            return self.tree.subtree_quota(name, key) - used, name
        kept = self.tree.guaranteed_quota(name, key)
        own = max(kept - used, 0)
        borrowable, bound_by = self._available(above, key)
        if quota is not None and quota.borrowing is not None:
            pool = self.tree.subtree_quota(name, key)
            most = (pool - kept) - max(used - kept, 0) + quota.borrowing
            if most < borrowable:
                borrowable, bound_by = most, name
        return own + borrowable, bound_by

    def shortfalls(self, queue: str, amounts: Amounts) -> list[Shortfall]:
        """Return the quota that a charge lacks; empty if it may be admitted."""
        limited = self.tree.quota_keys(queue)
        if not limited:
            return []
        path = self.tree.path(queue)
        shortfalls = []
        for key, quantity in amounts:
            if key in limited:
                available, name = self._available(path, key)
                if available < quantity:
                    shortfalls.append(Shortfall(name, key, quantity, max(available, 0)))
        return shortfalls

    def fits(self, queue: str, amounts: Amounts) -> bool:
        """Return whether a charge may be admitted."""
        limited = self.tree.quota_keys(queue)
        if not limited:
            return True
        path = self.tree.path(queue)
        return all(
            key not in limited or self._available(path, key)[0] >= quantity
            for key, quantity in amounts
        )

    def exceeds_limits(self, queue: str) -> bool:
        """Return whether a queue, or a queue above it, uses more than its limits allow."""
        path = self.tree.path(queue)
        for key in self.tree.quota_keys(queue):
            for name in path:
                used, pool = (
                    self._borrowed_usage.get(name, {}).get(key, 0),
                    self.tree.subtree_quota(name, key),
                )
                quota = self.tree.quota(name, key)
                if name == path[-1]:
                    most: int | None = pool
                else:
                    most = None if quota is None or quota.borrowing is None else quota.borrowing
                    most = None if most is None else pool + most
                if most is not None and self.tree.nominal(name, key) is not None and used > most:
                    return True
        return False

    def potential(self, queue: str, key: QuotaKey) -> int:
        """Return the most that a queue can use while no other queue uses anything."""
        return self.empty.available(queue, key)

    def exceeds_nominal(self, queue: str, amounts: Amounts = ()) -> bool:
        """Return whether a queue exceeds its nominal quota, with a charge added."""
        held, more = self.subtree_usage.get(queue, _NONE), dict(amounts)
        for key in self.tree.quota_keys(queue):
            added = more.get(key, 0)
            if more and not added:
                continue
            if held.get(key, 0) + added > (self.tree.nominal(queue, key) or 0):
                return True
        return False

    def borrowed(self, queue: str) -> Totals:
        """Return what a queue uses beyond its nominal quotas."""
        amounts = {}
        for key in self.tree.quota_keys(queue):
            more = self.used(queue, key) - (self.tree.nominal(queue, key) or 0)
            if more > 0:
                amounts[key] = more
        return amounts

    def share(self, queue: str, amounts: Amounts = ()) -> float:
        """Return the dominant share of a queue over its weight (DRF, NSDI'11), charge included."""
        held, more = self.subtree_usage.get(queue, _NONE), dict(amounts)
        most = 0.0
        for key, has in self.capacity.items():
            used = held.get(key, 0) + more.get(key, 0)
            if used > 0 and has > 0:
                most = max(most, used / has)
        return most / self.tree.queues[queue].weight

    def spare_above_share(self, queue: str, share: float) -> Amounts:
        """Return how much of each resource a queue may lose and still keep a dominant share.

        The queue keeps the share if one resource does not lose more than this.
        """
        held, level = self.subtree_usage.get(queue, _NONE), share * self.tree.queues[queue].weight
        left = (
            (key, floor(held.get(key, 0) - level * has * _NEARLY))
            for key, has in self.capacity.items()
            if has > 0
        )
        return tuple((key, most) for key, most in left if most >= 0)

    def own_share(self, queue: str) -> tuple[float, float]:
        """Return share and past GPU-seconds of a queue's own gangs, without queues below it."""
        held = dict(self.subtree_usage.get(queue, _NONE))
        decayed = self.historical_gpu_s.get(queue, 0.0)
        for child in self.tree.children.get(queue, ()):
            decayed -= self.historical_gpu_s.get(child, 0.0)
            for key, quantity in self.subtree_usage.get(child, _NONE).items():
                held[key] -= quantity
        shares = (held.get(key, 0) / has for key, has in self.capacity.items() if has > 0)
        return max(shares, default=0.0), max(decayed, 0.0)


_NONE: Totals = {}

_NEARLY = 1 - 1e-12  # shares are quotients: rounding must not hide an equal share


def describe(short: Shortfall, queue: str, usage: Usage) -> str:
    """Return what a queue lacks, as a sentence without its full stop."""
    key, tree = short.key, usage.tree
    nominal = tree.nominal(short.queue, key) or 0
    quota = tree.quota(short.queue, key)
    subject = f"Queue {short.queue}" + ("" if short.queue == queue else f", above queue {queue},")
    bound = format_quota(key, nominal)
    if quota is not None and quota.borrowing is not None and len(tree.path(short.queue)) > 1:
        bound += f" and may borrow {number(key, quota.borrowing)}"
    return (
        f"{subject} has {bound}; {number(key, usage.used(short.queue, key))} are in use, "
        f"and the gang needs {number(key, short.wanted)}"
    )
