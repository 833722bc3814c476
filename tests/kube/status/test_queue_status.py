"""Status of queues: GPU time is written while it is used; idle queues are not written."""

import pytest
from builders import an_engine, gang, needs, node, pod

from gangsched.core import facts as f
from gangsched.core.bounds import SPENT_ROWS
from gangsched.core.model.ids import NodeName, PodUid
from gangsched.core.model.queues import GpuBudget, Queue
from gangsched.kube.client.errors import Unavailable
from gangsched.kube.status.queue_status import QueueStatusWriter, usage_status


class Api:
    """An API server that writes down whose status is written, and may be away."""

    def __init__(self) -> None:
        self.wrote, self.away = [], False
        self.meanwhile = lambda: None

    async def patch(self, path, body) -> bytes:
        self.meanwhile()
        if self.away:
            raise Unavailable(503, "etcd is away")
        self.wrote.append((path.split("/")[-2], "spent" in body["status"]))
        return b"{}"


class EnoughError(Exception):
    """Ends the writer after a round."""


@pytest.fixture
def world(monkeypatch):
    """Return an engine with three queues, its writer, and what makes one round at a moment."""
    engine, api, now = an_engine(node("n")), Api(), [0.0]
    writer = QueueStatusWriter(api, lambda: now[0])
    for name in ("busy", "idle"):
        engine.observe(f.QueueSeen(Queue(name)), 0.0)
        writer.queues.track(name, "uid", None)

    async def end(_):
        raise EnoughError

    monkeypatch.setattr("gangsched.kube.status.queue_status.asyncio.sleep", end)

    async def a_round(at_s: float) -> list[str]:
        now[0], api.wrote = at_s, []
        with pytest.raises(EnoughError):
            await writer.run(engine.view, dict)
        return [name for name, _ in api.wrote]

    return engine, api, a_round, writer


async def test_only_what_spends_is_written_again(world):
    engine, api, a_round, _ = world
    assert await a_round(1.0) == ["busy", "idle"], "at first everything"
    assert await a_round(40.0) == []
    engine.observe(f.GangSeen(gang("g", 1, queue="busy")), 50.0)
    fact = pod("a", "g", needs(8), node=NodeName("n"), started_s=50.0)
    engine.observe(fact, 50.0)
    assert await a_round(80.0) == ["busy"]
    assert await a_round(82.0) == [], "GPU time alone is written every half minute"
    assert await a_round(111.0) == ["busy"]
    engine.observe(f.PodGone(PodUid("a")), 120.0)
    engine.observe(f.GangGone(gang("g", 1).id), 120.0)
    assert await a_round(142.0) == ["busy"], "what it spent until it ended"
    assert await a_round(180.0) == []
    api.away = True
    engine.observe(f.GangSeen(gang("h", 1, queue="idle")), 190.0)
    engine.observe(pod("b", "h", needs(8), node=NodeName("n"), started_s=190.0), 190.0)
    await a_round(220.0)
    engine.observe(f.PodGone(PodUid("b")), 220.0)
    engine.observe(f.GangGone(gang("h", 1).id), 220.0)
    api.away = False
    assert await a_round(260.0) == ["idle"], "it could not be written before"


async def test_what_another_process_wrote_is_not_written_again(world, monkeypatch):
    engine, api, a_round, _ = world
    bodies = {}

    async def keep(path, body):
        bodies[path.split("/")[-2]] = body["status"]
        return b"{}"

    monkeypatch.setattr(api, "patch", keep)
    await a_round(1.0)
    monkeypatch.undo()
    successor = QueueStatusWriter(api, lambda: 5.0)
    for name in ("busy", "idle"):
        successor.queues.track(name, "uid", None)
        successor.queues.restore(name, bodies[name])
    engine.observe(f.GangSeen(gang("g", 1, queue="busy")), 5.0)
    engine.observe(pod("a", "g", needs(8), node=NodeName("n"), started_s=5.0), 5.0)

    async def end(_):
        raise EnoughError

    monkeypatch.setattr("gangsched.kube.status.queue_status.asyncio.sleep", end)
    with pytest.raises(EnoughError):
        await successor.run(engine.view, dict)
    assert [name for name, _ in api.wrote] == ["busy"], "the idle one says it already"


async def test_a_queue_may_go_while_another_is_written(world):
    _, api, a_round, writer = world
    api.meanwhile = lambda: writer.queues.forget("idle")
    assert await a_round(1.0) == ["busy"]


async def test_a_recreated_queue_has_its_status_too(world):
    _, api, a_round, writer = world
    await a_round(1.0)
    writer.queues.track("idle", "another", None)
    assert await a_round(3.0) == ["idle"]
    # And so has one that is made anew while its predecessor's is written.
    writer.queues.track("idle", "a third", None)
    api.meanwhile = lambda: writer.queues.track("idle", "a fourth", None)
    await a_round(5.0)
    assert await a_round(7.0) == ["idle"]
    assert await a_round(9.0) == []


async def test_invented_users_displace_no_real_one():
    engine = an_engine(node("n"))
    budget = GpuBudget(1e6, 86_400.0, per_user=True)
    engine.observe(f.QueueSeen(Queue("q", budgets=(budget,))), 0.0)
    ledger = engine.view.ledger
    ledger.account(("q", "zoe")).periods[86_400.0] = (0, 5000.0)
    for number in range(2 * SPENT_ROWS.most):
        ledger.account(("q", f"a{number}")).periods[86_400.0] = (0, 1.0)
    ledger.account(("q", ""))
    rows = usage_status(engine, "q", 10.0)
    assert len(rows) == SPENT_ROWS.most
    assert [row["user"] for row in rows[:2]] == ["", "zoe"]
    assert rows[1]["gpuSeconds"] == 5000.0


@pytest.mark.parametrize("named", [False, True])
async def test_a_queue_does_not_name_its_next_gang(world, monkeypatch, named):
    engine, api, a_round, writer = world
    monkeypatch.setattr(writer, "_name_gangs", named)
    statuses = {}

    async def keep(path, body):
        statuses[path.split("/")[-2]] = body["status"]
        return b"{}"

    monkeypatch.setattr(api, "patch", keep)
    engine.observe(f.GangSeen(gang("secret", 2, queue="busy")), 0.0)
    await a_round(1.0)
    assert ("secret" in str(statuses["busy"])) == named
    assert statuses["busy"]["pending"] == 1
