"""The scheduler in a cluster: watches make facts, the engine decides, orders become calls.

One asyncio task owns the engine. Plans are made in a worker thread on a snapshot, so that facts
keep arriving meanwhile; `accept` checks them again.
"""

import asyncio
import logging
import time

from gangsched.api import names
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine import Engine, Limits, Stage, State
from gangsched.core.model import GangId, NodeName, PodName, PodNeeds, PodUid
from gangsched.core.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.kube import decode, groups
from gangsched.kube.binding import Binding, Pods
from gangsched.kube.client import KubeClient
from gangsched.kube.quantities import DecodeError
from gangsched.kube.status import Status, Subject
from gangsched.kube.structs import Pod
from gangsched.kube.watch import Watch
from gangsched.metrics import Metrics

log = logging.getLogger(__name__)

OUR_MARK = "gangsched:"
"""Begins every refusal of the extender, so that its echo in a pod's condition is known as ours."""

PODGROUPS = f"/apis/{names.GROUP}/{names.VERSION}/podgroups"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"


class Scheduler:
    """Wires one engine to one cluster."""

    def __init__(
        self,
        client: KubeClient,
        config: SchedulerConfig,
        policies: Policies,
        metrics: Metrics,
    ) -> None:
        limits = Limits(config.barrier_s, config.backoff_s, config.backoff_max_s, config.avoid_s)
        self.engine = Engine(limits, frozenset(config.queues))
        self.name = config.scheduler_name
        self.metrics = metrics
        self.status = Status(client)
        self.pods = Pods(client, self.observe, metrics, config.binds_in_flight)
        self.binding: Binding | None = None
        self.ready = asyncio.Event()
        self.priorities: dict[str, int] = {}
        self._client = client
        self._config = config
        self._policies = policies
        self._wake = asyncio.Event()
        self._epoch_s = time.time() - time.monotonic()
        self._created_s: dict[GangId, float] = {}
        self._watches: dict[str, Watch] = {}

    def now_s(self) -> float:
        """Return seconds since the epoch on a clock that never steps back."""
        return self._epoch_s + time.monotonic()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            first = {
                "PriorityClass": (
                    "/apis/scheduling.k8s.io/v1/priorityclasses",
                    _PriorityClasses(self),
                    False,
                ),
                "Node": ("/api/v1/nodes", _Nodes(self), False),
                "Pod": ("/api/v1/pods", _Pods(self), False),
            }
            then = {
                "PodGroup": (PODGROUPS, _PodGroups(self), True),
                "PodGroup.scheduling.x-k8s.io": (COSCHEDULING, _Coscheduling(self), True),
            }
            # Groups come last: a group whose members run already must not look empty.
            for kinds in (first, then):
                for kind, (path, receiver, optional) in kinds.items():
                    watch = Watch(
                        self._client, path, receiver, optional=optional, on_batch=self._wake.set
                    )
                    self._watches[kind] = watch
                    group.create_task(watch.run())
                for kind in kinds:
                    await self._watches[kind].synced.wait()
            group.create_task(self.status.run())
            await asyncio.sleep(self._config.settle_s)
            self.ready.set()
            log.info("scheduling %d nodes", len(self.engine.cluster.rows))
            group.create_task(self._plan_on())
            group.create_task(self._tick_on())

    # -- facts and orders ---------------------------------------------------------------------

    def observe(self, fact: f.Fact) -> None:
        """Give one fact to the engine and carry out what follows."""
        self.execute(self.engine.observe(fact, self.now_s()))

    def execute(self, orders: tuple[o.Order, ...]) -> None:
        """Carry out orders; answers come back through `observe`."""
        if not orders:
            return
        self._wake.set()
        binding = self.binding
        assert binding is not None, "set by the wiring"  # noqa: S101
        for order in orders:
            match order:
                case o.Prepare():
                    binding.prepare(order)
                case o.Bind():
                    binding.bind(order)
                case o.Refuse():
                    binding.refuse(order)
                case o.Evict():
                    log.info("evicting %s: %s", order.name, order.reason)
                    self.pods.start(self.pods.evict(order))
                case o.Report():
                    self._count(order)
                    self.status.take(order)
                case o.Reserve() | o.Release():
                    gang = self.engine.gangs.get(order.gang)
                    if gang is None or gang.spec is None or gang.spec.planned_before_creation:
                        self.status.take(order)  # others have pods: nobody waits for their places

    def _count(self, report: o.Report) -> None:
        log.info("%s: %s: %s", report.gang, report.reason, report.message)
        if report.reason == "Placed":
            self.metrics.gangs_placed.inc()
            gang = self.engine.gangs.get(report.gang)
            since_s = gang.since_s if gang is not None else None
            if since_s:
                self.metrics.gang_wait_seconds.observe(max(self.now_s() - since_s, 0.0))
        elif report.reason == "Broken":
            self.metrics.gangs_broken.inc()

    # -- loops --------------------------------------------------------------------------------

    async def _plan_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self.engine.wants_plan():
                continue
            snapshot = self.engine.snapshot(self._config.gangs_per_plan)
            started_s = time.monotonic()
            plan = await asyncio.to_thread(make_plan, snapshot, self._policies, self.now_s())
            self.metrics.plan_seconds.observe(time.monotonic() - started_s)
            self.execute(self.engine.accept(plan, self.now_s()))
            await asyncio.sleep(self._config.plan_interval_s)
            self._wake.set()  # whatever came meanwhile, or did not fit in one cycle

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.execute(self.engine.tick(self.now_s()))
            self._wake.set()  # time alone may have ended a back-off

    def refresh_metrics(self) -> None:
        """Bring the gauges up to date; called when somebody reads them."""
        counts = dict.fromkeys(State, 0)
        reserved = 0
        for gang in self.engine.gangs.values():
            counts[gang.state] += 1
            reserved += gang.in_progress()
        for state, count in counts.items():
            self.metrics.gangs.labels(state.value).set(count)
        reasons: dict[str, int] = {}
        for refusal in self.engine.refusals.values():
            reasons[refusal.reason.value] = reasons.get(refusal.reason.value, 0) + 1
        self.metrics.gangs_refused.clear()
        for reason, count in reasons.items():
            self.metrics.gangs_refused.labels(reason).set(count)
        self.metrics.reserved_members.set(reserved)
        self.metrics.plans_stale.set(self.engine.stale_plans)
        self.metrics.api_writes.set(self._client.writes)
        for kind, watch in self._watches.items():
            self.metrics.watch_restarts.labels(kind).set(watch.restarts)


