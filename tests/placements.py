"""Seeded planning problems: a cluster, running gangs, and one gang with constraints."""

import random
from dataclasses import dataclass, replace

from builders import GPU

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest, Spread
from gangsched.core.model.gangs import Gang, Member, PendingGang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Expression, GpuShare, NodeTerm, PodRequirements
from gangsched.core.model.queues import Queue
from gangsched.core.model.topology import Fabric, Level, Topology
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import Snapshot
from simulator.invariants.placement_checks import BoundPod, Situation

TOPOLOGY = Topology(
    "default",
    (
        Level("t/block", "block", Fabric.INFINIBAND),
        Level("t/rack", "rack", Fabric.ETHERNET),
        Level("t/clique", "clique", Fabric.NVLINK),
    ),
)
LEVELS = ("block", "rack", "clique", "host")
PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB")


@dataclass(frozen=True)
class Instance:
    """One problem, for the planner and for the checker."""

    waiting: PendingGang
    situation: Situation
    snapshot: Snapshot


def an_instance(seed: int, *, nodes: int = 6, members: int = 6, shares: bool = True) -> Instance:
    """Return the problem of a seed."""
    rng = random.Random(seed)
    made = [_node(rng, index) for index in range(rng.randint(2, nodes))]
    cluster = Cluster()
    cluster.set_topologies((TOPOLOGY,))
    for node in made:
        cluster.put_node(node)
    running, exclusive = [], {}
    for index in range(rng.randint(0, 3)):
        gang = GangId(f"ns/old{index % 2}")
        node = rng.choice(made)
        needs = _needs(rng, shares=shares)
        row = cluster.rows[node.name]
        if cluster.fits(row, needs):
            cluster.allocate(f"old-{index}", node.name, needs, gang)
            running.append(BoundPod(PodName(f"ns/old-{index}"), gang, node.name, needs))
            if rng.random() < 0.2:
                level = rng.choice(LEVELS)
                exclusive = {gang: level}
                cluster.exclusive_domains = {gang: ("", TOPOLOGY.index(level))}
    waiting = _gang(rng, members, [node.name for node in made], shares=shares)
    situation = Situation({node.name: node for node in made}, tuple(running), TOPOLOGY, exclusive)
    usage = Usage(QueueTree([Queue("default", exclusive=LEVELS[0])]))
    return Instance(waiting, situation, Snapshot(cluster, (), usage))


def _node(rng: random.Random, index: int) -> Node:
    block, rack = rng.choice("AB"), rng.choice("12")
    labels = {"t/block": block, "t/rack": rack, "t/clique": f"{block}{rack}-{rng.choice('xy')}"}
    if rng.random() < 0.06:
        labels["t/clique"] = "torn"  # claimed by two racks sooner or later
    if rng.random() < 0.08:
        del labels[rng.choice(list(labels))]
    labels["nvidia.com/gpu.product"] = rng.choice(PRODUCTS)
    labels["fast"] = rng.choice("01")
    amounts = {"cpu": rng.choice((2000, 4000, 8000)), GPU: rng.randint(0, 4), "pods": 110}
    return Node(
        NodeName(f"n{index}"),
        tuple(sorted(amounts.items())),
        labels,
        gpu_memory_mib=rng.choice((40_000, 80_000)),
    )


def _needs(rng: random.Random, *, shares: bool) -> PodRequirements:
    amounts = {"cpu": rng.choice((500, 1000, 2000))}
    share = None
    kind = rng.random()
    if shares and kind < 0.15:
        share = GpuShare(milli=rng.choice((250, 400, 500)), devices=rng.choice((1, 1, 2)))
    elif shares and kind < 0.2:
        share = GpuShare(memory_mib=rng.choice((20_000, 50_000)))
    elif kind < 0.9:
        amounts[GPU] = rng.choice((1, 1, 2, 3))
    selector = (Expression("fast", "In", ("1",)),) if rng.random() < 0.1 else ()
    likes = NodeTerm((Expression("fast", "In", ("1",)),))
    preferred = ((5, likes),) if rng.random() < 0.1 else ()
    return PodRequirements(
        tuple(sorted(amounts.items())), selector=selector, preferred=preferred, share=share
    )


def _near(rng: random.Random, count: int) -> LevelRequest:
    required = rng.choice(LEVELS) if rng.random() < 0.3 else None
    preferred = rng.choice(LEVELS[:3]) if rng.random() < 0.1 else None
    slices: tuple[SliceRequest, ...] = ()
    sizes = [size for size in (2, 3, 4) if count % size == 0]
    if sizes and rng.random() < 0.3:
        size, at = rng.choice(sizes), rng.randint(0, 3)
        slices = (SliceRequest(LEVELS[at], size),)
        if size == 4 and at < 3 and rng.random() < 0.5:
            slices = (*slices, SliceRequest(LEVELS[rng.randint(at + 1, 3)], 2))
    return LevelRequest(required, preferred, slices)


def _gang(rng: random.Random, most: int, nodes: list[NodeName], *, shares: bool) -> PendingGang:
    two = rng.random() < 0.4 and most > 1
    counts = [rng.randint(1, most - 1), 1] if two else [rng.randint(1, most)]
    if two:
        counts[1] = rng.randint(1, most - counts[0])
    roles, near_role = [], []
    shared = _needs(rng, shares=shares)
    alike = rng.random() < 0.3
    for index, count in enumerate(counts):
        needs = shared if alike or index == 0 else _needs(rng, shares=shares)
        near = _near(rng, count) if two and rng.random() < 0.3 else LevelRequest()
        roles.append(Role(f"r{index}", count, count, needs, near))
        if near != LevelRequest():
            near_role.append((f"r{index}", near))
    near = _near(rng, sum(counts)) if not two or alike else replace(_near(rng, 1), slices=())
    spread = ()
    if rng.random() < 0.15:
        spread = (Spread(rng.choice(LEVELS), rng.randint(1, 3)),)
    constraints = Constraints(
        near=near,
        fabric="infiniband" if rng.random() < 0.1 else None,
        fabric_required=rng.random() < 0.5,
        spread=spread,
        exclusive=rng.choice(LEVELS) if rng.random() < 0.1 else None,
        gpu_types=rng.choice((("H100",), ("H100", "A100"))) if rng.random() < 0.15 else (),
        avoid=(rng.choice(nodes),) if rng.random() < 0.1 else (),
    )
    total = sum(counts)
    gang = Gang(GangId("ns/new"), total, tuple(roles), constraints=constraints)
    members = []
    for role in roles:
        for name in gang.member_names(role):
            members.append(Member(name, role.name, role.needs, len(members)))
    return PendingGang(
        gang=gang,
        version=1,
        members=tuple(members),
        members_min=total,
        role_members_min=tuple((role.name, role.count) for role in roles),
        priority=0,
        queued_since_s=0.0,
        pods_per_node_max=rng.randint(1, 2) if rng.random() < 0.08 else None,
        constraints=constraints,
        near_role=tuple(near_role),
    )
