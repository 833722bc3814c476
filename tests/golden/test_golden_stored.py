"""State stored between processes: what one process writes, and what the next reads from it.

The ConfigMap beside the scheduler (run times, what gangs have been through, what is set aside, the
names that are served) and objects with the status that an earlier process wrote.
"""

import asyncio
import contextlib
import json

from builders import POLICIES, WrappedEngine, an_engine, gang, node, waiting
from golden import agrees, plain, stored
from histories import history

from gangsched import __version__
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.kube.client.errors import NotFound
from gangsched.kube.informers.cluster_config import Queues
from gangsched.kube.service import Scheduler
from gangsched.kube.stored.gang_history import GangHistoryStore
from gangsched.kube.stored.quarantine import Quarantine
from gangsched.kube.stored.runtime_history import RuntimeHistoryStore
from gangsched.kube.stored.scheduler_names import ServedNames
from gangsched.metrics import Metrics
from gangsched.recording.journal import Journal, RecordingEngine, name_of

PLACE = "gangsched-system/gangsched-history"
NOW_S = 1_767_225_600.0
VERSION = json.dumps(__version__)
HELD = {"metadata": {"uid": "u", "namespace": "ns", "name": "g"}, "spec": {"roles": []}}


class ConfigMaps:
    """An API server that keeps one ConfigMap."""

    def __init__(self, data: dict | None = None) -> None:
        self.data, self.wrote = data, asyncio.Event()

    async def get(self, _) -> bytes:
        if self.data is None:
            raise NotFound(404, "none")
        return json.dumps({"data": self.data}).encode()

    async def patch(self, _, body, *__) -> bytes:
        if self.data is None:
            raise NotFound(404, "none")
        self.data |= body["data"]
        self.wrote.set()
        return b"{}"

    async def create(self, _, body) -> bytes:
        assert body["metadata"]["name"] == PLACE.split("/")[1]
        self.data = body["data"]
        self.wrote.set()
        return b"{}"


async def until_written(work, api: ConfigMaps) -> None:
    """Let a keeper work until it has written."""
    running = asyncio.ensure_future(work)
    await asyncio.wait_for(api.wrote.wait(), 60.0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def learnt() -> RuntimeHistory:
    """Return run times that a process has learnt."""
    found = RuntimeHistory()
    found.merge_json(history("simple").engine.history.to_json())
    for runtime_s in (60.0, 90.5, 3600.0):
        found.record(Gang(GangId("ns/train-7"), 2, user="ann", queue="q"), runtime_s)
    return found


def slow():
    """Return a gang whose plan took too long."""
    return waiting(gang("slow", 2, queue="q"))


async def test_what_is_kept_in_the_config_map():
    api = ConfigMaps()
    await until_written(RuntimeHistoryStore(api, PLACE).run(learnt(), 0.0), api)
    past = GangHistoryStore(api, PLACE)
    await past.read()
    await past.save(history("simple").engine.view)
    aside = Quarantine(api, PLACE)
    aside.add_gang(slow(), "its plan took more than 30 s", 3600.0, NOW_S)
    aside.suspect(waiting(gang("suspect", 3, queue="q")))
    aside.add_object("PodGroup", json.dumps(HELD).encode(), ValueError("a defect"), NOW_S)
    await aside.save()
    api.wrote.clear()
    await until_written(ServedNames(api, PLACE).run({"volcano", "gangsched"}), api)
    text = json.dumps(api.data, indent=1, sort_keys=True)
    agrees("config-map.json", text.replace(json.dumps(VERSION)[1:-1], '\\"VERSION\\"') + "\n")


async def test_what_the_next_process_makes_of_the_config_map():
    kept = stored("config-map.json").replace('\\"VERSION\\"', json.dumps(VERSION)[1:-1])
    api = ConfigMaps(json.loads(kept))
    before, found = json.dumps(learnt().to_json()), RuntimeHistory()
    await RuntimeHistoryStore(api, PLACE).read(found)
    assert json.dumps(found.to_json()) == before
    facts = await GangHistoryStore(api, PLACE).read()
    assert list(facts) == list(history("simple").engine.view.past())
    assert facts
    aside = Quarantine(api, PLACE)
    await aside.read(NOW_S)
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("slow-again", 2, queue="q")), NOW_S)
    asked = slow()
    for index, member in enumerate(asked.members):
        again = f.PodSeen(f"u{index}", f"ns/again-{index}", member.needs, GangId("ns/slow-again"))
        engine.observe(again, NOW_S)
    caught = aside.caught(engine.view, NOW_S + 1.0)
    assert [(one.gang, one.until_s) for one in caught] == [("ns/slow-again", NOW_S + 3600.0)]
    assert "a defect" in aside.of_object(json.dumps(HELD).encode(), NOW_S + 1.0)
    assert await ServedNames(api, PLACE).read() == {"volcano", "gangsched"}


# -- objects as an earlier process left them ------------------------------------------------------


class Listening(WrappedEngine):
    """An engine that notes the facts it is told, all at one moment."""

    def __init__(self, *settings):
        super().__init__(*settings)
        self.told: list[f.Fact] = []

    def observe(self, fact, now_s):
        self.told.append(fact)
        return self.inner.observe(fact, NOW_S)


def described(engine: Engine) -> dict:
    """Return what an engine knows of gangs, nodes and queues."""
    found = {}
    for one, state in sorted(engine.view.gangs.items()):
        members = sorted(
            (m.name, m.assigned_node, m.bound_node, plain(m.stage)) for m in state.members.values()
        )
        found[one] = [state.state.value, state.minimum(), state.account, members]
    used = {
        name: engine.view.cluster.used[row].tolist()
        for name, row in engine.view.cluster.rows.items()
    }
    accounts = {
        f"{q}/{u}": plain(time) for (q, u), time in sorted(engine.view.ledger.accounts.items())
    }
    return {"gangs": found, "used": used, "queues": sorted(engine.view.queues), "time": accounts}


def test_objects_with_the_status_of_an_earlier_process():
    """Nodes, queues with their GPU time, reservations, topologies, pods, and groups that run."""
    scheduler = Scheduler(
        None, SchedulerConfig(), POLICIES, Metrics(), read_only=True, make_engine=Listening
    )
    scheduler.ready.clear()
    receivers = {
        "Topology": scheduler.informers.topologies,
        "Queue": scheduler.informers.queues,
        "Reservation": scheduler.informers.reservations,
        "Node": scheduler.informers.nodes,
        "Pod": scheduler.informers.pods,
        "PodGroup": scheduler.informers.pod_groups,
    }
    assert isinstance(receivers["Queue"], Queues)
    for body in json.loads(stored("objects.json")):
        receivers[body["kind"]].on_update(json.dumps(body).encode())
    told = [f"{name_of(type(one))} {json.dumps(plain(one))}" for one in scheduler.engine.told]
    known = json.dumps(described(scheduler.engine), indent=1)
    agrees("objects-facts.txt", "\n".join([*told, known]) + "\n")


def test_what_a_snapshot_begins_with(tmp_path):
    """The first line of a journal: the settings of an engine, and what it has learnt."""
    path = tmp_path / "journal.jsonl"
    with path.open("w") as file:
        engine = RecordingEngine(Engine(Limits(), None), Journal(file))
        engine.history.merge_json(learnt().to_json())
        engine.observe(f.NodeSeen(node("n")), NOW_S)
    agrees("journal-start.jsonl", path.read_text().replace(VERSION, '"VERSION"'))
