"""Messages for tenants do not name other tenants' gangs; administrators' logs do."""

import asyncio
import logging
from dataclasses import replace

import pytest
from builders import POLICIES, an_engine, gang, node
from waiting import until_async

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, PodName, PodUid
from gangsched.core.model.queues import Queue
from gangsched.core.model.refusal import Reason, Refusal, Remedy
from gangsched.kube.service import Scheduler
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.status.redaction import Redaction
from gangsched.metrics import Metrics

NAMESPACES = {"ns": {}, "theirs": {}, "others": {}}
G = GangId("ns/g")


@pytest.fixture
def told():
    """Return how a sentence is told to the gang ns/g, in a queue of its own."""
    engine = an_engine(node("n"))
    for queue in ("secret", "closed-to-it"):
        theirs = Queue(queue, namespaces=frozenset({"theirs"}), open_to_all=False)
        engine.observe(f.QueueSeen(theirs), 0.0)
    engine.observe(f.QueueSeen(Queue("open")), 0.0)
    engine.observe(f.GangSeen(gang("g", 1, queue="closed-to-it")), 0.0)
    return lambda text, named=False: Redaction(engine.view, NAMESPACES, named=named).redact(text, G)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "it would delay theirs/bert-1, for which room is reserved.",
            "it would delay a gang of another namespace, for which room is reserved.",
        ),
        (
            "8 GPUs of gang theirs/job:a.b come free",
            "8 GPUs of a gang of another namespace come free",
        ),
        ("8 GPUs of gang ns/a come free", "8 GPUs of gang ns/a come free"),
        ("moving theirs/a, others/b elsewhere", "moving 2 gangs of other namespaces elsewhere"),
        (
            "moving ns/a, others/b elsewhere",
            "moving ns/a and a gang of another namespace elsewhere",
        ),
        (
            "queue open is strictly in order, and theirs/a is before it.",
            "queue open is strictly in order, and a gang of another namespace is before it.",
        ),
        (
            "Queue secret has no quota left: theirs/a is ahead.",
            "Another queue has no quota left: a gang of another namespace is ahead.",
        ),
        ("Gang theirs/a waits for it.", "A gang of another namespace waits for it."),
        ("Gangs theirs/a, ns/b wait.", "Gangs ns/b and a gang of another namespace wait."),
        ("ended: theirs/a.", "ended: a gang of another namespace."),
        (
            "preempted by gang theirs/a in queue secret; 2 lost",
            "preempted by a gang of another namespace in another queue; 2 lost",
        ),
        (
            "preempted by gang ns/a in queue secret; 2 lost",
            "preempted by gang ns/a in another queue; 2 lost",
        ),
        (
            "namespace ns may not use queue closed-to-it",
            "namespace ns may not use queue closed-to-it",
        ),
        ("queue open has 8 nvidia.com/gpu; 8/8 are in use", None),
        ("label topology.kubernetes.io/zone on node theirs-node", None),
        ("queue 'secret-not-there' does not exist", None),
        ("pod ns/g-0 has the scheduling gate theirs.io/gate", None),
    ],
)
def test_others_are_counted(told, text, wanted):
    assert told(text) == (wanted or text)
    assert told(text, named=True) == text


def test_long_sentences_take_no_time(told):
    for text in ("a" * 10**6, "a/" * 10**5, "theirs/" + "a." * 10**5, "gang " * 10**5):
        assert len(told(text)) <= 5000


class Api:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.bodies: list = []

    async def patch(self, _, body, *__) -> bytes:
        self.bodies.append(body)
        return b"{}"

    async def create(self, _, body) -> bytes:
        self.bodies.append(body)
        return b"{}"

    async def delete(self, *_) -> bytes:
        return b"{}"


@pytest.mark.parametrize("named", [False, True])
async def test_what_is_written_does_not_name_others(caplog, named):
    """Neither a status nor an Event nor a condition of a pod; the log does."""
    caplog.set_level(logging.INFO)
    api = Api()
    config = SchedulerConfig(name_other_namespaces=named)
    scheduler = Scheduler(api, config, POLICIES, Metrics())  # type: ignore[arg-type]
    scheduler.cluster.namespaces |= NAMESPACES
    scheduler.ready.set()
    subject = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True)
    scheduler.status.subject(G, subject)
    refusal = Refusal(G, Reason.BEHIND, "it would delay theirs/secret, for which room is kept.")
    remedies = (
        Remedy("wait", "8 GPUs of gang theirs/secret come free"),
        Remedy("move", "moving theirs/secret elsewhere"),
    )
    refusal = replace(refusal, remedies=remedies)
    report = o.Report(G, "Pending", refusal.reason.value, refusal.message, refusal)
    evict = o.Evict(G, PodUid("p"), PodName("ns/g-0"), "stopped for theirs/secret", preempted=True)
    scheduler.driver.execute((report, evict))
    writer = asyncio.create_task(scheduler.status.run())
    await until_async(lambda: len(api.bodies) == 3, "status, Event and condition")
    writer.cancel()
    assert ("theirs/secret" in str(api.bodies)) == named
    assert ("of another namespace" in str(api.bodies)) != named
    assert "theirs/secret" in caplog.text
