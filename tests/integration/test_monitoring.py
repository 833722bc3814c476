"""Pending, backfilled, ended and preempted gangs in a real Prometheus.

Nothing here goes by a clock. Every job says that it runs for longer than the tests do, and ends
when it is told to; each step comes once the one before it, and what Prometheus has of it, is seen.
So every panel of the dashboards must show something, however slow the machine is.
"""

import contextlib
import json
import math
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from conftest import a_plane
from pages import Shell
from test_predictions import NODES, SETTINGS, declare
from waiting import patience_s

from gangsched.local import components
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions

DONE = "Succeeded"
ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "manifests" / "monitoring" / "dashboards"
LONG_S = 1_000_000
SHORT_S = 100_000
"""What jobs say that they run for: even the shorter is longer than any test."""

ENDS = "gangsched_job_end_seconds_count"
JOBS = {"holds": "holds", "never": "never"}
"""Names of jobs that live until the end of the day: one runs, and one never fits."""

EXPERIMENT = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: search, labels: {gangsched.io/queue-name: vision}}
spec:
  maxTrialCount: 1
  parallelTrialCount: 1
  objective: {type: maximize, objectiveMetricName: accuracy}
  algorithm: {algorithmName: random}
  parameters:
  - {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "0.2"}}
  trialTemplate:
    trialParameters: [{name: lr, reference: lr}]
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: main
              image: none
              args: ["${trialParameters.lr}"]
              resources: {limits: {nvidia.com/gpu: 16}}
"""


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """The cluster after a day in which everything happened that a panel shows."""
    config = tmp_path_factory.mktemp("day") / "config.yaml"
    config.write_text(SETTINGS)
    flags = (("gangsched", f"--config {config}"),)
    options = PlaneOptions(binding="direct", flags=flags, monitoring=True)
    with a_plane("test-day", NodeFile(nodes=(NODES,)), options) as plane:
        cluster = Cluster(plane, "direct")
        cluster.namespace = cluster.new_namespace()
        declare(cluster)
        with exporter(cluster):
            live_through(cluster)
            live_through_jobs(cluster)
            yield cluster


@contextlib.contextmanager
def exporter(cluster) -> Iterator[None]:
    """Serve what NVIDIA's DCGM exporter says of two GPUs, one of them idle."""
    space = cluster.namespace
    # As scraped without honorLabels: namespace and pod are those of the exporter.
    pods = {
        f'namespace="gpu-operator",pod="dcgm-1",exported_namespace="{space}",'
        f'exported_pod="{JOBS["holds"]}-worker-0"': 0,
        f'namespace="{space}",pod="{JOBS["never"]}-worker-0"': 0,
        'namespace="gpu-operator",pod="dcgm-1"': 0,
    }
    text = "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{Hostname="k-0",gpu="{number}",{pod}}} {percent}\n'
        for number, (pod, percent) in enumerate(pods.items())
    )

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        target = [{"targets": [f"127.0.0.1:{server.server_port}"]}]
        (cluster.plane.folder / "targets" / "dcgm.json").write_text(json.dumps(target))
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def train(cluster, name: str, pods: int = 1, restarts: str = "Never") -> None:
    """Create a job of whole nodes in the queue vision."""
    limits = {"nvidia.com/gpu": 8}
    container = {"name": "pytorch", "image": "none", "resources": {"limits": limits}}
    role = {
        "replicas": pods,
        "restartPolicy": restarts,
        "template": {"spec": {"containers": [container]}},
    }
    spec = {"pytorchReplicaSpecs": {"Worker": role}, "runPolicy": {"cleanPodPolicy": "All"}}
    labels = {"gangsched.io/queue-name": "vision"}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    cluster.create_job(
        cluster.namespace, kind | {"metadata": {"name": name, "labels": labels}, "spec": spec}
    )


