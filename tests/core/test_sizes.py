"""Limits of sizes that users choose: one object cannot exhaust memory, time or integers."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import GPU, POLICIES, an_engine, gang, needs, node, plan, pod, templated, waiting
from waiting import patience_s

from gangsched.core import bounds
from gangsched.core import facts as f
from gangsched.core.cluster.gpu_sharing import SharedGpus
from gangsched.core.cluster.node_filters import clash
from gangsched.core.cluster.node_table import Mask
from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import TopologyTree
from gangsched.core.engine.engine import Engine, State
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Expression, GpuShare, PodRequirements
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.model.topology import Level, Topology
from gangsched.core.placement import fill
from gangsched.core.placement.constraints import resolve_constraints
from gangsched.core.placement.demand import pod_classes
from gangsched.core.placement.objectives import DEFAULT
from gangsched.core.placement.optimal import patterns
from gangsched.core.placement.optimal.optimise import SolverOptions, optimise
from gangsched.core.placement.optimal.patterns import (
    PATTERNS_MAX,
    ProgramTooLargeError,
    maximal_patterns,
)
from gangsched.core.placement.relaxations import relaxations
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import PolicyError

N = NodeName("n")
HUGE = bounds.AMOUNT.most
ROOT = Path(__file__).parents[2]


def of_kinds(name: str, kinds: int, count: int = 1, **more: object) -> Gang:
    """Return a gang of roles that each ask for something else."""
    roles = tuple(Role(f"r{i}", count, count, needs(0, 1000 + i)) for i in range(kinds))
    return gang(name, kinds * count, roles=roles, **more)


def room(cluster: Cluster, wants: PodRequirements) -> int:
    return int(cluster.capacity(wants).sum())


# -- what is tried --------------------------------------------------------------------------------

_MANY_KINDS = """
from tests.core.test_sizes import of_kinds
from builders import an_engine, node
from gangsched.core import facts as f
from gangsched.core.model.constraints import LevelRequest, Constraints
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.model.topology import Level, Topology
from policies.cpsat import Cpsat
from policies.fifo import Fifo

engine = an_engine(*(node(f"n{i}", cpu=64_000 - 1000 * i, labels={"rack": f"r{i // 8}"})
                     for i in range(60)))
