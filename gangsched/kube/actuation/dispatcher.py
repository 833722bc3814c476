"""The dispatcher: it gives each order of the engine to a part, and counts orders in metrics."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.kube.actuation.mig_writer import MigWriter
from gangsched.kube.actuation.pod_binding import PodBinder, PodClient
from gangsched.kube.actuation.stop_writer import StopWriter
from gangsched.kube.status.expected_starts import ExpectedStarts
from gangsched.kube.status.podgroup_status import PodGroupStatusWriter
from gangsched.kube.status.redaction import Redaction
from gangsched.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Gives each order to the part that carries it out."""

    engine: SchedulingEngine
    pods: PodClient
    binder: PodBinder
    stops: StopWriter
    mig: MigWriter
    status: PodGroupStatusWriter
    redaction: Redaction
    metrics: Metrics
    now_s: Callable[[], float]
    started: Callable[[], bool]
    """Returns whether this process schedules."""

    expected: ExpectedStarts

    def dispatch(self, order: o.Order) -> None:
        """Start to carry out an order."""
        binder, pods = self.binder, self.pods
        match order:
            case o.Prepare():
                binder.prepare(order)
            case o.Bind():
                binder.bind(order)
            case o.RejectPod():
                shown = self.redaction.redact(order.reason, order.gang)
                binder.refuse(replace(order, reason=shown))
            case o.Evict():
                log.info("evicting %s: %s", order.name, order.reason)
                shown = self.redaction.redact(order.reason, order.gang)
                pods.start(pods.evict(replace(order, reason=shown)))
            case o.RepartitionGpus():
                log.info("repartitioning GPUs of %s for %s", order.node, order.gang)
                pods.start(self.mig.repartition(order))
            case o.AnnounceStop():
                log.info("%s is to be stopped: %s", order.gang, order.reason)
                shown = self.redaction.redact(order.reason, order.gang)
                self.stops.announce(order, shown)
                self.status.announce_stop(order, shown)
            case o.WithdrawStop():
                self.stops.withdraw(order)
                self.status.withdraw_stop(order)
            case o.Preempt() | o.Drain():
                self._preempted(order)
            case o.Report():
                self._count(order)
                self.status.apply(order)
            case o.Reserve() | o.Release():
                gang = self.engine.view.gangs.get(order.gang)
                if gang is None or gang.spec is None or gang.spec.planned_before_creation:
                    self.status.apply(order)  # pods of other gangs exist already

    def _count(self, report: o.Report) -> None:
        level = logging.INFO if self.started() else logging.DEBUG
        log.log(level, "%s: %s: %s", report.gang, report.reason, report.message)
        if report.reason == o.ReportReason.PLACED and not report.adopted:
            self.metrics.gangs_placed.inc()
            gang = self.engine.view.gangs.get(report.gang)
            if gang is not None and (since_s := gang.waits_since_s()):
                self._waited(gang, max(self.now_s() - since_s, 0.0))
        elif report.reason == o.ReportReason.BROKEN:
            self.metrics.gangs_broken.inc()

    def _waited(self, gang: GangState, wait_s: float) -> None:
        queue = gang.account[0]
        self.metrics.gang_wait_seconds.observe(wait_s)
        self.metrics.queue_wait.labels(queue).observe(wait_s)
        if any(reserved != gang.id for reserved in self.engine.view.backfill_reservations):
            self.metrics.backfilled.labels(queue).inc()
        first = self.expected.take(gang.id)
        if first is not None:
            self.metrics.start_error.labels(queue).observe(abs(self.now_s() - first))

    def _preempted(self, order: o.Preempt | o.Drain) -> None:
        gang = self.engine.view.gangs.get(order.gang)
        queue = gang.account[0] if gang is not None else ""
        self.metrics.preemptions.labels(queue, order.reason).inc()
        self.metrics.evicted_gpu_seconds.labels(queue).inc(order.lost_gpu_s)
        self.metrics.jobs.gang_preempted(order.gang)
        if isinstance(order, o.Preempt) and order.is_mutual:
            self.metrics.preemption_loops.inc()
            log.error("preemption loop: %s and %s preempt each other in turn", order.gang, order.by)
