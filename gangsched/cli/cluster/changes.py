"""The changes of `what-if` to a view of the cluster: quotas, nodes and pools; notes on queues."""

from dataclasses import replace

from gangsched.cli.cluster.lookup import similar_nodes
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.cluster.supply import missing_resources
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import AdvanceReservation, Quota
from gangsched.core.model.text import whole
from gangsched.kube.decoding.cluster.queues import parse_quota_amount
from gangsched.kube.decoding.quantities import DecodeError

_NODES_MAX, _PRIORITY_MAX, _YEAR_S = 10_000, 1_000_000_000, 365 * 86_400.0


def change_quota(engine: SchedulingEngine, text: str, now_s: float) -> None:
    """Set a nominal quota, given as `QUEUE:RESOURCE[/GPU TYPE]=NOMINAL`.

    Raises:
        ConfigError: the text is malformed, or the queue cannot be used.

    """
    name, _, rest = text.partition(":")
    resource, _, nominal = rest.rpartition("=")
    tree = engine.view.ledger.usage.tree
    declared = tree.queues.get(name)
    if declared is None or not resource or not nominal:
        names = ", ".join(sorted(tree.queues))
        raise ConfigError(
            f"--quota: {text!r} must be QUEUE:RESOURCE=AMOUNT, as in team-a:nvidia.com/gpu=16; "
            f"the queues are: {names}"
        )
    if name not in tree:
        raise ConfigError(f"--quota: queue {name} cannot be used: {tree.problems[name]}")
    gpu_type = ""
    if resource.startswith(GPU + "/"):
        resource, gpu_type = GPU, resource.removeprefix(GPU + "/")
    try:
        quantity = parse_quota_amount(resource, nominal, f"--quota {name}:{resource}")
    except DecodeError as error:
        raise ConfigError(str(error)) from error
    old = next((quota for quota in declared.quotas if quota.key == (resource, gpu_type)), None)
    new = replace(old or Quota(resource, 0, gpu_type), nominal=quantity)
    others = (quota for quota in declared.quotas if quota.key != new.key)
    engine.observe(f.QueueSeen(replace(declared, quotas=(*others, new))), now_s)


def add_nodes(engine: SchedulingEngine, text: str, now_s: float) -> None:
    """Add copies of an existing node, given as `COUNT:NODE`.

    Raises:
        ConfigError: the text is malformed, or the node does not exist.

    """
    number, _, original = text.partition(":")
    count = whole(number)
    if count is None or not 0 < count <= _NODES_MAX or not original:
        raise ConfigError(
            f"--nodes: {text!r} must be COUNT:NODE, as in 4:gpu-node-1: how many copies of an "
            f"existing node to add, 10,000 at most"
        )
    row = engine.view.cluster.rows.get(NodeName(original))
    node: Node | None = engine.view.cluster.nodes[row] if row is not None else None
    if node is None:
        existing = similar_nodes(engine.view, original)
        raise ConfigError(f"--nodes {text}: there is no node {original!r}; {existing}")
    for index in range(count):
        name = NodeName(f"{original}-more-{index}")
        labels = {**node.labels, "kubernetes.io/hostname": str(name)}
        engine.observe(f.NodeSeen(replace(node, name=name, labels=labels)), now_s)


def extend_pool(engine: SchedulingEngine, text: str, now_s: float) -> None:
    """Let a pool of an autoscaler make more nodes than its limit, given as `POOL=COUNT`.

    Raises:
        ConfigError: the text is malformed, or no pool has this name.

    """
    name, _, number = text.rpartition("=")
    count = whole(number)
    if not name or count is None or not 0 < count <= _NODES_MAX:
        raise ConfigError(
            f"--pool: {text!r} must be POOL=COUNT, as in p5=8: how many more nodes the pool may "
            f"make, 10,000 at most"
        )
    supply = engine.view.node_supply
    if name not in {pool.name for pool in supply.pools}:
        names = ", ".join(sorted(pool.name for pool in supply.pools))
        existing = f"the pools are: {names}" if names else "no pool can make nodes now"
        raise ConfigError(f"--pool {text}: there is no pool {name!r}; {existing}")
    pools = tuple(
        replace(pool, nodes_left=pool.nodes_left + count) if pool.name == name else pool
        for pool in supply.pools
    )
    engine.observe(f.NodeSupplySeen(replace(supply, pools=pools)), now_s)


def change_priority(engine: SchedulingEngine, text: str, now_s: float) -> None:
    """Give a gang another priority, given as `NAMESPACE/NAME=NUMBER`.

    Raises:
        ConfigError: the text is malformed, or there is no such gang.

    """
    name, _, number = text.rpartition("=")
    priority = whole(number.removeprefix("-"))
    if not name or priority is None or priority > _PRIORITY_MAX:
        raise ConfigError(
            f"--priority: {text!r} must be NAMESPACE/NAME=NUMBER, as in team/job=1000, with a "
            f"number from -{_PRIORITY_MAX:,} to {_PRIORITY_MAX:,}"
        )
    state = engine.view.gangs.get(GangId(name))
    if state is None or state.spec is None:
        raise ConfigError(f"--priority: gang {name!r} does not exist (give NAMESPACE/NAME)")
    priority = -priority if number.startswith("-") else priority
    engine.observe(f.GangSeen(replace(state.spec, priority=priority)), now_s)


def book_nodes(engine: SchedulingEngine, text: str, now_s: float) -> None:
    """Set nodes aside for no gang, given as `COUNT:HOURS FROM NOW:HOURS`.

    Raises:
        ConfigError: the text is malformed.

    """
    number, _, times = text.partition(":")
    after, _, length = times.partition(":")
    count = whole(number)
    try:
        after_s, length_s = float(after) * 3600, float(length) * 3600
    except ValueError:
        after_s = length_s = -1.0
    if (
        not count
        or count > _NODES_MAX
        or not 0 <= after_s <= _YEAR_S
        or not 0 < length_s <= _YEAR_S
    ):
        raise ConfigError(
            f"--book: {text!r} must be COUNT:IN:FOR, as in 8:24:12: how many nodes to set aside, "
            f"in how many hours and for how many hours, at most a year"
        )
    start_s = now_s + after_s
    booking = AdvanceReservation("what-if", start_s, start_s + length_s, count=count)
    engine.observe(f.AdvanceReservationSeen(booking), now_s)


def queue_notes(engine: SchedulingEngine, name: str) -> list[str]:
    """Return sentences on a queue that its numbers do not show, such as capped quotas."""
    tree = engine.view.ledger.usage.tree
    if name not in tree:
        return [f"the queue cannot be used: {tree.problems[name]}"]
    return [
        *tree.notices(name),
        *missing_resources(tree.queues[name], engine.view.cluster.supply()),
    ]


def new_queue_notes(before: SchedulingEngine, after: SchedulingEngine) -> list[str]:
    """Return the notes on queues that apply after changes and did not before."""
    return [
        f"queue {name}: {sentence}"
        for name in after.view.ledger.usage.tree.top_down()
        for sentence in queue_notes(after, name)
        if sentence not in queue_notes(before, name)
    ]
