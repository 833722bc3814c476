"""Whose turn it is: down the tree of queues, then in the order inside the queue.

Gangs that run and lack members they need come first, gangs that run and could have more come
last. In between, each level of the tree asks the sharing policy which queue is next, so that a
queue never gains by having many children.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from gangsched.core.accounts.usage import Usage
from gangsched.core.model import Waiting
from gangsched.core.policy import Policies, QueueOrder, QueueView
from gangsched.core.queues import Amounts

Charge = Callable[[Waiting], Amounts]

_Key = tuple[float, ...]


class Turns:
    """Yields waiting gangs in turn. `usage` is looked at anew after each `charged`.

    `charge` tells what a gang's minimum would charge.
    """

    def __init__(
        self,
        waiting: tuple[Waiting, ...],
        usage: Usage,
        policies: Policies,
        now_s: float,
        charge: Charge,
    ) -> None:
        self._usage = usage
        self._policies = policies
        self._now_s = now_s
        self._charge = charge
        self._blocked: set[str] = set()
        self._lines: dict[str, list[Waiting]] = {}
        self._heaps: dict[str, list[tuple[_Key, str, int]]] = {}
        self._stamps: dict[str, int] = {}
        self._shares: dict[tuple[str, bool], tuple[float, float]] = {}
        self._first: list[Waiting] = []
        self._last: list[Waiting] = []
        self._line_up(waiting)

    def _line_up(self, waiting: tuple[Waiting, ...]) -> None:
        tree, sharing = self._usage.tree, self._policies.sharing
        for one in waiting:
            if one.repair:
                self._first.append(one)
            elif one.surplus:
                self._last.append(one)
            else:
                known = sharing is not None and one.gang.queue in tree
                self._lines.setdefault(one.gang.queue if known else "", []).append(one)
        order = self._policies.order
        for line in (self._first, self._last):
            line.sort(key=lambda one: order.key(one, self._now_s), reverse=True)
        for name, line in self._lines.items():
            inside = self.order_of(name)
            line.sort(key=lambda one: inside.key(one, self._now_s), reverse=True)
        for name in sorted(self._lines):
            if name:
                self._renew(name)

    def order_of(self, queue: str) -> QueueOrder:
        """Return the order inside a queue."""
        declared = self._usage.tree.queues.get(queue)
        named = declared.order if declared is not None else ""
        return self._policies.orders.get(named, self._policies.order)

    # -- turns --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Waiting]:
        while self._first:
            yield self._first.pop()
        plain = self._lines.get("", [])
        while plain:
            one = plain.pop()
            if one.gang.queue not in self._blocked:
                yield one
        while (name := self._next()) is not None:
            yield self._lines[name].pop()
            self._renew(name)
        while self._last:
            yield self._last.pop()

    def peers(self, first: Waiting, limit: int) -> list[Waiting]:
        """Take the gangs after the first of its line that may be looked at together with it."""
        line = self._line(first)
        order = self.order_of(first.gang.queue)
        batch: list[Waiting] = []
        while line and len(batch) < limit and order.peers(first, line[-1]):
            batch.append(line.pop())
        return batch

    def skip(self, like: Waiting, done: Callable[[Waiting], bool]) -> None:
        """Take the gangs next in the same line away, up to the first that is not done with."""
        line = self._line(like)
        while line and done(line[-1]):
            line.pop()

    def block(self, queue: str) -> list[Waiting]:
        """Let nobody of a queue pass any more; return those who are left in its line."""
        self._blocked.add(queue)
        line = self._lines.get(queue)
        if line is not None:
            left, self._lines[queue] = line[::-1], []
            return left
        return [one for one in reversed(self._lines.get("", [])) if one.gang.queue == queue]

    def charged(self, queue: str) -> None:
        """Take note that a queue's usage changed."""
        self._shares.clear()
        if queue in self._usage.tree and self._policies.sharing is not None:
            self._renew(queue)

    def _line(self, one: Waiting) -> list[Waiting]:
        if one.repair:
            return self._first
        if one.surplus:
            return self._last
        return self._lines.get(one.gang.queue) or self._lines.get("", [])

    def _next(self) -> str | None:
        """Go down from the root to the queue whose turn it is."""
        name = ""
        while True:
            child = self._best(name)
            if child is None:
                return name or None
            if child == name:
                return name
            name = child

    def _best(self, name: str) -> str | None:
        """Return the child next in turn; `name` itself where its own line is."""
        heap = self._heaps.get(name)
        while heap:
            _, child, stamp = heap[0]
            if self._stamps.get(name + "/" + child) == stamp:
                return child
            heappop(heap)
        return None

    def _renew(self, queue: str) -> None:
        """Work out the place of a queue, and of those above it, among their siblings."""
        tree = self._usage.tree
        line = self._lines.get(queue)
        head = line[-1] if line else None
        path = tree.path(queue)
        self._enter(queue, queue, head)  # an inner queue's own line stands beside its children
        for at, name in enumerate(path):
            above = path[at + 1] if at + 1 < len(path) else ""
            child = self._best(name)
            if child is None:
                head = None
            else:
                leaf = self._leaf(name)
                waiting = self._lines.get(leaf)
                head = waiting[-1] if waiting else None
            self._enter(above, name, head)

    def _leaf(self, name: str) -> str:
        while (child := self._best(name)) is not None and child != name:
            name = child
        return name

    def _enter(self, above: str, name: str, head: Waiting | None) -> None:
        where = above + "/" + name
        stamp = self._stamps[where] = self._stamps.get(where, 0) + 1
        if head is None:
            return
        sharing = self._policies.sharing
        assert sharing is not None, "without sharing there is one line"  # noqa: S101
        usage, queue = self._usage, self._usage.tree.queues[name]
        own = above == name and bool(usage.tree.children.get(name))
        known = self._shares.get((name, own))
        if known is None:
            decayed = usage.decayed.get(name, 0.0) / queue.weight
            known = usage.own(name) if own else (usage.share(name), decayed)
            self._shares[(name, own)] = known
        if own:  # an inner queue's own gangs compete with its children as one more child would
            queue = replace(queue, weight=1.0, priority=0)
        share, decayed = known
        view = QueueView(queue, share, decayed, usage.beyond(name, self._charge(head)))
        heappush(self._heaps.setdefault(above, []), (sharing.key(view), name, stamp))
