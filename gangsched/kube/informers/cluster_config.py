"""What each watch does with what administrators declare: queues, topologies, priorities."""

from typing import TYPE_CHECKING

from gangsched.core import facts as f
from gangsched.core.model.queues import Queue
from gangsched.kube.decoding import metadata
from gangsched.kube.decoding.cluster import queues, topologies
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.informers.base import Informer, NameTracking
from gangsched.kube.status.config_status import ConfigStatusWriter

if TYPE_CHECKING:
    from gangsched.kube.service import Scheduler


class PriorityClasses(Informer):
    """PriorityClasses: what a group's class name is worth, and what pods are that name none."""

    kind = "PriorityClass"

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._defaults: dict[str, int] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        name, value, default = topologies.priority_class(raw)
        _, _, uid = metadata.group_key(raw)
        self._defaults.pop(uid, None)
        if default:
            self._defaults[uid] = value
        self._choose()
        new = name not in self.scheduler.priorities
        self.scheduler.priorities[name] = value
        if new:
            for receiver in self.scheduler.receivers:
                receiver.classes_changed()

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Groups that name it keep the value they were read with."""
        self._defaults.pop(uid, None)
        self._choose()

    def _choose(self) -> None:
        """Of several defaults the API server takes the least."""
        self.scheduler.default_priority = min(self._defaults.values(), default=None)


class Namespaces(NameTracking):
    """Namespaces: their labels decide who may use a queue."""

    kind = "Namespace"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        self.remember(raw)
        _, name, _ = metadata.group_key(raw)
        labels = metadata.labels(raw)
        if self.scheduler.namespaces.get(name) != labels:
            self.scheduler.namespaces[name] = labels
            self.scheduler.queues.namespaces_changed()

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        if self.scheduler.namespaces.pop(name, None) is not None:
            self.scheduler.queues.namespaces_changed()


class ConfigInformer(NameTracking):
    """Objects whose status says whether they are understood."""

    def __init__(self, scheduler: "Scheduler", statuses: ConfigStatusWriter) -> None:
        super().__init__(scheduler)
        self._statuses = statuses

    def stand(self, raw: bytes, problem: str | None = None) -> None:
        """Learn that an object exists, what is wrong with it, and what its status says."""
        _, name, uid = metadata.group_key(raw)
        self.remember(raw)
        self._statuses.seen(name, uid, problem)
        if not self.scheduler.ready.is_set():
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

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler, scheduler.queue_status.queues)
        self._valid: dict[str, bytes] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler = self.scheduler
        _, name, uid = metadata.group_key(raw)
        found = queues.queue(raw, scheduler.priorities, scheduler.namespaces)
        orders = scheduler.policies.orders
        if found.order and found.order not in orders:
            known = ", ".join(sorted(orders)) or "none"
            raise DecodeError(
                f"Queue {name}: spec.order: no policy {found.order!r}; there are: {known}"
            )
        new = uid not in self._valid
        self._valid[uid] = raw
        self.stand(raw)
        scheduler.observe(f.QueueSeen(found))
        if new:
            for fact in queues.gpu_time(raw):
                scheduler.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; without a valid declaration before, nobody may use the queue."""
        super().malformed(raw, message)
        scheduler = self.scheduler
        _, name, _ = metadata.group_key(raw)
        known = scheduler.engine.queues.get(name)
        if known is None or known.broken:
            said = message.removeprefix(f"Queue {name}: ")
            scheduler.observe(f.QueueSeen(Queue(name, broken=said)))

    def namespaces_changed(self) -> None:
        """Read all valid declarations again: others may use the queues now."""
        scheduler = self.scheduler
        for raw in self._valid.values():
            found = queues.queue(raw, scheduler.priorities, scheduler.namespaces)
            scheduler.observe(f.QueueSeen(found))

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        self._valid.pop(uid, None)
        super().gone(uid, raw)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        super().left(name)
        self.scheduler.observe(f.QueueGone(name))


class Reservations(ConfigInformer):
    """Room booked in advance."""

    kind = "Reservation"

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler, scheduler.queue_status.reservations)

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler, booking = self.scheduler, queues.reservation(raw)
        self.stand(raw)
        scheduler.observe(f.BookingSeen(booking))

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        super().left(name)
        self.scheduler.observe(f.BookingGone(name))


class Topologies(ConfigInformer):
    """Our own Topologies."""

    kind = "Topology"

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler, scheduler.topology_status.topologies)

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler, topology = self.scheduler, topologies.topology(raw)
        self.stand(raw)
        scheduler.observe(f.TopologySeen(topology))

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        super().left(name)
        self.scheduler.observe(f.TopologyGone(name))
