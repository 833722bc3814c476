"""The texts of `defrag` and `explain` when nothing moves, or a start precedes an end."""

import asyncio
import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from builders import POLICIES, an_engine, gang, needs, node, pod, templated
from rich.console import Console

from gangsched.cli import defrag
from gangsched.cli.cluster import view as live
from gangsched.cli.cluster.view import ClusterView, effort_of
from gangsched.cli.defrag import DefragRequest, _check_free_capacity, _level, moves_data, show_moves
from gangsched.cli.output.tables import show_gang
from gangsched.cli.queries import expected_end, explain
from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core.facts import GangSeen, NodeSeen, QueueSeen, TopologySeen
from gangsched.core.model.ids import NodeName
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.model.runtime import Estimate, EstimateSource
from gangsched.core.model.topology import Level, Topology
from gangsched.core.planning.forecast import Effort
from gangsched.core.preemption.defragmentation import Defragmentation, Defragmenter
from gangsched.kube.background.advisor import budget_of
from policies.easy import Easy

RACK = "topology.gangsched.io/rack"


def racks(declared=True):
    engine = an_engine()
    if declared:
        engine.observe(TopologySeen(Topology("default", (Level(RACK, "rack"),))), 0.0)
    for index in range(4):
        engine.observe(NodeSeen(node(f"n{index}", labels={RACK: f"rack-{index // 2}"})), 0.0)
    return engine


def printed(found, wish) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_moves(found, wish, console)
    return console.file.getvalue()


def run(engine, name, place, wants=None):
    engine.observe(GangSeen(gang(name, 1, movable=True)), 0.0)
    fact = pod(f"{name}-0", name, wants or needs(8), node=NodeName(place), started_s=0.0)
    engine.observe(fact, 0.0)


def test_a_free_rack_is_reported():
    engine = racks()
    run(engine, "there", "n0")
    mover = Defragmenter(engine.view.snapshot_cluster(), POLICIES.placer, 100.0)
    found = mover.free_domain("", 0)
    assert found == Defragmentation((), domain="rack-1")
    assert printed(found, DefragRequest(level="rack")) == (
        "rack rack-1 is free already; no gang has to move\n"
    )
    assert moves_data(found)["possible"]


def test_a_rack_with_pods_without_a_gang_is_not_free():
    engine = racks()
    run(engine, "there", "n0", needs(1))
    engine.observe(pod("own", None, needs(1), node=NodeName("n2")), 0.0)
    mover = Defragmenter(engine.view.snapshot_cluster(), POLICIES.placer, 100.0)
    found = mover.free_domain("", 0)
    assert found is not None
    assert (found.domain, len(found.moves)) == ("rack-0", 1)


def test_a_level_without_a_topology_is_an_error_with_a_remedy():
    with pytest.raises(ConfigError) as error:
        _level(racks(declared=False), DefragRequest(level="rack"))
    assert str(error.value) == (
        "--level: no Topology declares the level rack; nodes have the label "
        "topology.gangsched.io/rack. Apply a Topology that names such labels of the nodes "
        "(manifests/topologies has examples)"
    )


def test_moving_does_not_help_against_a_quota():
    engine = racks()
    engine.observe(QueueSeen(Queue("small", quotas=(Quota("nvidia.com/gpu", 8000),))), 0.0)
    engine.observe(GangSeen(templated("g", 2, needs(8), queue="small")), 0.0)
    with pytest.raises(ConfigError) as error:
        _check_free_capacity(engine, POLICIES, DefragRequest(gang="ns/g"))
    assert str(error.value) == (
        "--gang: the gang lacks quota, so moving other gangs does not help ns/g: Queue "
        "small can use at most 8 nvidia.com/gpu, borrowed quota included; the gang needs 16."
    )


def test_only_a_gang_that_lacks_capacity_needs_moves():
    engine = racks()
    run(engine, "there", "n0")
    engine.observe(GangSeen(templated("g", 4, needs(8))), 0.0)
    assert _check_free_capacity(engine, POLICIES, DefragRequest(gang="ns/g")) is None
    engine.observe(GangSeen(templated("h", 1, needs(8))), 0.0)
    found = _check_free_capacity(engine, POLICIES, DefragRequest(gang="ns/h"))
    said = "enough is free for ns/h now; no gang has to move\n"
    assert printed(found, DefragRequest(gang="ns/h")) == said


@pytest.mark.parametrize(
    ("ran_s", "earliest", "latest"),
    [(0.0, "00:16:40", "00:50:00"), (1500.0, "00:27:45", "00:53:08")],
)
def test_an_end_has_the_range_that_forecasts_draw_from(ran_s, earliest, latest):
    found = expected_end(Estimate(2000.0, 1000.0, 3000.0, EstimateSource.ASSUMED), 0.0, ran_s)
    assert found["earliest"] == f"1970-01-01T{earliest}Z"
    assert found["latest"] == f"1970-01-01T{latest}Z"


