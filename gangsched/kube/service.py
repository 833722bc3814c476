"""The scheduler in a cluster: watches make facts, the engine decides, orders become API calls.

One asyncio task owns the engine. Each plan is made in its own thread on a snapshot, so that facts
can be observed meanwhile. Then `accept` checks the plan against the newer state.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from gangsched.autoscaling_config import NODES_NAMESPACE
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.queues import DEFAULT_QUEUE, GpuWeights
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.quota.ledger import Ledger
from gangsched.kube.actuation.dispatcher import Dispatcher
from gangsched.kube.actuation.engine_driver import Dispatch, EngineDriver
from gangsched.kube.actuation.mig_writer import MigWriter
from gangsched.kube.actuation.pod_binding import (
    BinderContext,
    MakeBinder,
    Observe,
    PodClient,
    ReadOnlyBinder,
)
from gangsched.kube.actuation.stop_writer import StopWriter
from gangsched.kube.background.deadlines import Deadline, LateError
from gangsched.kube.background.object_deadlines import ObjectDeadlines
from gangsched.kube.background.supervisor import BackgroundTasks, StatusWriters, Work
from gangsched.kube.client.client import KubeClient
from gangsched.kube.decoding.users import Users
from gangsched.kube.informers.context import ClusterConfig, GangContext
from gangsched.kube.informers.informers import Informers
from gangsched.kube.informers.planned_pod_limit import PlannedPodLimit
from gangsched.kube.informers.watches import Watches
from gangsched.kube.provisioning.karpenter.buyer import Buyer
from gangsched.kube.provisioning.placeholders.placeholders import PlaceholderPods
from gangsched.kube.provisioning.provisioner import Provisioner
from gangsched.kube.provisioning.warm import WarmGuarantees
from gangsched.kube.status.expected_starts import ExpectedStarts
from gangsched.kube.status.gang_progress import pod_counts
from gangsched.kube.status.gauges import refresh
from gangsched.kube.status.podgroup_status import PodGroupStatusWriter
from gangsched.kube.status.queue_status import QueueStatusWriter
from gangsched.kube.status.redaction import Redaction
from gangsched.kube.status.topology_status import TopologyStatusWriter
from gangsched.kube.stored.gang_history import GangHistoryStore
from gangsched.kube.stored.node_supply import StoredNodeSupply
from gangsched.kube.stored.quarantine import Quarantine
from gangsched.kube.stored.runtime_history import RuntimeHistoryStore
from gangsched.kube.stored.scheduler_names import ServedNames
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.metrics import Metrics
from gangsched.recording.audit_log import AuditLog
from gangsched.recording.gang_recorder import GangRecorder, RecordSink

log = logging.getLogger(__name__)

Lead = Callable[[], Awaitable[None]]
"""Returns once this process leads."""

_TICK_S = 0.2


async def lead_at_once() -> None:
    """Return at once, because no other process may lead."""


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since the epoch that never steps back."""
    epoch_s = time.time() - time.monotonic()
    return lambda: epoch_s + time.monotonic()


def _ignore(_: o.Order) -> None:
    """Ignore an order."""


def _limits(config: SchedulerConfig) -> Limits:
    return Limits(
        schedule_timeout_s=config.schedule_timeout_s,
        backoff_s=config.backoff_s,
        backoff_max_s=config.backoff_max_s,
        node_exclusion_s=config.node_exclusion_s,
        repartition_s=config.repartition_s,
        advice_ttl_s=config.advice_ttl_s,
        retry_interval_s=config.retry_interval_s,
        ready_tries=config.ready_tries,
        checkpoint_grace_max_s=config.checkpoint_grace_max_s,
    )


