"""Every metric in one place, injected where it is fed; served on /metrics by `serve`."""

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_PLAN_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        reg = self.registry
        self.gangs = Gauge(
            "gangsched_gangs", "Gangs by state of the engine.", ["state"], registry=reg
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

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes that serve them."""

        async def metrics(_: web.Request) -> web.Response:
            body = generate_latest(self.registry)
            return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

        return [web.get("/metrics", metrics)]