def live_through_jobs(cluster) -> None:
    """Have jobs succeed, fail, restart, wait and be deleted, and an experiment run."""
    is_true = partial(cluster.is_true, cluster.namespace)
    for name, phase, condition in (
        ("first", DONE, "Succeeded"),
        ("second", DONE, "Succeeded"),
        ("third", "Failed", "Failed"),
    ):
        train(cluster, name)
        cluster.wait(lambda name=name: is_true(name, "Running"), f"{name} to run")
        end(cluster, f"{name}-worker-", phase)
        cluster.wait(lambda name=name, c=condition: is_true(name, c), f"{name}: {condition}")
        cluster.wait(
            lambda: ask(cluster, f"sum({ENDS})") == [figure(cluster, ENDS)],
            f"Prometheus to have the end of {name}",
        )
    train(cluster, JOBS["holds"], restarts="OnFailure")
    cluster.wait(lambda: is_true(JOBS["holds"], "Running"), "it to run")
    end(cluster, f"{JOBS['holds']}-worker-", "Failed")
    cluster.wait(lambda: figure(cluster, "gangsched_jobs_restarted_total") == 1, "a restart")
    cluster.wait(lambda: is_true(JOBS["holds"], "Running"), "it to run again")
    train(cluster, JOBS["never"], pods=5)
    train(cluster, "deleted", pods=5)
    cluster.wait(lambda: is_true("deleted", "Created"), "the last one")
    cluster.kubectl("delete", "-n", cluster.namespace, "pytorchjob", "deleted")
    cluster.apply(cluster.namespace, EXPERIMENT)
    trial = 'gangsched_trials{queue="vision",state="Running"} 1.0'
    cluster.wait(lambda: trial in cluster.metrics(), "a trial to run")
    cluster.wait(lambda: figure(cluster, "gangsched_jobs_deleted_total") == 1, "the deletion")


def live_through(cluster) -> None:
    """Have one thing happen after the other."""
    # It never fits: a reason is shown as long as the day lasts.
    submit(cluster, "v-never", 5, "vision", SHORT_S)
    submit(cluster, "v-base", 2, "vision", LONG_S)
    runs(cluster, "v-base", 2)
    # A large one is promised three nodes; one that ends before goes round it.
    submit(cluster, "s-large", 3, "speech", SHORT_S)
    told_a_start(cluster, "s-large")
    submit(cluster, "v-small", 1, "vision", SHORT_S)
    runs(cluster, "v-small", 1)
    end(cluster, "v-base")
    runs(cluster, "s-large", 3)
    # A histogram shows nothing of a queue before its second start: not both between two scrapes.
    for name in ("queue_wait", "predicted_start_error"):
        query = f'gangsched_{name}_seconds_count{{queue="speech"}}'
        cluster.wait(lambda query=query: ask(cluster, query), f"Prometheus to have {query}")
    submit(cluster, "s-next", 2, "speech", SHORT_S)
    told_a_start(cluster, "s-next")
    end(cluster, "s-large")
    runs(cluster, "s-next", 2)
    end(cluster, "v-small")
    # The boss needs more than is free, and nobody makes the pods of the other anew.
    submit(cluster, "s-boss", 3, "speech", SHORT_S, priorityClassName="boss")
    runs(cluster, "s-boss", 3)
    cluster.wait(lambda: not phases(cluster, "s-next"), "s-next to be gone")
    end(cluster, "s-boss")


def submit(cluster, name: str, pods: int, queue: str, word_s: int, **pod) -> None:
    """Create a gang of whole nodes that says how long it runs."""
    group = {"queue": queue, "expectedRuntimeSeconds": word_s}
    cluster.gang(cluster.namespace, name, pods, group=group, **pod)


def phases(cluster, name: str) -> list[str]:
    """Return the phases of a gang's pods."""
    pods = cluster.core.list_namespaced_pod(cluster.namespace).items
    return [pod.status.phase for pod in pods if pod.metadata.name.startswith(f"{name}-")]


