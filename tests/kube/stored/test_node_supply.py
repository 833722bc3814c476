"""Commands and pages know what the leader can buy."""

import asyncio

import pytest
from builders import an_engine, node
from stub_config_map import StubConfigMap
from waiting import patience_s

from gangsched.core.facts import NodeSupplySeen
from gangsched.core.model.ids import GangId
from gangsched.core.model.node_pools import ComingNodes, NodePool, NodeSupply
from gangsched.kube.stored import node_supply as module
from gangsched.kube.stored.node_supply import StoredNodeSupply

POOL = NodePool("p5", node("p5", labels={"a": "b"}), 4, 98.25, spot=True, arrival_s=300.0)
SUPPLY = NodeSupply((POOL,), (ComingNodes(GangId("ns/g"), (("p5", 2),), 120.0),), after_s=10.0)


async def test_what_is_written_is_read():
    api = StubConfigMap()
    assert await StoredNodeSupply(api, "ns/kept").read() is None
    await StoredNodeSupply(api, "ns/kept").save(SUPPLY)
    assert await StoredNodeSupply(api, "ns/kept").read() == SUPPLY


async def test_it_is_written_only_when_it_changes():
    api = StubConfigMap()
    stored = StoredNodeSupply(api, "ns/kept")
    await stored.save(NodeSupply())
    assert api.writes == 0
    for supply in (SUPPLY, SUPPLY):
        await stored.save(supply)
    assert api.writes == 1
    next_leader = StoredNodeSupply(api, "ns/kept")
    await next_leader.save(SUPPLY)
    assert api.writes == 1
    await next_leader.save(NodeSupply())  # it buys nothing any more
    assert await stored.read() is None


async def test_a_supply_that_is_too_large_is_not_written(monkeypatch):
    monkeypatch.setattr(module, "BYTES_MAX", 100)
    api = StubConfigMap()
    await StoredNodeSupply(api, "ns/kept").save(SUPPLY)
    assert api.writes == 0


@pytest.mark.parametrize("text", ["{}", "[", "[" * 100_000, '{"pools": [{"name": 1}]}'])
async def test_a_malformed_text_is_no_supply(text):
    api = StubConfigMap()
    api.data = {"node-supply.json": text}
    found = await StoredNodeSupply(api, "ns/kept").read()
    assert found is None or found == NodeSupply()


async def test_a_page_follows_what_the_leader_writes(monkeypatch):
    monkeypatch.setattr(module, "_FOLLOW_S", 0.0)
    api, engine = StubConfigMap(), an_engine()
    leader, page = (StoredNodeSupply(api, "ns/kept") for _ in range(2))

    def observe(fact: NodeSupplySeen) -> None:
        engine.observe(fact, 0.0)

    following = asyncio.create_task(page.follow(observe, NodeSupply()))
    for supply in (SUPPLY, NodeSupply()):
        await leader.save(supply)
        async with asyncio.timeout(patience_s(10)):
            while engine.view.snapshot_all().node_supply != supply:
                await asyncio.sleep(0)
    following.cancel()
