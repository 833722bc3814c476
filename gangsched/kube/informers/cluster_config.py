"""Informers of the administrators' objects: queues, reservations, topologies, priorities."""

from collections.abc import Callable, Iterable

from gangsched.core import facts as f
from gangsched.core.model.queues import Queue
from gangsched.kube.decoding.cluster import queues, topologies
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import GroupObject
from gangsched.kube.informers.base import Informer, NameTracking
from gangsched.kube.informers.context import ClusterConfig, FactSink, GangLookup
from gangsched.kube.status.config_status import ConfigStatusWriter
from gangsched.metrics import Metrics


class PriorityClasses(Informer):
    """PriorityClasses: the priority of each class, and of pods without a class."""

    kind = "PriorityClass"

    def __init__(
        self, cluster: ClusterConfig, metrics: Metrics, classes_changed: Callable[[], None]
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._classes_changed = cluster, classes_changed
        self._defaults: dict[str, int] = {}

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        name, value, default = topologies.priority_class(obj.raw)
        uid = obj.metadata.uid
        self._defaults.pop(uid, None)
        if default:
            self._defaults[uid] = value
        self._choose()
        new = name not in self._cluster.priorities
        self._cluster.priorities[name] = value
        if new:
            self._classes_changed()

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Forget a default class; groups keep the priority that they have."""
        self._defaults.pop(uid, None)
        self._choose()

    def _choose(self) -> None:
        """Choose the default class with the lowest value, as the API server does."""
        self._cluster.default_priority = min(self._defaults.values(), default=None)


class Namespaces(NameTracking):
    """Namespaces: their labels decide which queues they may use."""

    kind = "Namespace"

    def __init__(
        self, cluster: ClusterConfig, metrics: Metrics, changed: Callable[[], None]
    ) -> None:
        super().__init__(metrics)
        self._cluster, self._changed = cluster, changed

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        self.track(obj)
        name, labels = obj.metadata.name, obj.metadata.labels
        if self._cluster.namespaces.get(name) != labels:
            self._cluster.namespaces[name] = labels
            self._changed()

    def on_name_released(self, name: str) -> None:
        """Observe that no object has this name any more."""
        if self._cluster.namespaces.pop(name, None) is not None:
            self._changed()


class ConfigInformer(NameTracking):
    """The informer of objects with a status that reports whether the object is valid."""

    def __init__(
        self,
        facts: FactSink,
        metrics: Metrics,
        statuses: ConfigStatusWriter,
        started: Callable[[], bool],
    ) -> None:
        super().__init__(metrics)
        self._facts, self._statuses, self._started = facts, statuses, started

    def record(self, obj: ApiObject, problem: str | None = None) -> None:
        """Record an object, its problem, and its stored status."""
        name = obj.metadata.name
        self.track(obj)
        self._statuses.track(name, obj.metadata.uid, problem)
        if not self._started():
            self._statuses.restore(name, obj.group.status)

    def malformed(self, raw: bytes, message: str) -> None:
        """Report a malformed object; the last valid declaration stays in effect."""
        self.record(ApiObject(raw), message)

    def on_name_released(self, name: str) -> None:
        """Forget the status of the name."""
        self._statuses.forget(name)


class Queues(ConfigInformer):
    """The informer of Queues; it restores the GPU time that an earlier process counted, once."""

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

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        name, uid = obj.group.metadata.name, obj.group.metadata.uid
        queue = self._read(obj)
        if queue.order and queue.order not in self._orders:
            known = ", ".join(sorted(self._orders)) or "none"
            raise DecodeError(
                f"Queue {name}: spec.order: no policy {queue.order!r}; there are: {known}"
            )
        new = uid not in self._valid
        self._valid[uid] = obj.raw
        self.record(obj)
        self._facts.observe(f.QueueSeen(queue))
        if new:
            for fact in queues.gpu_time(obj.group):
                self._facts.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Report a malformed Queue; if it never was valid, no gang may use it."""
        super().malformed(raw, message)
        name = ApiObject(raw).metadata.name
        known = self._engine.queues.get(name)
        if known is None or known.broken:
            problem = message.removeprefix(f"Queue {name}: ")
            self._facts.observe(f.QueueSeen(Queue(name, broken=problem)))

    def namespaces_changed(self) -> None:
        """Read all valid Queues again: other namespaces may use them now."""
        for raw in self._valid.values():
            self._facts.observe(f.QueueSeen(self._read(ApiObject(raw))))

    def _read(self, obj: ApiObject) -> Queue:
        return queues.parse_queue(obj.group, self._cluster.priorities, self._cluster.namespaces)

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""
        self._valid.pop(uid, None)
        super().on_delete(uid, raw)

    def on_name_released(self, name: str) -> None:
        """Observe that no object has this name any more."""
        super().on_name_released(name)
        self._facts.observe(f.QueueGone(name))


class DeclarationInformer(ConfigInformer):
    """The informer of a kind with one fact per object, such as Topologies and Reservations."""

    def __init__(
        self,
        kind: str,
        read: Callable[[GroupObject], f.Fact],
        gone: Callable[[str], f.Fact],
        facts: FactSink,
        metrics: Metrics,
        statuses: ConfigStatusWriter,
        started: Callable[[], bool],
    ) -> None:
        super().__init__(facts, metrics, statuses, started)
        self.kind, self._fact_of, self._fact_of_gone = kind, read, gone

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        fact = self._fact_of(obj.group)
        self.record(obj)
        self._facts.observe(fact)

    def on_name_released(self, name: str) -> None:
        """Observe that no object has this name any more."""
        super().on_name_released(name)
        self._facts.observe(self._fact_of_gone(name))


def topology_seen(group: GroupObject) -> f.Fact:
    """Return the fact of a Topology."""
    return f.TopologySeen(topologies.topology(group))


def reservation_seen(group: GroupObject) -> f.Fact:
    """Return the fact of a Reservation."""
    return f.AdvanceReservationSeen(queues.reservation(group))
