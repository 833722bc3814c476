"""/filter, /bind and /healthz for kube-scheduler, and the binder that uses them.

kube-scheduler calls /filter in its serial scheduling cycle. So the answer is a look-up of the pod's
assigned node, and never waits for a plan. kube-scheduler calls /bind when the pod has passed its
own filters. gangsched holds the call until the whole gang has passed, and then binds every member.

The JSON is k8s.io/kube-scheduler/extender/v1. Its Go structs have no tags, hence the field names.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Sequence

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from gangsched.api import names
from gangsched.api.names import REFUSAL_PREFIX
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.kube.actuation.pod_binding import BinderContext

log = logging.getLogger(__name__)

_BODY_MAX = 64 * 2**20  # the names of 100,000 nodes and a large pod fit in less
_HOLD_MARGIN_S = 15.0
_SEEN_S = 10.0
"""Seconds that the watch of pods may be behind kube-scheduler's watch."""


class _Metadata(msgspec.Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _FilterArgs(msgspec.Struct):
    Pod: _Pod
    NodeNames: list[str] | None = None


class _FilterResult(msgspec.Struct):
    NodeNames: list[str] = []
    FailedNodes: dict[str, str] = {}
    Error: str = ""


class _BindArgs(msgspec.Struct):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class _BindResult(msgspec.Struct):
    Error: str = ""


_filter_args = msgspec.json.Decoder(_FilterArgs)
_bind_args = msgspec.json.Decoder(_BindArgs)
_encode = msgspec.json.Encoder().encode


class ExtenderBinder:
    """Binds pods with kube-scheduler's own checks, and serves the routes that it calls."""

    beyond_is_judged = True

    def __init__(
        self,
        context: BinderContext,
        schedule_timeout_s: float,
    ) -> None:
        """Answer calls only while the process may act on its state (`context.acts`)."""
        self._engine, self._pods = context.engine, context.pods
        self._observe, self._acts = context.observe, context.acts
        self._hold_s = schedule_timeout_s + _HOLD_MARGIN_S
        self._held: dict[PodUid, list[asyncio.Future[str]]] = {}
        self._unschedulable: dict[PodUid, None] = {}
        self._unseen: dict[PodUid, asyncio.Event] = {}
        """Events of pods that kube-scheduler knows and gangsched has not observed yet."""

    # -- orders -------------------------------------------------------------------------------

    def prepare(self, order: o.Prepare) -> None:
        """Let kube-scheduler try the pod: ungate it, or requeue it if it was unschedulable."""
        self._catch_up(order.uid)
        if order.gated:
            self._pods.start(self._ungate(order))
        elif self._unschedulable.pop(order.uid, False) is None:
            # A pod that an extender rejected waits for "any cluster event": make such an event.
            self._pods.start(self._pods.trigger_requeue(order))

    def _catch_up(self, uid: PodUid) -> None:
        """Continue the calls that came before the pod was observed."""
        seen = self._unseen.pop(uid, None)
        if seen is not None:
            seen.set()

    async def _ungate(self, order: o.Prepare) -> None:
        await self._pods.ungate(order)

    def bind(self, order: o.Bind) -> None:
        """Bind the pod and let its held /bind call return."""
        self._pods.start(self._bind(order))

    async def _bind(self, order: o.Bind) -> None:
        bound = await self._pods.bind(order)
        self._answer(order.uid, "" if bound else "the API refused the binding")

    def refuse(self, order: o.RejectPod) -> None:
        """Let the held /bind call fail with the reason; kube-scheduler queues the pod again."""
        self._answer(order.uid, order.reason)

    async def turn_away(self, during_s: float) -> None:
        """Refuse held calls, and those that come within `during_s`: this process acts no more.

        A Service takes a moment to choose another pod, and a program may keep its address for
        longer (Go keeps /etc/hosts for 5 s). kube-scheduler has one loop for all pods, and would
        wait for 30 s to connect to the address of a pod that is gone.
        """
        for uid in list(self._held):
            self._answer(uid, "this process ends")
        await asyncio.sleep(during_s)

    def _answer(self, uid: PodUid, error: str) -> None:
        for held in self._held.pop(uid, []):
            if not held.done():
                held.set_result(error)

    # -- HTTP ---------------------------------------------------------------------------------

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes."""
        return [web.post("/filter", self._filter), web.post("/bind", self._on_bind)]

    async def _filter(self, request: web.Request) -> web.Response:
        try:
            args = _filter_args.decode(await request.read())
        except msgspec.DecodeError as error:
            return self._reply(
                _FilterResult(Error=f"{REFUSAL_PREFIX} malformed ExtenderArgs: {error}")
            )
        return self._reply(self._look_up(args.Pod.metadata, args.NodeNames))

    def _look_up(self, pod: _Metadata, offered: list[str] | None) -> _FilterResult:
        uid = PodUid(pod.uid)
        if not self._acts():
            return _FilterResult(Error=f"{REFUSAL_PREFIX} reservations are not known here (yet)")
        if offered is None:
            return _FilterResult(
                Error=f"{REFUSAL_PREFIX} NodeNames is missing: set nodeCacheCapable: true"
            )
        node = self._engine.view.assigned_node(uid) or self._awaited(uid, pod)
        if node is None:
            self.mark_unschedulable(uid)
            reason = f"{REFUSAL_PREFIX} the gang of this pod is not placed yet"
            return _FilterResult(FailedNodes=dict.fromkeys(offered, reason))
        if node in offered:
            return _FilterResult(NodeNames=[node])
        reason = f"kube-scheduler's own filters rejected {node}, the node reserved for this pod"
        self.mark_unschedulable(uid)
        # After the answer: the engine may send the gang back at once.
        asyncio.get_running_loop().call_soon(self._observe, f.PrepareFailed(uid, node, reason))
        return _FilterResult(FailedNodes=dict.fromkeys(offered, f"{REFUSAL_PREFIX} {reason}"))

    def _awaited(self, uid: PodUid, pod: _Metadata) -> NodeName | None:
        """Return the node of a pod that was created for its assigned node and is not observed yet.

        kube-scheduler often observes such a pod first, because the pod has no gate. The pod is at
        the barrier only when gangsched has observed it and it is the planned one.
        """
        if self._engine.view.pod(uid) is not None:
            return None
        group = (pod.labels or {}).get(names.POD_GROUP_LABEL, "")
        gang, name = f"{pod.namespace}/{group}", f"{pod.namespace}/{pod.name}"
        node = self._engine.view.node_of_expected_pod(GangId(gang), PodName(name))
        if node is not None:
            self._unseen.setdefault(uid, asyncio.Event())
        return node

    async def _on_bind(self, request: web.Request) -> web.Response:
        try:
            args = _bind_args.decode(await request.read())
        except msgspec.DecodeError as error:
            return self._reply(
                _BindResult(f"{REFUSAL_PREFIX} malformed ExtenderBindingArgs: {error}")
            )
        return self._reply(_BindResult(await self._hold(PodUid(args.PodUID), NodeName(args.Node))))

    async def _hold(self, uid: PodUid, node: NodeName) -> str:
        """Hold the call at the barrier; return an empty string when the pod is bound."""
        seen = self._unseen.get(uid)
        if seen is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SEEN_S):
                    await seen.wait()
            self._unseen.pop(uid, None)
        if not self._acts() or self._engine.view.assigned_node(uid) != node:
            return f"{REFUSAL_PREFIX} {node} is not reserved for this pod"
        held = asyncio.get_running_loop().create_future()
        self._held.setdefault(uid, []).append(held)
        self._observe(f.Prepared(uid, node))
        try:
            async with asyncio.timeout(self._hold_s):
                error = await held
        except TimeoutError:
            error = f"the gang did not pass the barrier within {self._hold_s:g} s"
        return f"{REFUSAL_PREFIX} {error}" if error else ""

    def _reply(self, result: msgspec.Struct) -> web.Response:
        response = web.Response(body=_encode(result), content_type="application/json")
        if not self._acts():
            # Else kube-scheduler would go on asking here: a Service chooses the leader when a
            # connection begins, and one that was kept open outlives that (chaos seed 31).
            response.force_close()
        return response

    def mark_unschedulable(self, uid: PodUid) -> None:
        """Record that kube-scheduler does not retry the pod until it changes."""
        self._unschedulable[uid] = None

    def forget(self, uid: PodUid) -> None:
        """Forget a deleted pod."""
        self._unschedulable.pop(uid, None)
        self._catch_up(uid)
        self._answer(uid, "the pod is gone")


async def serve(
    routes: list[web.RouteDef],
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    middlewares: Sequence[Middleware] = (),
) -> tuple[web.AppRunner, int]:
    """Serve routes and /healthz; return the runner, to be cleaned up, and the port taken."""

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application(client_max_size=_BODY_MAX, middlewares=middlewares)
    app.add_routes([*routes, web.get("/healthz", healthy)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, host, port, ssl_context=tls)
    await site.start()
    return runner, int(runner.addresses[0][1])
