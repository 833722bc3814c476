"""The scheduler in a cluster: watches make facts, the engine decides, orders become calls.

One asyncio task owns the engine. Plans are made in a thread of their own on a snapshot, so that
facts keep arriving meanwhile; `accept` checks them again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import GpuWeights
from gangsched.core.planning.planner import Plan, make_plan
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.quota.ledger import Ledger
from gangsched.kube.actuation.dispatcher import Dispatcher
from gangsched.kube.actuation.mig_writer import MigWriter
from gangsched.kube.actuation.pod_binding import PodBinder, PodClient
from gangsched.kube.background.deadlines import Deadline, LateError
from gangsched.kube.background.object_deadlines import Guarded, ObjectDeadlines
from gangsched.kube.background.supervisor import BackgroundTasks, StatusWriters, Work
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import EngineError
from gangsched.kube.client.watch import Watch, long_lived
from gangsched.kube.decoding.users import Users
from gangsched.kube.informers.context import ClusterConfig, GangContext
from gangsched.kube.informers.informers import Informers
from gangsched.kube.informers.planned_pod_limit import PlannedPodLimit
from gangsched.kube.status.gauges import refresh
from gangsched.kube.status.podgroup_status import PodGroupStatusWriter
from gangsched.kube.status.queue_status import QueueStatusWriter
from gangsched.kube.status.redaction import Redaction
from gangsched.kube.status.topology_status import TopologyStatusWriter
from gangsched.kube.stored.gang_history import PastKeeper
from gangsched.kube.stored.quarantine import Quarantine
from gangsched.kube.stored.runtime_history import HistoryKeeper
from gangsched.kube.stored.scheduler_names import ServedNames
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.metrics import Metrics
from gangsched.recording.audit_log import AuditLog

log = logging.getLogger(__name__)

Lead = Callable[[], Awaitable[None]]
"""Returns once this process leads."""


async def alone() -> None:
    """Return at once: there is no other process."""


def _limits(config: SchedulerConfig) -> Limits:
    return Limits(
        barrier_s=config.barrier_s,
        backoff_s=config.backoff_s,
        backoff_max_s=config.backoff_max_s,
        avoid_s=config.avoid_s,
        repartition_s=config.repartition_s,
        advice_s=config.advice_s,
        replan_s=config.replan_s,
        ready_tries=config.ready_tries,
    )


class Scheduler:
    """Wires one engine to one cluster. With `look_only` it reads and changes nothing."""

    def __init__(
        self,
        client: KubeClient,
        config: SchedulerConfig,
        policies: Policies,
        metrics: Metrics,
        *,
        look_only: bool = False,
        engine: Callable[[Limits, Ledger], Engine] = Engine,
    ) -> None:
        ledger = Ledger(GpuWeights(config.gpu_rates), config.half_life_s)
        self.engine = engine(_limits(config), ledger)
        self.cluster = ClusterConfig(frozenset({config.scheduler_name, *config.scheduler_aliases}))
        self.metrics = metrics
        self.pods = PodClient(client, self.observe, metrics, config.binds_in_flight)
        self.binding: PodBinder | None = None
        self.trail: AuditLog | None = None
        self.may_act: Callable[[], bool] = lambda: True
        self.warm = asyncio.Event()
        """Everything was read once: a standby is worth something."""

        self.ready = asyncio.Event()
        self.topology_status = TopologyStatusWriter(client)
        self.history = HistoryKeeper(client, config.history_config_map)
        self.past = PastKeeper(client, config.past_config_map)
        self.others = Redaction(self.engine, self.cluster.namespaces, named=config.name_others)
        self.served = ServedNames(client, config.history_config_map)
        self.status = PodGroupStatusWriter(client, self._standing, self.others.told)
        self.queue_status = QueueStatusWriter(client, self.now_s, name_gangs=config.name_others)
        self.users = Users(client)
        self.quarantine = Quarantine(client, config.history_config_map)
        self._client = client
        self._config = config
        self.policies = policies
        self.look_only = look_only
        self._wake = asyncio.Event()
        self._epoch_s = time.time() - time.monotonic()
        self._watches: dict[str, Watch] = {}
        self.volumes = Volumes()
        self.informers = self._informers(PlannedPodLimit(config.planned_pods_max))
        self.thinking = ObjectDeadlines(
            self.engine,
            self.quarantine,
            metrics,
            observe=self.observe,
            now_s=self.now_s,
            start=None if look_only else self.pods.start,
        )
        self.beside = self._background()
        self._dispatcher = Dispatcher(
            self.engine,
            MigWriter(client, config.mig_config_map),
            self.status,
            self.others,
            metrics,
            self.now_s,
            self.ready.is_set,
            self.beside.started,
        )
        plan_s = config.plan_deadline_s
        self._planning = Deadline("planning", plan_s, plan_s, each_gang=True)

    def _informers(self, planned: PlannedPodLimit) -> Informers:
        """Return what turns objects into facts."""
        context = GangContext(
            self,
            self.engine,
            self.status,
            self.cluster,
            planned,
            self.metrics,
            self.ready.is_set,
        )
        statuses = self.queue_status, self.topology_status
        orders = self.policies.orders
        return Informers(context, self.volumes, *statuses, orders, lambda: self.binding)

    def _background(self) -> BackgroundTasks:
        return BackgroundTasks(
            self,
            self.engine,
            self.policies,
            self.thinking,
            StatusWriters(self.status, self.queue_status, self.topology_status),
            self._stored,
            self._client,
            self._config,
            self.metrics,
        )

    def _stored(self) -> Mapping[str, Work]:
        """Return what is written down while this process leads, by name."""
        interval_s = self._config.history_interval_s
        return {
            "history": partial(self.history.run, self.engine.history, interval_s),
            "what gangs have been through": partial(self.past.run, self.engine),
            "whether users are known": self.users.run,
            "the names that are served": partial(self.served.run, self.cluster.names),
        }

    def now_s(self) -> float:
        """Return seconds since the epoch on a clock that never steps back."""
        return self._epoch_s + time.monotonic()

    def acts(self) -> bool:
        """Tell whether what this process knows may be acted upon."""
        return self.ready.is_set() and self.may_act()

    async def run(self, lead: Lead = alone) -> None:
        """Schedule from when `lead` returns until cancelled."""
        try:
            await self._run(lead)
        finally:  # before another leads: it must not end by the same object
            if not self.look_only:
                await self.quarantine.save()
                if self.may_act():
                    await self.past.save(self.engine)

    async def _run(self, lead: Lead) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fail())
            await self.read(group, lead)
            group.create_task(self.beside.keep_up("the status of groups", self.status.run))
            await asyncio.sleep(self._config.settle_s)
            self.ready.set()
            log.info("scheduling %d nodes", len(self.engine.cluster.rows))
            group.create_task(self._plan_on())
            group.create_task(self._tick_on())
            group.create_task(self._audit_on())
            for name, work in self.beside.works().items():
                group.create_task(self.beside.keep_up(name, work))

    async def read(self, group: asyncio.TaskGroup, lead: Lead = alone) -> None:
        """Start the watches in a task group; return once everything has been read.

        What they hear is kept back until `lead` returns: the engine must not follow the world
        while somebody else changes it, but what it will need is here already.
        """
        if self.look_only:  # pods of all its names are those of the scheduler that leads
            self.cluster.names |= await self.served.read()
        else:
            self.informers.watch_volumes()
        # Groups come last: a group whose members run already must not look empty.
        with long_lived():
            for kinds in (self.informers.first(), self.informers.groups()):
                for kind, (path, receiver, optional) in kinds.items():
                    self._watches[kind] = Watch(
                        self._client,
                        path,
                        Guarded(receiver, self.quarantine, self.metrics, self.now_s),
                        optional=optional,
                        on_batch=self._wake.set,
                        held=True,
                        ahead=receiver.ahead,
                    )
                    group.create_task(self._watches[kind].run())
                for kind in kinds:
                    await self._watches[kind].synced.wait()
        self.warm.set()
        await lead()
        await self.users.look()  # before anything is handed over, and once rights are known
        await self.history.read(self.engine.history)
        await self.quarantine.read(self.now_s())
        self.informers.owners.hold()
        with long_lived():
            for watch in self._watches.values():
                await watch.hand_over()
        self.informers.owners.let_go()
        for fact in await self.past.read():
            self.observe(fact)

    def _standing(self, gang_id: GangId) -> tuple[int, tuple[int, int, int]]:
        """Return a gang's minimum, and how many of its pods run, succeeded and failed."""
        gang = self.engine.gangs.get(gang_id)
        if gang is None:
            return 1, (0, 0, 0)
        members = gang.members.values()
        running = sum(one.runs and one.ready for one in members)
        failed = sum(one.ended and one.failed for one in members)
        return gang.minimum(), (running, gang.ended_count(), failed)

    # -- facts and orders ---------------------------------------------------------------------

    def observe(self, fact: f.Fact) -> None:
        """Give one fact to the engine and carry out what follows.

        Raises:
            EngineError: it failed.

        """
        with self._changing(type(fact).__name__):
            if self.trail is not None:
                self.trail.fact(self.engine, fact, self.now_s())
            self.execute(self.engine.observe(fact, self.now_s()))

    def declare(self, gang: Gang) -> None:
        """Give the engine what was declared of a gang; whose it is only where that is certain.

        Raises:
            EngineError: it failed.

        """
        self.observe(f.GangSeen(gang if self.users.known else replace(gang, user="")))

    def report(self, report: o.Report) -> None:
        """Carry out a report that does not come from the engine."""
        self.execute((report,))

    def accept(self, plan: Plan) -> None:
        """Carry out what was planned.

        Raises:
            EngineError: it failed.

        """
        with self._changing("accept"):
            self.execute(self.engine.accept(plan, self.now_s()))

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """End the process where the engine fails, whoever caught that error on its way."""
        try:
            yield
        except EngineError:
            raise
        except Exception as error:
            failure = EngineError(what)
            self.pods.broken.put_nowait(failure)
            raise failure from error

    def execute(self, orders: tuple[o.Order, ...]) -> None:
        """Carry out orders; answers come back through `observe`."""
        if not orders or self.look_only:
            return
        self._wake.set()
        binding = self.binding
        assert binding is not None, "set by the wiring"  # noqa: S101
        for order in orders:
            if self.trail is not None:
                self.trail.order(self.engine, order, self.now_s())
            self._dispatcher.dispatch(order, binding, self.pods)

    # -- loops --------------------------------------------------------------------------------

    async def _fail(self) -> None:
        raise await self.pods.broken.get()

    async def _plan_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            starts = self._config.starts_waiting - self.pods.waiting
            if not self.engine.wants_plan() or starts <= 0:
                continue  # the next tick looks again
            snapshot = self.thinking.view(starts=starts)
            work = partial(make_plan, snapshot, self.policies, self.now_s())
            started_s = time.monotonic()
            try:
                plan = await self.thinking.think(self._planning, work, snapshot)
            except PolicyError as error:  # one gang must not keep all others from starting
                log.exception("planning failed; the gang is set aside")
                self.metrics.plan_failures.inc()
                self.observe(f.PlanFailed(error.gang, error.problem))
            except LateError as error:
                self.metrics.plan_failures.inc()
                self.thinking.too_slow(error, snapshot)
            else:
                self.metrics.plan_seconds.observe(time.monotonic() - started_s)
                self.accept(plan)
            await asyncio.sleep(self._config.plan_interval_s)
            self._wake.set()  # whatever came meanwhile, or did not fit in one cycle

    async def _audit_on(self) -> None:
        """Compare what queues are charged with what runs; a difference is healed and counted."""
        while True:
            await asyncio.sleep(self._config.audit_interval_s)
            for queue, count in self.engine.audit(self.now_s()).items():
                self.metrics.quota_drift.labels(queue).inc(count)
                log.error("the books of queue %s were wrong in %d places", queue, count)

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.execute(self.engine.tick(self.now_s()))
            self._wake.set()  # time alone may have ended a back-off

    def refresh_metrics(self) -> None:
        """Bring the gauges up to date; called when somebody reads them."""
        refresh(self.metrics, self.engine)
        self.metrics.api_writes.set(self._client.writes)
        for kind, watch in self._watches.items():
            self.metrics.watch_restarts.labels(kind).set(watch.restarts)
