"""What `what-if` changes in a view of the cluster, as its user writes it: quotas and nodes."""

from dataclasses import replace

from gangsched.cli.cluster.lookup import some_nodes
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.cluster.supply import missing_resources
from gangsched.core.engine.engine import Engine
from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import Quota
from gangsched.core.model.text import whole
from gangsched.kube.decoding.cluster.queues import amount
from gangsched.kube.decoding.quantities import DecodeError


def change_quota(engine: Engine, text: str, now_s: float) -> None:
    """Read `QUEUE:RESOURCE[/KIND]=NOMINAL`.

    Raises:
        ConfigError: it is not understood.

    """
    name, _, rest = text.partition(":")
    resource, _, nominal = rest.rpartition("=")
    tree = engine.ledger.usage.tree
    known = tree.queues.get(name)
    if known is None or not resource or not nominal:
        names = ", ".join(sorted(tree.queues))
        raise ConfigError(
            f"--quota: {text!r} must be QUEUE:RESOURCE=AMOUNT, as in team-a:nvidia.com/gpu=16; "
            f"the queues are: {names}"
        )
    if name not in tree:
        raise ConfigError(f"--quota: queue {name} cannot be used: {tree.problems[name]}")
    kind = ""
    if resource.startswith(GPU + "/"):
        resource, kind = GPU, resource.removeprefix(GPU + "/")
    try:
        has = amount(resource, nominal, f"--quota {name}:{resource}")
    except DecodeError as error:
        raise ConfigError(str(error)) from error
    old = next((quota for quota in known.quotas if quota.key == (resource, kind)), None)
    fresh = replace(old or Quota(resource, 0, kind), nominal=has)
    rest_of = (quota for quota in known.quotas if quota.key != fresh.key)
    engine.observe(f.QueueSeen(replace(known, quotas=(*rest_of, fresh))), now_s)


def add_nodes(engine: Engine, text: str, now_s: float) -> None:
    """Read `COUNT:LIKE`: so many more nodes like one that there is.

    Raises:
        ConfigError: it is not understood.

    """
    number, _, like = text.partition(":")
    count = whole(number)
    if count is None or not 0 < count <= 10_000 or not like:
        raise ConfigError(
            f"--nodes: {text!r} must be COUNT:NODE, as in 4:gpu-node-1: so many more like a node "
            f"that there is, 10,000 at most"
        )
    row = engine.cluster.rows.get(NodeName(like))
    model: Node | None = engine.cluster.nodes[row] if row is not None else None
    if model is None:
        known = some_nodes(engine, like)
        raise ConfigError(f"--nodes {text}: there is no node {like!r}; {known}")
    for index in range(count):
        name = NodeName(f"{like}-more-{index}")
        labels = {**model.labels, "kubernetes.io/hostname": str(name)}
        engine.observe(f.NodeSeen(replace(model, name=name, labels=labels)), now_s)


def told(engine: Engine, name: str) -> list[str]:
    """Return what is to be known of a queue beside its numbers, a sentence each."""
    tree = engine.ledger.usage.tree
    if name not in tree:
        return [f"it cannot be used: {tree.problems[name]}"]
    return [*tree.notices(name), *missing_resources(tree.queues[name], engine.cluster.supply())]


def noted(before: Engine, after: Engine) -> list[str]:
    """Return what is to be known of queues after changes that was not so before them."""
    return [
        f"queue {name}: {sentence}"
        for name in after.ledger.usage.tree.top_down()
        for sentence in told(after, name)
        if sentence not in told(before, name)
    ]
