"""Every placement of every policy against an independent checker and brute force.

The checker (simulator/invariants/placement_checks.py) reads labels and quantities as the API shows
them and shares no code with the planner.
"""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from effort import seeds
from placements import GPU, TOPOLOGY, Instance, an_instance

from gangsched.core.model.constraints import LevelRequest
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId, PodName
from gangsched.core.model.placement import Placement, Proof
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.batch import Batch
from policies.best_fit import BestFit
from policies.cpsat import Cpsat
from policies.dot_product import DotProduct
from policies.fgd import Fgd
from policies.fifo import Fifo
from policies.first_fit import FirstFit
from policies.pack import Pack
from policies.random_fit import RandomFit
from policies.spread import SpreadPlacer
from policies.topology import TopologyPlacer
from simulator.invariants.placement_checks import (
    BoundPod,
    Situation,
    ViolationError,
    check_placement,
)

SEEDS = seeds(600)
POLICIES = {
    "pack": Pack(),
    "spread": SpreadPlacer(),
    "topology": TopologyPlacer(),
    "fgd": Fgd(),
    "cpsat": Cpsat(),
    "random": RandomFit(),
    "first-fit": FirstFit(),
    "best-fit": BestFit(),
    "dot-product": DotProduct(),
}


def place(policy, instance: Instance) -> Placement | Refusal:
    """Place, and see that the snapshot is left as it was."""
    cluster = instance.snapshot.cluster
    before = cluster.used.copy()
    result = policy.place(instance.waiting, instance.snapshot)
    after = cluster.used[:, : before.shape[1]]
    assert np.array_equal(before, after)
    return result


@pytest.mark.parametrize("name", POLICIES)
def test_every_placement_passes_the_checker(name):
    placed = 0
    for seed in SEEDS:
        instance = an_instance(seed)
        result = place(POLICIES[name], instance)
        if isinstance(result, Refusal):
            assert result.message.endswith("."), (seed, result)
            continue
        placed += 1
        try:
            check_placement(instance.waiting, dict(result.nodes), instance.situation)
        except ViolationError as error:
            pytest.fail(f"seed {seed}: {error}")
    assert placed > len(SEEDS) // 10  # the generator makes problems that can be solved


def brute_force(instance: Instance) -> tuple[int, ...] | None:
    """Return the cost of the best of all valid placements, or None where there is none."""
    members = [member.name for member in instance.waiting.members]
    best = None
    for nodes in product(instance.situation.nodes, repeat=len(members)):
        cost = costs(instance, nodes)
        if best is not None and cost >= best:
            continue
        try:
            check_placement(
                instance.waiting, dict(zip(members, nodes, strict=True)), instance.situation
            )
        except ViolationError:
            continue
        best = cost
    return best


def costs(instance: Instance, nodes) -> tuple[int, ...]:
    """Count the cost from labels alone: domains, hosts, preference, what was free around."""
    situation = instance.situation
    asked = instance.waiting.constraints
    used = sorted(set(nodes))
    paths = {node: _path(situation, node) for node in situation.nodes}
    order = [0, 1, 2]
    preferred = asked.near.preferred
    if preferred is None and asked.fabric is not None and not asked.fabric_required:
        preferred = "block"
    if preferred is not None:
        level = TOPOLOGY.index(preferred)
        order = [level, *(other for other in order if other != level)]
    domains = [
        len({paths[node][: level + 1] if len(paths[node]) > level else node for node in used})
        for level in order
    ]
    liked = 0
    for member, node in zip(instance.waiting.members, nodes, strict=True):
        labels = situation.nodes[node].labels
        for weight, term in member.needs.preferred:
            liked += weight * (labels["fast"] == term.labels[0].values[0])
    requests = [dict(member.needs.requests) for member in instance.waiting.members]
    main = GPU if any(GPU in one for one in requests) else "cpu"
    free = {
        node: max(
            dict(situation.nodes[node].allocatable).get(main, 0)
            - sum(dict(p.needs.requests).get(main, 0) for p in situation.running if p.node == node),
            0,
        )
        for node in situation.nodes
    }
    left = sum(free[node] for node in used)
    for level in range(3):
        touched = {paths[node][: level + 1] if len(paths[node]) > level else node for node in used}
        left += sum(
            free[node]
            for node in situation.nodes
            if (paths[node][: level + 1] if len(paths[node]) > level else node) in touched
        )
    products = [situation.nodes[node].labels["nvidia.com/gpu.product"] for node in used]
    kinds = [at for at, kind in enumerate(asked.gpu_types) if all(kind in p for p in products)]
    return (min(kinds, default=0), *domains, len(used), -liked, left)  # the kind of GPU comes first


def _path(situation, node):
    labels = situation.nodes[node].labels
    path = []
    for level in TOPOLOGY.levels:
        value = labels.get(level.label)
        if value is None:
            break
        if level.name == "clique":
            claims = {
                (n.labels["t/block"], n.labels["t/rack"])
                for n in situation.nodes.values()
                if n.labels.get("t/clique") == value
                and "t/block" in n.labels
                and "t/rack" in n.labels
            }
            if len(claims) != 1:
                break
        path.append(value)
    return tuple(path)


