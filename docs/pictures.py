"""Draws the pictures of the pages (`make pictures`): the planner decides on what they show.

Those of docs/placement.md are drawn here, the diagrams by docs/diagrams.py.
"""

import sys
from pathlib import Path

import diagrams

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    LevelRequest,
    SliceRequest,
)
from gangsched.core.model.gangs import Gang, Member, PendingGang, Role
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.mig_profiles import MODELS
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.model.refusal import Refusal
from gangsched.core.model.topology import Fabric, Level, Topology
from gangsched.core.placement.repartition import place_with_repartition
from gangsched.core.policy import Placer
from gangsched.core.snapshot import Snapshot
from policies.cpsat import Cpsat
from policies.pack import Pack
from policies.topology import TopologyPlacer
from simulator.report.cluster_picture import ClusterDrawing, draw, draw_gpus

TREE = Topology(
    "default", (Level("block", "block", Fabric.INFINIBAND), Level("rack", "rack", Fabric.NVLINK))
)
MIG = "nvidia.com/mig-2g.10gb"


def cluster(*racks: tuple[str, str, tuple[int, ...]]) -> Cluster:
    """Return racks of hosts with four GPUs, of which so many are taken."""
    made = Cluster()
    made.set_topologies((TREE,))
    for block, rack, taken in racks:
        for index, count in enumerate(taken):
            name = NodeName(f"{rack}-{index}")
            amounts = (("cpu", 64_000), (GPU, 4), ("pods", 110))
            made.put_node(Node(name, amounts, {"block": block, "rack": rack}))
            if count:
                made.allocate(name, name, PodRequirements(((GPU, count),)))
    return made


def gang(
    count: int, gpus: int, constraints: Constraints = NO_CONSTRAINTS, **more: int
) -> PendingGang:
    """Return a waiting gang of workers."""
    needs = PodRequirements(
        tuple(sorted({GPU: gpus, **more}.items())) if gpus else tuple(more.items())
    )
    role = Role("worker", count, count, needs)
    one = Gang(GangId("team/job"), count, (role,), constraints=constraints)
    names = enumerate(one.member_names(role))
    members = tuple(Member(name, "worker", needs, rank) for rank, name in names)
    return PendingGang(one, 1, members, count, (), 0, 0.0, constraints=constraints)


def place(placer: Placer, waiting: PendingGang, made: Cluster) -> Placement | Refusal:
    """Place a gang."""
    return placer.place(waiting, Snapshot(made, ()))


def scene(title: str, placer: Placer, waiting: PendingGang, made: Cluster) -> ClusterDrawing:
    """Place a gang and show where it went."""
    result = place(placer, waiting, made)
    places = dict(result.nodes) if isinstance(result, Placement) else {}
    return ClusterDrawing(title, made, waiting, places)


def slices() -> tuple[Cluster, PendingGang]:
    """Eight pods of two GPUs, every four in one rack."""
    made = cluster(
        ("A", "a1", (2, 0, 4, 1)), ("A", "a2", (0, 4, 2, 0)), ("B", "b1", (4, 2, 0, 3)),
        ("B", "b2", (1, 4, 4, 2)),
    )  # fmt: skip
    near = Constraints(near=LevelRequest(slices=(SliceRequest("rack", 4),)))
    return made, gang(8, 2, near)


def fewer() -> tuple[Cluster, PendingGang]:
    """Eleven pods of one GPU: greedy filling needs three racks, two are enough."""
    made = cluster(
        ("A", "a1", (2, 4)), ("A", "a2", (1, 3)), ("B", "b1", (0, 0)), ("B", "b2", (1, 4)),
        ("C", "c1", (3, 0)), ("C", "c2", (4, 2)),
    )  # fmt: skip
    return made, gang(11, 1)


def scattered() -> tuple[Cluster, PendingGang]:
    """Nine GPUs are free, and no rack has eight."""
    made = cluster(
        ("A", "a1", (3, 2)), ("A", "a2", (4, 1)), ("B", "b1", (2, 4)), ("B", "b2", (3, 4))
    )
    return made, gang(8, 1, Constraints(near=LevelRequest(required="rack")))


def mig() -> tuple[Node, Placement]:
    """Four pods of one 2g.10gb each meet a node of whole A100s, one of the four in a cut pool."""
    made = Cluster()
    layouts = ((("1g.5gb", 7),), (), (), ())
    amounts = (("cpu", 64_000), (GPU, 3), ("nvidia.com/mig-1g.5gb", 7), ("pods", 110))
    node = Node(NodeName("n0"), amounts, gpu_model="NVIDIA-A100-SXM4-40GB", layouts=layouts)
    made.put_node(node)
    made.allocate("x", node.name, PodRequirements((("nvidia.com/mig-1g.5gb", 2),)))
    waiting = gang(4, 0, **{MIG: 1})
    result = place_with_repartition(waiting, Snapshot(made, ()), Pack())
    assert result is not None
    return node, result


def main(folder: Path) -> None:
    """Draw every picture into a folder."""
    diagrams.draw(folder)
    made, waiting = slices()
    draw([scene("slices of four, each in one rack; ranks in order", Cpsat(), waiting, made)],
         folder / "slices.svg")  # fmt: skip
    made, waiting = fewer()
    draw(
        [
            scene("pack: fewest nodes", Pack(), waiting, made),
            scene("cpsat: fewest blocks, then racks, then nodes", Cpsat(), waiting, made),
        ],
        folder / "fewer-racks.svg",
    )
    made, waiting = scattered()
    draw([scene("9 GPUs free, no rack has 8", TopologyPlacer(), waiting, made)],
         folder / "scattered.svg")  # fmt: skip
    node, result = mig()
    (cut,) = result.repartitions
    rows = [("before: GPU 0 is in use", node.layouts), ("after: two idle GPUs cut", cut.layouts)]
    draw_gpus(rows, MODELS["A100-40GB"], folder / "mig.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