class Scheduler:
    """Makes the parts of one scheduler, and runs its loops."""

    def __init__(
        self,
        client: KubeClient,
        config: SchedulerConfig,
        policies: Policies,
        metrics: Metrics,
        *,
        make_engine: Callable[[Limits, Ledger], SchedulingEngine] = Engine,
        make_binder: MakeBinder = ReadOnlyBinder,
        volumes: Volumes | None = None,
        leads: Callable[[], bool] = lambda: True,
        audit_log: AuditLog | None = None,
        records: RecordSink | None = None,
        now_s: Callable[[], float] | None = None,
        read_only: bool = False,
        on_fact: Callable[[f.Fact], None] = lambda _: None,
        dispatch: Dispatch | None = None,
    ) -> None:
        """Take `read_only`: no order is carried out. `dispatch` replaces the API calls."""
        self.metrics, self.policies, self.read_only = metrics, policies, read_only
        self._client, self._config, self._leads = client, config, leads
        self.now_s = now_s or steady_clock()
        self.synced, self.ready = asyncio.Event(), asyncio.Event()
        """Events: all objects were read; this process schedules."""

        self._wake = asyncio.Event()
        ledger = Ledger(GpuWeights(config.gpu_weights), config.half_life_s)
        self.engine = make_engine(_limits(config), ledger)
        metrics.jobs.queue_exists = self._queue_exists
        self.cluster = ClusterConfig(frozenset({config.scheduler_name, *config.scheduler_aliases}))
        self.volumes = volumes or Volumes()
        self.users = Users(client)
        self._make_stored()
        self._make_writers()
        self.driver = EngineDriver(
            self.engine,
            self.users,
            partial(self._make_dispatcher, make_binder),
            dispatch=_ignore if read_only else dispatch,
            audit_log=None if read_only else audit_log,
            recorder=self._recorder(records),
            now_s=self.now_s,
            on_fact=on_fact,
            on_orders=self._wake.set,
        )
        self.pods, self.binder = self.driver.dispatcher.pods, self.driver.dispatcher.binder
        self.engine.driver_checks_unmodelled = self.binder.beyond_is_judged
        self.informers = self._make_informers()
        self._watches = Watches(
            client,
            self.informers,
            self.quarantine,
            metrics,
            now_s=self.now_s,
            on_batch=self._wake.set,
        )
        self.thinking = ObjectDeadlines(
            self.engine,
            self.quarantine,
            metrics,
            observe=self.driver.observe,
            now_s=self.now_s,
            start=None if read_only else self.pods.start,
        )
        self._make_node_sources()
        self.background = self._make_background()
        plan_s = config.plan_deadline_s
        self._planning = Deadline("planning", plan_s, plan_s, each_gang=True)

    def _queue_exists(self, name: str) -> bool:
        return name == DEFAULT_QUEUE or name in self.engine.view.queues

    def _make_stored(self) -> None:
        client, config = self._client, self._config
        self.history = RuntimeHistoryStore(client, config.history_config_map)
        self.past = GangHistoryStore(client, config.gang_history_config_map)
        self.served = ServedNames(client, config.history_config_map)
        self.supply = StoredNodeSupply(client, config.history_config_map)
        self.quarantine = Quarantine(client, config.history_config_map)

    def _make_writers(self) -> None:
        client, named = self._client, self._config.name_other_namespaces
        self.redaction = Redaction(self.engine.view, self.cluster.namespaces, named=named)
        counts = partial(pod_counts, self.engine.view)
        self.status = PodGroupStatusWriter(client, counts, self.redaction.redact)
        self.queue_status = QueueStatusWriter(client, self.now_s, name_gangs=named)
        self.topology_status = TopologyStatusWriter(client)
        self.expected = ExpectedStarts()

    def _make_dispatcher(self, make_binder: MakeBinder, observe: Observe) -> Dispatcher:
        config, client = self._config, self._client
        pods = PodClient(client, observe, self.metrics, config.binds_in_flight)
        return Dispatcher(
            self.engine,
            pods,
            make_binder(BinderContext(self.engine, pods, observe, self.acts, self.now_s)),
            StopWriter(client, pods.start),
            MigWriter(client, config.mig_config_map),
            self.status,
            self.redaction,
            self.metrics,
            self.now_s,
            self.ready.is_set,
            self.expected,
        )

    def _make_informers(self) -> Informers:
        context = GangContext(
            self.driver,
            self.engine.view,
            self.status,
            self.cluster,
            PlannedPodLimit(self._config.planned_pods_max),
            self.metrics,
            self.ready.is_set,
        )
        statuses = self.queue_status, self.topology_status
        return Informers(context, self.volumes, *statuses, self.policies.orders, self.binder)

    def _make_background(self) -> BackgroundTasks:
        return BackgroundTasks(
            self.driver,
            self.engine,
            self.policies,
            self.thinking,
            StatusWriters(self.status, self.queue_status, self.topology_status),
            self.expected,
            self._stored(),
            self._client,
            self._config,
            self.metrics,
            self.now_s,
        )

    def _stored(self) -> Mapping[str, Work]:
        """Return the further tasks that write while this process leads, by name."""
        interval_s, provisioner = self._config.history_interval_s, self.provisioner
        return {
            **({"requests for nodes": provisioner.run} if provisioner else {}),
            **({"nodes of Karpenter": self.buyer.run} if self.buyer else {}),
            "warm guarantees": self.warm.run,
            "placeholder pods": self.placeholders.run,
            "history": partial(self.history.run, self.engine.history, interval_s),
            "what gangs have been through": partial(self.past.run, self.engine.view),
            "nodes that can be bought": partial(self.supply.run, self.engine.view),
            "whether users are known": self.users.run,
            "the names that are served": lambda: self.served.run(self.cluster.names),
        }

    def _recorder(self, records: RecordSink | None) -> GangRecorder | None:
        if records is None:
            return None
        return GangRecorder(self.engine.view, records, self._config.gpu_prices)

    def _make_node_sources(self) -> None:
        self.provisioner = self._make_provisioner()
        self.buyer = self._make_buyer()
        self.placeholders = self._make_placeholders()
        warm, view = self._config.warm, self.engine.view
        self.warm = WarmGuarantees(self._client, view, warm, NODES_NAMESPACE)

    def _make_buyer(self) -> Buyer | None:
        config = self._config.karpenter
        if config is None:
            return None
        view, observe = self.engine.view, self.driver.observe
        placer, hint = self.policies.placer, self.status.hint
        return Buyer(self._client, view, config, placer, hint, observe, self.now_s)

    def _make_placeholders(self) -> PlaceholderPods:
        config = self._config.placeholders
        return PlaceholderPods(self._client, self.engine.view, config, self.status.hint, self.now_s)

    def _make_provisioner(self) -> Provisioner | None:
        config = self._config.provisioning
        if config is None:
            return None
        annotations, hint = self.pods.gang_annotations, self.status.hint
        return Provisioner(self._client, self.engine.view, config, annotations, hint, self.now_s)

    def acts(self) -> bool:
        """Return whether the state of this process may be acted upon."""
        return self.ready.is_set() and self._leads()

    # -- loops --------------------------------------------------------------------------------

    async def run(self, lead: Lead = lead_at_once) -> None:
        """Schedule from the return of `lead` until cancelled."""
        try:
            await self._run(lead)
        finally:  # before another process leads, which must not fail on the same object
            if not self.read_only:
                await self.quarantine.save()
                if self._leads():
                    await self.past.save(self.engine.view)

    async def _run(self, lead: Lead) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.driver.raise_fatal())
            group.create_task(self.pods.raise_fatal())
            await self.read(group, lead)
            if self.provisioner is not None:
                await self.provisioner.restore()
            supervise = self.background.supervise
            group.create_task(supervise("the status of groups", self.status.run))
            await asyncio.sleep(self._config.startup_delay_s)
            self.ready.set()
            log.info("scheduling %d nodes", len(self.engine.view.cluster.rows))
            for loop in (self._planning_loop(), self._tick_loop(), self._audit_loop()):
                group.create_task(loop)
            for name, work in self.background.tasks().items():
                group.create_task(supervise(name, work))

    async def read(
        self, group: asyncio.TaskGroup, lead: Lead = lead_at_once, *, once: bool = False
    ) -> None:
        """Start the watches; return after `lead`, when all facts are observed.

        `once` is for commands that read the cluster and end: most kinds are only listed.
        """
        if self.read_only:  # the leader's scheduler names decide which pods are ours
            self.cluster.names |= await self.served.read()
        else:
            self.informers.watch_volumes()
        await self._watches.start(group, once=once)
        self.synced.set()
        await lead()
        await self.users.refresh()  # before the first object is applied
        await self.history.read(self.engine.history)
        await self.quarantine.read(self.now_s())
        self.informers.owners.pause()
        await self._watches.hand_over()
        self.informers.owners.resume()
        for fact in await self.past.read():
            self.driver.observe(fact)
        if self.read_only and (supply := await self.supply.read()) is not None:
            self.driver.observe(f.NodeSupplySeen(supply))

    async def _planning_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            starts = self._config.queued_binds_max - self.pods.waiting
            if not self.engine.has_pending_work() or starts <= 0:
                continue  # the next tick tries again
            snapshot = self.thinking.begin_cycle(starts)
            work = partial(make_plan, snapshot, self.policies, self.now_s())
            started_s = time.monotonic()
            try:
                plan = await self.thinking.run_in_time(self._planning, work, snapshot)
            except PolicyError as error:  # one gang must not keep other gangs from starting
                log.exception("planning failed; the gang is set aside")
                self.metrics.plan_failures.inc()
                self.driver.observe(f.PlanFailed(error.gang, error.problem))
            except LateError as error:
                self.metrics.plan_failures.inc()
                self.thinking.quarantine_slow(error, snapshot)
            else:
                self.metrics.plan_seconds.observe(time.monotonic() - started_s)
                self.driver.accept(plan)
            await asyncio.sleep(self._config.plan_interval_s)
            self._wake.set()  # gangs may have arrived meanwhile, or were too many for one cycle

    async def _audit_loop(self) -> None:
        """Compare the usage of queues with running pods; correct and count differences."""
        while True:
            await asyncio.sleep(self._config.audit_interval_s)
            for queue, count in self.engine.audit(self.now_s()).items():
                self.metrics.quota_drift.labels(queue).inc(count)
                log.error("quota usage corrected: queue=%s corrections=%d", queue, count)

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.driver.tick()
            self._wake.set()  # time alone may have ended a back-off

    def refresh_metrics(self) -> None:
        """Set the gauges from the present state, before a scrape."""
        refresh(self.metrics, self.engine.view)
        self.metrics.api_writes.set(self._client.writes)
        for kind, count in self._watches.restarts():
            self.metrics.watch_restarts.labels(kind).set(count)
