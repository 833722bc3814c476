"""The metrics of jobs, experiments and trials, with a bounded number of series.

Users choose the names of queues and namespaces. A queue is named if it exists, and a namespace if
an administrator lists it or if it is among the first; all others share one label.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from gangsched.core.bounds import METRIC_NAMESPACES, METRIC_QUEUES

OTHER = "other"
"""The label of all queues and namespaces that are not named."""

_STATES = ("Suspended", "Waiting", "Starting", "Running", "Restarting")
_ENDS = ("Succeeded", "Failed")
_FAMILIES = {"Experiment": "experiments", "Trial": "trials"}
"""Kinds that create jobs: counted with those jobs, they would count twice."""

_FRAMEWORKS = {
    "PyTorchJob": "pytorch",
    "TFJob": "tensorflow",
    "XGBoostJob": "xgboost",
    "MPIJob": "mpi",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
}
"""The Training Operator's names of the kinds that it runs."""

_START_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400, 604_800)
_END_BUCKETS = (60, 300, 900, 3600, 14_400, 43_200, 86_400, 259_200, 604_800, 2_592_000)


@dataclass(frozen=True, slots=True)
class JobRef:
    """The kind of a job, the queue that it names, and its namespace."""

    kind: str
    queue: str
    namespace: str


class _LiveKey(NamedTuple):
    kind: str
    queue: str
    state: str


