"""The gangs that PodDisruptionBudgets protect: they are not moved, and are preempted last."""

import asyncio
from urllib.parse import quote

import msgspec

from gangsched.core.bounds import BUDGETS, NAMESPACES_READ, PODS_READ
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId, PodUid
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError

_PAGE = 1_000


class _Metadata(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] = {}


class _ListMetadata(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Expression(msgspec.Struct):
    key: str
    operator: str
    values: list[str] = []


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: list[_Expression] = []


class _Spec(msgspec.Struct):
    selector: _Selector | None = None


class _Status(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0


class _Budget(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Budgets(msgspec.Struct):
    items: list[_Budget]
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class _Pods(msgspec.Struct):
    items: list[_Pod]
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


_budgets = msgspec.json.Decoder(_Budgets)
_pods = msgspec.json.Decoder(_Pods)


class _TooManyError(Exception):
    """A namespace has more budgets or pods than are read."""


async def protected(client: KubeClient, view: EngineView, turn: int = 0) -> frozenset[GangId]:
    """Return the movable gangs that a budget protects: it spares fewer pods than they have.

    If the budgets of a namespace cannot be read, or are too many, all its gangs count as protected.
    One call reads a bounded number of namespaces; the next `turn` reads others.
    """
    movable = frozenset(running.gang.id for running in view.running() if running.movable)
    return await _protected_of(movable, client, view, turn, unread=movable)


async def stoppable_protected(
    client: KubeClient, view: EngineView, turn: int = 0
) -> frozenset[GangId]:
    """Return the preemptible gangs that a budget protects.

    If the budgets of a namespace cannot be read, or are too many, its gangs keep their earlier
    protection: a user who writes too many budgets gains nothing.
    """
    stoppable = frozenset(running.gang.id for running in view.running() if running.gang.preemptible)
    return await _protected_of(stoppable, client, view, turn, unread=view.protected)


async def _protected_of(
    gangs: frozenset[GangId],
    client: KubeClient,
    view: EngineView,
    turn: int,
    unread: frozenset[GangId],
) -> frozenset[GangId]:
    """Return the protected gangs of some; in an unreadable namespace, the gangs in `unread`."""
    by_namespace: dict[str, set[GangId]] = {}
    for gang in gangs:
        by_namespace.setdefault(gang.partition("/")[0], set()).add(gang)
    names = sorted(by_namespace)
    first = turn * NAMESPACES_READ.most % max(len(names), 1)
    protected_gangs: set[GangId] = set()
    for at, namespace in enumerate((*names[first:], *names[:first])):
        here = by_namespace[namespace]
        if at >= NAMESPACES_READ.most:
            protected_gangs |= here & unread
            continue
        try:
            protected_gangs |= here & await _protected_in(namespace, client, view)
        except (KubeError, msgspec.DecodeError, _TooManyError):
            protected_gangs |= here & unread
    return frozenset(protected_gangs)


async def _protected_in(namespace: str, client: KubeClient, view: EngineView) -> set[GangId]:
    """Return the protected gangs of a namespace, from a list of its budgets and one of its pods."""
    name = quote(namespace, safe="")
    path = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
    budgets = _budgets.decode(await client.get(path, limit=str(BUDGETS.most)))
    if budgets.metadata.continue_:
        raise _TooManyError
    if not budgets.items:
        return set()
    labels = [
        (known.gang, pod.metadata.labels)
        for pod in await _pods_of(name, client)
        if (known := view.pod(PodUid(pod.metadata.uid))) is not None
        and known.gang is not None
        and known.node is not None
    ]
    protected_gangs: set[GangId] = set()
    for budget in budgets.items:
        counts: dict[GangId, int] = {}
        for gang, has in labels:
            if _selects(budget.spec.selector, has):
                counts[gang] = counts.get(gang, 0) + 1
        spared = budget.status.disruptions_allowed
        protected_gangs |= {gang for gang, count in counts.items() if count > spared}
        await asyncio.sleep(0)  # other tasks need the event loop
    return protected_gangs


async def _pods_of(namespace: str, client: KubeClient) -> list[_Pod]:
    pods: list[_Pod] = []
    more: dict[str, str] = {}
    while True:
        path = f"/api/v1/namespaces/{namespace}/pods"
        page = _pods.decode(await client.get(path, limit=str(_PAGE), **more))
        pods += page.items
        if not page.metadata.continue_:
            return pods
        if len(pods) >= PODS_READ.most:
            raise _TooManyError
        more = {"continue": page.metadata.continue_}


def _selects(selector: _Selector | None, labels: dict[str, str]) -> bool:
    """Return whether a LabelSelector selects labels; a missing selector selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(expression, labels) for expression in selector.match_expressions)


def _holds(expression: _Expression, labels: dict[str, str]) -> bool:
    match expression.operator:
        case "In":
            return labels.get(expression.key) in expression.values
        case "NotIn":
            return labels.get(expression.key) not in expression.values
        case "Exists":
            return expression.key in labels
        case "DoesNotExist":
            return expression.key not in labels
    return True  # an unknown operator may select the labels, so the pod counts as protected
