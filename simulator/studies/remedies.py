"""Refused gangs by seed, and a check of the remedies in their refusals.

A scene is a list of facts, so that it can be played again. With a remedy applied as a user would
read it, the gang has to start in the next cycle, beside all pending gangs and under all rules.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest, Spread
from gangsched.core.model.gangs import Gang, PendingGang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.placement import Eviction
from gangsched.core.model.pods import GpuShare, PodRequirements, Taint, Toleration
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.model.refusal import Reason, Refusal, Remedy
from gangsched.core.model.topology import Fabric, Level, Topology
from gangsched.core.placement.advice import advise
from gangsched.core.planning.planner import Plan, Planned, make_plan, starts_next_cycle
from gangsched.core.policy import Policies
from gangsched.core.preemption.defragmentation import Defragmentation, Defragmenter, move_remedy
from gangsched.core.snapshot import Snapshot

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
HCA = "rdma/hca"
TREE = Topology("default", (Level("block", "block", Fabric.INFINIBAND), Level("rack", "rack")))
PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB")
TAINT = Taint("dedicated", "big", "NoSchedule")
TOLERATES = Toleration("dedicated", "Exists", "", "")
QUEUES = ("default", "top", "a", "b", "closed", "strict")
NOW_S = 1000.0


@dataclass(slots=True)
class Scene:
    """Facts in their order, the pending gangs, the pods of running gangs, and the nodes."""

    facts: list[f.Fact] = field(default_factory=list)
    waiting: dict[GangId, Gang] = field(default_factory=dict)
    pods: dict[GangId, list[PodUid]] = field(default_factory=dict)
    nodes: dict[NodeName, Node] = field(default_factory=dict)

    def play(self, policies: Policies) -> Engine:
        """Return an engine that observed all facts and planned once."""
        engine = Engine(Limits())
        for fact in self.facts:
            engine.observe(fact, 0.0)
        engine.accept(make_plan(engine.begin_cycle(NOW_S), policies, NOW_S), NOW_S)
        return engine


def a_scene(seed: int) -> Scene:
    """Return the scene of a seed; in every third, the free capacity is fragmented."""
    rng, scene = random.Random(seed), Scene()  # noqa: S311 -- a seed is to be the same again
    scene.facts.append(f.TopologySeen(TREE))
    scene.facts += [f.QueueSeen(queue) for queue in _queues(rng)]
    if seed % 3 == 0:
        return _in_pieces(rng, scene)
    for index in range(rng.randint(3, 10)):
        node = _node(rng, index)
        scene.nodes[node.name] = node
        scene.facts.append(f.NodeSeen(node))
    for index in range(rng.randint(1, 6)):
        _run(rng, scene, index)
    for index in range(rng.randint(1, 5)):
        gang = _gang(rng, f"w{index}", created_s=500.0 + index)
        scene.waiting[gang.id] = gang
        scene.facts.append(f.GangSeen(gang))
    return scene


def _in_pieces(rng: random.Random, scene: Scene) -> Scene:
    """Add small running gangs on all nodes, and large pending gangs."""
    for index in range(rng.randint(2, 4)):
        node = replace(
            _node(rng, index), allocatable=(("cpu", 16_000), (GPU, 8), ("pods", 110)), taints=()
        )
        scene.nodes[node.name] = node
        scene.facts.append(f.NodeSeen(node))
    for index in range(rng.randint(2, 8)):
        _run(rng, scene, index, PodRequirements((("cpu", 500), (GPU, rng.choice((1, 2, 3))))))
    for index in range(rng.randint(1, 4)):
        role = Role(
            "worker", 1, 1, PodRequirements((("cpu", 500), (GPU, rng.choice((2, 5, 6, 8)))))
        )
        gang = replace(_gang(rng, f"w{index}", created_s=500.0 + index), min_member=1)
        gang = replace(gang, roles=(role,), constraints=Constraints())
        scene.waiting[gang.id] = gang
        scene.facts.append(f.GangSeen(gang))
    return scene


def _queues(rng: random.Random) -> Iterator[Queue]:
    def quota(least: int, most: int) -> tuple[Quota, ...]:
        if rng.random() < 0.3:
            return ()
        borrowing = rng.choice((None, 0, 2000, 8000))
        return (Quota(GPU, rng.randint(least, most) * 1000, borrowing=borrowing),)

    yield Queue("top", quotas=quota(8, 40), exclusive=rng.choice(("", "block", "rack")))
    for name in ("a", "b"):
        limits = ((GPU, rng.randint(2, 16) * 1000),) if rng.random() < 0.2 else ()
        yield Queue(name, parent="top", quotas=quota(0, 4), user_limits=limits)
    yield Queue("closed", namespaces=frozenset({"other"}), open_to_all=False, quotas=quota(4, 30))
    yield Queue("strict", strict=True, quotas=quota(4, 30), highest_priority=5)
    yield Queue("default", exclusive=rng.choice(("", "block")))


def _node(rng: random.Random, index: int) -> Node:
    block = rng.choice("AB")
    product = rng.choice(PRODUCTS)
    labels = {
        "block": block,
        "rack": f"{block}{rng.choice('123')}",
        "nvidia.com/gpu.product": product,
    }
    amounts = {"cpu": rng.choice((4000, 16_000)), GPU: rng.choice((2, 4, 8)), "pods": 110}
    if rng.random() < 0.15:
        amounts |= {GPU: 0, MIG: 7}
    if rng.random() < 0.5:
        amounts[HCA] = rng.choice((0, 1, 2))
    taints = (TAINT,) if rng.random() < 0.2 else ()
    return Node(
        NodeName(f"n{index}"),
        tuple(sorted(amounts.items())),
        labels,
        taints=taints,
        gpu_model=product,
        gpu_memory_mib=81_920,
    )


def _needs(rng: random.Random) -> PodRequirements:
    amounts = {"cpu": rng.choice((500, 1000, 3000))}
    share, kind = None, rng.random()
    if kind < 0.1:
        share = GpuShare(milli=rng.choice((250, 500)), devices=1)
    elif kind < 0.2:
        amounts[MIG] = rng.choice((1, 2))
    else:
        amounts[GPU] = rng.choice((1, 1, 2, 4, 8))
    if rng.random() < 0.15:
        amounts[HCA] = 1
    tolerations = (TOLERATES,) if rng.random() < 0.3 else ()
    return PodRequirements(tuple(sorted(amounts.items())), tolerations=tolerations, share=share)


def _asks(rng: random.Random, count: int) -> Constraints:
    kind = rng.random()
    near = LevelRequest(required=rng.choice((None, None, "rack", "block", "host")))
    if count % 2 == 0 and rng.random() < 0.2:
        near = replace(near, slices=(SliceRequest("host", 2),))
    return Constraints(
        near=near,
        exclusive=rng.choice(("rack", "block")) if kind < 0.15 else None,
        gpu_types=(rng.choice(("H100", "A100")),) if 0.15 < kind < 0.3 else (),
        spread=(Spread("rack", 1),) if 0.3 < kind < 0.4 else (),
        avoid=(NodeName("n0"),) if 0.4 < kind < 0.5 else (),
    )


def _gang(rng: random.Random, name: str, created_s: float) -> Gang:
    count = rng.choice((1, 1, 2, 2, 3, 4, 6, 8))
    roles = [Role("worker", count, count, _needs(rng))]
    if rng.random() < 0.2:
        roles.append(Role("head", 1, 1, _needs(rng)))
    return Gang(
        GangId(f"ns/{name}"),
        sum(role.min_count for role in roles),
        tuple(roles),
        queue=rng.choice(QUEUES),
        priority=rng.choice((0, 0, 0, 3, 9)),
        created_s=created_s,
        expected_runtime_s=rng.choice((None, 600.0, 3000.0)),
        constraints=_asks(rng, count) if rng.random() < 0.6 else Constraints(),
        user=rng.choice(("ann", "bob")),
        preemptible=rng.random() < 0.7,
    )


def _run(
    rng: random.Random, scene: Scene, index: int, needs: PodRequirements | None = None
) -> None:
    """Add a running gang on any node that fits, which may differ from a planner's choice."""
    needs = needs or replace(_needs(rng), share=None)
    gang = Gang(
        GangId(f"ns/r{index}"),
        1,
        queue=rng.choice(("default", "a", "b", "strict")),
        priority=rng.choice((0, 0, 3)),
        expected_runtime_s=rng.choice((None, 1500.0, 4000.0)),
        user=rng.choice(("ann", "bob")),
        preemptible=rng.random() < 0.7,
        movable=index % 3 > 0,
    )
    free = {name: dict(node.allocatable) for name, node in scene.nodes.items()}
    for fact in scene.facts:
        if isinstance(fact, f.PodSeen) and fact.node is not None:
            for resource, quantity in fact.needs.requests:
                free[fact.node][resource] -= quantity
    asked = dict(needs.requests)
    fitting = [
        name
        for name, left in free.items()
        if all(left.get(resource, 0) >= quantity for resource, quantity in asked.items())
    ]
    if not fitting:
        return
    uid, node = PodUid(f"r{index}-0"), rng.choice(fitting)
    scene.facts.append(f.GangSeen(gang))
    scene.facts.append(
        f.PodSeen(uid, PodName(f"ns/{uid}"), needs, gang.id, node=node, started_s=100.0 + index)
    )
    scene.pods[gang.id] = [uid]


