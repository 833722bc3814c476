"""The composition root: configuration -> policies -> engine -> drivers and controllers."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from aiohttp import web
from aiohttp.typedefs import Middleware

from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.quota.ledger import Ledger
from gangsched.extender.server import ExtenderBinder, serve
from gangsched.kube.actuation.pod_binding import DirectBinder, MakeBinder
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.kube.leadership.leader_label import mark_leader
from gangsched.kube.leadership.leadership import Leadership
from gangsched.kube.leadership.lease import Election, LeaseTiming
from gangsched.kube.service import Scheduler
from gangsched.kube.serving.certificates import Certificates
from gangsched.kube.serving.history_route import HistoryRoute
from gangsched.kube.serving.token_review import TokenReviewer, require_review
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.kube.volumes.binding import VolumeBinder
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.metrics import Metrics
from gangsched.operators.ownership import KEY, store_no_kinds
from gangsched.plugins import load_policies
from gangsched.recording.audit_log import AuditLog
from gangsched.recording.history_file import HistoryLimits, HistoryWriter
from gangsched.recording.journal import Journal, RecordingEngine

if TYPE_CHECKING:
    from gangsched.operators.manager import ControllerOutputs

log = logging.getLogger(__name__)

_AGAIN_S = 2.0
_SELECTED_S = 7.0
"""How long kube-scheduler may take a pod for the leader after another leads."""


async def run(
    access: Access,
    config: SchedulerConfig,
    binding: Literal["extender", "direct"],
    *,
    operators: bool = True,
) -> None:
    """Run the scheduler, and the job controllers beside it, until SIGTERM or SIGINT."""
    metrics = Metrics()
    stop = _stop_on_signals()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(access))
        # Connections of its own, which no fence holds up.
        own = await stack.enter_async_context(KubeClient(access))
        leadership = _leadership(own, config)
        client.may_write = leadership.leads
        volumes = Volumes()
        scheduler = Scheduler(
            client,
            config,
            load_policies(config),
            metrics,
            make_engine=_engine(config, stack),
            make_binder=_make_binder(binding, client, config, volumes),
            volumes=volumes,
            leads=leadership.leads,
            audit_log=_audit_log(config, stack),
            records=_history(config, metrics, stack),
        )
        ports = _Ports(stack, config, own, access)
        port = await ports.open(scheduler, metrics)
        log.info("binding %s; metrics on port %d", binding, port)

        selected = asyncio.Event()

        async def lead() -> None:
            await leadership.begin()
            if await mark_leader(client):
                selected.set()
            metrics.leader.set(1)

        async def operate() -> None:
            await scheduler.ready.wait()  # leading begins with what gangs wait for
            outputs = _outputs(client, config, metrics)
            while True:
                try:
                    await _operators(access, client, config, outputs)
                except ConfigError:
                    raise
                except Exception:  # a failure of the job controllers must not stop scheduling
                    log.exception("the job controllers failed and are restarted")
                    metrics.failures.labels("job controllers").inc()
                    await asyncio.sleep(_AGAIN_S)
                else:
                    stop.set()  # they handle the signals and end in order
                    return

        tasks = [
            asyncio.create_task(scheduler.run(lead)),
            asyncio.create_task(leadership.keep(KubeClient(access))),
        ]
        work = operate() if operators else _no_operators(client, scheduler, config)
        tasks.append(asyncio.create_task(work))
        if ports.certificates is not None:
            tasks.append(asyncio.create_task(ports.certificates.keep()))
        await _run_until(stop, tasks, leadership.end(own))
        if selected.is_set() and isinstance(scheduler.binder, ExtenderBinder):
            await scheduler.binder.turn_away(_SELECTED_S)


async def _run_until(
    stop: asyncio.Event, tasks: Sequence[asyncio.Task[None]], end: Awaitable[None]
) -> None:
    """Run tasks until a signal comes or one of them ends; then await `end` and cancel them.

    Raises:
        Exception: what the task that ended failed with.

    """
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    await end
    for task in (*tasks, stopping):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done - {stopping}:
        task.result()  # a loop that ended by itself is a failure: show it


def _make_binder(
    binding: Literal["extender", "direct"],
    client: KubeClient,
    config: SchedulerConfig,
    volumes: Volumes,
) -> MakeBinder:
    """Return what makes the chosen way of binding."""
    if binding == "extender":
        return partial(ExtenderBinder, schedule_timeout_s=config.schedule_timeout_s)
    return lambda context: DirectBinder(context, VolumeBinder(context, volumes, client))


def _outputs(client: KubeClient, config: SchedulerConfig, metrics: Metrics) -> "ControllerOutputs":
    """Return the outputs of the job controllers; the counts of jobs outlive their restarts."""
    from gangsched.operators.controllers.job_observer import (  # noqa: PLC0415 -- kopf is heavy
        JobObserver,
    )
    from gangsched.operators.manager import ControllerOutputs  # noqa: PLC0415
    from gangsched.operators.tracking.run_tracker import RunTracker  # noqa: PLC0415

    tracker = RunTracker(config.tracking, client) if config.tracking is not None else None
    kept = ConfigMapEntry(client, config.history_config_map, KEY)
    metrics.jobs.namespaces = config.job_metrics_namespaces
    jobs = JobObserver(metrics.jobs, tracker=tracker)
    return ControllerOutputs(kept, metrics.job_kinds, jobs, tracker)


async def _operators(
    access: Access, client: KubeClient, config: SchedulerConfig, outputs: "ControllerOutputs"
) -> None:
    from gangsched.operators.manager import (  # noqa: PLC0415 -- kopf is heavy
        SchedulerNames,
        run_operators,
    )

    evaluation = config.evaluation_s, config.evaluation_mib
    ours = SchedulerNames(config.scheduler_name, config.scheduler_aliases, config.schedule_trials)
    await run_operators(access, client, config.job_kinds, ours, config.job_env, evaluation, outputs)


async def _no_operators(client: KubeClient, scheduler: Scheduler, config: SchedulerConfig) -> None:
    """Write down that no kind of job is run here, for our commands."""
    await scheduler.ready.wait()
    await store_no_kinds(client, ConfigMapEntry(client, config.history_config_map, KEY))


def _stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _leadership(client: KubeClient, config: SchedulerConfig) -> Leadership:
    """Return the leadership of this process: as a candidate, or always."""
    if not config.leader_elect:
        return Leadership(None)
    timing = LeaseTiming(config.lease_s, config.lease_s * 5 / 8, config.lease_s / 8)
    return Leadership(Election(client, config.lease, timing))


def _engine(
    config: SchedulerConfig, stack: AsyncExitStack
) -> Callable[[Limits, Ledger], SchedulingEngine]:
    if config.journal is None:
        return Engine
    file = _appended("journal", config.journal, stack)
    return lambda limits, ledger: RecordingEngine(Engine(limits, ledger), Journal(file))


def _audit_log(config: SchedulerConfig, stack: AsyncExitStack) -> AuditLog | None:
    return AuditLog(_appended("audit", config.audit, stack)) if config.audit is not None else None


def _history(
    config: SchedulerConfig, metrics: Metrics, stack: AsyncExitStack
) -> HistoryWriter | None:
    """Return what writes the records of gangs that end."""
    settings = config.history
    if settings is None:
        return None
    limits = HistoryLimits(settings.mib_max * 2**20, settings.days_max * 86_400.0)
    lost = metrics.failures.labels("history")
    writer = HistoryWriter(settings.path, limits, lost.inc)
    stack.callback(writer.close)
    return writer


def _appended(setting: str, path: Path, stack: AsyncExitStack) -> IO[str]:
    """Open a file to add to.

    Raises:
        ConfigError: it cannot be opened.

    """
    try:
        return stack.enter_context(path.open("a"))
    except OSError as error:
        raise ConfigError(f"{setting}: {error}") from error


def _metrics_routes(scheduler: Scheduler, metrics: Metrics) -> list[web.RouteDef]:
    (route,) = metrics.routes()

    async def fresh(request: web.Request) -> web.StreamResponse:
        scheduler.refresh_metrics()
        return await route.handler(request)

    async def ready(_: web.Request) -> web.Response:
        if not scheduler.synced.is_set():
            return web.Response(status=503, text="starting")
        return web.Response(text="leading" if scheduler.acts() else "standing by")

    return [web.get("/metrics", fresh), web.get("/readyz", ready)]


class _Ports:
    """What we serve, and by which certificates."""

    def __init__(
        self,
        stack: AsyncExitStack,
        config: SchedulerConfig,
        client: KubeClient,
        access: Access,
    ) -> None:
        self._stack, self._config, self._access = stack, config, access
        secret = config.tls_secret
        self.certificates = Certificates(client, secret, config.tls_host) if secret else None

    async def open(self, scheduler: Scheduler, metrics: Metrics) -> int:
        """Open the extender, where there is one, and /metrics; return the port of the latter."""
        config = self._config
        if isinstance(scheduler.binder, ExtenderBinder):
            routes = scheduler.binder.routes()
            await self._serve(routes, config.extender_port, clients=True)
        reviewed: list[Middleware] = []
        if config.metrics_access == "reviewed":
            # Any user may send tokens: a flood of them must not delay other calls, or the Lease.
            asking = await self._stack.enter_async_context(KubeClient(self._access, tries=1))
            reviewed = [require_review(TokenReviewer(asking))]
        routes = _metrics_routes(scheduler, metrics)
        if config.history is not None:
            asking = await self._stack.enter_async_context(KubeClient(self._access, tries=1))
            routes += HistoryRoute(asking, config.history.path).routes()
        return await self._serve(routes, config.metrics_port, reviewed, clients=False)

    async def _serve(
        self,
        routes: list[web.RouteDef],
        port: int,
        middlewares: Sequence[Middleware] = (),
        *,
        clients: bool,
    ) -> int:
        tls = await self.certificates.context(clients=clients) if self.certificates else None
        runner, taken = await serve(routes, self._config.extender_host, port, tls, middlewares)
        self._stack.push_async_callback(runner.cleanup)
        return taken
