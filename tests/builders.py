"""Short builders of the objects that tests use."""

import json

from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.facts import GangSeen, NodeSeen, PodSeen
from gangsched.core.model.gangs import Gang, PendingGang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Expression, PodRequirements
from gangsched.core.orders import Order
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.fifo import Fifo
from policies.pack import Pack

GPU = "nvidia.com/gpu"
POLICIES = Policies(Fifo(), Pack())


def needs(gpus: int = 1, cpu: int = 1000, **more: object) -> PodRequirements:
    """Return what a pod asks: GPUs and thousandths of cores."""
    amounts = {"cpu": cpu, GPU: gpus}
    requests = tuple(sorted((k, v) for k, v in amounts.items() if v))
    return PodRequirements(requests, **more)  # type: ignore[arg-type]


def node(name: str, gpus: int = 8, cpu: int = 64_000, pods: int = 110, **more: object) -> Node:
    """Return a node with GPUs."""
    amounts = {"cpu": cpu, GPU: gpus, "pods": pods, "memory": 2**40}
    return Node(NodeName(name), tuple(sorted(amounts.items())), **more)  # type: ignore[arg-type]


def gang(name: str, members: int, **more: object) -> Gang:
    """Return a gang whose pods come by themselves."""
    more.setdefault("schedule_timeout_s", 30.0)
    return Gang(GangId(f"ns/{name}"), members, **more)  # type: ignore[arg-type]


def templated(
    name: str, members: int, wants: PodRequirements | None = None, **more: object
) -> Gang:
    """Return a gang of workers that is planned before its pods exist."""
    role = Role("worker", members, members, wants or needs())
    return gang(name, members, roles=(role,), **more)


def pod(
    name: str, group: str | None = None, wants: PodRequirements | None = None, **more: object
) -> PodSeen:
    """Return the fact that a pod exists; its uid is its name unless given."""
    uid = more.pop("uid", name)
    return PodSeen(
        PodUid(str(uid)),
        PodName(f"ns/{name}"),
        wants or needs(),
        GangId(f"ns/{group}") if group else None,
        **more,  # type: ignore[arg-type]
    )


def written(
    name: str, uid: str, spec: dict, status: dict | None = None, **metadata: object
) -> bytes:
    """Return an object of the namespace ns as the API server writes it."""
    body = {"metadata": {"name": name, "namespace": "ns", "uid": uid, **metadata}, "spec": spec}
    return json.dumps(body | ({"status": status} if status is not None else {})).encode()


def on(name: str) -> Expression:
    """Return the condition that the node has this hostname."""
    return Expression("kubernetes.io/hostname", "In", (name,))


def waiting(
    group: Gang, members: int | None = None, wants: PodRequirements | None = None
) -> PendingGang:
    """Return a gang as a planner sees it."""
    engine = an_engine()
    engine.observe(GangSeen(group), 0.0)
    if not group.planned_before_creation:
        for index in range(members or group.min_member):
            engine.observe(pod(f"{group.id[3:]}-{index}", group.id[3:], wants), 0.0)
    return engine.view.pending(group.id)


def an_engine(*nodes: Node, **limits: float) -> Engine:
    """Return an engine that knows these nodes."""
    engine = Engine(Limits(**limits))
    for one in nodes:
        engine.observe(NodeSeen(one), 0.0)
    return engine


class WrappedEngine:
    """An engine inside a test's own object, which changes what comes in or goes out."""

    def __init__(self, *settings: object) -> None:
        self.inner = Engine(*settings)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        mine = name not in ("limits", "driver_checks_unmodelled")
        object.__setattr__(self if mine else self.inner, name, value)


def plan(engine: Engine, now_s: float = 0.0) -> tuple[Order, ...]:
    """Plan once and accept it."""
    return engine.accept(make_plan(engine.begin_cycle(), POLICIES, now_s), now_s)