# -- remedies, and whether they work ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RefusedGang:
    """A refused gang with its refusal, and the proposed moves of other gangs."""

    waiting: PendingGang
    refusal: Refusal
    moves: Defragmentation | None = None


def advised(engine: Engine, policies: Policies) -> list[RefusedGang]:
    """Return the refused gangs with the remedies of their refusals."""

    def would(waiting: PendingGang, snapshot: Snapshot, at_s: float | None) -> bool:
        return starts_next_cycle(waiting, snapshot, policies, NOW_S if at_s is None else at_s)

    refused = []
    for gang, refusal in sorted(engine.view.refusals.items()):
        state = engine.view.gangs.get(gang)
        if state is not None and state.is_plannable():
            waiting = engine.view.pending(gang)
            snapshot = engine.view.snapshot_all(NOW_S)
            explained, moves = advise(waiting, snapshot, refusal, would, NOW_S), None
            if refusal.reason in (Reason.NOT_ENOUGH_FREE, Reason.TOPOLOGY):
                moves = Defragmenter(snapshot, policies.placer, NOW_S, starts=would).find_moves(
                    waiting
                )
            if moves is not None:
                explained = replace(explained, remedies=(*explained.remedies, move_remedy(moves)))
            refused.append(RefusedGang(waiting, explained, moves))
    return refused


