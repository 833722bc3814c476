"""The read model of the pages shows the state of an engine, and to a tenant only what is theirs."""

import pytest
from builders import GPU, POLICIES, an_engine, needs, node, pod, templated
from web_sources import HOSTILE, page_source

from gangsched.core.facts import GangGone, GangSeen, NodeSeen, PodSeen, TopologySeen
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.pods import GpuShare, PodRequirements, Taint
from gangsched.core.model.refusal import Reason
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.forecast import forecast
from gangsched.core.planning.planner import make_plan
from gangsched.web.model import QueueRow, Segment
from gangsched.web.reading import (
    PODS_SHOWN,
    GangRows,
    ModelHeader,
    PlannedStarts,
    page_model,
    pods_of,
)
from gangsched.web.rights import EVERYTHING, Rights, visible_part
from gangsched.web.views import tiles

HEADER = ModelHeader(1, "test", live=False)
T = 100.0


def model_of(engine, planned=None, queues=(), now_s=T):
    """Return the model of an engine."""
    return page_model(engine, now_s, HEADER, planned or PlannedStarts(), queues)


def runs(engine, name, where, wants=None, namespace="ns"):
    """Let a gang of one pod run on a node."""
    gang = GangId(f"{namespace}/{name}")
    engine.observe(GangSeen(Gang(gang, 1, queue=namespace, expected_runtime_s=500.0)), 0.0)
    uid = PodUid(f"{namespace}-{name}")
    running = PodSeen(
        uid, PodName(f"{namespace}/{name}"), wants or needs(4), gang, node=NodeName(where)
    )
    engine.observe(running, 0.0)


def test_nodes_have_their_place_their_state_and_who_uses_them():
    bad = Taint("node.kubernetes.io/unreachable", "", "NoExecute")
    labels = {"rack": "r1"}
    engine = an_engine(
        node("a", labels=labels, unschedulable=True, gpu_model="H100"),
        node("b", labels=labels, taints=(bad,)),
        node("c", gpus=0, cpu=10_000),
        node("d", gpus=2),
    )
    engine.observe(TopologySeen(Topology("default", (Level("rack", "rack"),))), 0.0)
    runs(engine, "big", "a")
    runs(engine, "small", "c", needs(0, 2500))
    runs(engine, "half", "d", PodRequirements((("cpu", 1),), share=GpuShare(500)))
    engine.observe(pod("alone", None, needs(2), node=NodeName("a")), 0.0)
    a, b, c, d = model_of(engine).nodes
    assert (a.domain, a.cordoned, a.gpus, a.gpu_model) == (("r1",), True, 8, "H100")
    assert Segment("ns/big", "default", 4.0) in a.segments
    assert a.used == 6.0, "a pod outside any group uses GPUs too"
    assert (b.failing, b.segments, c.domain) == (True, (), ())
    assert c.segments == (Segment("ns/small", "default", 0.25),), "a part of the cores"
    assert d.segments == (Segment("ns/half", "default", 0.5),), "a part of a GPU"


