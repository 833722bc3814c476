"""The HTTPS server of the aggregated API: the API server alone connects, for its users."""

import asyncio
import base64
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.serving.certificates import Certificates
from gangsched.web.keeper import ModelKeeper
from gangsched.web.sessions import ViewerReviews
from gangsched.web.visibility.front_proxy import FrontProxy, front_proxy
from gangsched.web.visibility.pending_workloads import (
    API,
    GROUP,
    VERSION,
    PendingQueryError,
    PendingWorkloads,
    failure_status,
    group,
    group_list,
    pending_query,
    resource_list,
)

log = logging.getLogger(__name__)

SERVICE = "gangsched-visibility"
_API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
_LOOK_S, _RETRY_S = 600.0, 5.0
_REVIEW_S, _MODEL_S = 10.0, 10.0
_WAITING_MAX = 64
_SUMMARIES_KEPT = 16


@dataclass(frozen=True, slots=True)
class ServedAt:
    """Where the API is served: the address, and the namespace of its Service and its Secret."""

    host: str
    port: int
    namespace: str

    @property
    def name(self) -> str:
        """Return the name in the certificate, by which the API server connects."""
        return f"{SERVICE}.{self.namespace}.svc"


class AggregatedServer:
    """Answers what the API server passes on, if the user may get it."""

    def __init__(self, keeper: ModelKeeper, reviews: ViewerReviews, proxy: FrontProxy) -> None:
        self._keeper, self._reviews, self._proxy = keeper, reviews, proxy
        self._waiting = 0
        self._known: OrderedDict[tuple[int, str], PendingWorkloads] = OrderedDict()

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=1024)
        router = app.router
        for path, document in (
            ("/apis", group_list()),
            (f"/apis/{GROUP}", group()),
            (f"/apis/{API}", resource_list()),
        ):
            router.add_get(path, _fixed(document))
        for path in ("/healthz", "/livez", "/readyz"):
            router.add_get(path, _healthy)
        queue = r"{queue:[^/]{1,253}}/pendingworkloads"
        router.add_get(f"/apis/{API}/clusterqueues/{queue}", self._pending)
        router.add_get(rf"/apis/{API}/namespaces/{{namespace}}/localqueues/{queue}", self._pending)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer only the API server, and every failure with a Status."""
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        if not self._proxy.accepts(peer):
            sentence = "Only the API server may connect."
            return _json(failure_status(401, "Unauthorized", sentence), 401)
        try:
            return await handler(request)
        except PendingQueryError as error:
            return _json(failure_status(error.code, error.reason, str(error)), error.code)
        except (KubeError, TimeoutError):
            sentence = "The API server cannot review the request now."
            return _json(failure_status(503, "ServiceUnavailable", sentence), 503)
        except web.HTTPNotFound:
            sentence = "the server could not find the requested resource"
            return _json(failure_status(404, "NotFound", sentence), 404)
        except web.HTTPMethodNotAllowed:
            sentence = "the server does not allow this method on the requested resource"
            return _json(failure_status(405, "MethodNotAllowed", sentence), 405)
        except Exception:
            log.exception("%s failed", request.path)
            sentence = "The request failed; the log of gangsched web has the error."
            return _json(failure_status(500, "InternalError", sentence), 500)

    async def _pending(self, request: web.Request) -> web.StreamResponse:
        queue, namespace = request.match_info["queue"], request.match_info.get("namespace")
        await self._check_access(request, queue, namespace)
        asked = pending_query(queue, namespace, request.query)
        async with asyncio.timeout(_MODEL_S):
            model = self._keeper.model or await self._keeper.after(0)
        key = model.version, queue
        known = self._known.get(key)
        if known is None:
            known = await asyncio.to_thread(PendingWorkloads, model, queue)
            self._known[key] = known
            while len(self._known) > _SUMMARIES_KEPT:
                self._known.popitem(last=False)
        return _json(await asyncio.to_thread(known.summary, asked))

    async def _check_access(self, request: web.Request, queue: str, namespace: str | None) -> None:
        """Check that the user may get the pending workloads of a queue.

        Raises:
            PendingQueryError: the user may not, is not named, or too many requests wait.
            KubeError: the API server gave no answer.

        """
        user = self._proxy.user(request.headers)
        if user is None:
            raise PendingQueryError(401, "Unauthorized", "The request names no user.")
        if self._waiting >= _WAITING_MAX:
            sentence = "Too many requests wait for their review; try again."
            raise PendingQueryError(429, "TooManyRequests", sentence)
        resource = "clusterqueues" if namespace is None else "localqueues"
        attributes = {
            "verb": "get",
            "group": GROUP,
            "version": VERSION,
            "resource": resource,
            "subresource": "pendingworkloads",
            "name": queue,
            "namespace": namespace or "",
        }
        self._waiting += 1
        try:
            async with asyncio.timeout(_REVIEW_S):
                allowed = await self._reviews.may(user, **attributes)
        finally:
            self._waiting -= 1
        if not allowed:
            where = f" in the namespace {namespace}" if namespace else ""
            sentence = f'User "{user["username"]}" may not get {resource}/pendingworkloads{where}.'
            raise PendingQueryError(403, "Forbidden", sentence)


class VisibilityService:
    """The served API, and what keeps its certificates and its APIService up to date."""

    def __init__(
        self, client: KubeClient, runner: web.AppRunner, certificates: Certificates, at: ServedAt
    ) -> None:
        self._client, self._runner, self._certificates, self._at = client, runner, certificates, at

    @classmethod
    async def start(
        cls, client: KubeClient, keeper: ModelKeeper, reviews: ViewerReviews, at: ServedAt
    ) -> Self:
        """Listen.

        Raises:
            KubeError: the Secret, or what the API server says of itself, cannot be had.
            OSError: the port is in use.

        """
        proxy = await front_proxy(client)
        certificates = Certificates(client, f"{at.namespace}/{SERVICE}", at.name)
        context = await certificates.context(clients=False)
        proxy.trust(context)
        app = AggregatedServer(keeper, reviews, proxy).app()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, at.host, at.port, ssl_context=context).start()
        except OSError:
            await runner.cleanup()
            raise
        return cls(client, runner, certificates, at)

    @property
    def port(self) -> int:
        """Return the port that was taken."""
        return int(self._runner.addresses[0][1])

    async def keep(self) -> None:
        """Renew the certificates, also in the APIService, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._certificates.keep())
                group.create_task(self._keep_registered())
        finally:
            await self._runner.cleanup()

    async def _keep_registered(self) -> None:
        said = ""
        while True:
            try:
                problem = await register(self._client, self._certificates.authority, self._at)
            except KubeError as error:
                problem = f"APIService {VERSION}.{GROUP}: {error}"
            if problem and problem != said:
                log.warning(problem)
            said = problem
            await asyncio.sleep(_RETRY_S if problem else _LOOK_S)


async def register(client: KubeClient, authority: bytes, at: ServedAt) -> str:
    """Write the authority into the APIService if it is ours; return why not, or "".

    Raises:
        KubeError: it cannot be read or written.

    """
    try:
        stored = msgspec.json.decode(await client.get(_API_SERVICE))
    except NotFound:
        return f"There is no APIService {VERSION}.{GROUP}; apply manifests/visibility."
    spec: dict[str, Any] = stored.get("spec") or {}
    service = spec.get("service") or {}
    if (service.get("namespace"), service.get("name")) != (at.namespace, SERVICE):
        other = f"{service.get('namespace')}/{service.get('name')}"
        return (
            f"APIService {VERSION}.{GROUP} is of the Service {other}, perhaps of Kueue itself; "
            "it stays unchanged."
        )
    bundle = base64.b64encode(authority).decode()
    if spec.get("caBundle") != bundle:
        await client.patch(_API_SERVICE, {"spec": {"caBundle": bundle}})
    return ""


def _fixed(document: dict[str, Any]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return _json(document)

    return answer


async def _healthy(_: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), content_type="application/json", status=status
    )
