"""What each watch does with what administrators declare: queues, topologies, priorities."""

from typing import TYPE_CHECKING

from gangsched.core import facts as f
from gangsched.kube import groups, queues
from gangsched.kube.receivers import Named, Receiver

if TYPE_CHECKING:
    from gangsched.kube.scheduler import Scheduler


class PriorityClasses(Receiver):
    """PriorityClasses: what a group's class name is worth."""

    kind = "PriorityClass"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        name, value = groups.priority_class(raw)
        self.scheduler.priorities[name] = value

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
            self.scheduler.queues_again()

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        if self.scheduler.namespaces.pop(name, None) is not None:
            self.scheduler.queues_again()


class Queues(Receiver):
    """Queues. What another scheduler process had counted of GPU time is taken over once."""

    kind = "Queue"

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._raw: dict[str, bytes] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler = self.scheduler
        _, name, uid = groups.group_key(raw)
        new = uid not in self._raw
        self._raw[uid] = raw
        found = queues.queue(raw, scheduler.priorities, scheduler.namespaces)
        scheduler.check_order(found)
        scheduler.queues.seen("Queue", name, None)
        scheduler.observe(f.QueueSeen(found))
        if new:
            for fact in queues.gpu_time(raw):
                scheduler.observe(fact)
            if not scheduler.ready.is_set():
                scheduler.queues.adopt("Queue", name, groups.stored_status(raw))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        self.scheduler.queues.seen("Queue", groups.group_key(raw)[1], message)

    def again(self) -> None:
        """Read all queues again: namespaces changed."""
        for raw in list(self._raw.values()):
            self.seen(raw)

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        known = self._raw.pop(uid, None)
        if known is not None:
            name = groups.group_key(known)[1]
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
        self.scheduler.queues.seen("Reservation", booking.name, None)
        self.scheduler.observe(f.BookingSeen(booking))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        self.scheduler.queues.seen("Reservation", groups.group_key(raw)[1], message)

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
        self.scheduler.topologies.problem(topology.name, None)
        self.scheduler.observe(f.TopologySeen(topology))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        self.scheduler.topologies.problem(groups.group_key(raw)[1], message)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self.scheduler.topologies.forget(name)
        self.scheduler.observe(f.TopologyGone(name))
