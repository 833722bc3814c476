"""Every metric of one process; the parts that count receive them by their constructors."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gangsched.job_metrics import JobMetrics

_PLAN_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


@dataclass(slots=True)
class QueueFigures:
    """The values of the gauges of one queue."""

    pending: int = 0
    admitted: int = 0
    share: float = 0.0
    decayed: float = 0.0
    price: float = 0.0
    nominal: dict[tuple[str, str], float] = field(default_factory=dict)
    used: dict[tuple[str, str], float] = field(default_factory=dict)
    borrowed: dict[tuple[str, str], float] = field(default_factory=dict)


class QueueCollector:
    """Gauges of queues, built at each scrape: a deleted queue leaves no series behind."""

    def __init__(self) -> None:
        self.figures: dict[str, QueueFigures] = {}
        self.gpus: dict[str, float] = {}
        self.fragmentation: float | None = None
        self.pod_gpus: list[tuple[tuple[str, ...], float]] = []
        """GPUs of pods that run, by namespace, gang, pod and queue."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, as the registry asks."""
        plain = {
            "pending": "Pending gangs of the queue and its subqueues.",
            "admitted": "Gangs of the queue and its subqueues that are reserved or run.",
            "share": "Dominant share of the cluster, divided by the weight of the queue.",
            "decayed": "Past GPU-seconds of the queue, decayed by age.",
            "price": "Price for an hour of what gangs of the queue use of nodes with prices, in $.",
        }
        for name, help_text in plain.items():
            gauge = GaugeMetricFamily(f"gangsched_queue_{name}", help_text, labels=["queue"])
            for queue, figures in self.figures.items():
                gauge.add_metric([queue], getattr(figures, name))
            yield gauge
        by_resource = {
            "nominal": "Nominal quota of the queue, by resource.",
            "used": "Quota that gangs of the queue use, by resource.",
            "borrowed": "Quota that the queue borrows beyond its nominal quota, by resource.",
        }
        for name, help_text in by_resource.items():
            labels = ["queue", "resource", "kind"]
            gauge = GaugeMetricFamily(f"gangsched_queue_{name}", help_text, labels=labels)
            for queue, figures in self.figures.items():
                for (resource, kind), value in getattr(figures, name).items():
                    gauge.add_metric([queue, resource, kind], value)
            yield gauge
        gpus = GaugeMetricFamily(
            "gangsched_gpus",
            "GPUs of healthy nodes, in total and in use.",
            labels=["state"],
        )
        for state, count in self.gpus.items():
            gpus.add_metric([state], count)
        yield gpus
        if self.fragmentation is not None:
            yield GaugeMetricFamily(
                "gangsched_gpu_fragmentation_ratio",
                "Share of the free GPUs that are on partly used nodes, 0 to 1.",
                value=self.fragmentation,
            )
        pod_gpus = GaugeMetricFamily(
            "gangsched_pod_gpus",
            "GPUs of a pod that is bound, by the namespace of its gang.",
            labels=["gang_namespace", "gang", "member", "queue"],
        )
        for values, count in self.pod_gpus:
            pod_gpus.add_metric(values, count)
        yield pod_gpus


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        reg = self.registry
        self.leader = Gauge("gangsched_leader", "1 if this process leads, else 0.", registry=reg)
        self.gangs = Gauge(
            "gangsched_gangs",
            "Gangs by state; a gang is Finished if all its pods have ended.",
            ["state"],
            registry=reg,
        )
        self.gangs_refused = Gauge(
            "gangsched_gangs_refused",
            "Pending gangs by the reason of their refusal.",
            ["reason"],
            registry=reg,
        )
        self.gangs_placed = Counter(
            "gangsched_gangs_placed_total",
            "Gangs that started: their minimum of pods is bound.",
            registry=reg,
        )
        self.gangs_broken = Counter(
            "gangsched_gangs_broken_total",
            "Gangs torn down because they failed to start or lost pods.",
            registry=reg,
        )
        self.plan_seconds = Histogram(
            "gangsched_plan_seconds",
            "Duration of one planning cycle, in seconds.",
            buckets=_PLAN_BUCKETS,
            registry=reg,
        )
        self.advice_seconds = Histogram(
            "gangsched_advice_seconds",
            "Duration of finding remedies for one refused gang, in seconds.",
            buckets=_PLAN_BUCKETS,
            registry=reg,
        )
        self.plans_stale = Gauge(
            "gangsched_plans_stale",
            "Placements dropped because the cluster changed while they were planned.",
            registry=reg,
        )
        self.bind_seconds = Histogram(
            "gangsched_bind_seconds",
            "Duration of one bind call until the API server answered, in seconds.",
            registry=reg,
        )
        self.gang_wait_seconds = Histogram(
            "gangsched_gang_wait_seconds",
            "Time from the creation of a gang until it started, in seconds.",
            buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400),
            registry=reg,
        )
        self.binds = Counter(
            "gangsched_binds_total",
            "Bind calls by result (bound, refused).",
            ["result"],
            registry=reg,
        )
        self.reserved_members = Gauge(
            "gangsched_reserved_members",
            "Members with an assigned node that are not bound yet.",
            registry=reg,
        )
        self._of_kubernetes()
        self._of_failures()
        self._of_queues()
        self.jobs = JobMetrics(reg, time.time)

    def _of_kubernetes(self) -> None:
        reg = self.registry
        self.evictions = Counter(
            "gangsched_evictions_total",
            "Pods deleted because their gang was preempted or torn down.",
            registry=reg,
        )
        self.malformed = Counter(
            "gangsched_malformed_objects_total",
            "Malformed objects that were skipped, by kind.",
            ["kind"],
            registry=reg,
        )
        self.watch_restarts = Gauge(
            "gangsched_watch_restarts",
            "Watches that were resumed or listed again, by kind.",
            ["kind"],
            registry=reg,
        )
        self.api_writes = Gauge(
            "gangsched_api_writes", "Writes sent to the Kubernetes API.", registry=reg
        )

    def _of_failures(self) -> None:
        reg = self.registry
        self.plan_failures = Counter(
            "gangsched_plan_failures_total",
            "Planning cycles that failed because of one gang, which is quarantined.",
            registry=reg,
        )
        self.late = Counter(
            "gangsched_deadlines_passed_total",
            "Computations stopped at their deadline, by work; their results are not used.",
            ["work"],
            registry=reg,
        )
        self.failures = Counter(
            "gangsched_failures_total",
            "Restarts of background tasks after an error, by task (advice, statuses, controllers).",
            ["work"],
            registry=reg,
        )
        self.job_kinds = Gauge(
            "gangsched_job_kinds",
            "1 for a kind of job that gangsched runs, 0 for one that another operator runs.",
            ["kind"],
            registry=reg,
        )

    def _of_queues(self) -> None:
        reg = self.registry
        queue = ["queue"]
        self.preemptions = Counter(
            "gangsched_preemptions_total",
            "Gangs preempted or drained, by their queue and the reason.",
            ["queue", "reason"],
            registry=reg,
        )
        self.evicted_gpu_seconds = Counter(
            "gangsched_evicted_gpu_seconds_total",
            "GPU-seconds of work lost to preemptions and drains, by queue.",
            queue,
            registry=reg,
        )
        self.preemption_loops = Counter(
            "gangsched_preemption_loops_total",
            "Pairs of gangs that preempted each other in turn; must stay at zero.",
            registry=reg,
        )
        self.quota_drift = Counter(
            "gangsched_quota_drift_total",
            "Corrections of queue usage made by the periodic audit, by queue.",
            queue,
            registry=reg,
        )
        self.forecast_seconds = Histogram(
            "gangsched_forecast_seconds",
            "Duration of one forecast of start times, in seconds.",
            buckets=_PLAN_BUCKETS,
            registry=reg,
        )
        self.start_error = Histogram(
            "gangsched_predicted_start_error_seconds",
            "Difference between the start of a gang and its first prediction, in seconds.",
            queue,
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400),
            registry=reg,
        )
        self.queue_wait = Histogram(
            "gangsched_queue_wait_seconds",
            "Time from the creation of a gang until it started, in seconds.",
            queue,
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400),
            registry=reg,
        )
        self.backfilled = Counter(
            "gangsched_backfilled_total",
            "Gangs that started while another gang had a backfill reservation, by queue.",
            queue,
            registry=reg,
        )
        self.queues = QueueCollector()
        reg.register(self.queues)

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP route that serves the metrics."""

        async def metrics(_: web.Request) -> web.Response:
            body = generate_latest(self.registry)
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

        return [web.get("/metrics", metrics)]