def crowded():
    """Return a cluster in which a gang of a whole node starts once another moves, or ends."""
    engine = racks()
    for name, place in (("a", "n0"), ("b", "n1"), ("c", "n2"), ("d", "n3")):
        run(engine, name, place, needs(8 if name < "c" else 4))
    engine.observe(GangSeen(templated("waits", 1, needs(8))), 0.0)
    return engine


def test_explain_proposes_the_moves_that_the_scheduler_does():
    config = SchedulerConfig()
    view = ClusterView(crowded(), POLICIES, 100.0, budget=budget_of(config))
    assert [one for one in explain(view, "ns/waits")["wouldHelp"] if one.startswith("moving ns/")]
    view = ClusterView(
        crowded(), POLICIES, 100.0, budget=budget_of(SchedulerConfig(defragment="off"))
    )
    assert not [one for one in explain(view, "ns/waits")["wouldHelp"] if "moving" in one]


def test_answers_look_as_far_ahead_as_the_scheduler(monkeypatch):
    assert effort_of(SchedulerConfig(forecast_runs=9, forecast_cycles=7)) == Effort(9, 7)
    often = explain(ClusterView(crowded(), POLICIES, 100.0, effort=Effort(9, 100)), "ns/waits")[
        "start"
    ]
    assert often["earliest"] < often["latest"]
    drawn = []
    with monkeypatch.context() as patch:
        patch.setattr(live, "forecast", lambda *given: drawn.append(given[3]) or {})
        ClusterView(crowded(), POLICIES, 100.0, effort=Effort(1, 100)).predictions()
    assert drawn == [Effort(1, 100)]
    assert "reserved" not in often, "nobody has room kept without backfill"
    kept = ClusterView(crowded(), replace(POLICIES, backfill=Easy()), 100.0)
    assert explain(kept, "ns/waits")["start"]["reserved"] == "1970-01-01T01:00:00Z"


def explained(name: str) -> str:
    engine = an_engine(node("n"))
    for runtime_s in (300.0, 700.0, 900.0, 1000.0, 1300.0):
        engine.history.record(gang("wide-1", 1, user="ann", expected_runtime_s=1000.0), runtime_s)
    wide = gang("wide", 1, user="ann", expected_runtime_s=1000.0)
    engine.observe(GangSeen(wide), 0.0)
    engine.observe(pod("wide-0", "wide", needs(8), node=NodeName("n"), started_s=0.0), 0.0)
    for index, later in enumerate(("next", "last")):
        one = templated(later, 1, needs(8), expected_runtime_s=500.0, created_s=10.0 + index)
        engine.observe(GangSeen(one), 10.0)
    console = Console(file=io.StringIO(), width=80)
    show_gang(explain(ClusterView(engine, POLICIES, 100.0), name), console)
    return console.file.getvalue()


def test_a_start_names_the_gang_that_has_to_end_before():
    said = " ".join(explained("ns/wide").split())
    assert "expected to end 1970-01-01 00:15:" in said
    assert "in eight of ten forecasts from 1970-01-01 00:0" in said
    said = " ".join(explained("ns/next").split())
    assert "relies on the end of gang ns/wide, about 1970-01-01 00:15:" in said
    assert "perhaps as early as 1970-01-01 00:0" in said
    assert said.endswith("(by earlier jobs)")
    assert "relies  on the end of gang ns/next, which is pending itself" in explained("ns/last")


def test_moves_are_planned_for_the_gang_with_what_its_queue_adds(monkeypatch):
    engine, seen = crowded(), []
    engine.observe(QueueSeen(Queue("default", default_priority=7)), 0.0)

    class Client:
        def __init__(self, access):
            del access

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            return None

    async def read(*_):
        return SimpleNamespace(engine=engine)

    async def protected(*_):
        return frozenset()

    monkeypatch.setattr(defrag, "KubeClient", Client)
    monkeypatch.setattr(defrag, "read_scheduler", read)
    monkeypatch.setattr(defrag.disruption_budgets, "protected", protected)
    monkeypatch.setattr(Defragmenter, "find_moves", lambda _, waiting: seen.append(waiting))
    asyncio.run(
        defrag.plan_moves(None, SchedulerConfig(), POLICIES, DefragRequest(gang="ns/waits"))
    )
    (one,) = seen
    assert (one.priority, one.kinds) == (7, (needs(8),))
    assert one.charge
    assert one.request_fingerprint
    assert one.estimate is not None