def test_small_problems_agree_with_brute_force():
    seen = Counter()
    for seed in SEEDS[::3]:
        instance = an_instance(seed, nodes=4, members=4, shares=False)
        result = place(Cpsat(), instance)
        best = brute_force(instance)
        if isinstance(result, Refusal):
            if result.reason is not Reason.MISCONFIGURED:
                assert best is None, f"seed {seed}: {result.message} but {best}"
                assert result.proved, f"seed {seed}: {result.message}"
            seen["refused"] += 1
            continue
        seen[result.proof] += 1
        nodes = dict(result.nodes)
        reached = costs(instance, [nodes[m.name] for m in instance.waiting.members])
        assert reached[1:] == result.cost, f"seed {seed}: says {result.cost}, costs {reached}"
        if result.proof is Proof.PROVED:
            assert reached == best, f"seed {seed}"
        else:
            assert best[1:] >= result.bound, f"seed {seed}"
    assert seen[Proof.PROVED] > 0.97 * (seen[Proof.PROVED] + seen[Proof.GAP])
    assert seen["refused"] > len(SEEDS) // 60


def renamed(waiting: PendingGang, name: str) -> PendingGang:
    """Return the same gang under another name."""
    group = GangId(f"ns/{name}")
    members = tuple(
        replace(member, name=PodName(member.name.replace("ns/new", f"ns/{name}")))
        for member in waiting.members
    )
    return replace(waiting, gang=replace(waiting.gang, id=group), members=members)


@pytest.mark.parametrize("order", [Fifo(), Batch()], ids=["fifo", "batch"])
def test_gangs_planned_together_keep_out_of_each_others_way(order):
    placed = Counter()
    for seed in SEEDS[::5]:
        first = an_instance(seed, nodes=8)
        gangs = [renamed(an_instance(seed * 7 + i).waiting, f"g{i}") for i in range(3)]
        nodes = first.situation.nodes
        snapshot = replace(first.snapshot, pending=tuple(gangs))
        running = list(first.situation.running)
        exclusive = dict(first.situation.exclusive or {})
        before = first.snapshot.cluster.used.copy()
        plan = make_plan(snapshot, Policies(order, Cpsat()), 0.0)
        assert np.array_equal(before, first.snapshot.cluster.used[:, : before.shape[1]])
        by_id = {waiting.gang.id: waiting for waiting in gangs}
        for planned in plan.placements:
            waiting = by_id[planned.gang]
            places = dict(planned.placement.nodes)
            situation = Situation(nodes, tuple(running), TOPOLOGY, exclusive)
            try:
                check_placement(waiting, places, situation)
            except ViolationError as error:
                pytest.fail(f"seed {seed}, {planned.gang}: {error}")
            wants = {member.name: member.needs for member in waiting.members}
            running += [BoundPod(n, planned.gang, node, wants[n]) for n, node in places.items()]
            if waiting.constraints.exclusive is not None:
                exclusive[planned.gang] = waiting.constraints.exclusive
        placed[len(plan.placements)] += 1
    assert placed[2] + placed[3] > len(SEEDS) // 60


@pytest.mark.parametrize("name", ["pack", "topology", "cpsat", "spread"])
def test_an_elastic_gang_gets_as_many_as_fit(name):
    partial = 0
    for seed in SEEDS[::4]:
        instance = an_instance(seed, nodes=4, members=5, shares=False)
        if len({member.needs for member in instance.waiting.members}) > 1:
            continue
        if any(role.near != LevelRequest() for role in instance.waiting.gang.roles):
            continue
        elastic = replace(instance.waiting, members_min=1, role_members_min=())
        result = place(POLICIES[name], replace(instance, waiting=elastic))
        if isinstance(result, Refusal):
            if result.reason is not Reason.MISCONFIGURED:
                assert most_that_fit(instance, elastic) == 0, f"seed {seed}"
            continue
        check_placement(elastic, dict(result.nodes), instance.situation)
        kinds = instance.waiting.constraints.gpu_types
        if len(kinds) < 2:  # the first kind of GPU is taken even where another had room for more
            assert len(result.nodes) == most_that_fit(instance, elastic), f"seed {seed}"
        partial += len(result.nodes) < len(elastic.members)
    assert partial > 3


def most_that_fit(instance: Instance, waiting: PendingGang) -> int:
    """Return the largest number of members for which any valid placement exists."""
    names = [member.name for member in waiting.members]
    unit = waiting.constraints.near.slices[0].size if waiting.constraints.near.slices else 1
    for count in range(len(names), 0, -1):
        if count % unit:
            continue
        for nodes in product(instance.situation.nodes, repeat=count):
            try:
                check_placement(waiting, dict(zip(names, nodes, strict=False)), instance.situation)
            except ViolationError:
                continue
            return count
    return 0
