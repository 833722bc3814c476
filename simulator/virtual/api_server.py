"""The API server of virtual time: calls take time and may fail, and objects outlive a restart."""

import math
import random
from dataclasses import dataclass, field, replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.kube.stored import gang_history


@dataclass(slots=True)
class Writes:
    """A client's limit on API writes: a token bucket, in virtual time.

    At most `waiting` writes wait at a time; the planner starts no more pods than that.
    """

    per_s: float
    burst: int
    waiting: int = 25
    _tokens: float = -1.0
    _at_s: float = 0.0

    def available(self, now_s: float) -> int:
        """Return how many more writes may be requested now."""
        if now_s >= self._at_s:
            fresh = self._tokens < 0 and self._at_s == 0.0
            tokens = self.burst if fresh else self._tokens + (now_s - self._at_s) * self.per_s
            return int(min(tokens, self.burst)) + self.waiting
        return self.waiting - round((self._at_s - now_s) * self.per_s)

    def when(self, now_s: float) -> float:
        """Return when a write that is requested now is sent."""
        if self._tokens < 0 and self._at_s == 0.0:
            self._tokens = float(self.burst)
        start_s = max(now_s, self._at_s)
        self._tokens = min(self._tokens + (start_s - self._at_s) * self.per_s, self.burst)
        self._at_s = start_s
        if self._tokens >= 1:
            self._tokens -= 1
            return start_s
        self._at_s = start_s + (1 - self._tokens) / self.per_s
        self._tokens = 0.0
        return self._at_s


_RANKS = {
    kind: rank
    for rank, kind in enumerate(("queue", "topology", "booking", "node", "pod", "gang", "status"))
}
"""Groups come last, so that a group with running members does not look empty."""

_SPREAD = 0.5
"""Standard deviation of the logarithm of latencies."""


@dataclass(slots=True)
class ApiServer:
    """Stores every object, and draws how long a call takes and whether it fails.

    `epoch` counts restarts of the scheduler: calls from before a restart have no effect.
    """

    rng: random.Random
    latency_s: float = 0.0
    errors: float = 0.0
    epoch: int = 0
    _objects: dict[tuple[str, str], f.Fact] = field(default_factory=dict)
    _phases: dict[str, str] = field(default_factory=dict)

    def delay_s(self) -> float:
        """Return how long the next call takes; log-normal."""
        return self.latency_s * math.exp(self.rng.gauss(0.0, _SPREAD)) if self.latency_s else 0.0

    def fails(self) -> bool:
        """Return whether the next call fails."""
        return self.rng.random() < self.errors

    def keep(self, fact: f.Fact) -> None:
        """Store an object that was created or changed, or remove one that was deleted."""
        match fact:
            case f.NodeSeen(node):
                self._objects["node", node.name] = fact
            case f.NodeGone(name):
                self._objects.pop(("node", name), None)
            case f.GangSeen(gang):
                self._objects["gang", gang.id] = fact
            case f.GangGone(gang_id):
                self._objects.pop(("gang", gang_id), None)
                self._objects.pop(("status", gang_id), None)
                self._phases.pop(gang_id, None)
            case f.PodSeen():
                self._objects["pod", fact.uid] = fact
            case f.PodGone(uid):
                self._objects.pop(("pod", uid), None)
            case f.QueueSeen(queue):
                self._objects["queue", queue.name] = fact
            case f.TopologySeen(topology):
                self._objects["topology", topology.name] = fact
            case f.AdvanceReservationSeen(booking):
                self._objects["booking", booking.name] = fact
            case _:
                pass

    def keep_order(self, order: o.Order) -> None:
        """Store what an order writes: a group's status, or the deletion of a pod."""
        match order:
            case o.Report(gang, state):
                self._phases[gang] = state
            case o.Reserve(gang, places):
                self._objects["status", gang] = f.AssignmentsRestored(gang, places)
            case o.Release(gang):
                self._objects.pop(("status", gang), None)
            case o.Evict(uid=uid):
                pod = self._objects.get(("pod", uid))
                if isinstance(pod, f.PodSeen):
                    self._objects["pod", uid] = replace(pod, terminating=True)
            case _:
                pass

    def _is_current(self, kind: str, name: str) -> bool:
        """Return whether an object counts: released assignments of a group do not."""
        return kind != "status" or self._phases.get(name) in ("Reserved", "Binding")

    def _as_listed(self, fact: f.Fact) -> f.Fact:
        """Return a fact as a new scheduler reads it: a group's status shows that it started."""
        match fact:
            case f.GangSeen(gang) if self._phases.get(gang.id) == "Placed":
                return f.GangSeen(replace(gang, started=True))
            case _:
                return fact

    def listed(self, engine: SchedulingEngine, now_s: float) -> list[f.Fact]:
        """Return the facts for a scheduler that starts now: the cluster first, groups last.

        The API server lists each kind by name. The scheduler before wrote GPU time into the status
        of queues, and the history of gangs into a ConfigMap.
        """
        order = sorted(self._objects, key=lambda key: (_RANKS[key[0]], key[1]))
        facts = [self._as_listed(self._objects[key]) for key in order if self._is_current(*key)]
        ledger = engine.view.ledger
        for (queue, user), time in ledger.accounts.items():
            time.advance_to(now_s, ledger.half_life_s)
            spent = tuple((period, *known) for period, known in time.periods.items())
            facts.append(f.UsageRestored(queue, user, now_s, time.historical_gpu_s, spent))
        return [*facts, *gang_history.read(gang_history.written(engine.view.past()))]