def test_slices_of_gpus_are_counted_by_profile():
    engine = an_engine()
    mig = {"cpu": 9000, "nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 1, "pods": 10}
    layouts = ((("1g.10gb", 4), ("3g.40gb", 1)),)
    parts = node("m", gpus=0, layouts=layouts)
    object.__setattr__(parts, "allocatable", tuple(sorted(mig.items())))
    engine.observe(NodeSeen(parts), 0.0)
    runs(engine, "slice", "m", PodRequirements((("cpu", 1), ("nvidia.com/mig-1g.10gb", 2))))
    (tile,) = model_of(engine).nodes
    assert [(part.profile, part.total, part.used) for part in tile.mig] == [
        ("1g.10gb", 4, 2),
        ("3g.40gb", 1, 0),
    ]
    assert tile.gpus == 1
    assert 0 < tile.used < 1


def test_a_pending_gang_has_its_reason_and_the_range_of_its_start():
    engine = an_engine(node("a", gpus=4))
    runs(engine, "now", "a")
    engine.observe(GangSeen(templated("later", 1, needs(4))), 50.0)
    plan = make_plan(engine.view.snapshot_all(T), POLICIES, T)
    planned = PlannedStarts(
        T,
        {item.gang.id: refusal for item, refusal in plan.refusals},
        {item.gang: item for item in plan.backfill_reservations},
        forecast(engine.view.snapshot_all(T), POLICIES, T),
    )
    model = model_of(engine, planned)
    later, now = model.gangs["ns/later"], model.gangs["ns/now"]
    assert (later.state, later.reason) == ("Pending", Reason.NOT_ENOUGH_FREE.value)
    assert later.message
    assert later.waits
    assert (later.start.position, later.start.after) == (1, "ns/now")
    assert later.start.span.low_s <= later.start.span.median_s <= later.start.span.high_s
    assert now.state == "Placed"
    assert not now.waits
    assert now.end.low_s <= now.end.median_s <= now.end.high_s
    if plan.backfill_reservations:
        assert model.nodes[0].reserved_for == ("ns/later",)


def test_kept_rows_are_those_of_the_present():
    engine, rows = an_engine(node("a")), GangRows()
    runs(engine, "one", "a")
    engine.observe(GangSeen(templated("two", 1, needs(4))), 0.0)
    planned = PlannedStarts()

    def both(now_s=T):
        kept = page_model(engine, now_s, HEADER, planned, (), rows).gangs
        assert kept == page_model(engine, now_s, HEADER, planned, ()).gangs
        return kept

    first = both()
    assert both()["ns/one"] is first["ns/one"]
    where = NodeName("a")
    engine.observe(PodSeen(PodUid("ns-one"), PodName("ns/one"), needs(4), GangId("ns/one"),
                           node=where, ended=True), T)  # fmt: skip
    assert both()["ns/one"].state == "Finished"
    engine.observe(GangGone(GangId("ns/two")), T)
    assert list(both()) == ["ns/one"]
    assert list(both(T + 6.0)) == ["ns/one"]
    planned = PlannedStarts(T)
    assert list(both()) == ["ns/one"]


def test_a_gang_without_pods_says_what_is_missing():
    engine = an_engine(node("a"))
    engine.observe(pod("p", "undeclared"), 0.0)
    row = model_of(engine).gangs["ns/undeclared"]
    assert row.reason == Reason.NO_GROUP.value


def test_a_gang_whose_group_went_with_its_job_is_finished():
    """The pods stay for their logs; while one of them runs, the group is missing."""
    engine = an_engine(node("a"))
    done = {"node": NodeName("a"), "ended": True}
    for name in ("p", "q"):
        engine.observe(pod(name, "job", **done), 0.0)
    row = model_of(engine).gangs["ns/job"]
    assert (row.state, row.reason) == ("Finished", "")
    engine.observe(pod("r", "job"), 0.0)
    row = model_of(engine).gangs["ns/job"]
    assert row.reason == Reason.NO_GROUP.value


def test_the_pods_of_a_large_gang_are_cut_off():
    engine = an_engine(node("a"))
    role = Role("worker", 3000, 3000, needs(8))
    engine.observe(GangSeen(Gang(GangId("ns/big"), 3000, roles=(role,))), 0.0)
    rows = pods_of(engine.view, "ns/big")
    assert len(rows) == PODS_SHOWN
    assert rows[0].state == "not created"
    assert pods_of(engine.view, "ns/none") == ()


# -- who sees what ------------------------------------------------------------------------------


@pytest.fixture
def shared():
    """A cluster with a gang of the viewer's namespace, and one of another on the same node."""
    engine = an_engine(node("a", labels={"rack": "r"}, gpu_model="H100"), node("b"))
    engine.observe(TopologySeen(Topology("default", (Level("rack", "rack"),))), 0.0)
    runs(engine, "own", "a", needs(2), "mine")
    runs(engine, "secret", "a", needs(4), "theirs")
    runs(engine, "secret2", "b", needs(1), "theirs")
    queues = [
        QueueRow("mine", 0, 0, 1, namespaces=frozenset({"mine"}), notes=("theirs lends",)),
        QueueRow("theirs", 0, 0, 2, namespaces=frozenset({"theirs"})),
        QueueRow("open", 0, 0, 0),
    ]
    return model_of(engine, queues=queues)


def test_gangs_of_others_are_anonymous_capacity(shared):
    part = visible_part(shared, Rights(namespaces=frozenset({"mine"})), lambda text, _: text)
    assert list(part.gangs) == ["mine/own"]
    assert part.hidden_gangs == 2
    a, b = part.nodes
    assert a.segments == (Segment("", "", 4.0), Segment("mine/own", "default", 2.0))
    assert (a.name, a.domain, a.gpu_model) == ("a", (), ""), "its own pods say the name"
    assert (b.name, b.used) == ("", 1.0)
    assert [row.name for row in part.queues] == ["mine", "open"]
    assert part.queues[0].notes == (), "notes may name other queues"
    assert "secret" not in repr(part)
    assert "theirs" not in repr(part)


def test_rights_to_list_show_the_rest(shared):
    assert visible_part(shared, EVERYTHING, lambda text, _: text) is shared
    nodes = Rights(namespaces=frozenset({"mine"}), nodes=True, all_queues=True)
    part = visible_part(shared, nodes, lambda text, _: text)
    assert [tile.name for tile in part.nodes] == ["a", "b"]
    assert [row.name for row in part.queues] == ["mine", "theirs", "open"]
    assert "secret" not in repr(part)


def test_a_viewer_without_rights_sees_sums(shared):
    part = visible_part(shared, Rights(), lambda text, _: text)
    assert (part.gangs, part.queues, part.hidden_gangs) == ({}, (), 3)
    assert sum(tile.used for tile in part.nodes) == 7.0
    assert {tile.name for tile in part.nodes} == {""}


def test_messages_are_redacted():
    engine = an_engine(node("a", gpus=4))
    engine.observe(GangSeen(templated("own", 9, needs(4))), 0.0)
    refusals = {
        item.gang.id: refusal
        for item, refusal in make_plan(engine.view.snapshot_all(T), POLICIES, T).refusals
    }
    model = model_of(engine, PlannedStarts(T, refusals))
    rights = Rights(namespaces=frozenset({"ns"}))
    part = visible_part(model, rights, lambda text, gang: f"{gang}: {len(text)}")
    message = model.gangs["ns/own"].message
    assert part.gangs["ns/own"].message == f"ns/own: {len(message)}"


# -- pictures -----------------------------------------------------------------------------------


def test_pictures_escape_names_and_stay_inside_their_box():
    source = page_source(hostile=True)
    nodes = model_of(source.engine).nodes
    text = str(tiles.picture(nodes, tiles.colour_by_gang, HOSTILE))
    assert "<script" not in text
    assert "&lt;script" in text
    assert "style=" not in text


def test_too_many_domains_become_coarser_ones():
    engine = an_engine()
    for number in range(1200):
        labels = {"block": f"b{number % 7}", "rack": f"r{number}"}
        engine.observe(NodeSeen(node(f"n{number}", labels=labels)), 0.0)
    levels = (Level("block", "block"), Level("rack", "rack"))
    engine.observe(TopologySeen(Topology("default", levels)), 0.0)
    found = tiles.groups(model_of(engine).nodes)
    assert sorted(found) == [(f"b{number}",) for number in range(7)]
    assert GPU