def runs(cluster, name: str, pods: int) -> None:
    """Wait until KWOK says that a gang runs: it does so once, and would say it of an ended pod."""
    cluster.wait(lambda: phases(cluster, name) == ["Running"] * pods, f"{name} to run")


def told_a_start(cluster, name: str) -> None:
    def told() -> str:
        status = cluster.group_status(cluster.namespace, name)
        return (status.get("start") or {}).get("expected") or ""

    cluster.wait(told, f"{name} to be told when it starts")


def end(cluster, name: str, phase: str = DONE) -> None:
    """Have a gang end that runs."""
    for pod in cluster.bound(cluster.namespace, f"{name}-" if name[-1] != "-" else name):
        cluster.core.patch_namespaced_pod_status(
            pod, cluster.namespace, {"status": {"phase": phase}}
        )


def figure(cluster, name: str) -> float:
    """Return the sum of a figure over its labels, as gangsched tells it now."""
    lines = [
        line for line in cluster.metrics().splitlines() if line.startswith((name, f"{name}{{"))
    ]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_a_gang_was_preempted_and_a_gang_backfilled(day):
    assert figure(day, "gangsched_backfilled_total") == 1
    assert figure(day, "gangsched_preemptions_total") == 1
    assert "gangsched_preemption_loops_total 0.0" in day.metrics()


def test_what_has_ended_does_not_run(day):
    """Bare pods stay when they have ended; their gangs are no longer among those that run."""

    def counted() -> bool:
        figures = day.metrics()
        finished = 'gangsched_gangs{state="Finished"} 4.0' in figures
        return finished and 'gangsched_gangs{state="Placed"} 1.0' in figures

    ended = ("v-base", "v-small", "s-large", "s-boss")
    assert {phase for name in ended for phase in phases(day, name)} == {DONE}
    day.wait(counted, "the four gangs that ended to be counted, and the job that runs")


def test_each_job_is_counted_by_its_outcome(day):
    """Three of them ended, one was restarted, and one deleted while it waited."""
    text = day.metrics()
    vision = 'kind="PyTorchJob",queue="vision"'
    ended = 'kind="PyTorchJob",outcome="{}",queue="vision"'
    for series, count in {
        f"gangsched_jobs_created_total{{{vision}}}": 6,
        f"gangsched_jobs_restarted_total{{{vision}}}": 1,
        f"gangsched_jobs_deleted_total{{{vision}}}": 1,
        f"gangsched_jobs_ended_total{{{ended.format('Succeeded')}}}": 2,
        f"gangsched_jobs_ended_total{{{ended.format('Failed')}}}": 1,
        f"gangsched_job_start_seconds_count{{{vision}}}": 4,
        f'gangsched_jobs{{{vision},state="Running"}}': 1,
        f'gangsched_jobs{{{vision},state="Waiting"}}': 1,
    }.items():
        assert f"{series} {count}.0" in text, series
    labels = f'framework="pytorch",job_namespace="{day.namespace}"'
    for what, count in {"created": 6, "successful": 2, "failed": 1, "restarted": 1}.items():
        assert f"training_operator_jobs_{what}_total{{{labels}}} {count}.0" in text, what


def test_an_idle_gpu_is_that_of_the_queue_of_its_pod(day):
    """Of the three GPUs that idle, one has a pod that is bound."""
    query = 'gangsched:queue_gpus_idle:count{queue="vision"}'
    day.wait(lambda: ask(day, query) == [1.0], "the idle GPU to be counted")
    assert ask(day, "count(gangsched:gpu_util:ratio)") == [1.0]
    space = f'gang_namespace="{day.namespace}"'
    labels = f'gang="{JOBS["holds"]}",{space},member="{JOBS["holds"]}-worker-0",queue="vision"'
    assert f"gangsched_pod_gpus{{{labels}}} 8.0" in day.metrics()


