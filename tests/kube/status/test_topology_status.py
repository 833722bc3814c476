"""Status of Topologies: written on changes, to the object that has the name now."""

import pytest
from builders import an_engine, node

from gangsched.core import facts as f
from gangsched.core.model.topology import Level, Topology
from gangsched.kube.status.topology_status import TopologyStatusWriter


class EnoughError(Exception):
    """Ends the writer after a round."""


class Api:
    """An API server that writes down whose status is written."""

    def __init__(self) -> None:
        self.wrote = []
        self.meanwhile = lambda: None

    async def patch(self, path, body) -> bytes:
        self.meanwhile()
        self.wrote.append((path.split("/")[-2], body["metadata"]["uid"]))
        return b"{}"


@pytest.fixture
def world(monkeypatch):
    """Return a writer of two topologies, what it calls, and what makes one round."""
    engine, api = an_engine(node("n")), Api()
    writer = TopologyStatusWriter(api)
    for name in ("a", "b"):
        engine.observe(f.TopologySeen(Topology(name, (Level("rack", "rack"),))), 0.0)
        writer.topologies.track(name, "first", None)

    async def end(_):
        raise EnoughError

    monkeypatch.setattr("gangsched.kube.status.topology_status.asyncio.sleep", end)

    async def a_round() -> list:
        api.wrote = []
        with pytest.raises(EnoughError):
            await writer.run(engine.view.cluster)
        return api.wrote

    return writer, api, a_round


async def test_a_status_is_written_once_until_it_changes(world):
    writer, _, a_round = world
    assert await a_round() == [("a", "first"), ("b", "first")]
    assert await a_round() == []
    writer.topologies.track("b", "first", "it has no levels")
    assert await a_round() == [("b", "first")]
    writer.topologies.track("b", "second", None)
    assert await a_round() == [("b", "second")], "made anew"


async def test_one_may_go_while_another_is_written(world):
    writer, api, a_round = world
    api.meanwhile = lambda: writer.topologies.forget("b")
    assert await a_round() == [("a", "first")]


async def test_an_object_recreated_during_a_write_has_its_status_too(world):
    writer, api, a_round = world
    await a_round()
    writer.topologies.track("a", "second", None)
    api.meanwhile = lambda: writer.topologies.track("a", "third", None)
    await a_round()
    assert await a_round() == [("a", "third")]
    assert await a_round() == []
