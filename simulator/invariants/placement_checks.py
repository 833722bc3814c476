"""Invariants, checked on the simulation's own record of pods, never on the engine's state."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from gangsched.core.model.gangs import Gang, PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, Expression, NodeTerm, PodRequirements
from gangsched.core.model.topology import Fabric, Topology


class ViolationError(AssertionError):
    """An invariant does not hold; the message has the invariant, the time and the object."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A bound pod."""

    name: PodName
    gang: GangId
    node: NodeName
    needs: PodRequirements


def check_no_overcommit(
    allocatable: Mapping[NodeName, Mapping[str, int]], running: list[BoundPod], now_s: float
) -> None:
    """Check that no node holds more than its allocatable amount of any resource.

    Raises:
        ViolationError: a node is over-committed.

    """
    used: dict[NodeName, dict[str, int]] = {}
    for pod in running:
        taken = used.setdefault(pod.node, {})
        for resource, quantity in (*pod.needs.requests, ("pods", 1)):
            taken[resource] = taken.get(resource, 0) + quantity
    for node, taken in used.items():
        has = allocatable.get(node)
        if has is None:
            continue  # the node is gone and its pods with it
        for resource, quantity in taken.items():
            if quantity > has.get(resource, 0):
                raise ViolationError(
                    f"t={now_s:.3f} {node} holds {quantity} {resource} of {has.get(resource, 0)}"
                )


def check_all_or_none(
    gangs: Mapping[GangId, Gang],
    running: list[BoundPod],
    ended: Mapping[GangId, int],
    partial_since_s: dict[GangId, float],
    now_s: float,
    grace_s: float,
) -> None:
    """Check that no gang runs below its minimum for longer than its timeout and a grace period.

    `partial_since_s` keeps the state of the check between calls.

    Raises:
        ViolationError: a gang was below its minimum for too long.

    """
    count: dict[GangId, int] = {}
    for pod in running:
        count[pod.gang] = count.get(pod.gang, 0) + 1
    for gang_id, gang in gangs.items():
        bound = count.get(gang_id, 0)
        if bound == 0 or bound + ended.get(gang_id, 0) >= gang.min_member:
            partial_since_s.pop(gang_id, None)
            continue
        since_s = partial_since_s.setdefault(gang_id, now_s)
        if now_s - since_s > gang.schedule_timeout_s + grace_s:
            raise ViolationError(
                f"t={now_s:.3f} {gang_id} has run {bound} of at least {gang.min_member} members "
                f"since t={since_s:.3f}"
            )


# -- one placement ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Situation:
    """The cluster for which a placement is checked, as the API shows it: no arrays, no caches.

    `exclusive` maps gangs to the level at which they hold whole domains.
    """

    nodes: Mapping[NodeName, Node]
    running: tuple[BoundPod, ...] = ()
    topology: Topology | None = None
    exclusive: Mapping[GangId, str] | None = None


def check_placement(
    waiting: PendingGang, places: Mapping[PodName, NodeName], situation: Situation
) -> None:
    """Check one placement against every constraint that a gang can declare.

    Raises:
        ViolationError: a constraint does not hold; the message says which.

    """
    members = {member.name: member for member in waiting.members}
    _require(places.keys() <= members.keys(), "a stranger was placed")
    _require(len(places) >= waiting.members_min, f"{len(places)} placed of {waiting.members_min}")
    for role, least in waiting.role_members_min:
        placed = sum(1 for name in places if members[name].role == role)
        _require(placed >= least, f"{placed} of role {role}, at least {least} wanted")
    added = [
        BoundPod(name, waiting.gang.id, node, members[name].needs) for name, node in places.items()
    ]
    _check_capacity([*situation.running, *added], situation.nodes)
    for pod in added:
        _require(admits(situation.nodes[pod.node], pod.needs), f"{pod.node} bars {pod.name}")
    _check_constraints(waiting, places, situation)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


