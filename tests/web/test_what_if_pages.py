"""What-if pages: the forecast with a change beside the forecast without it."""

import asyncio
import html

import pytest
import yaml
from builders import GPU, POLICIES, an_engine, needs, node, templated
from test_web_server import active_parts, forecasted, site
from web_sources import HOSTILE, page_source

from gangsched.cli.web import make_change
from gangsched.config import SchedulerConfig
from gangsched.core.facts import GangSeen, NodeSupplySeen, QueueSeen
from gangsched.core.model.node_pools import NodePool, NodeSupply
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.planning.forecast import Effort
from gangsched.web import keeper as keeper_module
from gangsched.web.keeper import ModelKeeper, PageSource
from gangsched.web.rights import Rights, visible_part
from gangsched.web.views.change_yaml import change_yaml
from gangsched.web.what_if import StartComparison, WhatIfChange, WhatIfError, check_visible

NOW_S = 100.0
MAKE = make_change(SchedulerConfig(), POLICIES)


def full_engine():
    """Return an engine with one node and three gangs, of which each needs it for ten minutes."""
    engine = an_engine(node("a"))
    engine.observe(QueueSeen(Queue("q", quotas=(Quota(GPU, 8000),))), 0.0)
    for number in range(3):
        spec = templated(f"g{number}", 1, needs(8), queue="q", created_s=float(number),
                         expected_runtime_s=600.0)  # fmt: skip
        engine.observe(GangSeen(spec), float(number))
    return engine


def compared(engine, **change):
    compare = StartComparison(engine, POLICIES, MAKE, Effort(3, 20), 60.0)
    return asyncio.run(compare.answer(WhatIfChange(**change), NOW_S))


def test_more_nodes_and_quota_start_gangs_earlier():
    engine = full_engine()
    answer = compared(engine, quota=f"q:{GPU}=24", nodes="2:a")
    assert {row.gang for row in answer.changed} == {"ns/g1", "ns/g2"}
    assert all(row.gained_s > 0 for row in answer.changed)
    assert answer.same == 1
    assert {str(gang) for gang in engine.view.gangs} == {"ns/g0", "ns/g1", "ns/g2"}
    assert len(engine.view.cluster.rows) == 1, "the engine of the pages is not changed"
    assert engine.view.queues["q"].quotas[0].nominal == 8000


def test_a_priority_moves_one_gang_before_another():
    rows = {row.gang: row for row in compared(full_engine(), priority="ns/g2=9").changed}
    assert rows["ns/g2"].gained_s > 0 > rows["ns/g0"].gained_s


def test_nodes_that_are_set_aside_delay_gangs():
    rows = compared(full_engine(), book="1:0:5").changed
    assert rows
    assert all(row.gained_s < 0 for row in rows)


def test_another_order_is_another_policy():
    engine = full_engine()
    short = templated("short", 1, needs(8), queue="q", created_s=9.0, expected_runtime_s=60.0)
    engine.observe(GangSeen(short), 9.0)
    rows = {row.gang: row for row in compared(engine, order="shortest").changed}
    assert rows["ns/short"].gained_s > 0


def with_pool():
    """Return the full engine with a pool that may make one more node."""
    engine = full_engine()
    engine.observe(QueueSeen(Queue("q", quotas=(Quota(GPU, 24_000),))), NOW_S)
    supply = NodeSupply((NodePool("p5", node("p5"), 1, 98.0, arrival_s=60.0),))
    engine.observe(NodeSupplySeen(supply), NOW_S)
    return engine


def test_a_larger_pool_starts_gangs_earlier():
    rows = {row.gang: row.gained_s for row in compared(with_pool(), pool="p5=1").changed}
    assert set(rows) == {"ns/g2"}
    assert rows["ns/g2"] > 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"quota": "none:cpu=4"}, r"must be QUEUE:RESOURCE=AMOUNT"),
        ({"quota": f"q:{GPU}=x"}, r"q:nvidia.com/gpu"),
        ({"nodes": "99999:a"}, r"'99999:a' must be COUNT:NODE"),
        ({"nodes": "1:none"}, r"there is no node 'none'"),
        ({"priority": "ns/g0=high"}, r"must be NAMESPACE/NAME=NUMBER"),
        ({"priority": "ns/none=3"}, r"priority: gang 'ns/none' does not exist"),
        ({"book": "1:x:2"}, r"'1:x:2' must be COUNT:IN:FOR"),
        ({"book": "1:nan:2"}, r"must be COUNT:IN:FOR"),
        ({"book": "1:1:inf"}, r"must be COUNT:IN:FOR"),
        ({"book": "0:1:1"}, r"must be COUNT:IN:FOR"),
        ({"order": "none"}, r"no policy 'none'"),
        ({"pool": "p5=x"}, r"'p5=x' must be POOL=COUNT"),
        ({"pool": "p5=1"}, r"there is no pool 'p5'; no pool can make nodes now"),
    ],
)
def test_a_malformed_change_has_a_sentence(change, sentence):
    with pytest.raises(WhatIfError, match=sentence):
        compared(full_engine(), **change)


