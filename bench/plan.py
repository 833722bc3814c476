"""Plan time of one gang on a cluster with load, at 500 and 5,000 nodes: snapshot, plan, accept."""

import gc
import random
import time

from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.facts import GangGone, GangSeen, NodeSeen, PodSeen
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodRequirements
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cpsat import Cpsat
from policies.fifo import Fifo
from policies.pack import Pack
from policies.spread import SpreadPlacer

GPU = "nvidia.com/gpu"
SIZES = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = 400
PLACERS = {"pack": Pack(), "spread": SpreadPlacer(), "cpsat": Cpsat()}


def a_cluster(count: int, seed: int) -> Engine:
    """Return an engine with `count` nodes of eight GPUs, about half of them in use."""
    rng = random.Random(seed)
    engine = Engine(Limits())
    for index in range(count):
        name = NodeName(f"node-{index:05}")
        labels = {"kubernetes.io/hostname": name, "rack": f"rack-{index // 16}"}
        amounts = (("cpu", 96_000), ("memory", 2**40), (GPU, 8), ("pods", 110))
        engine.observe(NodeSeen(Node(name, amounts, labels)), 0.0)
        taken = PodRequirements((("cpu", 1000), (GPU, rng.choice((1, 2, 4, 4, 8)))))
        if rng.random() < 0.7:
            uid = PodUid(f"filler-{index}")
            engine.observe(PodSeen(uid, PodName(f"x/{uid}"), taken, node=name), 0.0)
    return engine


def times(count: int, placer: object, sizes: tuple[int, ...], rounds: int) -> list[float]:
    """Return milliseconds of each decision, sorted."""
    engine = a_cluster(count, seed=count)
    gc.collect()
    gc.freeze()  # as the scheduler does once it has read the cluster
    policies = Policies(Fifo(), placer)  # type: ignore[arg-type]
    rng = random.Random(1)
    found = []
    for index in range(rounds):
        size, gpus = rng.choice(sizes), rng.choice((1, 2, 4, 8))
        needs = PodRequirements((("cpu", 4000), ("memory", 2**33), (GPU, gpus)))
        gang = Gang(GangId(f"b/g{index}"), size, (Role("worker", size, size, needs),))
        engine.observe(GangSeen(gang), float(index))
        started_s = time.perf_counter()
        engine.accept(make_plan(engine.begin_cycle(), policies, float(index)), float(index))
        found.append((time.perf_counter() - started_s) * 1000)
        engine.observe(GangGone(gang.id), float(index))
    return sorted(found)


def infeasible(count: int) -> list[float]:
    """Return milliseconds until a gang that cannot fit is refused with its reason, sorted."""
    return times(count, Pack(), (count * 8 + 1,), 30)


def run() -> dict[str, float]:
    """Return flat figures."""
    figures: dict[str, float] = {}
    for count in (500, 5000):
        for name, placer in PLACERS.items():
            found = times(count, placer, SIZES, ROUNDS)
            prefix = f"plan_{count}" if name == "pack" else f"plan_{name}_{count}"
            figures[f"{prefix}_p50_ms"] = found[len(found) // 2]
            figures[f"{prefix}_p99_ms"] = found[int(len(found) * 0.99)]
        refused = infeasible(count)
        figures[f"infeasible_{count}_p99_ms"] = refused[int(len(refused) * 0.99)]
    large = times(10_000, Pack(), (1024,), 50)
    figures["plan_10000_gang_1024_p99_ms"] = large[int(len(large) * 0.99)]
    return figures
