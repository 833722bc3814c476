"""Administrators' objects: a condition keeps its start time, whichever process wrote it."""

import pytest

from gangsched.kube.client.errors import Forbidden, Unavailable
from gangsched.kube.status import config_status
from gangsched.kube.status.config_status import ConfigCondition, ConfigStatusWriter

GOOD = ConfigCondition(holds=True, reason="Valid", message="")
BAD = ConfigCondition(holds=False, reason="Invalid", message="no such parent")


class Api:
    """An API server that keeps one object's status, and may be away."""

    def __init__(self) -> None:
        self.status, self.away, self.writes = {}, False, 0

    async def patch(self, path, body) -> bytes:
        if self.away:
            raise Unavailable(503, "etcd is away")
        self.writes += 1
        self.status |= body["status"]
        return b"{}"

    def since(self) -> str:
        return self.status["conditions"][0]["lastTransitionTime"]


@pytest.fixture
def world(monkeypatch):
    """Return an API server, the statuses of a kind with one object, and the clock."""
    api, now = Api(), ["noon"]
    monkeypatch.setattr(config_status, "rfc3339", lambda: now[0])
    queues = ConfigStatusWriter(api, "Queue", "queues")
    queues.track("q", "uid", None)
    return api, queues, now


async def test_a_condition_says_when_it_turned_not_when_it_was_written(world):
    api, queues, now = world
    await queues.write("q", {"pending": 1}, GOOD)
    now[0] = "one"
    await queues.write("q", {"pending": 2}, GOOD)
    assert (api.writes, api.since()) == (2, "noon")
    await queues.write("q", {"pending": 2}, BAD)
    assert api.since() == "one"


async def test_the_next_process_keeps_the_moment(world):
    api, queues, now = world
    await queues.write("q", {"pending": 1}, GOOD)
    successor = ConfigStatusWriter(api, "Queue", "queues")
    successor.track("q", "uid", None)
    successor.restore("q", api.status)
    now[0] = "one"
    await successor.write("q", {"pending": 1}, GOOD)
    assert api.writes == 1, "it says so already"
    await successor.write("q", {"pending": 2}, GOOD)
    assert (api.writes, api.since()) == (2, "noon")


async def test_a_condition_with_the_generation_of_before_is_written_again_once(world):
    api, queues, _ = world
    await queues.write("q", {}, GOOD)
    (condition,) = api.status["conditions"]
    stored = {**api.status, "conditions": [condition | {"observedGeneration": 0}]}
    successor = ConfigStatusWriter(api, "Queue", "queues")
    successor.track("q", "uid", None)
    successor.restore("q", stored)
    for _ in range(3):
        await successor.write("q", {}, GOOD)
    assert api.writes == 2
    (now,) = api.status["conditions"]
    assert "observedGeneration" not in now
    assert now["lastTransitionTime"] == condition["lastTransitionTime"]


async def test_a_valid_object_has_its_condition_written_once(world):
    api, queues, _ = world
    for _ in range(3):
        queues.track("q", "uid", None)  # a change of its spec that is valid too
        await queues.write("q", {}, GOOD)
    assert api.writes == 1
    (condition,) = api.status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Ready",
        "True",
        GOOD.reason,
    )


async def test_what_is_beside_is_written_only_with_a_reason(world):
    api, queues, _ = world
    await queues.write("q", {}, beside=lambda: {"asOf": "noon"})
    await queues.write("q", {}, beside=lambda: {"asOf": "one"})
    assert api.status["asOf"] == "noon"
    await queues.write("q", {}, beside=lambda: {"asOf": "two"}, anyway=True)
    assert api.status["asOf"] == "two"


async def test_what_could_not_be_written_is_tried_again(world):
    api, queues, _ = world
    api.away = True
    assert not await queues.write("q", {"pending": 1}, GOOD)
    api.away = False
    assert await queues.write("q", {"pending": 1}, GOOD)
    assert api.writes == 1


# -- Warning Events -------------------------------------------------------------------------------


@pytest.fixture
def warning(world, monkeypatch):
    """Return an API server that keeps Events, and statuses of a kind that warns."""
    api, _, _ = world
    api.events = []

    async def create(path, body) -> bytes:
        if api.away:
            raise Unavailable(503, "etcd is away")
        api.events.append((path, body))
        return b"{}"

    monkeypatch.setattr(api, "create", create, raising=False)
    queues = ConfigStatusWriter(api, "Queue", "queues", warns=True)
    queues.track("q", "uid", None)
    return api, queues


async def test_what_does_not_hold_is_a_warning_once(warning):
    api, queues = warning
    await queues.write("q", {"pending": 1}, GOOD)
    assert not api.events
    await queues.write("q", {"pending": 1}, BAD)
    await queues.write("q", {"pending": 2}, BAD)
    ((path, event),) = api.events
    assert path == "/api/v1/namespaces/default/events"
    assert (event["type"], event["reason"]) == ("Warning", "Invalid")
    assert event["message"] == "no such parent"
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("Queue", "q", "")
    await queues.write("q", {"pending": 2}, GOOD)
    await queues.write("q", {"pending": 2}, BAD)
    assert len(api.events) == 1, "the same sentence is told once"
    await queues.write("q", {"pending": 2}, BAD._replace(message="another"))
    assert len(api.events) == 2


async def test_the_next_process_warns_of_nothing_again(warning):
    api, queues = warning
    await queues.write("q", {}, BAD)
    successor = ConfigStatusWriter(api, "Queue", "queues", warns=True)
    successor.track("q", "uid", None)
    successor.restore("q", api.status)
    await successor.write("q", {"pending": 3}, BAD)
    assert len(api.events) == 1


async def test_a_warning_that_could_not_be_written_is_tried_again(warning):
    api, queues = warning
    api.away = True
    assert not await queues.write("q", {}, BAD)
    api.away = False
    assert await queues.write("q", {}, BAD)
    assert len(api.events) == 1


async def test_who_may_not_write_events_writes_statuses(warning, monkeypatch):
    api, queues = warning

    async def forbidden(path, body):
        raise Forbidden(403, "no Events")

    monkeypatch.setattr(api, "create", forbidden)
    assert await queues.write("q", {}, BAD)
    assert api.status["conditions"][0]["reason"] == "Invalid"
