"""The audit log: preempted gangs, with the reason and the gaining gang, and changes of queues.

The file has one JSON object per line, and each line is flushed at once. It answers "why was my job
killed on Tuesday" long after Events are gone, and shows the rules of that time. The API server's
own audit log has the user that changed a Queue; this log has the change.
"""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import AdvanceReservation, Queue
from gangsched.recording.wire import to_wire


@dataclass(slots=True)
class AuditLog:
    """Writes the audit lines of one engine to a file."""

    file: IO[str]

    def fact(self, view: EngineView, fact: f.Fact, at_s: float) -> None:
        """Record changes of queues and reservations; the engine must not have the fact yet."""
        match fact:
            case f.QueueSeen(queue):
                self._seen(at_s, "Queue", view.queues.get(queue.name), queue)
            case f.AdvanceReservationSeen(booking):
                self._seen(at_s, "Reservation", view.bookings.get(booking.name), booking)
            case f.QueueGone(name) if name in view.queues:
                self._write(at_s, "QueueDeleted", {"name": name})
            case f.AdvanceReservationGone(name) if name in view.bookings:
                self._write(at_s, "ReservationDeleted", {"name": name})
            case _:
                pass

    def order(self, view: EngineView, order: o.Order, at_s: float) -> None:
        """Record preempted and drained gangs, and deleted pods, when an order is carried out."""
        match order:
            case o.Preempt():
                data: dict[str, Any] = _gang_data(view, order.gang) | {"pods": order.pods}
                data |= {"for": _gang_data(view, order.by), "ground": order.reason}
                data |= {"lost_gpu_s": round(order.lost_gpu_s, 1), "loop": order.is_mutual}
                self._write(at_s, "Stopped", data)
            case o.Drain(gang_id, ground, of, lost_gpu_s):
                what = "queue" if ground is o.DrainReason.QUEUE else "reservation"
                data = _gang_data(view, gang_id) | {"pods": (), "for": {what: of}, "ground": ground}
                data |= {"lost_gpu_s": round(lost_gpu_s, 1), "loop": False}
                self._write(at_s, "Stopped", data)
            case o.Evict():
                gang = view.gangs.get(order.gang)
                member = gang.members.get(order.name) if gang is not None else None
                data = _gang_data(view, order.gang) | {"pod": order.name, "uid": order.uid}
                data |= {
                    "node": (member.bound_node or member.assigned_node)
                    if member is not None
                    else None
                }
                self._write(at_s, "PodDeleted", data | {"reason": order.reason})
            case _:
                pass

    def _seen(
        self,
        at_s: float,
        kind: str,
        before: Queue | AdvanceReservation | None,
        now: Queue | AdvanceReservation,
    ) -> None:
        if before is None:  # a new object, or a new process: record the rules from now on
            settings = {
                field.name: value
                for field in fields(now)
                if (value := getattr(now, field.name)) != field.default
            }
            self._write(at_s, f"{kind}Seen", {"name": now.name, "fields": settings})
        elif before != now:
            pairs = {
                field.name: [getattr(x, field.name) for x in (before, now)] for field in fields(now)
            }
            changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            self._write(at_s, f"{kind}Changed", {"name": now.name, "fields": changed})

    def _write(self, at_s: float, what: str, data: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
        line = {"at": at.replace("+00:00", "Z"), "what": what} | data
        self.file.write(msgspec.json.encode(to_wire(line), order="sorted").decode() + "\n")
        self.file.flush()


def _gang_data(view: EngineView, gang_id: GangId) -> dict[str, Any]:
    gang = view.gangs.get(gang_id)
    spec = gang.spec if gang is not None else None
    data = {"gang": str(gang_id)}
    return data | ({"queue": spec.queue, "user": spec.user} if spec is not None else {})
