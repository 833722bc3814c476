"""What the engine keeps for its queues: the tree, the ledger, histories, and what they ask for.

Every charge of the cluster goes through here, so that a queue's usage and a node's room are two
sums over the same keys.
"""

from collections.abc import Hashable, Iterator

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.engine.gangs.gang_views import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.lifecycle.preemption_history import PreemptionHistory
from gangsched.core.engine.snapshot_builder import Views
from gangsched.core.model.gangs import NOBODY
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.placement import Eviction
from gangsched.core.model.pods import GPU, MILLI, PodNeeds
from gangsched.core.model.queues import CREDITS, DEFAULT_QUEUE, Booking, Queue, QuotaKey, amounts
from gangsched.core.planning.node_profile import booked_rows
from gangsched.core.policy import PreemptionReason
from gangsched.core.quota.ledger import Allocation as Held
from gangsched.core.quota.ledger import Ledger
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import BackfillReservation


class Custody(Views):
    """The engine's books. The engine sets the time before anything is booked."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger or Ledger()
        self._tree_changed = False
        self.history = RuntimeHistory()
        self.queues: dict[str, Queue] = {}
        self.bookings: dict[str, Booking] = {}
        self.namespaces: dict[str, dict[str, dict[str, int]]] = {}
        self.reserved: dict[GangId, BackfillReservation] = {}
        self.protected: frozenset[GangId] = frozenset()
        self.unhelped: set[tuple[int, int]] = set()
        self.loops = PreemptionHistory()
        self.drift = 0
        self._now_s = 0.0
        self._tree_stamp = 0
        self._capacity: tuple[tuple[int, int], dict[QuotaKey, int]] | None = None
        self._orders: list[o.Order] = []

    # -- facts about queues -------------------------------------------------------------------

    def _queue_fact(self, fact: f.Fact) -> None:
        """Fold a fact about queues, bookings or GPU time in."""
        match fact:
            case f.QueueSeen(queue):
                if self.queues.get(queue.name) != queue:
                    self.queues[queue.name] = queue
                    self._declare()
            case f.QueueGone(name):
                if self.queues.pop(name, None) is not None:
                    self._declare()
            case f.BookingSeen(booking):
                self.bookings[booking.name] = booking
                self._backlog.room_grew = True
            case f.BookingGone(name):
                if self.bookings.pop(name, None) is not None:
                    self._backlog.room_grew = True
            case f.NamespaceQuotaSeen(namespace, name, left):
                self._namespace_quota(namespace, name, dict(left))
            case f.NamespaceQuotaGone(namespace, name):
                self._forget_quota(namespace, name)
            case f.BudgetsSeen(gangs):
                self.protected = frozenset(gangs)
            case f.GpuTimeSeen():
                self._remember(fact)
            case _:
                pass

    def _namespace_quota(self, namespace: str, name: str, left: dict[str, int]) -> None:
        """Learn what a quota of a namespace leaves; gangs that wait for it are tried again soon."""
        if not left:  # it counts nothing that room is reserved for
            self._forget_quota(namespace, name)
            return
        if namespace not in self.namespaces:
            self._tree_stamp += 1  # from now on it matters which pods exist
            self._backlog.anew()
        self.namespaces.setdefault(namespace, {})[name] = left

    def _forget_quota(self, namespace: str, name: str) -> None:
        quotas = self.namespaces.get(namespace, {})
        if quotas.pop(name, None) is not None and not quotas:
            del self.namespaces[namespace]

    def _declare(self) -> None:
        """Have everything counted anew in a changed tree, once for all changes till then."""
        self._tree_stamp += 1
        self._tree_changed = True
        self._backlog.anew()

    @property
    def ledger(self) -> Ledger:
        """What the queues hold, by the tree as it was declared last."""
        if self._tree_changed:
            self._tree_changed = False
            self._ledger.declare(QueueTree(self.queues.values()), self._now_s)
        return self._ledger

    def _remember(self, fact: f.GpuTimeSeen) -> None:
        """Take over what an earlier process had counted, unless this one counted already."""
        ledger = self._ledger  # not by the newest tree: each of a thousand queues changes it
        time = ledger.account((fact.queue, fact.user))
        if time.decayed:
            return
        time.advance(self._now_s, ledger.half_life_s)
        passed_s = max(self._now_s - fact.at_s, 0.0)
        time.decayed += fact.decayed * 0.5 ** (passed_s / ledger.half_life_s)
        for period_s, number, spent in fact.spent:
            if number == int(self._now_s // period_s):
                known = time.periods.get(period_s, (number, 0.0))[1]
                time.periods[period_s] = (number, known + spent)

    def capacity(self) -> dict[QuotaKey, int]:
        """Return what the whole cluster has, in the units of quotas; worked out when it changes."""
        stamp = (self.cluster.version, self._tree_stamp)
        if self._capacity is None or self._capacity[0] != stamp:
            self._capacity = stamp, self._sum()
        return self._capacity[1]

    def _sum(self) -> dict[QuotaKey, int]:
        found: dict[QuotaKey, int] = {}
        for resource in ("cpu", "memory", GPU):
            column = self.cluster.allocatable[:, self.cluster.resources.index(resource)]
            total = sum(column[self.cluster.live].tolist())
            found[(resource, "")] = total * MILLI if resource == GPU else total
        if self.ledger.rates.worth:
            found[CREDITS] = round(self._worth())
            found.pop((GPU, ""), None)
        return found

    def _worth(self) -> float:
        worth = 0.0
        for node in self.cluster.nodes:
            if node is not None:
                gpus = dict(node.allocatable).get(GPU, 0)
                worth += gpus * MILLI * self.ledger.rates.of(node.gpu_model)
        return worth

    # -- charges ------------------------------------------------------------------------------

    def _charge(
        self,
        key: Hashable,
        node: NodeName,
        needs: PodNeeds,
        gang: GangId | None,
        devices: Devices = (),
    ) -> Devices:
        """Charge a node, and the queue of the gang it is for."""
        if gang is not None:
            queue, user = self._account(gang)
            held = Held(gang, queue, user, amounts(needs), self._model(node), self._firm(gang))
            self.ledger.charge(key, held, self._now_s)
        return self.cluster.charge(key, node, needs, gang, devices)

    def _hand_over(self, place: Hashable, pod: Hashable, node: NodeName, needs: PodNeeds) -> None:
        """Let a pod have what its place was charged, or free it for what the pod takes instead."""
        if self.cluster.charged(place) == (node, needs) and self.cluster.charged(pod) is None:
            self.ledger.rename(place, pod)
            self.cluster.rename(place, pod)
        else:
            self._discharge(place)

    def _admit(self, gang: GangState) -> None:
        """Take note of what a gang is charged: it may have so much again for what it loses."""
        for key, quantity in self.ledger.of_gang(gang.id).items():
            gang.admitted[key] = max(gang.admitted.get(key, 0), quantity)

    def _devices_known(self, name: NodeName) -> None:
        """Learn which GPUs pods share that were there before their node was known."""
        for key, devices in self.cluster.sharing(name).items():
            found = self._member(PodUid(str(key)))
            if found is not None and found[1].devices != devices:
                found[1].devices = devices
                self._changes[found[0].id] = None

    def _discharge(self, key: Hashable) -> bool:
        self.ledger.discharge(key, self._now_s)
        return self.cluster.discharge(key)

    def _account(self, gang: GangId) -> tuple[str, str]:
        state = self.gangs.get(gang)
        return state.account if state is not None else (DEFAULT_QUEUE, NOBODY)

    def _firm(self, gang: GangId) -> bool:
        """Tell whether a gang may not be stopped."""
        state = self.gangs.get(gang)
        return state is not None and state.spec is not None and not state.spec.preemptible

    def _model(self, node: NodeName) -> str:
        row = self.cluster.rows.get(node)
        return self.cluster.gpu_model(row) if row is not None else ""

    def audit(self, now_s: float) -> dict[str, int]:
        """Compare the books with the pods and places that exist; heal, and return differences."""
        self._now_s = max(now_s, self._now_s)
        truth: dict[Hashable, Held] = {}
        for pod in self._pods.values():
            if pod.gang is not None and pod.node is not None and not pod.ended:
                truth[pod.uid] = self._held(pod.uid, pod.gang, pod.node, pod.needs)
        for gang in self.gangs.values():
            for member in gang.members.values():
                if member.stage is not None and member.node is not None:
                    key = (gang.id, member.name)
                    truth[key] = self._held(key, gang.id, member.node, member.needs)
        wrong = self.ledger.audit(truth, self._now_s)
        self.drift += sum(wrong.values())
        return wrong

    def _held(self, key: Hashable, gang: GangId, node: NodeName, needs: PodNeeds) -> Held:
        known = self.ledger.holding(key)
        model = self._model(node) or (known.model if known is not None else "")
        return Held(gang, *self._account(gang), amounts(needs), model, self._firm(gang))

    # -- gangs that come and go ---------------------------------------------------------------

    def _learn(self, gang: GangState) -> None:
        """Learn the run time of a gang that ended."""
        if gang.spec is None or gang.learnt or gang.placed_s is None:
            return
        gang.learnt = True
        self.history.ended(gang.spec, self._now_s - gang.running().started_s)
        user = gang.spec.user
        self._backlog.learnt(user, declared=self.history.factor(user) > 1)

    def _preempted(self, victim: GangState, eviction: Eviction, by: GangState) -> str:
        """Note who is stopped for whom; return the sentence its owner is told."""
        running = victim.running()
        gpus = sum(
            dict(place.needs.requests).get(GPU, 0)
            for place in running.places
            if not eviction.pods or place.name in eviction.pods
        )
        lost_s = 0.0 if eviction.pods else max(self._now_s - running.lost_since_s, 0.0)
        loop = self.loops.stopped(victim.id, by.id, self._now_s)
        self._orders.append(
            o.Preempt(victim.id, by.id, eviction.pods, eviction.reason, lost_s * gpus, loop)
        )
        queue = by.spec.queue if by.spec is not None else DEFAULT_QUEUE
        if eviction.reason == PreemptionReason.OVERRUN and victim.spec is not None:
            self._learn(victim)
            said_s = victim.spec.expected_runtime_s or 0
            by_word = f", which it passed, after more than the {said_s:g} s it was expected to run"
        else:
            by_word = ""
        if victim.id in self.protected:
            by_word += ", though a PodDisruptionBudget protects it: others are not enough"
        lost = f"; {lost_s * gpus / 3600:.3g} GPU-hours since its last checkpoint are lost"
        return f"stopped for {by.id} of queue {queue}{by_word}{lost if lost_s * gpus >= 1 else ''}"

    def _limit_s(self, gang: GangState) -> float | None:
        """Return how long a gang may run, by its own word and its queues'."""
        spec, tree = gang.spec, self.ledger.usage.tree
        if spec is None:
            return None
        path = tree.path(tree.home(spec.queue))
        limits = [spec.max_runtime_s, *(tree.queues[name].max_runtime_s for name in path)]
        return min((limit for limit in limits if limit is not None), default=None)

    def _within_quota(self, gang: GangState) -> bool:
        """Tell whether a gang's queues hold no more than they may."""
        usage = self.ledger.usage
        return not usage.overdrawn(usage.tree.home(gang.account[0]))

    def _unwanted(self) -> Iterator[tuple[GangState, str]]:
        """Yield running gangs that have to go: from drained queues, and from booked nodes."""
        tree = self.ledger.usage.tree
        drained = tree.drained
        booked: dict[NodeName, Booking] = {}
        for booking in self.bookings.values():
            window = booking.window(self._now_s) if booking.evicts else None
            if window is not None and window[0] <= self._now_s:
                for row in booked_rows(self.cluster, booking):
                    booked[self.cluster.names[row]] = booking
        if not drained and not booked:
            return
        for gang in list(self.gangs.values()):
            if gang.state is not State.PLACED or gang.spec is None:
                continue
            queue = tree.home(gang.spec.queue)
            where = drained.intersection(tree.path(queue))
            if where:
                yield gang, f"queue {min(where)} is drained"
                continue
            nodes = {member.bound for member in gang.members.values() if member.runs}
            keeps = next((booked[node] for node in nodes if node in booked), None)
            if keeps is not None and not keeps.admits(gang.id.split("/", 1)[0], queue):
                yield gang, f"its nodes are booked ({keeps.name})"

    def finished(self, gang: GangState) -> bool:
        """Tell whether a gang's work is done."""
        done = gang.state is State.PLACED and gang.bound_count() == 0 and gang.in_progress() == 0
        return done and gang.ended_count() >= gang.minimum()
