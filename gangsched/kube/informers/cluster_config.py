"""What each watch does with what administrators declare: queues, topologies, priorities."""

from collections.abc import Callable, Iterable

from gangsched.core import facts as f
from gangsched.core.model.queues import Queue
from gangsched.kube.decoding import metadata
from gangsched.kube.decoding.cluster import queues, topologies
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.informers.base import Informer, NameTracking
from gangsched.kube.informers.context import ClusterConfig, FactSink, GangLookup
from gangsched.kube.status.config_status import ConfigStatusWriter
from gangsched.metrics import Metrics


class PriorityClasses(Informer):
    """PriorityClasses: what a group's class name is worth, and what pods are that name none."""

    kind = "PriorityClass"

    def __init__(
        self, cluster: ClusterConfig, metrics: Metrics, classes_changed: Callable[[], None]
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._classes_changed = cluster, classes_changed
        self._defaults: dict[str, int] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        name, value, default = topologies.priority_class(raw)
        _, _, uid = metadata.group_key(raw)
        self._defaults.pop(uid, None)
        if default:
            self._defaults[uid] = value
        self._choose()
        new = name not in self._cluster.priorities
        self._cluster.priorities[name] = value
        if new:
            self._classes_changed()

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Groups that name it keep the value they were read with."""
        self._defaults.pop(uid, None)
        self._choose()

    def _choose(self) -> None:
        """Of several defaults the API server takes the least."""
        self._cluster.default_priority = min(self._defaults.values(), default=None)


class Namespaces(NameTracking):
    """Namespaces: their labels decide who may use a queue."""

    kind = "Namespace"

    def __init__(
        self, cluster: ClusterConfig, metrics: Metrics, changed: Callable[[], None]
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._changed = cluster, changed

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        self.remember(raw)
        _, name, _ = metadata.group_key(raw)
        labels = metadata.labels(raw)
        if self._cluster.namespaces.get(name) != labels:
            self._cluster.namespaces[name] = labels
            self._changed()

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        if self._cluster.namespaces.pop(name, None) is not None:
            self._changed()


class ConfigInformer(NameTracking):
    """Objects whose status says whether they are understood."""

    def __init__(
        self,
        facts: FactSink,
        metrics: Metrics,
        statuses: ConfigStatusWriter,
        started: Callable[[], bool],
    ) -> None:
        super().__init__(metrics)
        self._facts, self._statuses, self._started = facts, statuses, started

    def stand(self, raw: bytes, problem: str | None = None) -> None:
        """Learn that an object exists, what is wrong with it, and what its status says."""
        _, name, uid = metadata.group_key(raw)
        self.remember(raw)
        self._statuses.seen(name, uid, problem)
        if not self._started():
            self._statuses.adopt(name, metadata.stored_status(raw))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        self.stand(raw, message)

    def left(self, name: str) -> None:
        """Forget what there was to tell of the name."""
        self._statuses.gone(name)


class Queues(ConfigInformer):
    """Queues. What another scheduler process had counted of GPU time is taken over once."""

    kind = "Queue"

    def __init__(
        self,
        facts: FactSink,
        metrics: Metrics,
        statuses: ConfigStatusWriter,
        started: Callable[[], bool],
        *,
        cluster: ClusterConfig,
        engine: GangLookup,
        orders: Iterable[str],
    ) -> None:
        super().__init__(facts, metrics, statuses, started)
        self._cluster, self._engine, self._orders = cluster, engine, frozenset(orders)
        self._valid: dict[str, bytes] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        _, name, uid = metadata.group_key(raw)
        found = queues.queue(raw, self._cluster.priorities, self._cluster.namespaces)
        if found.order and found.order not in self._orders:
            known = ", ".join(sorted(self._orders)) or "none"
            raise DecodeError(
                f"Queue {name}: spec.order: no policy {found.order!r}; there are: {known}"
            )
        new = uid not in self._valid
        self._valid[uid] = raw
        self.stand(raw)
        self._facts.observe(f.QueueSeen(found))
        if new:
            for fact in queues.gpu_time(raw):
                self._facts.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; without a valid declaration before, nobody may use the queue."""
        super().malformed(raw, message)
        _, name, _ = metadata.group_key(raw)
        known = self._engine.queues.get(name)
        if known is None or known.broken:
            said = message.removeprefix(f"Queue {name}: ")
            self._facts.observe(f.QueueSeen(Queue(name, broken=said)))

    def namespaces_changed(self) -> None:
        """Read all valid declarations again: others may use the queues now."""
        for raw in self._valid.values():
            found = queues.queue(raw, self._cluster.priorities, self._cluster.namespaces)
            self._facts.observe(f.QueueSeen(found))

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        self._valid.pop(uid, None)
        super().gone(uid, raw)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        super().left(name)
        self._facts.observe(f.QueueGone(name))


class Reservations(ConfigInformer):
    """Room booked in advance."""

    kind = "Reservation"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        booking = queues.reservation(raw)
        self.stand(raw)
        self._facts.observe(f.BookingSeen(booking))

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        super().left(name)
        self._facts.observe(f.BookingGone(name))


class Topologies(ConfigInformer):
    """Our own Topologies."""

    kind = "Topology"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        topology = topologies.topology(raw)
        self.stand(raw)
        self._facts.observe(f.TopologySeen(topology))

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        super().left(name)
        self._facts.observe(f.TopologyGone(name))