def panels() -> list[tuple[str, str, str]]:
    """Return board, title and query of every panel."""
    found = []
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            found += [
                (path.stem, panel["title"], target["expr"]) for target in panel.get("targets", [])
            ]
    return found


@pytest.mark.parametrize(("board", "title", "query"), panels())
def test_every_panel_shows_something(day, board, title, query):
    """Rates are over an hour: the whole day, however long it took."""
    query = query.replace("$queue", ".*").replace("$__rate_interval", "1h")
    day.wait(
        lambda: any(not math.isnan(value) for value in ask(day, query)),
        f"the panel {title} of {board} to show something: {query}",
    )


def test_the_rules_are_evaluated(day):
    def rules() -> list[dict]:
        address = day.plane.info()["prometheus"] + "/api/v1/rules"
        with urllib.request.urlopen(address, timeout=patience_s(10)) as answer:
            return [r for g in json.load(answer)["data"]["groups"] for r in g["rules"]]

    day.wait(lambda: {r["health"] for r in rules()} == {"ok"}, "every rule to be evaluated")
    firing = {"GangschedJobFailed"}
    day.wait(
        lambda: {r["name"] for r in rules() if r.get("state") == "firing"} == firing,
        "the alert on the failed job, and no other",
    )


def test_the_page_asks_what_prometheus_has(day, tmp_path):
    """Every query of watching.md has an answer about the queue vision."""
    idle = 'gangsched:queue_gpus_idle:count{queue="vision"} > 0'
    day.wait(lambda: ask(day, idle), "the rules to be evaluated")
    shell = Shell(tmp_path)
    shell.environment["PROMETHEUS"] = day.plane.info()["prometheus"]
    said = shell.walk("docs/jobs/watching.md")
    asked = [line for line in said if line.startswith("curl ")]
    assert asked
    for line in asked:
        answer = json.loads(said[line])
        assert answer["status"] == "success", line
        assert "vision" in {one["metric"]["queue"] for one in answer["data"]["result"]}, line


def test_a_restart_counts_no_job_again(day):
    """The last test of the day: the gauges are as before, and the counters begin with nothing."""
    day.restart("gangsched", hard=True)
    vision = 'kind="PyTorchJob",queue="vision"'
    states = {"Running": 1, "Waiting": 1, "Starting": 0}

    def shown() -> bool:
        text = day.metrics()
        return all(
            f'gangsched_jobs{{{vision},state="{state}"}} {count}.0' in text
            for state, count in states.items()
        )

    day.wait(shown, "the jobs that live to be shown again")
    end(day, JOBS["holds"])
    succeeded = 'gangsched_jobs_ended_total{kind="PyTorchJob",outcome="Succeeded",queue="vision"}'
    day.wait(lambda: f"{succeeded} 1.0" in day.metrics(), "its end to be counted")
    for what in ("created", "restarted", "deleted"):
        assert f"gangsched_jobs_{what}_total{{{vision}}} 0.0" in day.metrics(), what
    assert figure(day, "training_operator_jobs_created_total") == 0


def ask(cluster, query: str) -> list[float]:
    """Return the values Prometheus gives for a query now."""
    address = cluster.plane.info()["prometheus"]
    arguments = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(
        f"{address}/api/v1/query?{arguments}", timeout=patience_s(10)
    ) as answer:
        result = json.load(answer)["data"]["result"]
    return [float(one["value"][1]) for one in result]


def test_alerts_by_promtool(tmp_path):
    """Unit tests of the rules, with Prometheus's own tool."""
    promtool = components.ensure(lambda _: None, components.MONITORING) / "promtool"
    document = yaml.safe_load((ROOT / "manifests" / "monitoring" / "rules.yaml").read_text())
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(document["spec"]))
    shutil.copy(Path(__file__).parent / "alerts.yaml", tmp_path)
    done = subprocess.run(
        [promtool, "test", "rules", "alerts.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
