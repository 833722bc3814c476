"""Every metric in one place, injected where it is fed; served on /metrics by `serve`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_PLAN_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


@dataclass(slots=True)
class QueueFigures:
    """What is shown of one queue."""

    pending: int = 0
    admitted: int = 0
    share: float = 0.0
    decayed: float = 0.0
    nominal: dict[tuple[str, str], float] = field(default_factory=dict)
    used: dict[tuple[str, str], float] = field(default_factory=dict)
    borrowed: dict[tuple[str, str], float] = field(default_factory=dict)


class QueueCollector:
    """Gauges of queues, made anew at each scrape: a deleted queue leaves nothing behind."""

    def __init__(self) -> None:
        self.figures: dict[str, QueueFigures] = {}
        self.gpus: dict[str, float] = {}
        self.fragmentation: float | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, as the registry asks."""
        plain = {
            "pending": "Gangs that wait in the queue and below.",
            "admitted": "Gangs of the queue and below that have their room.",
            "share": "Dominant share of the cluster over the queue's weight.",
            "decayed": "GPU-seconds of the past at their present weight.",
        }
        for name, help_text in plain.items():
            gauge = GaugeMetricFamily(f"gangsched_queue_{name}", help_text, labels=["queue"])
            for queue, figures in self.figures.items():
                gauge.add_metric([queue], getattr(figures, name))
            yield gauge
        by_resource = {
            "nominal": "What the queue is guaranteed.",
            "used": "What the queue holds.",
            "borrowed": "What the queue holds beyond its guarantee.",
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
            "GPUs of healthy nodes: all of them, and those in use.",
            labels=["state"],
        )
        for state, count in self.gpus.items():
            gpus.add_metric([state], count)
        yield gpus
        if self.fragmentation is not None:
            yield GaugeMetricFamily(
                "gangsched_gpu_fragmentation_ratio",
                "Free GPUs on nodes that are partly used, of all free GPUs.",
                value=self.fragmentation,
            )


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        reg = self.registry
        self.leader = Gauge("gangsched_leader", "1 where this process leads.", registry=reg)
        self.gangs = Gauge(
            "gangsched_gangs",
            "Gangs by state of the engine; those whose work is done are Finished.",
            ["state"],
            registry=reg,
        )
        self.gangs_refused = Gauge(
            "gangsched_gangs_refused", "Waiting gangs by reason.", ["reason"], registry=reg
        )
        self.gangs_placed = Counter(
            "gangsched_gangs_placed_total", "Gangs bound whole.", registry=reg
        )
        self.gangs_broken = Counter(
            "gangsched_gangs_broken_total", "Gangs stopped as a whole.", registry=reg
        )
        self.plan_seconds = Histogram(
            "gangsched_plan_seconds",
            "Time of one planning cycle.",
            buckets=_PLAN_BUCKETS,
            registry=reg,
        )
        self.advice_seconds = Histogram(
            "gangsched_advice_seconds",
            "Time to find what would help one refused gang.",
            buckets=_PLAN_BUCKETS,
            registry=reg,
        )
        self.plans_stale = Gauge(
            "gangsched_plans_stale", "Placements dropped by the second check.", registry=reg
        )
        self.bind_seconds = Histogram(
            "gangsched_bind_seconds", "Time of one binding until the API answered.", registry=reg
        )
        self.gang_wait_seconds = Histogram(
            "gangsched_gang_wait_seconds",
            "Time from a gang's creation until it was bound whole.",
            buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400),
            registry=reg,
        )
        self.binds = Counter(
            "gangsched_binds_total", "Bindings by result.", ["result"], registry=reg
        )
        self.reserved_members = Gauge(
            "gangsched_reserved_members", "Members reserved and not yet bound.", registry=reg
        )
        self.evictions = Counter(
            "gangsched_evictions_total", "Pods deleted because their gang broke.", registry=reg
        )
        self.malformed = Counter(
            "gangsched_malformed_objects_total", "Objects skipped, by kind.", ["kind"], registry=reg
        )
        self.watch_restarts = Gauge(
            "gangsched_watch_restarts",
            "Times a watch was resumed or listed again.",
            ["kind"],
            registry=reg,
        )
        self.api_writes = Gauge(
            "gangsched_api_writes", "Writes sent to the Kubernetes API.", registry=reg
        )
        self._of_failures()
        self._of_queues()

    def _of_failures(self) -> None:
        reg = self.registry
        self.plan_failures = Counter(
            "gangsched_plan_failures_total",
            "Plans that could not be made because of one gang, which is set aside.",
            registry=reg,
        )
        self.late = Counter(
            "gangsched_deadlines_passed_total",
            "Computations stopped because they took too long; none of it was believed.",
            ["work"],
            registry=reg,
        )
        self.failures = Counter(
            "gangsched_failures_total",
            "Failures of work beside scheduling (advice, statuses, job controllers), begun anew.",
            ["work"],
            registry=reg,
        )
        self.job_kinds = Gauge(
            "gangsched_job_kinds",
            "1 for a kind of job that is run here, 0 for one that is left to others.",
            ["kind"],
            registry=reg,
        )

    def _of_queues(self) -> None:
        reg = self.registry
        queue = ["queue"]
        self.preemptions = Counter(
            "gangsched_preemptions_total",
            "Gangs stopped for others or drained, by their queue and the ground.",
            ["queue", "reason"],
            registry=reg,
        )
        self.evicted_gpu_seconds = Counter(
            "gangsched_evicted_gpu_seconds_total",
            "GPU-seconds of work lost to preemption.",
            queue,
            registry=reg,
        )
        self.preemption_loops = Counter(
            "gangsched_preemption_loops_total",
            "Gangs that stopped each other in turn; must stay at zero.",
            registry=reg,
        )
        self.quota_drift = Counter(
            "gangsched_quota_drift_total",
            "Differences found, and healed, between what is charged and what runs.",
            queue,
            registry=reg,
        )
        self.forecast_seconds = Histogram(
            "gangsched_forecast_seconds",
            "Time of one forecast of start times.",
            buckets=_PLAN_BUCKETS,
            registry=reg,
        )
        self.start_error = Histogram(
            "gangsched_predicted_start_error_seconds",
            "Difference of the real start from the first prediction.",
            queue,
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400),
            registry=reg,
        )
        self.queue_wait = Histogram(
            "gangsched_queue_wait_seconds",
            "Time from a gang's creation until it was bound whole.",
            queue,
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400),
            registry=reg,
        )
        self.backfilled = Counter(
            "gangsched_backfilled_total",
            "Gangs that started while room was kept for one before them.",
            queue,
            registry=reg,
        )
        self.queues = QueueCollector()
        reg.register(self.queues)

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes that serve them."""

        async def metrics(_: web.Request) -> web.Response:
            body = generate_latest(self.registry)
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

        return [web.get("/metrics", metrics)]