engine.observe(f.TopologySeen(Topology("default", (Level("rack", "rack"),))), 0.0)
near = Constraints(near=LevelRequest(preferred="rack"))
engine.observe(f.GangSeen(of_kinds("a", 64, constraints=near)), 0.0)
plan = make_plan(engine.begin_cycle(), Policies(Fifo(), Cpsat()), 0.0)
print(len(plan.placements))
"""


def test_sixty_four_kinds_of_pods_are_planned():
    path = [str(ROOT), str(ROOT / "tests")]
    code = f"import sys; sys.path[:0] = {path!r}\n{_MANY_KINDS}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=True,
    )
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("sizes", [[2] * 64, [3] * 40, [PATTERNS_MAX**2 + 1], [1000] * 3])
def test_too_many_ways_to_combine_pods_are_not_tried(sizes):
    vectors = [np.array([1, 1000 + at]) for at in range(len(sizes))]
    with pytest.raises(ProgramTooLargeError, match="too many ways"):
        maximal_patterns(np.array([10**6, 10**9]), vectors, [range(size) for size in sizes], None)


def test_only_ways_to_which_no_pod_can_be_added_are_kept():
    vectors = [np.array([1, 3]), np.array([1, 2]), np.array([1, 5])]
    steps = [range(4), range(1), range(0, 5, 2)]
    assert maximal_patterns(np.array([9, 14]), vectors, steps, None) == [(1, 0, 2), (3, 0, 0)]
    assert maximal_patterns(np.array([9, 14]), vectors, steps, 2) == [(0, 0, 2), (2, 0, 0)]
    assert maximal_patterns(np.array([9, 14]), vectors, steps, 0) == []


def test_a_gang_of_too_many_pod_classes_is_refused_and_others_start():
    engine = an_engine(node("n", cpu=10**6))
    engine.observe(f.GangSeen(gang("many", 65)), 0.0)
    for index in range(65):
        engine.observe(pod(f"p{index}", "many", needs(0, 1 + index)), 0.0)
    engine.observe(f.GangSeen(of_kinds("few", 64)), 0.0)
    plan(engine)
    assert engine.view.gangs[GangId("ns/few")].state is State.RESERVED
    refusal = engine.view.refusals[GangId("ns/many")]
    assert refusal.reason is Reason.MISCONFIGURED
    assert refusal.message == (
        "The pods of the gang have 65 different sets of requirements, and a gang may have 64; give "
        "more pods the same requests, node selectors and tolerations."
    )


def test_a_gang_of_too_many_pods_is_refused(monkeypatch):
    monkeypatch.setattr(
        "gangsched.core.engine.gangs.incomplete.PODS_OF_GANG",
        bounds.PODS_OF_GANG._replace(most=2),
    )
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(gang("a", 3)), 0.0)
    for index in range(3):
        engine.observe(pod(f"p{index}", "a"), 0.0)
    plan(engine)
    message = engine.view.refusals[GangId("ns/a")].message
    assert message == "there are 3 pods of a gang, of all its roles; 2 are allowed."


def test_late_members_of_one_domain_are_one_kind():
    engine = an_engine(*(node(f"n{i}", labels={"rack": f"r{i}"}) for i in range(2)))
    engine.observe(f.TopologySeen(Topology("default", (Level("rack", "rack"),))), 0.0)
    near = LevelRequest(slices=(SliceRequest("rack", 4),))
    role = Role("worker", 8, 2, needs(), near)
    engine.observe(f.GangSeen(gang("a", 2, roles=(role,))), 0.0)
    for index in (0, 4):
        engine.observe(pod(f"a-worker-{index}", "a", role="worker", node=f"n{index // 4}"), 0.0)
    late = engine.view.pending(GangId("ns/a"))
    assert len(late.members) == 6
    cluster = engine.view.cluster
    kinds = pod_classes(late, resolve_constraints(late, cluster), cluster)
    assert [[member.name[-1] for member in kind.members] for kind in kinds] == [
        ["1", "2", "3"],
        ["5", "6", "7"],
    ]
    assert [
        kind.allowed[: len(cluster.rows)].tolist() for kind in kinds if kind.allowed is not None
    ] == [
        [True, False],
        [False, True],
    ]


# -- what is kept ---------------------------------------------------------------------------------


def test_no_object_makes_a_column_for_what_no_node_has():
    engine = an_engine(node("n", labels={"a": "b"}))
    many = tuple((f"a.b/{i:03}", 1) for i in range(200))
    selector = tuple(Expression(f"k{i}", "In", ("1",)) for i in range(200))
    engine.observe(f.GangSeen(templated("names", 1, PodRequirements(many))), 0.0)
    engine.observe(f.GangSeen(templated("keys", 1, needs(selector=selector))), 0.0)
    engine.observe(pod("theirs", None, PodRequirements(many), node=N), 0.0)
    plan(engine)
    assert engine.view.cluster.resources == ["pods", "cpu", "memory", GPU]
    assert engine.view.cluster.used.shape[1] == 4
    assert not engine.view.cluster.filters._labels
    message = engine.view.refusals[GangId("ns/names")].message
    named = " and ".join(f"1 {name}" for name, _ in many[:8])
    assert message.endswith(f"lacks {named} and 192 others.")
    assert len(message) < 500


def test_conditions_on_labels_that_no_node_has_mean_what_they_meant():
    cluster = Cluster()
    cluster.put_node(node("n", labels={"a": "b"}))
    for operator, values, fits in (
        ("Exists", (), False),
        ("DoesNotExist", (), True),
        ("In", ("b",), False),
        ("NotIn", ("b",), True),
        ("Gt", ("1",), False),
    ):
        wants = needs(selector=(Expression("other", operator, values),))
        assert bool(room(cluster, wants)) is fits, operator
    assert not cluster.filters.of_gpu_type("H100").any()


def test_a_resource_that_a_node_gets_later_is_counted_as_it_is_used():
    cluster = Cluster()
    cluster.put_node(node("n"))
    hca = PodRequirements((("rdma/hca", 3),))
    cluster.allocate("a", N, hca)
    assert room(cluster, hca) == 0
    plain = node("n")
    cluster.put_node(Node(N, (*plain.allocatable, ("rdma/hca", 10))))
    assert room(cluster, hca) == 2
    copy = cluster.copy()
    copy.remove_pods(0, hca)
    assert (room(copy, hca), room(cluster, hca)) == (3, 2)
    cluster.put_node(plain)
    cluster.allocate("b", N, hca)
    assert room(cluster, hca) == 0
    cluster.release("a")
    cluster.put_node(Node(N, (*plain.allocatable, ("rdma/hca", 10))))
    assert room(cluster, hca) == 2
    cluster.release("b")
    assert room(cluster, hca) == 3


def test_columns_of_resources_and_labels_that_nodes_lose_are_dropped():
    cluster = Cluster()
    plain = node("n")
    used = PodRequirements((("a.b/0", 1),))
    for index in range(500):
        one = Node(
            N, (*plain.allocatable, (f"a.b/{index}", 2)), {f"k{index}": "1", "k": f"{index}"}
        )
        cluster.put_node(one)
        for key in (f"k{index}", "k"):
            assert room(cluster, needs(selector=(Expression(key, "Exists"),)))
        if not index:
            cluster.allocate("a", N, used)
    assert len(cluster.resources) == cluster.used.shape[1] == cluster.allocatable.shape[1] < 100
    assert set(cluster.filters._labels) == {"k499", "k"}
    assert len(cluster.filters._label_codes["k"]) < 100
    cluster.put_node(Node(N, (*plain.allocatable, ("a.b/0", 2))))
    assert room(cluster, used) == 1
    cluster.remove_node(N)
    assert not cluster.filters._labels


def test_taints_and_domains_that_nodes_lose_are_forgotten():
    tree = TopologyTree(Topology("t", (Level("zone", "zone"), Level("rack", "rack"))), 2)
    for index in range(500):
        tree.put(0, node("n", labels={"zone": "z", "rack": f"r{index}"}))
        tree.put(1, node("m", labels={"zone": "z", "rack": f"r{index + 1}"}))
    assert len(tree.paths[1]) < 100
    assert [tree.name(1, int(code)) for code in tree.codes[1]] == ["z/r499", "z/r500"]
    assert tree.codes[0][0] == tree.codes[0][1]


def test_what_was_asked_is_not_kept_for_ever():
    engine = an_engine(node("n"))
    for index in range(5000):
        wants = needs(0, 1 + index)
        engine.observe(pod("p", wants=wants, uid=f"u{index}", node=N), 0.0)
        engine.observe(f.PodGone(f"u{index}"), 0.0)
        engine.view.cluster.capacity(wants)
    assert len(engine.view.cluster._vectors) <= 4096
    assert len(engine.view.cluster._eligible) <= 4096


# -- what is listed one by one --------------------------------------------------------------------


def test_parts_of_any_number_of_gpus_are_charged():
    for number in (bounds.SHARED_GPUS.most, 999_999_999):
        cluster = Cluster()
        cluster.put_node(node("n", 4))
        wants = PodRequirements(share=GpuShare(500, devices=number))
        for key in ("a", "b", "c"):
            assert cluster.allocate(key, N, wants) == (0, 1, 2, 3)
        assert set(cluster.shared.of(0)) == {0, 1, 2, 3}
        assert room(cluster, needs()) == 0
        for key in ("b", "a", "c"):
            cluster.release(key)
        assert room(cluster, needs()) == 4
        assert not cluster.shared.of(0)


def test_a_share_beyond_what_a_node_has_takes_the_emptiest_gpus():
    shared = SharedGpus()
    shared.add_share(0, 900, tuple(range(1023)))
    shared.add_share(0, 950, (1023,))
    assert shared.choose(0, 500, 2, 0, 1024) == (0, 1)


def test_memory_of_gpus_may_change_under_those_who_share_them():
    cluster = Cluster()
    cluster.put_node(node("n", 1, gpu_memory_mib=80_000))
    wants = PodRequirements(share=GpuShare(memory_mib=40_000))
    for key in ("a", "b"):
        cluster.allocate(key, N, wants)
    assert room(cluster, wants) == 0
    cluster.put_node(node("n", 1, gpu_memory_mib=40_000))
    assert room(cluster, wants) == 0
    for key in ("a", "b"):
        cluster.release(key)
    assert room(cluster, wants) == 1


def test_host_ports_clash_as_before_however_many_there_are():
    every, own, other = (("TCP", address, 80) for address in ("0.0.0.0", "10.0.0.1", "10.0.0.2"))
    many = [("TCP", "0.0.0.0", port) for port in range(1000, 4000)]
    assert clash([every], [own])
    assert clash([own], [every])
    assert clash([own], [own])
    assert not clash([own], [other])
    assert not clash([own], [("UDP", "10.0.0.1", 80)])
    assert not clash([every, *many], [("TCP", "0.0.0.0", port) for port in range(4000, 7000)])


# -- what is summed up ----------------------------------------------------------------------------


def test_sums_of_the_largest_amounts_do_not_wrap():
    most = bounds.PODS_OF_NODE.most
    cluster = Cluster()
    cluster.put_node(node("n", pods=10**9))
    wants = PodRequirements((("memory", 2**63),))
    for index in range(most + 300):
        cluster.allocate(index, N, wants)
    small = PodRequirements((("cpu", 1),))
    assert (cluster.used >= 0).all()
    assert cluster.used[0].tolist() == [most, 0, most * HUGE, 0]
    assert room(cluster, small) == 0
    for index in range(most):
        cluster.release(index)
    assert cluster.used[0].tolist() == [300, 0, 300 * HUGE, 0]
    cluster.rekey(most, "other")
    for index in ("other", *range(most + 1, most + 300)):
        cluster.release(index)
    assert not cluster.used.any()
    assert room(cluster, small) == most


def test_pods_that_wait_to_be_counted_come_with_their_node():
    most = bounds.PODS_OF_NODE.most
    cluster = Cluster()
    for index in range(most + 2):
        cluster.allocate(index, N, PodRequirements((("cpu", 1),)))
    cluster.put_node(node("n"))
    cluster.rekey(most + 1, "other")
    cluster.release(most)
    cluster.release(0)
    assert cluster.used[0].tolist() == [most, most, 0, 0]
    cluster.remove_node(N)
    cluster.release(1)
    cluster.put_node(node("n"))
    assert cluster.used[0].tolist() == [most - 1, most - 1, 0, 0]


def test_a_snapshot_is_taken_whatever_amounts_are_asked():
    engine = an_engine(*(node(f"n{i}") for i in range(3)))
    huge = PodRequirements((("cpu", 2**70), ("memory", 2**63), (GPU, 2**64)))
    engine.observe(f.GangSeen(templated("huge", 50_000, huge)), 0.0)
    engine.observe(f.GangSeen(templated("small", 1)), 0.0)
    engine.observe(pod("theirs", None, huge, node=NodeName("n1")), 0.0)
    plan(engine)
    assert engine.view.gangs[GangId("ns/small")].state is State.RESERVED
    assert engine.view.refusals[GangId("ns/huge")].reason is Reason.UNSATISFIABLE
    assert engine.view.cluster.overcommitted() == ["n1"]


# -- what no snapshot can take --------------------------------------------------------------------


def test_a_gang_that_no_snapshot_can_take_is_set_aside_by_the_next_cycle(monkeypatch):
    engine = an_engine(node("n"))
    for name in ("bad", "good"):
        engine.observe(f.GangSeen(templated(name, 1)), 0.0)
    views = engine.parts.views
    made = views.make

    def failing(state: GangState) -> object:
        if state.id == "ns/bad":
            raise OverflowError("too large")
        return made(state)

    monkeypatch.setattr(views, "make", failing)
    bad = engine.view.gangs[GangId("ns/bad")]
    before = (bad.version, replace(bad.retry), bad.is_plannable())
    assert [one.gang.id for one in engine.view.snapshot_all().pending] == ["ns/good"]
    assert not engine.view.refusals
    assert (bad.version, bad.retry, bad.is_plannable()) == before
    snapshot = engine.begin_cycle()
    seen = [
        *snapshot.pending,
        *(one for line in snapshot.equivalence_classes for one in line.gangs),
    ]
    assert [one.gang.id for one in seen] == ["ns/good"]
    refusal = engine.view.refusals[GangId("ns/bad")]
    assert refusal.reason is Reason.PLAN_FAILED
    assert refusal.message == (
        "Planning of gang ns/bad failed (OverflowError: too large); the scheduler tries again in "
        "1 s."
    )


def test_needs_that_cannot_be_counted_are_met_by_the_plan():
    engine = an_engine(node("n", labels={"k": "1"}))
    wants = needs(selector=(Expression("k", "Gt", (None,)),))
    engine.observe(f.GangSeen(templated("bad", 1, wants)), 0.0)
    with pytest.raises(PolicyError, match="TypeError"):
        make_plan(engine.begin_cycle(), POLICIES, 0.0)


# -- exclusive domains ----------------------------------------------------------------------------


def test_domains_of_others_are_barred_together():
    engine = an_engine(*(node(f"n{i}", labels={"rack": f"r{i // 2}"}) for i in range(6)))
    engine.observe(f.NodeSeen(node("bare")), 0.0)
    engine.observe(f.TopologySeen(Topology("default", (Level("rack", "rack"),))), 0.0)
    for name, place in (("a", "n0"), ("b", "n3"), ("c", "bare")):
        engine.observe(f.GangSeen(gang(name, 1)), 0.0)
        engine.observe(pod(f"{name}-0", name, node=NodeName(place)), 0.0)
    alone = waiting(templated("alone", 1, constraints=Constraints(exclusive="rack")))
    allowed = resolve_constraints(alone, engine.view.cluster).allowed
    names = [name for name, row in engine.view.cluster.rows.items() if allowed[row]]
    assert names == ["n4", "n5"]


# -- how often a gang is tried --------------------------------------------------------------------


def hosts(*cores: int) -> Engine:
    """Return an engine that knows a node of so many cores each."""
    return an_engine(*(node(f"n{i}", cpu=1000 * count) for i, count in enumerate(cores)))


def large(cores: int) -> PodRequirements:
    """Return what a pod asks that shares its node with no other like it."""
    return PodRequirements((("cpu", 1000 * cores), ("memory", 3 * 2**38)))


def test_of_very_many_domains_the_tightest_and_the_roomiest_are_tried(monkeypatch):
    monkeypatch.setattr(fill, "DOMAINS_TRIED", bounds.DOMAINS_TRIED._replace(most=2))
    tried = []
    filled = fill.Filling._fill

    def counted(self: fill.Filling, wanted: list[int], mask: Mask) -> fill.Counts | None:
        tried.append(int(np.flatnonzero(mask)[0]))
        return filled(self, wanted, mask)

    monkeypatch.setattr(fill.Filling, "_fill", counted)
    engine = hosts(*range(3, 43))  # together they need 42 cores
    roles = (Role("a", 1, 1, needs(0, 2000)), Role("b", 1, 1, needs(0, 40_000)))
    near = Constraints(near=LevelRequest(required="host"))
    engine.observe(f.GangSeen(gang("g", 2, roles=roles, constraints=near)), 0.0)
    plan(engine)
    assert set(dict(engine.view.gangs[GangId("ns/g")].assignments()).values()) == {"n39"}
    engine = hosts(*[41] * 40)
    roles = (Role("a", 1, 1, large(1)), Role("b", 1, 1, large(2)))
    engine.observe(f.GangSeen(gang("g", 2, roles=roles, constraints=near)), 0.0)
    tried.clear()
    placed = optimise(
        engine.view.pending(GangId("ns/g")), engine.begin_cycle(), SolverOptions(DEFAULT, 0.0, 512)
    )
    assert isinstance(placed, Refusal)
    assert not placed.proved
    assert len(tried) < 200


def test_few_changes_are_tried_to_say_what_is_in_the_way():
    roles = tuple(Role(f"r{i}", 1, 1, needs(), LevelRequest(required="host")) for i in range(64))
    wide = waiting(gang("g", 64, roles=roles))
    scope = resolve_constraints(wide, an_engine(node("n")).view.cluster)
    assert len(list(relaxations(wide, scope))) == bounds.CHANGES_TRIED.most


def test_a_program_that_is_too_large_costs_time_as_well(monkeypatch):
    monkeypatch.setattr(patterns, "PATTERNS_MAX", 1)
    engine = hosts(8, 8)
    roles = (Role("a", 2, 2, large(1)), Role("b", 2, 2, large(2)))
    engine.observe(f.GangSeen(gang("g", 4, roles=roles)), 0.0)
    snapshot = engine.begin_cycle()
    optimise(engine.view.pending(GangId("ns/g")), snapshot, SolverOptions(DEFAULT, 1.0, 512))
    assert snapshot.solver_budget.left_s < 4.0