def works(scene: Scene, policies: Policies, refused: RefusedGang, remedy: Remedy) -> bool:
    """Play the scene again, apply a remedy, and return whether the gang starts."""
    engine, gang, at_s = scene.play(policies), refused.waiting.gang.id, NOW_S
    if remedy.kind == "move":
        assert refused.moves is not None, "moves were found"  # noqa: S101
        return _moved(scene, policies, refused, refused.moves) and _moves(
            engine, policies, refused, refused.moves
        )
    if remedy.kind == "wait":
        at_s = remedy.at_s if remedy.at_s is not None else NOW_S
        for ended in _ending(engine, remedy):
            for uid in scene.pods.get(ended, ()):
                engine.observe(f.PodGone(uid), at_s)
            if ended in scene.waiting:  # a gang with a predicted start, still without pods
                engine.observe(f.GangGone(ended), at_s)
    elif remedy.kind == "node":
        assert refused.refusal.near_miss is not None, "a node was named"  # noqa: S101
        node = scene.nodes[NodeName(refused.refusal.near_miss.node)]
        more = Counter(dict(node.allocatable))
        for name, quantity in refused.refusal.near_miss.lacks:
            more["pods" if name == "pod slots" else name] += quantity
        larger = replace(node, allocatable=tuple(sorted(more.items())))
        engine.observe(f.NodeSeen(larger), NOW_S)
    else:
        engine.observe(f.GangSeen(_changed(scene.waiting[gang], refused.waiting, remedy)), NOW_S)
    plan = make_plan(engine.begin_cycle(at_s), policies, at_s)
    return any(planned.gang == gang for planned in plan.placements)


