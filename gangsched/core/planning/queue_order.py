"""The order in which pending gangs are planned: down the tree of queues, then inside the queue.

Running gangs that lack required members come first, running gangs that could have more members
come last. In between, each level of the tree asks the sharing policy which queue is next, so that a
queue never gains by having many children.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from gangsched.core.model.gangs import EquivalenceClassView, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Amounts
from gangsched.core.policy import Policies, QueueOrder, QueueView
from gangsched.core.quota.usage import Usage

Charge = Callable[[PendingGang], Amounts]

_Key = tuple[float, ...]
_OrderKey = tuple[float | str, ...]


@dataclass(slots=True)
class _ClassCursor:
    """Gangs of one equivalence class in their order, and how many had their turn."""

    gangs: Sequence[PendingGang]
    shortest_s: float
    is_class: bool
    at: int = 0

    def remaining(self) -> EquivalenceClassView:
        return EquivalenceClassView(tuple(self.gangs[self.at :]), self.shortest_s)


class _OrderedGangs:
    """Gangs in order: a heap of the first gang of each equivalence class."""

    def __init__(self, order: QueueOrder, now_s: float) -> None:
        self._order = order
        self._now_s = now_s
        self._heap: list[tuple[_OrderKey, int, int, _ClassCursor]] = []
        self._added = 0
        self.last: _ClassCursor | None = None

    def add(self, equivalence_class: EquivalenceClassView, *, is_class: bool) -> None:
        """Add gangs of one class, oldest first; `sort` once all are added."""
        gangs: Sequence[PendingGang] = equivalence_class.gangs
        if not self._order.orders_by_age and len(gangs) > 1:
            gangs = sorted(gangs, key=lambda gang: self._order.key(gang, self._now_s))
        self._added += 1
        cursor = _ClassCursor(gangs, equivalence_class.shortest_s, is_class)
        key = self._order.key(gangs[0], self._now_s)
        self._heap.append((key, self._added, 0, cursor))

    def sort(self) -> None:
        heapify(self._heap)

    def head(self) -> PendingGang | None:
        """Return the next gang, or None at the end."""
        while self._heap:
            _, _, at, cursor = self._heap[0]
            if cursor.at == at:
                return cursor.gangs[at]
            heappop(self._heap)  # `keep_only` dropped the cursor
        return None

    def pop(self) -> PendingGang:
        """Take the next gang; `head` has to have returned one."""
        _, number, at, cursor = heappop(self._heap)
        cursor.at += 1
        if cursor.at < len(cursor.gangs):
            key = self._order.key(cursor.gangs[cursor.at], self._now_s)
            heappush(self._heap, (key, number, cursor.at, cursor))
        self.last = cursor
        return cursor.gangs[at]

    def keep_only(self, gangs: Sequence[PendingGang]) -> None:
        """Keep only these gangs of the class of the last gang taken."""
        last = self.last
        assert last is not None, "a gang was taken"  # noqa: S101
        last.at = len(last.gangs)
        if gangs:
            self._added += 1
            key = self._order.key(gangs[0], self._now_s)
            cursor = _ClassCursor(gangs, last.shortest_s, last.is_class)
            heappush(self._heap, (key, self._added, 0, cursor))

    def remaining(self) -> list[tuple[EquivalenceClassView, bool]]:
        """Return the gangs that had no turn yet, and whether they are a class."""
        cursors = [cursor for _, _, at, cursor in sorted(self._heap) if cursor.at == at]
        return [(cursor.remaining(), cursor.is_class) for cursor in cursors]


class QueueOrderIterator:
    """Yields pending gangs in their order; `charged` says that the usage of a queue changed.

    Each gang of the `equivalence_classes` has its own turn, unless `keep_only` drops it. `charge`
    returns what a gang's minimum would charge.
    """

    def __init__(
        self,
        waiting: Iterable[PendingGang],
        equivalence_classes: Iterable[EquivalenceClassView],
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
        self._by_queue: dict[str, _OrderedGangs] = {}
        self._heaps: dict[str, list[tuple[_Key, str, int]]] = {}
        self._entry_versions: dict[tuple[str, str], int] = {}
        self._keys: dict[tuple[str, str], _Key] = {}
        self._heads: dict[tuple[str, str], PendingGang] = {}
        self._sibling_count: dict[str, int] = {}
        self._shares: dict[tuple[str, bool], tuple[float, float]] = {}
        self._refills = _OrderedGangs(policies.order, now_s)
        self._scale_ups = _OrderedGangs(policies.order, now_s)
        self._current = self._refills
        for gang in waiting:
            self._ordered_gangs(gang).add(EquivalenceClassView((gang,), 0.0), is_class=False)
        for equivalence_class in equivalence_classes:
            self._ordered_gangs(equivalence_class.gangs[0]).add(equivalence_class, is_class=True)
        for ordered in (self._refills, self._scale_ups, *self._by_queue.values()):
            ordered.sort()
        self._order_all_queues()

    def _ordered_gangs(self, waiting: PendingGang) -> _OrderedGangs:
        if waiting.is_refill:
            return self._refills
        if waiting.is_scale_up:
            return self._scale_ups
        known = self._policies.sharing is not None and waiting.gang.queue in self._usage.tree
        name = waiting.gang.queue if known else ""
        ordered = self._by_queue.get(name)
        if ordered is None:
            ordered = self._by_queue[name] = _OrderedGangs(self.order_of(name), self._now_s)
        return ordered

    def order_of(self, queue: str) -> QueueOrder:
        """Return the order inside a queue."""
        declared = self._usage.tree.queues.get(queue)
        named = declared.order if declared is not None else ""
        return self._policies.orders.get(named, self._policies.order)

    # -- turns --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[PendingGang]:
        yield from self._drain(self._refills)
        plain = self._by_queue.get("")
        if plain is not None:
            for gang in self._drain(plain):
                if gang.gang.queue not in self._blocked:
                    yield gang
        while (name := self._next_queue()) is not None:
            self._current = self._by_queue[name]
            yield self._current.pop()
            self._update_path(name)
        yield from self._drain(self._scale_ups)

    def _drain(self, ordered: _OrderedGangs) -> Iterator[PendingGang]:
        self._current = ordered
        while ordered.head() is not None:
            yield ordered.pop()

    def peers(
        self, first: PendingGang, limit: int, alone: Callable[[GangId], bool]
    ) -> list[PendingGang]:
        """Take the gangs after the first of its queue that may be planned together with it.

        They end before a gang that is to be planned `alone`.
        """
        ordered, order = self._current, self.order_of(first.gang.queue)
        batch: list[PendingGang] = []
        while len(batch) < limit and (head := ordered.head()) is not None:
            if not order.peers(first, head) or alone(head.gang.id):
                break
            batch.append(ordered.pop())
        return batch

    def rest_of_class(self) -> EquivalenceClassView:
        """Return the gangs of the class of the last gang that had no turn yet."""
        last = self._current.last
        return last.remaining() if last is not None else EquivalenceClassView((), 0.0)

    def keep_only(self, gangs: Sequence[PendingGang]) -> None:
        """Let only these gangs of `rest_of_class` have a turn."""
        self._current.keep_only(gangs)

    def block(self, queue: str) -> list[tuple[EquivalenceClassView, bool]]:
        """Let no more gangs of a queue have a turn; return the rest, and which are classes."""
        self._blocked.add(queue)
        ordered = self._by_queue.get(queue)
        if ordered is not None:
            self._by_queue[queue] = _OrderedGangs(self.order_of(queue), self._now_s)
            return ordered.remaining()
        plain = self._by_queue.get("")
        left = plain.remaining() if plain is not None else []
        return [(view, is_class) for view, is_class in left if view.gangs[0].gang.queue == queue]

    def charged(self, queue: str) -> None:
        """Record that a queue's usage changed."""
        self._shares.clear()
        if queue in self._usage.tree and self._policies.sharing is not None:
            self._update_path(queue)

    def _next_queue(self) -> str | None:
        """Go down from the root to the queue that is next."""
        name = ""
        while True:
            child = self._best_child(name)
            if child is None:
                return name or None
            if child == name:
                return name
            name = child

    def _best_child(self, name: str) -> str | None:
        """Return the next child; `name` itself if its own gangs are next."""
        if name and name not in self._usage.tree.children:
            ordered = self._by_queue.get(name)
            return name if ordered is not None and ordered.head() is not None else None
        heap = self._heaps.get(name)
        while heap:
            _, child, stamp = heap[0]
            if self._entry_versions.get((name, child)) == stamp:
                return child
            heappop(heap)
        return None

    def _order_all_queues(self) -> None:
        """Order every queue among its siblings, the lowest first."""
        tree = self._usage.tree
        names = {above for name in self._by_queue if name for above in tree.path(name)}
        with_children = [name for name in self._by_queue if name in tree.children]
        for above in (*(tree.queues[name].parent for name in names), *with_children):
            self._sibling_count[above] = self._sibling_count.get(above, 0) + 1
        for name in sorted(names, key=lambda queue: (-len(tree.path(queue)), queue)):
            self._order_queue(name)

    def _update_path(self, queue: str) -> None:
        """Order a queue, and those above it, among their siblings."""
        for name in self._usage.tree.path(queue):
            self._order_queue(name)

    def _order_queue(self, name: str) -> None:
        """Order a queue among its siblings by the next gang in it."""
        tree, ordered = self._usage.tree, self._by_queue.get(name)
        head = ordered.head() if ordered is not None else None
        if name in tree.children:
            self._update_child(name, name, head)  # its own gangs compete with its children
            child = self._best_child(name)
            head = self._heads[(name, child)] if child is not None else None
        self._update_child(tree.queues[name].parent, name, head)

    def _update_child(self, above: str, name: str, head: PendingGang | None) -> None:
        where = (above, name)
        if head is None:
            if self._keys.pop(where, None) is not None:
                self._entry_versions[where] += 1
            return
        self._heads[where] = head
        if self._sibling_count.get(above) == 1:
            self._push(where, ())  # no sibling to compare it with
            return
        sharing = self._policies.sharing
        assert sharing is not None, "without sharing all gangs are in one order"  # noqa: S101
        usage, queue = self._usage, self._usage.tree.queues[name]
        own = above == name and bool(usage.tree.children.get(name))
        known = self._shares.get((name, own))
        if known is None:
            historical_gpu_s = usage.historical_gpu_s.get(name, 0.0) / queue.weight
            known = usage.own_share(name) if own else (usage.share(name), historical_gpu_s)
            self._shares[(name, own)] = known
        if own:  # an inner queue's own gangs compete with its children as one more child would
            queue = replace(queue, weight=1.0, priority=0)
        exceeds_nominal = usage.exceeds_nominal(name, self._charge(head))
        view = QueueView(queue, *known, exceeds_nominal)
        # Ties are broken by the priority of the next gang, then by its waiting time.
        self._push(where, (*sharing.key(view), -float(head.priority), head.queued_since_s))

    def _push(self, where: tuple[str, str], key: _Key) -> None:
        above, name = where
        if self._keys.get(where) != key:
            self._keys[where] = key
            stamp = self._entry_versions[where] = self._entry_versions.get(where, 0) + 1
            heappush(self._heaps.setdefault(above, []), (key, name, stamp))