def _check_capacity(pods: list[BoundPod], nodes: Mapping[NodeName, Node]) -> None:
    allocatable = {name: dict(node.allocatable) for name, node in nodes.items()}
    check_no_overcommit(allocatable, pods, 0.0)
    for name, node in nodes.items():
        here = [pod.needs for pod in pods if pod.node == name]
        whole = sum(dict(needs.requests).get(GPU, 0) for needs in here)
        shares: list[tuple[int, int]] = []
        for needs in here:
            if needs.share is not None:
                milli = needs.share.milli
                if needs.share.memory_mib:
                    memory = needs.share.memory_mib * 1000
                    milli = -(-memory // node.gpu_memory_mib)
                shares.append((milli, needs.share.devices))
        gpus = allocatable[name].get(GPU, 0) - whole
        _require(_shares_fit(sorted(shares, reverse=True), [0] * max(gpus, 0)), f"GPUs of {name}")
        ports = [port for needs in here for port in needs.host_ports]
        _require(len(ports) == len(set(ports)), f"host ports of {name}")


def _shares_fit(shares: list[tuple[int, int]], devices: list[int]) -> bool:
    """Try every way to give shares to GPUs."""
    if not shares:
        return True
    (milli, count), rest = shares[0], shares[1:]
    options = [i for i, used in enumerate(devices) if used + milli <= 1000]
    for chosen in combinations(options, count):
        after = list(devices)
        for index in chosen:
            after[index] += milli
        if _shares_fit(rest, after):
            return True
    return False


def admits(node: Node, needs: PodRequirements) -> bool:
    """Return whether a node's labels and taints admit a pod, as kube-scheduler's filters do."""
    if any(not _matches(node, expression) for expression in needs.selector):
        return False
    if needs.required and not any(_matches_term(node, term) for term in needs.required):
        return False
    taints = [taint for taint in node.taints if taint.effect != "PreferNoSchedule"]
    if node.unschedulable:
        return False
    return all(any(t.tolerates(taint) for t in needs.tolerations) for taint in taints)


def _matches_term(node: Node, term: NodeTerm) -> bool:
    if not term.labels and not term.names:
        return False
    return all(_matches(node, e) for e in term.labels) and all(
        (node.name in e.values) == (e.operator == "In") for e in term.names
    )


def _matches(node: Node, expression: Expression) -> bool:
    value = node.labels.get(expression.key)
    match expression.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
    return False


def _check_constraints(
    waiting: PendingGang, places: Mapping[PodName, NodeName], situation: Situation
) -> None:
    constraints = waiting.constraints
    members = {member.name: member for member in waiting.members}
    seats = [(members[name].rank, members[name].role, node) for name, node in places.items()]
    members_placed = sorted([*seats, *((s.rank, s.role, s.node) for s in waiting.placed_members)])
    used = {node for _, _, node in members_placed}
    _require(
        not {n for _, _, n in seats} & {*constraints.avoid, *waiting.excluded_nodes},
        "an avoided node",
    )
    if constraints.gpu_types:
        products = [
            situation.nodes[node].labels.get("nvidia.com/gpu.product", "").lower() for node in used
        ]
        one_type = any(
            all(kind.lower() in product for product in products) for kind in constraints.gpu_types
        )
        _require(one_type, "GPUs of two kinds, or of none asked for")
    topology = _Topology(situation)
    if constraints.near.required is not None:
        _together(topology, constraints.near.required, used, "the gang")
    if constraints.fabric is not None and constraints.fabric_required:
        assert situation.topology is not None  # noqa: S101
        level = next(lv for lv in situation.topology.levels if lv.fabric == constraints.fabric)
        _together(topology, level.name, used, "the gang")
    own = dict(waiting.near_role)
    for role, near in waiting.near_role:
        if near.required is not None:
            nodes = {node for _, its_role, node in members_placed if its_role == role}
            _together(topology, near.required, nodes, f"role {role}")
    pools: dict[str, list[NodeName]] = {}
    for _, role, node in members_placed:
        pools.setdefault(role if role in own and own[role].slices else "", []).append(node)
    for pool, ordered in pools.items():
        for layer in own[pool].slices if pool in own else constraints.near.slices:
            for start in range(0, len(ordered), layer.size):
                _together(
                    topology, layer.level, set(ordered[start : start + layer.size]), "a slice"
                )
    for spread in constraints.spread:
        counts: dict[tuple[str, ...], int] = {}
        for _, _, node in members_placed:
            path = topology.path(node, spread.level)
            _require(path is not None, f"{node} has no {spread.level}")
            assert path is not None  # noqa: S101
            counts[path] = counts.get(path, 0) + 1
        _require(max(counts.values(), default=0) <= spread.pods_max, f"spread over {spread.level}")
    if waiting.pods_per_node_max is not None:
        per_node = [sum(1 for _, _, n in members_placed if n == node) for node in used]
        _require(max(per_node) <= waiting.pods_per_node_max, "too many on one node")
    _check_exclusive(waiting, {node for _, _, node in seats}, topology, situation)


def _check_exclusive(
    waiting: PendingGang, used: set[NodeName], topology: "_Topology", situation: Situation
) -> None:
    claims = situation.exclusive or {}
    level_of_gang = waiting.constraints.exclusive
    for node in used if level_of_gang is not None else ():
        _require(
            topology.path(node, level_of_gang or "") is not None, f"{node} has no {level_of_gang}"
        )
    for pod in situation.running:
        if pod.gang == waiting.gang.id:
            continue
        levels = [claims[pod.gang]] if pod.gang in claims else []
        if waiting.constraints.exclusive is not None:
            levels.append(waiting.constraints.exclusive)
        for level in levels:
            occupied = topology.path(pod.node, level) or (pod.node,)
            for node in used:
                shared = (topology.path(node, level) or (node,)) == occupied
                _require(not shared, f"{node} shares a {level} with {pod.gang}")


def _together(topology: "_Topology", level: str, nodes: set[NodeName], subject: str) -> None:
    paths = {topology.path(node, level) for node in nodes}
    _require(len(paths) == 1 and None not in paths, f"{subject} is not in one {level}: {paths}")


class _Topology:
    """The positions of nodes in the topology, read from their labels each time."""

    def __init__(self, situation: Situation) -> None:
        self._nodes = situation.nodes
        self._topology = situation.topology

    def path(self, node: NodeName, wanted: str) -> tuple[str, ...] | None:
        """Return the labels down to a level, or None where one is missing or not credible."""
        if wanted == "host" or self._topology is None:
            return (node,)
        labels: list[str] = []
        for level in self._topology.levels:
            value = self._nodes[node].labels.get(level.label)
            if value is None or not self._credible(level.label, level.fabric, value):
                return None
            labels.append(value)
            if wanted in (level.name, level.label):
                return tuple(labels)
        return None

    def _credible(self, label: str, fabric: Fabric | None, value: str) -> bool:
        """Return False if the nodes of an NVLink domain have different parents."""
        if fabric is not Fabric.NVLINK or self._topology is None:
            return True
        above = []
        for level in self._topology.levels:
            if level.label == label:
                break
            above.append(level.label)
        parents = {
            tuple(node.labels.get(key, "") for key in above)
            for node in self._nodes.values()
            if node.labels.get(label) == value and all(key in node.labels for key in above)
        }
        return len(parents) == 1
