"""Orders about pods: bind, ungate, evict. A call is repeated until the API server has answered it.

`PodBinder` is the interface of the ways to bind. With `DirectBinder` no other scheduler checks the
pods, so a member is at the barrier as soon as it is ungated.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gangsched.api import names
from gangsched.api.timestamps import rfc3339, rfc3339_micro
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId, PodName, PodUid
from gangsched.kube.actuation.job_counters import uncount
from gangsched.kube.client.client import JSON_PATCH, STRATEGIC, KubeClient
from gangsched.kube.client.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    RbacDenied,
    Throttled,
    Unavailable,
)
from gangsched.kube.decoding.pods import decode_pod
from gangsched.kube.decoding.schemas import Pod
from gangsched.metrics import Metrics

log = logging.getLogger(__name__)

Observe = Callable[[f.Fact], None]

_RETRY_S = 0.5
_RIGHTS_S = 10.0
"""Seconds that a starting API server may need to read its RBAC rules."""
_DENIED_MAX = 12
"""How often a gate is tried again that the API server does not let be removed."""


class PodBinder(Protocol):
    """A way to bind the pods of an assignment. Outcomes are facts."""

    beyond_is_judged: bool
    """Whether another scheduler checks constraints that the planner does not model."""

    def prepare(self, order: o.Prepare) -> None:
        """Bring the pod to the barrier."""

    def bind(self, order: o.Bind) -> None:
        """Bind the pod."""

    def refuse(self, order: o.RejectPod) -> None:
        """Send the pod back from the barrier."""

    def mark_unschedulable(self, uid: PodUid) -> None:
        """Record that kube-scheduler marked a pod unschedulable because of our answer."""

    def forget(self, uid: PodUid) -> None:
        """Forget a deleted pod."""


class PodClient:
    """API calls about single pods, limited in number and repeated until they are answered."""

    def __init__(
        self, client: KubeClient, observe: Observe, metrics: Metrics, in_flight: int
    ) -> None:
        self._client = client
        self._observe = observe
        self._metrics = metrics
        self._in_flight = in_flight
        self._slots = asyncio.Semaphore(in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._patient: set[asyncio.Task[None]] = set()
        self._fatal: asyncio.Queue[BaseException] = asyncio.Queue()
        self.gang_annotations: dict[GangId, Mapping[str, str]] = {}
        """Annotations for the pods of some gangs, which the nodes requested for them need."""

    @property
    def waiting(self) -> int:
        """Return how many calls wait for a free slot."""
        return max(len(self._tasks) - self._in_flight, 0)

    def start(self, work: Awaitable[None], *, waits: bool = False) -> asyncio.Task[None]:
        """Run work in the background, and keep a reference to its task until it ends.

        Work that mostly `waits` does not count as a call.
        """
        task = asyncio.ensure_future(self._guarded(work))
        (self._patient if waits else self._tasks).add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._patient.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fatal.put_nowait(error)

    async def raise_fatal(self) -> None:
        """Wait for an unexpected error, and raise it: the next process reads the pods again."""
        raise await self._fatal.get()

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except KubeError:
            log.exception("an order failed and is not repeated")

    async def bind(self, order: o.Bind) -> bool:
        """Bind a pod; report the outcome as a fact, and return whether the pod is bound."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": _name(order.name),
                "uid": order.uid,
                # The API server copies a binding's annotations to the pod, which saves a write.
                "annotations": {**_notes(order), **self.gang_annotations.get(order.gang, {})},
            },
            "target": {"kind": "Node", "name": order.node},
        }
        patient_until_s = time.monotonic() + _RIGHTS_S
        while True:
            started_s = time.monotonic()
            try:
                async with self._slots:
                    await self._client.request(
                        "POST", f"{_path(order.name)}/binding", body=body, tries=1
                    )
            except (Unavailable, Throttled):
                await asyncio.sleep(_RETRY_S)  # the pod may be bound: only an answer is certain
                continue
            except Conflict as error:
                return await self._resolve(order, str(error))
            except KubeError as error:
                if isinstance(error, RbacDenied) and started_s < patient_until_s:
                    await asyncio.sleep(_RETRY_S)
                    continue
                self._metrics.binds.labels("refused").inc()
                self._observe(f.BindFailed(order.uid, order.node, str(error)))
                return False
            self._metrics.bind_seconds.observe(time.monotonic() - started_s)
            self._metrics.binds.labels("bound").inc()
            self._observe(f.Bound(order.uid, order.node))
            return True

    async def _resolve(self, order: o.Bind, message: str) -> bool:
        """Return whether a pod is bound after a conflict, perhaps by a lost call of ours."""
        pod = await self._look(order.name, order.uid)
        if pod is not None and pod.spec.node_name == order.node:
            self._metrics.binds.labels("bound").inc()
            self._observe(f.Bound(order.uid, order.node))
            return True
        self._metrics.binds.labels("refused").inc()
        self._observe(f.BindFailed(order.uid, order.node, message))
        return False

    async def _look(self, name: PodName, uid: PodUid) -> Pod | None:
        """Return the present state of a pod, or None if it is gone."""
        while True:
            try:
                pod = decode_pod(await self._client.get(_path(name)))
            except NotFound:
                return None
            except (Unavailable, Throttled):
                await asyncio.sleep(_RETRY_S)
                continue
            return pod if pod.metadata.uid == uid else None

    async def ungate(self, order: o.Prepare) -> bool:
        """Remove our gate, which is the last one; return False if the pod is gone."""
        where = "/spec/schedulingGates/0"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": order.uid},
            {"op": "test", "path": f"{where}/name", "value": names.GATE},
            {"op": "remove", "path": where},
        ]
        denied = 0
        while True:
            try:
                await self._client.patch(_path(order.name), patch, JSON_PATCH)
            except Invalid:
                pod = await self._look(order.name, order.uid)
                if pod is not None and any(g.name == names.GATE for g in pod.spec.scheduling_gates):
                    raise
                return pod is not None  # a user, or an earlier call of ours, removed the gate
            except NotFound:
                return False
            except RbacDenied as error:  # a new API server on a busy machine reads its rules late
                denied += 1
                if denied > _DENIED_MAX:
                    raise
                log.warning("pod %s: %s", order.name, error)
                await asyncio.sleep(_RIGHTS_S)
                continue
            except (Conflict, Unavailable, Throttled):
                await asyncio.sleep(_RETRY_S)
                continue
            return True

    async def trigger_requeue(self, order: o.Prepare) -> None:
        """Change the pod, so that kube-scheduler queues it again.

        The time is written: an equal annotation would change nothing (chaos seed 189).
        """
        while True:
            woken = {names.WOKEN_ANNOTATION: rfc3339_micro()}
            body = {"metadata": {"uid": order.uid, "annotations": woken}}
            try:
                await self._client.patch(_path(order.name), body)
            except (NotFound, Conflict):
                return
            except (Unavailable, Throttled):
                await asyncio.sleep(_RETRY_S)
                continue
            return

    async def evict(self, order: o.Evict) -> None:
        """Delete a pod by its uid, so that no successor of its name is deleted.

        The pod's Job counts it neither as succeeded nor as failed.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": order.uid},
        }
        self._metrics.evictions.inc()
        if order.preempted:
            await self._mark(order)
        while True:
            try:
                await uncount(self._client, _path(order.name), order.uid)
                await self._client.delete(_path(order.name), body)
            except (NotFound, Conflict):
                return
            except (Unavailable, Throttled):
                await asyncio.sleep(_RETRY_S)
                continue
            except Forbidden as error:  # the pod keeps its node until it is gone
                log.warning("pod %s: %s", order.name, error)
                await asyncio.sleep(_RIGHTS_S)
                continue
            return

    async def _mark(self, order: o.Evict) -> None:
        """Write on the pod why it is evicted, as kube-scheduler does, for its controller."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": order.reason,
            "lastTransitionTime": rfc3339(),
        }
        body = {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(f"{_path(order.name)}/status", body, STRATEGIC)
        except KubeError as error:
            log.warning("condition of %s: %s", order.name, error)


@dataclass(frozen=True, slots=True)
class BinderContext:
    """The parts that a way of binding may use."""

    engine: SchedulingEngine
    pods: PodClient
    observe: Observe
    acts: Callable[[], bool]
    """Returns whether this process may act on its state."""

    now_s: Callable[[], float]


MakeBinder = Callable[[BinderContext], PodBinder]


class ReadOnlyBinder:
    """The way of binding of a process that only reads."""

    beyond_is_judged = True

    def __init__(self, context: BinderContext | None = None) -> None:
        """Ignore the context: no order is carried out."""

    def prepare(self, order: o.Prepare) -> None:
        """Do nothing."""

    def bind(self, order: o.Bind) -> None:
        """Do nothing."""

    def refuse(self, order: o.RejectPod) -> None:
        """Do nothing."""

    def mark_unschedulable(self, uid: PodUid) -> None:
        """Do nothing."""

    def forget(self, uid: PodUid) -> None:
        """Do nothing."""


class BarrierCheck(Protocol):
    """A check that has to end before a gang passes the barrier."""

    def hold(self, order: o.Prepare) -> bool:
        """Hold a member until its check ends. Return False if there is nothing to check."""

    def on_arrival(self, gang: GangId) -> None:
        """Record that members of a gang are at the barrier."""

    def release(self, uid: PodUid) -> None:
        """Record that a member was sent back, or is gone."""

    def on_bind_refused(self, uid: PodUid) -> None:
        """Record that a member could not be bound."""


class DirectBinder:
    """Posts the bindings of all members of a gang at once."""

    beyond_is_judged = False

    def __init__(self, context: BinderContext, judge: BarrierCheck | None = None) -> None:
        self._pods, self._observe = context.pods, context.observe
        self._check = judge

    def prepare(self, order: o.Prepare) -> None:
        """Ungate the pod if needed; its volumes may have to be bound before."""
        if order.gated:
            self._pods.start(self._ungate(order))
        else:
            self._arrived(order)

    async def _ungate(self, order: o.Prepare) -> None:
        if await self._pods.ungate(order):
            self._arrived(order)

    def _arrived(self, order: o.Prepare) -> None:
        if self._check is None or not self._check.hold(order):
            self._observe(f.Prepared(order.uid, order.node))
        if self._check is not None:
            self._check.on_arrival(order.gang)

    def bind(self, order: o.Bind) -> None:
        """Post the binding."""
        self._pods.start(self._bind(order))

    async def _bind(self, order: o.Bind) -> None:
        if not await self._pods.bind(order) and self._check is not None:
            self._check.on_bind_refused(order.uid)

    def refuse(self, order: o.RejectPod) -> None:
        """Drop the check of the pod; no call waits for an answer."""
        self.forget(order.uid)

    def mark_unschedulable(self, uid: PodUid) -> None:
        """Do nothing: no other scheduler handles these pods."""

    def forget(self, uid: PodUid) -> None:
        """Drop the check of a deleted pod."""
        if self._check is not None:
            self._check.release(uid)


def _path(name: PodName) -> str:
    namespace, pod = name.split("/", 1)
    return f"/api/v1/namespaces/{namespace}/pods/{pod}"


def _notes(order: o.Bind) -> dict[str, str]:
    notes = {names.DEVICES_ANNOTATION: ",".join(map(str, order.devices))} if order.devices else {}
    if order.minimum:
        notes[names.MINIMUM_ANNOTATION] = str(order.minimum)
    return notes


def _name(name: PodName) -> str:
    return name.split("/", 1)[1]
