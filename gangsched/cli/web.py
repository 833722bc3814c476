"""`gangsched web`: reads a snapshot, or watches a cluster, and serves the pages on loopback."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from gangsched.cli import queries
from gangsched.cli.cluster.changes import queue_notes
from gangsched.cli.cluster.view import ClusterView, effort_of, with_leader_namespace
from gangsched.cli.output.printing import console
from gangsched.config import ConfigError, SchedulerConfig, load_config
from gangsched.core import facts as f
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import quota_label
from gangsched.core.policy import Policies
from gangsched.kube.background import disruption_budgets
from gangsched.kube.background.advisor import budget_of
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.service import Scheduler
from gangsched.kube.status.redaction import Redaction
from gangsched.metrics import Metrics
from gangsched.plugins import load_policies
from gangsched.web.gang_actions import GangActions
from gangsched.web.gang_log import GangLog
from gangsched.web.keeper import ModelKeeper, PageSource
from gangsched.web.model import QueueRow, QuotaRow
from gangsched.web.moments import JournalMoments, JournalReader
from gangsched.web.server import HOST, WebServer
from gangsched.web.sessions import ViewerReviews, ViewerSessions, new_code
from gangsched.web.visibility.aggregated_server import ServedAt, VisibilityService
from gangsched.web.what_if import WhatIfChange

Say = Callable[[str], Any]

_ORDER = "order"


def page_queues(engine: SchedulingEngine, policies: Policies) -> tuple[QueueRow, ...]:
    """Return the queues as `gangsched queue` computes them."""
    declared = engine.view.queues
    rows = []
    for data in queries.queues(ClusterView(engine, policies, 0.0)):
        name = str(data["queue"])
        queue = declared.get(name)
        quotas = tuple(_quota_row(engine, name, item) for item in data.get("quotas", ()))
        rows.append(
            QueueRow(
                name,
                data.get("depth", 0),
                data["pending"],
                data["admitted"],
                quotas,
                data.get("share"),
                tuple(queue_notes(engine, name)) if not data.get("problem") else (),
                data.get("problem", ""),
                None if queue is None or queue.open_to_all else queue.namespaces,
            )
        )
    return tuple(rows)


def make_change(
    config: SchedulerConfig, policies: Policies
) -> Callable[[SchedulingEngine, WhatIfChange, float], Policies]:
    """Return what makes the changes of a what-if, as `gangsched what-if` makes them."""

    def make(engine: SchedulingEngine, change: WhatIfChange, now_s: float) -> Policies:
        texts = (change.quota, change.nodes, change.priority, change.book, change.pool)
        try:
            queries.Changes(*([text] if text else [] for text in texts)).make(engine, now_s)
        except ConfigError as error:
            raise ConfigError(f"{str(error).removeprefix('--')}.") from error  # no option here
        if not change.order:
            return policies
        return load_policies(config.model_copy(update={_ORDER: change.order, "order_options": {}}))

    return make


def _quota_row(engine: SchedulingEngine, queue: str, data: dict[str, Any]) -> QuotaRow:
    usage = engine.view.ledger.usage
    used_by_key = usage.subtree_usage.get(queue, {})
    keys = {quota_label(key): key for key in (*usage.tree.quota_keys(queue), *used_by_key)}
    key = keys.get(data["resource"])
    used = usage.used(queue, key) if key is not None else 0
    nominal = usage.tree.nominal(queue, key) if key is not None else None
    own = used if nominal is None else min(used, nominal)
    whole = max(used, nominal or 0) or 1
    return QuotaRow(
        data["resource"],
        data["nominal"],
        data["used"],
        data["borrowed"],
        own / whole if nominal is not None else 0.0,
        (used - own) / whole,
    )


async def serve_file(file: Path, config: SchedulerConfig, port: int, say: Say) -> None:
    """Serve the pages of a snapshot, or of any moment of a journal, until cancelled."""
    policies = load_policies(config)
    reader = JournalReader(file, lambda engine: page_queues(engine, policies))

    def source(engine: SchedulingEngine, at_s: float) -> PageSource:
        return PageSource(
            engine,
            policies,
            lambda: at_s,
            file.name,
            live=False,
            queue_rows=lambda: page_queues(engine, policies),
            redact=lambda text, _: text,
            effort=effort_of(config),
            forecast_deadline_s=config.forecast_deadline_s,
            budget=budget_of(config),
            make_change=make_change(config, policies),
        )

    with console().status(f"reading {file}") as status:
        reader.read(lambda lines: status.update(f"reading {file}: {lines:,} lines"))
    moments = JournalMoments(reader, source)
    runner, bound = await WebServer(moments, grafana=config.grafana).start(port)
    say(f"Serving {file} on http://{HOST}:{bound}/")
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
        await moments.close()


async def serve_cluster(
    access: Access,
    config: SchedulerConfig,
    port: int,
    say: Say,
    *,
    code: str | None,
    visibility: ServedAt | None = None,
) -> None:
    """Serve the pages of a live cluster until cancelled; without a `code` only tokens log in."""
    policies = load_policies(config)
    async with KubeClient(access) as client, asyncio.TaskGroup() as group:
        keeper: ModelKeeper | None = None
        settings = await with_leader_namespace(client, config)

        def on_fact(fact: f.Fact) -> None:
            log.before(fact, time.time())
            if keeper is not None:
                keeper.changed()

        scheduler = Scheduler(
            client, settings, policies, Metrics(), read_only=True, on_fact=on_fact
        )
        log = GangLog(scheduler.engine.view)
        await scheduler.read(group)
        scheduler.thinking.apply_quarantine()
        view = scheduler.engine.view
        redaction = Redaction(view, scheduler.cluster.namespaces, named=False)
        keeper = ModelKeeper(
            PageSource(
                scheduler.engine,
                policies,
                time.time,
                client.server,
                live=True,
                queue_rows=lambda: page_queues(scheduler.engine, policies),
                redact=lambda text, gang: redaction.redact(text, GangId(gang)),
                effort=effort_of(settings),
                forecast_deadline_s=settings.forecast_deadline_s,
                budget=budget_of(settings),
                protected=await disruption_budgets.protected(client, view),
                log=log,
                make_change=make_change(settings, policies),
            )
        )

        def names() -> tuple[list[str], list[str]]:
            return [gang.partition("/")[0] for gang in view.gangs], list(view.queues)

        reviews = ViewerReviews(client, names)
        sessions = ViewerSessions(reviews, code)
        server = WebServer(keeper, sessions, GangActions(access), grafana=config.grafana)
        runner, bound = await server.start(port)
        say(f"Serving {client.server} on http://{HOST}:{bound}/")
        say(f"Log in with a token{f', or with the code {code}' if code else ''}")
        if visibility is not None:
            service = await _start_visibility(client, keeper, reviews, visibility)
            say(f"Serving the API of pending workloads on {visibility.host}:{service.port}")
            group.create_task(service.keep())
        supply = scheduler.supply.follow(scheduler.driver.observe, view.node_supply)
        group.create_task(supply)
        try:
            await keeper.run()
        finally:
            await runner.cleanup()


async def _start_visibility(
    client: KubeClient, keeper: ModelKeeper, reviews: ViewerReviews, at: ServedAt
) -> VisibilityService:
    try:
        return await VisibilityService.start(client, keeper, reviews, at)
    except (KubeError, OSError) as error:
        raise ConfigError(f"--visibility: {error}") from error


def show_pages(
    snapshot: Path | None,
    access: Access,
    config: Path | None,
    port: int,
    *,
    with_code: bool = True,
    visibility: str | None = None,
) -> None:
    """Serve the pages until stopped; a live cluster's without a code, where `with_code` is false.

    Raises:
        ConfigError: a port is malformed or in use, or the snapshot cannot be read.

    """
    settings = load_config(config)
    served = _served_at(visibility, settings) if visibility is not None else None
    try:
        if snapshot is not None:
            asyncio.run(serve_file(snapshot, settings, port, typer.echo))
        else:
            code = new_code() if with_code else None
            asyncio.run(
                serve_cluster(access, settings, port, typer.echo, code=code, visibility=served)
            )
    except OSError as error:
        raise ConfigError(f"--port: {error}") from error


def _served_at(text: str, settings: SchedulerConfig) -> ServedAt:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"--visibility: {text[:100]!r} must be ADDRESS:PORT, as 0.0.0.0:8443")
    return ServedAt(host.strip("[]"), int(port), settings.lease.partition("/")[0])
