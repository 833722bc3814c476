"""What each watch does with what administrators declare: queues, topologies, priorities."""

from typing import TYPE_CHECKING

from gangsched.core import facts as f
from gangsched.kube import groups, queues
from gangsched.kube.quantities import DecodeError
from gangsched.kube.receivers import Named, Receiver

if TYPE_CHECKING:
    from gangsched.kube.scheduler import Scheduler


class PriorityClasses(Receiver):
    """PriorityClasses: what a group's class name is worth."""

    kind = "PriorityClass"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        name, value = groups.priority_class(raw)
        new = name not in self.scheduler.priorities
        self.scheduler.priorities[name] = value
        if new:
            for receiver in self.scheduler.receivers:
                receiver.classes_changed()

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Groups that name it keep the value they were read with."""


class Namespaces(Named):
    """Namespaces: their labels decide who may use a queue."""

    kind = "Namespace"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        self.remember(raw)
        _, name, _ = groups.group_key(raw)
        labels = groups.labels(raw)
        if self.scheduler.namespaces.get(name) != labels:
            self.scheduler.namespaces[name] = labels
            self.scheduler.declared.namespaces_changed()

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        if self.scheduler.namespaces.pop(name, None) is not None:
            self.scheduler.declared.namespaces_changed()


class Queues(Named):
    """Queues. What another scheduler process had counted of GPU time is taken over once."""

    kind = "Queue"

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._valid: dict[str, bytes] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler = self.scheduler
        _, name, uid = groups.group_key(raw)
        self.remember(raw)
        found = queues.queue(raw, scheduler.priorities, scheduler.namespaces)
        orders = scheduler.policies.orders
        if found.order and found.order not in orders:
            known = ", ".join(sorted(orders)) or "none"
            raise DecodeError(
                f"Queue {name}: spec.order: no policy {found.order!r}; there are: {known}"
            )
        new = uid not in self._valid
        self._valid[uid] = raw
        scheduler.queues.seen("Queue", name, uid, None)
        scheduler.observe(f.QueueSeen(found))
        if new:
            for fact in queues.gpu_time(raw):
                scheduler.observe(fact)
            if not scheduler.ready.is_set():
                scheduler.queues.adopt("Queue", name, groups.stored_status(raw))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        _, name, uid = groups.group_key(raw)
        self.scheduler.queues.seen("Queue", name, uid, message)

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
        self.scheduler.queues.gone("Queue", name)
        self.scheduler.observe(f.QueueGone(name))


class Reservations(Named):
    """Room booked in advance."""

    kind = "Reservation"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        booking = queues.reservation(raw)
        if not self.scheduler.ready.is_set():
            self.scheduler.queues.adopt("Reservation", booking.name, groups.stored_status(raw))
        self.remember(raw)
        self.scheduler.queues.seen("Reservation", booking.name, groups.group_key(raw)[2], None)
        self.scheduler.observe(f.BookingSeen(booking))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        _, name, uid = groups.group_key(raw)
        self.remember(raw)
        self.scheduler.queues.seen("Reservation", name, uid, message)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self.scheduler.queues.gone("Reservation", name)
        self.scheduler.observe(f.BookingGone(name))


class Topologies(Named):
    """Our own Topologies."""

    kind = "Topology"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        topology = groups.topology(raw)
        self.remember(raw)
        self.scheduler.topologies.seen(topology.name, groups.group_key(raw)[2], None)
        self.scheduler.observe(f.TopologySeen(topology))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        _, name, uid = groups.group_key(raw)
        self.remember(raw)
        self.scheduler.topologies.seen(name, uid, message)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self.scheduler.topologies.forget(name)
        self.scheduler.observe(f.TopologyGone(name))