def test_the_change_is_there_as_yaml():
    change = WhatIfChange(f"q:{GPU}/H100=24", "2:a", "ns/g2=9", "4:1:2", "shortest", "p5=8")
    queue, booking, _, settings, *_ = yaml.safe_load_all(change_yaml(change, 1_800_000_000.0))
    assert "# The limit of pool p5 has to allow 8 nodes more." in change_yaml(change, 1.0)
    assert queue["spec"] == {"quotas": [{"resource": GPU, "nominal": "24", "gpuKind": "H100"}]}
    assert booking["kind"] == "Reservation"
    assert booking["spec"] == {
        "start": "2027-01-15T09:00:00Z",
        "durationSeconds": 7200.0,
        "count": 4,
    }
    assert settings == {"order": "shortest"}


def source(engine=None, **more):
    engine = engine or full_engine()
    made = page_source()
    return PageSource(
        engine, POLICIES, lambda: NOW_S, "s", live=False, queue_rows=made.queue_rows,
        redact=lambda text, _: text, effort=Effort(2, 5), make_change=MAKE, **more,
    )  # fmt: skip


async def test_the_page_compares_and_names_only_what_the_viewer_sees():
    shown = page_source()
    shown.make_change = MAKE
    async with site(shown, login=True) as web:
        await forecasted(web.keeper)
        await web.log_in()
        _, text = await web.get("/what-if?count=2&node=a")
        assert "ns/waits" in text
        assert "# 2 nodes like a have to join the cluster." in text
        assert "secret" not in text
        for query, sentence in (
            ("gang=theirs/secret&priority=1", "There is no gang 'theirs/secret'."),
            ("queue=hidden&amount=1", "There is no queue 'hidden'."),
            ("count=1&node=b", "There is no node 'b'."),
            (f"count={'9' * 400}&node=a", "must be COUNT:NODE"),
        ):
            answer, text = await web.get(f"/what-if?{query}")
            assert answer.status == 200
            assert sentence in html.unescape(text), query


async def test_pools_are_named_to_those_who_see_nodes():
    async with site(source(with_pool())) as web:
        _, text = await web.get("/what-if?pool=p5&pool_nodes=1")
        assert "<option selected>p5</option>" in text
        assert "ns/g2" in text
        model = await web.keeper.with_starts()
        hidden = visible_part(model, Rights(all_namespaces=True), lambda text, _: text)
        assert model.pools == ("p5",)
        assert hidden.pools == ()
        with pytest.raises(WhatIfError, match="There is no pool 'p5'"):
            check_visible(WhatIfChange(pool="p5=1"), hidden)


async def test_a_hostile_form_stays_text():
    shown = page_source(hostile=True)
    shown.make_change = MAKE
    async with site(shown) as web:
        await forecasted(web.keeper)
        for name in ("queue", "amount", "node", "count", "gang", "priority", "order", "resource",
                     "pool", "pool_nodes"):  # fmt: skip
            _, text = await web.get("/what-if", params={name: HOSTILE, "amount": HOSTILE})
            assert active_parts(text) == [], name


async def test_answers_are_computed_one_at_a_time_and_kept(monkeypatch):
    calls = []

    class Slow(StartComparison):
        async def answer(self, change, now_s):
            calls.append(change)
            await asyncio.sleep(0)
            return await super().answer(change, now_s)

    monkeypatch.setattr(keeper_module, "StartComparison", Slow)
    keeper = ModelKeeper(source())
    change = WhatIfChange(nodes="1:a")
    same = await asyncio.gather(*(keeper.what_if(change) for _ in range(3)))
    assert len(calls) == 1
    assert same[0] is same[2]
    many = [keeper.what_if(WhatIfChange(nodes=f"{n}:a")) for n in range(2, 12)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert sum(isinstance(answer, WhatIfError) for answer in answers) == 6, "four may wait"


async def test_without_rights_nothing_may_be_named():
    with pytest.raises(WhatIfError, match="compares nothing"):
        await ModelKeeper(page_source()).what_if(WhatIfChange(nodes="1:a"))
    assert not Rights().may_see_gang("ns/own")