def _moved(scene: Scene, policies: Policies, refused: RefusedGang, moves: Defragmentation) -> bool:
    """Return whether the gang starts after an administrator moved the others."""
    engine = scene.play(policies)
    for pod in [pod for move in moves.moves for pod in _pods(engine, move.gang)]:
        engine.observe(f.PodGone(pod.uid), NOW_S)
    for move in moves.moves:
        (pod,) = _pods(scene.play(policies), move.gang)
        (node,) = move.target
        engine.observe(replace(pod, uid=PodUid(f"{pod.uid}b"), node=node), NOW_S)
    plan = make_plan(engine.begin_cycle(NOW_S), policies, NOW_S)
    return any(planned.gang == refused.waiting.gang.id for planned in plan.placements)


def _moves(
    engine: Engine, policies: Policies, refused: RefusedGang, moves: Defragmentation
) -> bool:
    """Return whether the gang and all moved gangs start after the scheduler made the moves."""
    assert moves.placement is not None, "it is for a gang"  # noqa: S101
    evictions = tuple(Eviction(move.gang, (), "Moved") for move in moves.moves)
    placement = replace(moves.placement, evicts=evictions)
    planned = Planned(refused.waiting.gang.id, refused.waiting.version, placement)
    pods = [pod for move in moves.moves for pod in _pods(engine, move.gang)]
    engine.accept(Plan((planned,), advice=True), NOW_S)
    for pod in pods:
        engine.observe(f.PodGone(pod.uid), NOW_S)
    for pod in pods:
        fresh = replace(pod, uid=PodUid(f"{pod.uid}b"), node=None, started_s=0.0)
        engine.observe(fresh, NOW_S)
    plan = make_plan(engine.begin_cycle(NOW_S), policies, NOW_S)
    engine.accept(plan, NOW_S)
    gangs = (refused.waiting.gang.id, *(move.gang for move in moves.moves))
    return all(engine.view.gangs[gang].members.in_progress() for gang in gangs)


def _pods(engine: Engine, gang: GangId) -> list[f.PodSeen]:
    return [pod for pod in engine.view.pods() if pod.gang == gang]


def _ending(engine: Engine, remedy: Remedy) -> tuple[GangId, ...]:
    """Return the gangs that a remedy waits for."""
    named = GangId(remedy.message.split(" of gang ")[1].split()[0])
    before = re.search(r"and (\d+) other gang", remedy.message)
    running = [
        gang for gang in engine.view.snapshot_cluster(NOW_S).occupants if gang.end_s is not None
    ]
    running.sort(key=lambda gang: (gang.end_s or 0.0, gang.gang.id))
    others = [gang.gang.id for gang in running if gang.gang.id != named]
    return named, *others[: int(before[1]) if before else 0]


def _changed(gang: Gang, waiting: PendingGang, remedy: Remedy) -> Gang:
    """Return the gang as its user would submit it after reading the remedy."""
    asks, words = gang.constraints, remedy.message
    match remedy.kind:
        case "members":
            kept = sorted(waiting.members, key=lambda member: member.rank)[: int(words.split()[0])]
            counts = Counter(member.role for member in kept)
            roles = tuple(
                replace(role, count=counts[role.name], min_count=counts[role.name])
                for role in gang.roles
                if counts[role.name]
            )
            return replace(gang, min_member=len(kept), roles=roles)
        case "gpu-kind":
            asks = replace(asks, gpu_types=())
        case "exclusive":
            asks = replace(asks, exclusive=None)
        case "spread":
            asks = replace(asks, spread=())
        case "avoid":
            asks = replace(asks, avoid=())
        case "level" if words.startswith("slices"):
            asks = replace(asks, near=replace(asks.near, slices=()))
        case "level":
            wider = words.split()[0] if " instead of " in words else None
            asks = replace(asks, near=replace(asks.near, required=wider), fabric_required=False)
        case other:
            raise ValueError(f"no remedy of kind {other} is known")
    return replace(gang, constraints=asks)
