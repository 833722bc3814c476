"""The audit log: one line for each preempted gang, and for each changed rule."""

import io
import json
from dataclasses import replace

from builders import node, pod

from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.facts import (
    AdvanceReservationGone,
    AdvanceReservationSeen,
    GangSeen,
    NodeSeen,
    QueueGone,
    QueueSeen,
)
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.queues import AdvanceReservation, Queue, Quota
from gangsched.core.orders import Drain, DrainReason, Evict, Preempt, Release
from gangsched.core.quota.ledger import Ledger
from gangsched.recording.audit_log import AuditLog


class Written:
    """A trail, its engine and the lines so far."""

    def __init__(self):
        self.file = io.StringIO()
        self.trail = AuditLog(self.file)
        self.engine = Engine(Limits(), Ledger())

    def hear(self, fact):
        self.trail.fact(self.engine.view, fact, 1_700_000_000.25)
        self.engine.observe(fact, 1_700_000_000.25)

    def lines(self):
        found = [json.loads(line) for line in self.file.getvalue().splitlines()]
        self.file.seek(0)
        self.file.truncate()
        return found


def test_rules_that_change_are_noted_once_with_what_they_were():
    written = Written()
    queue = Queue("team", quotas=(Quota("gpu", "", 8),), weight=2.0)
    written.hear(QueueSeen(queue))
    (line,) = written.lines()
    assert line["at"] == "2023-11-14T22:13:20.250Z"
    assert (line["what"], line["name"]) == ("QueueSeen", "team")
    assert line["fields"]["weight"] == 2.0
    assert set(line["fields"]) == {"name", "quotas", "weight"}
    written.hear(QueueSeen(queue))
    assert not written.lines()  # the watch says it again: nothing changed
    written.hear(QueueSeen(replace(queue, weight=3.0, strict=True)))
    (line,) = written.lines()
    assert line == {
        "at": "2023-11-14T22:13:20.250Z",
        "what": "QueueChanged",
        "name": "team",
        "fields": {"weight": [2.0, 3.0], "strict": [False, True]},
    }
    written.hear(QueueGone("team"))
    written.hear(QueueGone("team"))
    assert [line["what"] for line in written.lines()] == ["QueueDeleted"]


def test_reservations_are_noted_too():
    written = Written()
    booking = AdvanceReservation(
        "maintenance", 10.0, 20.0, (NodeName("n"),), queues=frozenset({"team"})
    )
    written.hear(AdvanceReservationSeen(booking))
    written.hear(AdvanceReservationSeen(replace(booking, end_s=30.0)))
    written.hear(AdvanceReservationGone("maintenance"))
    seen, changed, gone = written.lines()
    assert seen["fields"]["queues"] == ["team"]
    assert changed["fields"] == {"end_s": [20.0, 30.0]}
    assert (gone["what"], gone["name"]) == ("ReservationDeleted", "maintenance")


def test_a_preemption_names_victim_preemptor_and_reason():
    written = Written()
    for name, queue in (("lent", "a"), ("owner", "b")):
        gang = GangId(f"ns/{name}")
        written.hear(GangSeen(Gang(gang, 1, queue=queue, user=f"{name}@example.com")))
    stopped = Preempt(GangId("ns/lent"), GangId("ns/owner"), (PodName("p"),), "reclaim", 7200.04)
    deleted = Evict(GangId("ns/lent"), PodUid("u"), PodName("p"), "stopped for ns/owner")
    for order in (stopped, deleted, Release(GangId("ns/lent"))):
        written.trail.order(written.engine.view, order, 0.0)
    who, pod = written.lines()
    assert who == {
        "at": "1970-01-01T00:00:00.000Z",
        "what": "Stopped",
        "gang": "ns/lent",
        "queue": "a",
        "user": "lent@example.com",
        "for": {"gang": "ns/owner", "queue": "b", "user": "owner@example.com"},
        "ground": "reclaim",
        "pods": ["p"],
        "lost_gpu_s": 7200.0,
        "loop": False,
    }
    assert (pod["what"], pod["uid"], pod["reason"]) == ("PodDeleted", "u", "stopped for ns/owner")


def test_who_left_for_an_administrator_and_what_that_cost():
    written = Written()
    written.hear(GangSeen(Gang(GangId("ns/g"), 1, queue="a", user="ann")))
    for ground, name in ((DrainReason.QUEUE, "a"), (DrainReason.RESERVATION, "upgrade")):
        written.trail.order(written.engine.view, Drain(GangId("ns/g"), ground, name, 9.04), 0.0)
    queue, reservation = written.lines()
    assert queue == {
        "at": "1970-01-01T00:00:00.000Z",
        "what": "Stopped",
        "gang": "ns/g",
        "queue": "a",
        "user": "ann",
        "for": {"queue": "a"},
        "ground": "QueueDrained",
        "pods": [],
        "lost_gpu_s": 9.0,
        "loop": False,
    }
    assert (reservation["for"], reservation["ground"]) == (
        {"reservation": "upgrade"},
        "Reservation",
    )


def test_a_deleted_gang_is_named():
    written = Written()
    order = Evict(GangId("ns/gone"), PodUid("u"), PodName("p"), "why")
    written.trail.order(written.engine.view, order, 0.0)
    (line,) = written.lines()
    assert line["gang"] == "ns/gone"
    assert line["node"] is None


def test_the_node_of_a_pod_that_is_deleted_is_named():
    written = Written()
    gang = GangId("ns/g")
    written.hear(NodeSeen(node("n0")))
    written.hear(GangSeen(Gang(gang, 1)))
    written.hear(pod("g-0", "g", node=NodeName("n0"), started_s=0.0))
    order = Evict(gang, PodUid("g-0"), PodName("ns/g-0"), "stopped for ns/owner")
    written.trail.order(written.engine.view, order, 0.0)
    (line,) = written.lines()
    assert line["node"] == "n0"
