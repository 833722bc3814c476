"""Statuses of groups: what failed is written later, what another process wrote is not repeated."""

import asyncio

import pytest

from gangsched.core.model import GangId, NodeName, PodName
from gangsched.core.orders import Report, Reserve
from gangsched.core.refusal import Reason, Refusal
from gangsched.kube import foreign, status
from gangsched.kube.errors import Forbidden, Invalid, NotFound, Unavailable
from gangsched.kube.status import Status, Subject
from gangsched.kube.words import same

G = GangId("ns/g")


class Api:
    """An API server that fails at the first write."""

    def __init__(self, error: Exception) -> None:
        self.error, self.phases = error, []

    async def patch(self, _, body) -> bytes:
        self.phases.append(body["status"]["phase"])
        if len(self.phases) == 1:
            raise self.error
        return b"{}"

    async def create(self, *_) -> bytes:
        return b"{}"


@pytest.mark.parametrize(
    ("error", "writes"),
    [
        (Unavailable(503, "etcd is away"), 2),
        (Forbidden(403, "not yet"), 2),
        (Invalid(422, "no such phase"), 1),
        (NotFound(404, "gone"), 1),
    ],
)
async def test_a_status_that_could_not_be_written(monkeypatch, error, writes):
    monkeypatch.setattr(status, "_AGAIN_S", 0.01)
    api = Api(error)
    made = Status(api)
    made.subject(G, Subject("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True))
    made.take(Report(G, "Placed", "Placed", "all 2 pods of the gang are bound."))
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.2)
    running.cancel()
    assert api.phases == ["Placed"] * writes


class Moody(Api):
    """An API server that takes an Event only when it is sent again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.events = []

    async def patch(self, *_) -> bytes:
        return b"{}"

    async def create(self, _, body) -> bytes:
        self.events.append(body["reason"])
        if len(self.events) == 1:
            raise self.error
        return b"{}"


@pytest.mark.parametrize(
    ("error", "tries"), [(Unavailable(503, "etcd is away"), 2), (Forbidden(403, "no right"), 1)]
)
async def test_an_event_that_could_not_be_written_is_told_later(monkeypatch, error, tries):
    monkeypatch.setattr(status, "_AGAIN_S", 0.01)
    api = Moody(error)
    made = Status(api)
    made.subject(G, OURS)
    made.take(PLACED)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.2)
    running.cancel()
    assert api.events == ["Placed"] * tries


class Slow(Moody):
    """An API server where the first write fails in a way nobody knows, and all others take long."""

    def __init__(self) -> None:
        super().__init__(ZeroDivisionError("a defect"))
        self.phases, self.wait_s = {}, 0.05

    async def patch(self, path, body) -> bytes:
        if "podgroups/bad/" in path and "podgroups/bad/" not in self.phases:
            self.phases["podgroups/bad/"] = "failed"
            raise self.error
        await asyncio.sleep(self.wait_s)
        self.phases[path.split("/")[-2]] = body["status"]["phase"]
        return b"{}"


async def test_what_was_written_while_another_failed_is_written_when_all_begin_anew():
    api = Slow()
    made = Status(api)
    for name in ("good", "bad"):
        group = Subject("gangsched.io/v1beta1", "PodGroup", "ns", name, name, has_status=True)
        made.subject(GangId(f"ns/{name}"), group)
        made.take(Report(GangId(f"ns/{name}"), "Placed", "Placed", "all 2 pods are bound."))
    with pytest.raises(ExceptionGroup):
        await made.run()
    assert "good" not in api.phases
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.2)
    running.cancel()
    assert api.phases["good"] == "Placed"


class Store:
    """An API server that keeps one object's status and its Events."""

    def __init__(self) -> None:
        self.status, self.writes, self.events = {}, 0, []

    async def patch(self, _, body) -> bytes:
        self.writes += 1
        self.status |= body["status"]
        return b"{}"

    async def create(self, _, body) -> bytes:
        self.events.append((body["reason"], body["message"]))
        return b"{}"


OURS = Subject("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True)
THEIRS = [
    Subject(kind.api_version, "PodGroup", "ns", "g", "u", theirs=kind)
    for kind in foreign.KINDS
    if kind.whose in (foreign.VOLCANO, foreign.KAI, foreign.UPSTREAM)
]
RESERVED = Reserve(G, ((PodName("ns/g-0"), NodeName("n")),))
PLACED = Report(G, "Placed", "Placed", "all 2 pods of the gang are bound.", proof="proved")
MET = Report(G, "Placed", "Placed", "all 2 pods of the gang are bound.", met=True)
NO_ROOM = Refusal(G, Reason.NO_ROOM, "no node has 8 free GPUs.")
REFUSED = Report(G, "Pending", "NotEnoughFree", "no node has 8 free GPUs.", NO_ROOM)


async def one_process(api: Store, subject: Subject, monkeypatch, now: str, *reports) -> None:
    """Say something by a process that begins with what is stored, as a new leader does."""
    monkeypatch.setattr(status, "stamp", lambda: now)
    made = Status(api, lambda _: (2, (2, 0, 0)))
    made.take(Report(G, "Gathering", "PodGroupMissing", "the pods name PodGroup g."))
    made.subject(G, subject)
    made.adopt(G, api.status)
    for report in reports:
        made.take(report)
        running = asyncio.create_task(made.run())
        await asyncio.sleep(0.02)
        running.cancel()


@pytest.mark.parametrize("subject", [OURS, *THEIRS], ids=lambda one: one.api_version)
@pytest.mark.parametrize(("first", "then"), [((RESERVED, PLACED), MET), ((REFUSED,), REFUSED)])
async def test_a_new_process_says_nothing_twice(monkeypatch, subject, first, then):
    api = Store()
    await one_process(api, subject, monkeypatch, "2026-01-01T00:00:00Z", *first)
    before, events = dict(api.status), list(api.events)
    assert len(events) == 1
    writes = api.writes
    await one_process(api, subject, monkeypatch, "2026-01-02T00:00:00Z", then)
    assert api.status == before
    assert api.writes == writes
    assert api.events == events


async def test_what_is_new_is_said_and_its_time_is_right(monkeypatch):
    api = Store()
    await one_process(api, OURS, monkeypatch, "2026-01-01T00:00:00Z", PLACED)
    below = Report(G, "Placed", "BelowMinimum", "1 of at least 2 members run.")
    await one_process(api, OURS, monkeypatch, "2026-01-02T00:00:00Z", MET, below)
    assert api.writes == 2
    assert [reason for reason, _ in api.events] == ["Placed", "BelowMinimum"]
    (condition,) = api.status["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    await one_process(api, OURS, monkeypatch, "2026-01-03T00:00:00Z", below)
    assert api.writes == 2
    other = Report(G, "Placed", "BelowMinimum", "0 of at least 2 members run.")
    await one_process(api, OURS, monkeypatch, "2026-01-04T00:00:00Z", other)
    (condition,) = api.status["conditions"]
    assert condition["message"].startswith("0 of")
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z", "it was False before"


@pytest.mark.parametrize(
    ("stored", "wanted", "is_same"),
    [
        ({"a": 1, "other": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None, "c": [], "d": ""}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": None}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [{"x": 1, "lastTransitionTime": "t"}]}, {"a": [{"x": 1}]}, True),
        ({"a": [{"x": 1}]}, {"a": [{"x": 2}]}, False),
        ({"a": "text"}, {"a": {"x": 1}}, False),
    ],
)
def test_same_is_what_a_merge_would_not_change(stored, wanted, is_same):
    assert same(stored, wanted) is is_same


@pytest.mark.parametrize(
    "stored", [{"start": {"expected": "soon"}}, {"conditions": ["x"]}, {"start": {"expected": 5}}]
)
async def test_a_scribble_in_a_status_is_overwritten(monkeypatch, stored):
    api = Store()
    api.status = stored
    await one_process(api, OURS, monkeypatch, "2026-01-01T00:00:00Z", PLACED)
    assert api.status["phase"] == "Placed"
