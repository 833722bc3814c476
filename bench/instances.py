"""Seeded planning problems for the placement benchmark: clusters of racks, and gangs."""

import random
from dataclasses import replace

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    LevelRequest,
    SliceRequest,
)
from gangsched.core.model.gangs import Gang, Member, PendingGang, Role
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.model.topology import Fabric, Level, Topology

TREE = Topology(
    "default", (Level("block", "block", Fabric.INFINIBAND), Level("rack", "rack", Fabric.ETHERNET))
)
MIG = "nvidia.com/mig-1g.10gb"


def a_cluster(count: int, occupied: float, seed: int) -> Cluster:
    """Return a partly occupied cluster: racks of 8 to 32 nodes, eight racks per block."""
    rng = random.Random(seed)
    cluster = Cluster()
    cluster.set_topologies((TREE,))
    size = rng.choice((8, 16, 32))
    for index in range(count):
        rack = index // size
        labels = {"block": f"b{rack // 8}", "rack": f"r{rack}"}
        amounts = {"cpu": 96_000, "memory": 2**40, "pods": 110}
        if index % 10 == 9:
            amounts[MIG] = 28
        else:
            amounts[GPU] = 8
        cluster.put_node(Node(NodeName(f"n{index:05}"), tuple(sorted(amounts.items())), labels))
    for index in range(count):
        mig = index % 10 == 9
        resource, most = (MIG, 28) if mig else (GPU, 8)
        left = most
        number = 0
        while left > 0 and rng.random() < occupied:
            taken = min(rng.choice((1, 2, 4, 8, 8)), left)
            needs = PodRequirements((("cpu", 4000 * taken if not mig else 1000), (resource, taken)))
            cluster.allocate((index, number), NodeName(f"n{index:05}"), needs)
            left -= taken
            number += 1
    return cluster


def a_gang(kind: str, size: int, rng: random.Random) -> PendingGang:
    """Return a pending gang of a kind."""
    gpus = rng.choice((1, 2, 4, 8))
    worker = PodRequirements((("cpu", 4000), ("memory", 2**33), (GPU, gpus)))
    near = LevelRequest(required=rng.choice((None, None, "block")))
    roles = [Role("worker", size, size, worker)]
    if kind == "two-role":
        server = PodRequirements((("cpu", 24_000), ("memory", 2**36), (GPU, rng.choice((1, 2)))))
        few = max(size // 4, 1)
        roles = [Role("server", few, few, server), Role("worker", size - few, size - few, worker)]
    elif kind == "sliced":
        near = replace(near, slices=(SliceRequest("rack", min(size, rng.choice((2, 4, 8)))),))
    elif kind == "mig":
        needs = PodRequirements((("cpu", 2000), ("memory", 2**33), (MIG, rng.choice((1, 2)))))
        roles = [Role("worker", size, size, needs)]
    constraints = replace(NO_CONSTRAINTS, near=near)
    return waiting(roles, constraints)


def waiting(roles: list[Role], constraints: Constraints) -> PendingGang:
    """Return a pending gang with these roles, as a planner sees it."""
    total = sum(role.count for role in roles)
    gang = Gang(GangId("b/g"), total, tuple(roles), constraints=constraints)
    members: list[Member] = []
    for role in roles:
        assert role.needs is not None
        for name in gang.member_names(role):
            members.append(Member(name, role.name, role.needs, len(members)))
    minimum = tuple((role.name, role.count) for role in roles)
    return PendingGang(gang, 1, tuple(members), total, minimum, 0, 0.0, constraints=constraints)
