"""The metrics of dashboards and alerts: names, types, labels, help, and displayed values."""

import re

from golden import agrees
from histories import history
from prometheus_client.exposition import generate_latest

from gangsched.job_metrics import JobMetrics, JobRef
from gangsched.kube.status.gauges import refresh
from gangsched.metrics import Metrics

WORK = {
    "result": "bound",
    "kind": "PyTorchJob",
    "work": "planning",
    "queue": "org",
    "reason": "Reclaim",
}


def fed() -> Metrics:
    """Return the metrics of a process after a history, each with a value."""
    found = Metrics()
    for counter in (found.gangs_placed, found.gangs_broken, found.plan_failures, found.evictions):
        counter.inc()
    for counter in (found.preemption_loops,):
        counter.inc()
    found.leader.set(1)
    found.api_writes.set(3)
    found.binds.labels(WORK["result"]).inc()
    found.malformed.labels("Pod").inc()
    found.watch_restarts.labels("pods").set(2)
    found.late.labels(WORK["work"]).inc()
    found.failures.labels(WORK["work"]).inc()
    found.job_kinds.labels(WORK["kind"]).set(1)
    found.preemptions.labels(WORK["queue"], WORK["reason"]).inc()
    found.evicted_gpu_seconds.labels(WORK["queue"]).inc(2.5)
    found.quota_drift.labels(WORK["queue"]).inc()
    found.backfilled.labels(WORK["queue"]).inc()
    for plain in (found.plan_seconds, found.advice_seconds, found.bind_seconds):
        plain.observe(0.03)
    found.forecast_seconds.observe(0.3)
    found.gang_wait_seconds.observe(70.0)
    found.start_error.labels(WORK["queue"]).observe(70.0)
    found.queue_wait.labels(WORK["queue"]).observe(70.0)
    count_jobs(found.jobs)
    refresh(found, history("simple").engine.view)
    return found


def count_jobs(jobs: JobMetrics) -> None:
    """Have one job of each family come to an end, and one live."""
    jobs.queue_exists = WORK["queue"].__eq__
    jobs.find_job = lambda _: JobRef(WORK["kind"], WORK["queue"], "team")
    jobs.gang_preempted("team/train")
    for kind in (WORK["kind"], "Experiment", "Trial"):
        job = JobRef(kind, WORK["queue"], "team")
        jobs.created(job)
        jobs.started(job, 70.0)
        jobs.restarted(job)
        jobs.ended(job, "Succeeded", 3700.0)
        jobs.deleted(job, ended=False)
        jobs.live.put(kind, job, "Running", 1_000.0)
    jobs.live._now_s = lambda: 1_060.0


def test_what_prometheus_scrapes_is_the_same_again():
    text = generate_latest(fed().registry).decode()
    lines = [line for line in text.splitlines() if not re.search(r"_created[ {]", line)]
    agrees("metrics.txt", "\n".join(lines) + "\n")


def test_every_metric_has_a_value():
    """A metric that nothing feeds here would show no labels in the golden file."""
    empty = [one.name for one in fed().registry.collect() if not one.samples]
    assert empty == []