class LiveJobs:
    """The jobs that have not ended, for gauges that are built at each scrape."""

    def __init__(self, metrics: "JobMetrics", now_s: Callable[[], float]) -> None:
        self._metrics, self._now_s = metrics, now_s
        self._since: dict[_LiveKey, dict[str, float]] = {}
        self._keys: dict[str, _LiveKey] = {}

    def put(self, uid: str, job: JobRef, state: str, since_s: float) -> None:
        """Record the state of a job, and since when it has that state."""
        key = _LiveKey(job.kind, job.queue, state)
        known = self._keys.get(uid)
        if known is not None and known != key:
            self.remove(uid)
        self._keys[uid] = key
        self._since.setdefault(key, {})[uid] = since_s

    def remove(self, uid: str) -> None:
        """Forget a job that ended, or does not exist any more."""
        key = self._keys.pop(uid, None)
        if key is not None:
            jobs = self._since[key]
            del jobs[uid]
            if not jobs:
                del self._since[key]

    def clear(self) -> None:
        """Forget all jobs."""
        self._since.clear()
        self._keys.clear()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, as the registry asks."""
        counts = {
            _LiveKey(kind, queue, state): 0
            for kind, queue in self._metrics.pairs()
            for state in _STATES
        }
        oldest: dict[_LiveKey, float] = {}
        for key, jobs in self._since.items():
            shown = key._replace(queue=self._metrics.queue(key.kind, key.queue))
            counts[shown] = counts.get(shown, 0) + len(jobs)
            first_s = min(jobs.values())
            oldest[shown] = min(oldest.get(shown, first_s), first_s)
        texts = {
            "jobs": "Jobs that have not ended, by state (a Waiting job has a pending gang).",
            "experiments": "Experiments that have not ended, by state.",
            "trials": "Trials that have not ended, by state.",
        }
        for family, text in texts.items():
            labels = _labels(family)
            gauge = GaugeMetricFamily(f"gangsched_{family}", text, labels=[*labels, "state"])
            for key, count in counts.items():
                if _family(key.kind) == family:
                    gauge.add_metric([*_values(family, key.kind, key.queue), key.state], count)
            yield gauge
        ages = GaugeMetricFamily(
            "gangsched_jobs_oldest_seconds",
            "Seconds that the job with the longest time in its state has that state.",
            labels=["kind", "queue", "state"],
        )
        now_s = self._now_s()
        for key, since_s in oldest.items():
            if _family(key.kind) == "jobs":
                ages.add_metric(list(key), max(now_s - since_s, 0.0))
        yield ages


class _FamilyCounters:
    """The counters of jobs, of experiments, or of trials."""

    def __init__(self, name: str, registry: CollectorRegistry) -> None:
        self.name, labels = name, _labels(name)
        noun = name.capitalize()

        def counter(what: str, text: str, *more: str) -> Counter:
            names = [*labels, *more]
            return Counter(f"gangsched_{name}_{what}_total", text, names, registry=registry)

        self.created = counter("created", f"{noun} that were created.")
        self.ended = counter("ended", f"{noun} that ended, by outcome.", "outcome")
        self.deleted = counter("deleted", f"{noun} that were deleted before they ended.")
        self.restarted = counter("restarted", f"Restarts of {name}.")

    def open(self, values: tuple[str, ...]) -> None:
        """Export zeros: a counter that begins with 1 has no increase."""
        for counter in (self.created, self.deleted, self.restarted):
            counter.labels(*values)
        for outcome in _ENDS:
            self.ended.labels(*values, outcome)

    def counters(self) -> tuple[Counter, ...]:
        """Return all of them."""
        return self.created, self.ended, self.deleted, self.restarted


class JobMetrics:
    """Counts jobs; `queue_exists` says which queues are named.

    `namespaces` are those that the Training Operator's metrics name; None are the first with jobs.
    """

    def __init__(self, registry: CollectorRegistry, now_s: Callable[[], float]) -> None:
        self.queue_exists: Callable[[str], bool] = lambda _: False
        self.namespaces: Collection[str] | None = None
        self.find_job: Callable[[str], JobRef | None] = lambda _: None
        """Return the job of a gang, by the name of the gang."""

        self._pairs: set[tuple[str, str]] = set()
        self._named: set[str] = set()
        self._families = {
            name: _FamilyCounters(name, registry) for name in ("jobs", *_FAMILIES.values())
        }
        labels = ["kind", "queue"]
        self.preempted = Counter(
            "gangsched_jobs_preempted_total",
            "Preemptions and drains of gangs of jobs.",
            labels,
            registry=registry,
        )
        self.start_seconds = Histogram(
            "gangsched_job_start_seconds",
            "Time from the creation or the last resumption of a job until it ran, in seconds.",
            labels,
            buckets=_START_BUCKETS,
            registry=registry,
        )
        self.end_seconds = Histogram(
            "gangsched_job_end_seconds",
            "Time from the creation or the last resumption of a job until it ended, in seconds.",
            [*labels, "outcome"],
            buckets=_END_BUCKETS,
            registry=registry,
        )
        self.upstream = {
            what: Counter(
                f"training_operator_jobs_{what}_total",
                f"Counts number of jobs {what}, as the Training Operator does.",
                ["job_namespace", "framework"],
                registry=registry,
            )
            for what in ("created", "deleted", "successful", "failed", "restarted")
        }
        self.live = LiveJobs(self, now_s)
        registry.register(self.live)

    def counters(self) -> Iterator[Counter | Histogram]:
        """Yield every counter and histogram."""
        for family in self._families.values():
            yield from family.counters()
        yield from self._of_jobs()
        yield from self.upstream.values()

    # -- what happens to jobs -----------------------------------------------------------------

    def created(self, job: JobRef) -> None:
        """Count a job that was created."""
        family, values = self._of(job)
        family.created.labels(*values).inc()
        self._count_upstream("created", job)

    def started(self, job: JobRef, took_s: float) -> None:
        """Count a job that runs for the first time since it was created or resumed."""
        family, values = self._of(job)
        if family.name == "jobs":
            self.start_seconds.labels(*values).observe(max(took_s, 0.0))

    def ended(self, job: JobRef, outcome: str, took_s: float) -> None:
        """Count a job that ended."""
        family, values = self._of(job)
        family.ended.labels(*values, outcome).inc()
        if family.name == "jobs":
            self.end_seconds.labels(*values, outcome).observe(max(took_s, 0.0))
        if outcome in _ENDS:
            self._count_upstream("failed" if outcome == "Failed" else "successful", job)

    def restarted(self, job: JobRef) -> None:
        """Count a restart."""
        family, values = self._of(job)
        family.restarted.labels(*values).inc()
        self._count_upstream("restarted", job)

    def deleted(self, job: JobRef, *, ended: bool) -> None:
        """Count a job that was deleted, before or after its end."""
        family, values = self._of(job)
        if not ended:
            family.deleted.labels(*values).inc()
        self._count_upstream("deleted", job)

    def gang_preempted(self, gang: str) -> None:
        """Count the job of a preempted gang, if it is a job."""
        job = self.find_job(gang)
        if job is not None:
            _, values = self._of(job)
            self.preempted.labels(*values).inc()

    def _of_jobs(self) -> tuple[Counter | Histogram, ...]:
        """Return the metrics of jobs that experiments and trials do not have."""
        return self.preempted, self.start_seconds, self.end_seconds

    # -- labels -------------------------------------------------------------------------------

    def pairs(self) -> Collection[tuple[str, str]]:
        """Return the pairs of a kind and a queue that have series."""
        return self._pairs

    def queue(self, kind: str, queue: str) -> str:
        """Return the label of a queue for jobs of a kind."""
        name = queue if self.queue_exists(queue) else OTHER
        if (kind, name) not in self._pairs:
            if len(self._pairs) >= METRIC_QUEUES.most:
                name = OTHER
            self._pairs.add((kind, name))
            self._open(kind, name)
        return name

    def refresh(self) -> None:
        """Remove the series of queues that do not exist any more."""
        for kind, queue in [pair for pair in self._pairs if not self._exists(pair[1])]:
            self._pairs.remove((kind, queue))
            name = _family(kind)
            labels = dict(zip(_labels(name), _values(name, kind, queue), strict=True))
            counters = self._families[name].counters()
            for counter in (*counters, *(self._of_jobs() if name == "jobs" else ())):
                counter.remove_by_labels(labels)

    def _exists(self, queue: str) -> bool:
        return queue == OTHER or self.queue_exists(queue)

    def _open(self, kind: str, queue: str) -> None:
        family = self._families[_family(kind)]
        values = _values(family.name, kind, queue)
        family.open(values)
        if family.name == "jobs":
            self.preempted.labels(*values)
            self.start_seconds.labels(*values)
            for outcome in _ENDS:
                self.end_seconds.labels(*values, outcome)

    def _of(self, job: JobRef) -> tuple[_FamilyCounters, tuple[str, ...]]:
        """Return the counters of a job, and the values of its labels."""
        family = self._families[_family(job.kind)]
        return family, _values(family.name, job.kind, self.queue(job.kind, job.queue))

    def _count_upstream(self, what: str, job: JobRef) -> None:
        framework = _FRAMEWORKS.get(job.kind)
        if framework is None:
            return
        namespace = self._namespace(job.namespace)
        for counter in self.upstream.values():
            counter.labels(namespace, framework)
        self.upstream[what].labels(namespace, framework).inc()

    def _namespace(self, namespace: str) -> str:
        if self.namespaces is not None:
            return namespace if namespace in self.namespaces else OTHER
        if namespace not in self._named and len(self._named) >= METRIC_NAMESPACES.most:
            return OTHER
        self._named.add(namespace)
        return namespace


def _family(kind: str) -> str:
    return _FAMILIES.get(kind, "jobs")


def _labels(family: str) -> list[str]:
    return ["kind", "queue"] if family == "jobs" else ["queue"]


def _values(family: str, kind: str, queue: str) -> tuple[str, ...]:
    return (kind, queue) if family == "jobs" else (queue,)