class _Receiver:
    """Common to all kinds: a malformed object is counted, told and skipped."""

    kind = ""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def seen(self, raw: bytes) -> None:
        try:
            self.take(raw)
        except DecodeError as error:
            self.scheduler.metrics.malformed.labels(self.kind).inc()
            log.warning("skipped: %s", error)
            self.malformed(raw, str(error))

    def take(self, raw: bytes) -> None:
        raise NotImplementedError

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner, where there is a place for it."""

    def gone(self, uid: str, raw: bytes | None) -> None:
        raise NotImplementedError


class _PriorityClasses(_Receiver):
    kind = "PriorityClass"

    def take(self, raw: bytes) -> None:
        name, value = groups.priority_class(raw)
        self.scheduler.priorities[name] = value

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Groups that name it keep the value they were read with."""


class _Nodes(_Receiver):
    kind = "Node"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._names: dict[str, str] = {}

    def take(self, raw: bytes) -> None:
        fact = groups.node_fact(raw)
        self._names[groups.group_key(raw)[2]] = fact.node.name
        self.scheduler.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        self.scheduler.observe(f.NodeGone(groups.node_name(raw)))  # never place on what is unknown

    def gone(self, uid: str, raw: bytes | None) -> None:
        name = self._names.pop(uid, None)
        if name is not None:
            self.scheduler.observe(f.NodeGone(NodeName(name)))


