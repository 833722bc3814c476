"""Judges queues from the pods that run: quotas, loans, preemption that pays, no leak, no loop.

It counts for itself: sums over the engine's pods by queue, with arithmetic of its own.
"""

from collections.abc import Mapping

from gangsched.core.engine import Engine, State
from gangsched.core.model import GPU, GangId
from gangsched.core.queues import Queue
from simulator.checkers import ViolationError

Sums = dict[str, dict[tuple[str, str], int]]


class Judge:
    """Looks after every event; raises at the first violation."""

    def __init__(self, engine: Engine, queues: Mapping[str, Queue]) -> None:
        self._engine = engine
        self._queues = dict(queues)
        self._children: dict[str, list[str]] = {}
        for queue in queues.values():
            self._children.setdefault(queue.parent, []).append(queue.name)
        self.most: Sums = {}

    def look(self, now_s: float) -> None:
        """Check everything.

        Raises:
            ViolationError: an invariant does not hold.

        """
        used = self._used()
        for name in self._queues:
            if name not in self._queues[name].parent:
                self._bounds(name, used, now_s)
        self._books(used, now_s)
        if self._engine.loops.seen:
            raise ViolationError(f"t={now_s:.3f} gangs stop each other in turn")

    def _used(self) -> Sums:
        """Sum what running pods hold, those of gangs that are leaving included."""
        found: Sums = {}
        for pod in self._engine.pods():
            if pod.gang is None or pod.node is None or pod.ended:
                continue
            state = self._engine.gangs.get(pod.gang)
            queue = state.spec.queue if state is not None and state.spec else "default"
            held = found.setdefault(queue, {})
            for resource, quantity in (*pod.needs.requests, ("pods", 1)):
                amount = quantity * 1000 if resource == GPU else quantity
                held[(resource, "")] = held.get((resource, ""), 0) + amount
                model = self._model(pod.node)
                if resource == GPU and model:
                    held[(resource, model)] = held.get((resource, model), 0) + amount
        return found

    def _model(self, node: str) -> str:
        for name, row in self._engine.cluster.rows.items():
            if name == node:
                return self._engine.cluster.gpu_model(row)
        return ""

    def _total(self, name: str, key: tuple[str, str], used: Sums) -> int:
        """Return what a queue and those below it hold; a kind is part of a product's name."""
        resource, kind = key
        own = sum(
            quantity
            for (other, model), quantity in used.get(name, {}).items()
            if other == resource and (kind in model if kind else not model)
        )
        return own + sum(self._total(child, key, used) for child in self._children.get(name, ()))

    def _bounds(self, name: str, used: Sums, now_s: float) -> None:
        """No queue holds more than guarantee plus loans; no root more than its guarantee.

        What a queue does not lend, nobody else has: its siblings together stay below the rest.
        """
        queue = self._queues[name]
        for quota in queue.quotas:
            held = self._total(name, quota.key, used)
            most = self.most.setdefault(name, {})
            most[quota.key] = max(most.get(quota.key, 0), held)
            if queue.parent == "" and held > quota.nominal:
                raise ViolationError(
                    f"t={now_s:.3f} queue {name} holds {held} {quota.key} of {quota.nominal}"
                )
            if quota.borrowing is not None and held > quota.nominal + quota.borrowing:
                raise ViolationError(
                    f"t={now_s:.3f} queue {name} holds {held} {quota.key}: more than "
                    f"{quota.nominal} and a loan of {quota.borrowing}"
                )
        for key in {quota.key for quota in queue.quotas}:
            kept = free = 0
            for child in self._children.get(name, ()):
                declared = next((q for q in self._queues[child].quotas if q.key == key), None)
                if declared is not None and declared.lending is not None:
                    kept = declared.nominal - declared.lending
                    free += max(kept - self._total(child, key, used), 0)
            nominal = next(quota.nominal for quota in queue.quotas if quota.key == key)
            if queue.parent == "" and self._total(name, key, used) > nominal - free:
                raise ViolationError(f"t={now_s:.3f} queue {name}: {key} that is not lent was used")

    def _books(self, used: Sums, now_s: float) -> None:
        """The ledger says what runs, plus what is reserved and not yet bound."""
        ledger = self._engine.ledger.usage
        reserved: dict[GangId, int] = {}
        for gang in self._engine.gangs.values():
            if gang.state in (State.RESERVED, State.BINDING, State.PLACED):
                reserved[gang.id] = gang.in_progress()
        for name in ledger.tree.queues:
            if name not in ledger.tree:
                continue
            pods = self._total(name, ("pods", ""), used) if name in self._queues else 0
            if name not in self._queues:
                pods = used.get(name, {}).get(("pods", ""), 0)
            waiting = sum(
                count
                for gang, count in reserved.items()
                if (state := self._engine.gangs[gang]).spec is not None
                and state.spec.queue in ledger.tree
                and name in ledger.tree.path(state.spec.queue)
            )
            booked = ledger.used(name, ("pods", ""))
            if booked != pods + waiting:
                raise ViolationError(
                    f"t={now_s:.3f} queue {name}: {booked} pods in the books, {pods} run and "
                    f"{waiting} are reserved"
                )