class _Pods(_Receiver):
    kind = "Pod"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._needs: dict[str, tuple[int, PodNeeds]] = {}

    def take(self, raw: bytes) -> None:
        scheduler = self.scheduler
        pod = decode.decode_pod(raw)
        known = self._needs.get(pod.metadata.uid)
        wants = known[1] if known is not None and known[0] == pod.metadata.generation else None
        fact = decode.pod_fact(pod, scheduler.name, wants)
        self._needs[fact.uid] = (pod.metadata.generation, fact.needs)
        if fact.gang is None and fact.node is None:
            return  # another scheduler's pod, and it takes no room yet
        if fact.gang is not None and (known is None or fact.gang not in scheduler.engine.gangs):
            self._declare(pod, fact.gang)
        scheduler.observe(fact)
        self._judge(pod, fact)

    def _declare(self, pod: Pod, gang_id: GangId) -> None:
        metadata = pod.metadata
        subject = Subject("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
        gang = decode.implicit_gang(pod)
        self.scheduler.status.subject(gang_id, subject)
        if gang is not None:
            self.scheduler.observe(f.GangSeen(gang))

    def _judge(self, pod: Pod, fact: f.PodSeen) -> None:
        """Take kube-scheduler's own word that a reserved pod cannot go to its node."""
        if fact.gang is None or fact.node is not None:
            return
        message = decode.unschedulable_message(pod)
        if message is None or OUR_MARK in message:
            return
        gang = self.scheduler.engine.gangs.get(fact.gang)
        member = gang.members.get(fact.name) if gang is not None else None
        if member is not None and member.stage is Stage.PREPARING and member.node is not None:
            self.scheduler.observe(f.PrepareFailed(fact.uid, member.node, message))

    def gone(self, uid: str, raw: bytes | None) -> None:
        self._needs.pop(uid, None)
        if self.scheduler.binding is not None:
            self.scheduler.binding.forget(PodUid(uid))
        pod = self.scheduler.engine.pod(PodUid(uid))
        self.scheduler.observe(f.PodGone(PodUid(uid)))
        if pod is not None and pod.gang is not None and pod.gang not in self.scheduler.engine.gangs:
            self.scheduler.status.forget(pod.gang)


class _PodGroups(_Receiver):
    kind = "PodGroup"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._ids: dict[str, GangId] = {}

    def take(self, raw: bytes) -> None:
        scheduler = self.scheduler
        gang, status, uid = groups.pod_group(raw, scheduler.priorities)
        new = uid not in self._ids
        self._remember(raw, gang.id)
        scheduler.observe(f.GangSeen(gang))
        if new and status.assignments and status.phase in ("Reserved", "Binding"):
            namespace = gang.id.split("/", 1)[0]
            places = tuple(
                (PodName(f"{namespace}/{place.pod}"), NodeName(place.node))
                for place in status.assignments
            )
            scheduler.observe(f.ReservationSeen(gang.id, places))

    def malformed(self, raw: bytes, message: str) -> None:
        namespace, name, _ = groups.group_key(raw)
        gang_id = GangId(f"{namespace}/{name}")
        known = gang_id in self._ids.values()
        self._remember(raw, gang_id)
        if not known:  # a gang that ran keeps its last valid declaration
            self.scheduler.status.invalid(gang_id, message)

    def _remember(self, raw: bytes, gang_id: GangId) -> None:
        namespace, name, uid = groups.group_key(raw)
        self._ids[uid] = gang_id
        subject = Subject(
            f"{names.GROUP}/{names.VERSION}", "PodGroup", namespace, name, uid, has_status=True
        )
        self.scheduler.status.subject(gang_id, subject)

    def gone(self, uid: str, raw: bytes | None) -> None:
        gang_id = self._ids.pop(uid, None)
        if gang_id is not None and gang_id not in self._ids.values():
            self.scheduler.status.forget(gang_id)
            self.scheduler.observe(f.GangGone(gang_id))


class _Coscheduling(_Receiver):
    kind = "PodGroup.scheduling.x-k8s.io"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._ids: dict[str, GangId] = {}

    def take(self, raw: bytes) -> None:
        gang, uid = groups.coscheduling_group(raw)
        self._ids[uid] = gang.id
        namespace, name, _ = groups.group_key(raw)
        subject = Subject("scheduling.x-k8s.io/v1alpha1", "PodGroup", namespace, name, uid)
        self.scheduler.status.subject(gang.id, subject)
        self.scheduler.observe(f.GangSeen(gang))

    def gone(self, uid: str, raw: bytes | None) -> None:
        gang_id = self._ids.pop(uid, None)
        if gang_id is not None:
            self.scheduler.status.forget(gang_id)
            self.scheduler.observe(f.GangGone(gang_id))
