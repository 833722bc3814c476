"""Pending, backfilled, ended and preempted gangs in a real Prometheus.

Nothing here goes by a clock. Every job says that it runs for longer than the tests do, and ends
when it is told to; each step comes once the one before it, and what Prometheus has of it, is seen.
So every panel of the dashboards must show something, however slow the machine is.
"""

import json
import math
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from conftest import a_plane
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
        live_through(cluster)
        yield cluster


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


def end(cluster, name: str) -> None:
    """Have a gang end that runs."""
    for pod in cluster.bound(cluster.namespace, f"{name}-"):
        cluster.core.patch_namespaced_pod_status(
            pod, cluster.namespace, {"status": {"phase": DONE}}
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
        return finished and 'gangsched_gangs{state="Placed"} 0.0' in figures

    ended = ("v-base", "v-small", "s-large", "s-boss")
    assert {phase for name in ended for phase in phases(day, name)} == {DONE}
    day.wait(counted, "the four gangs that ended to be counted, and nobody else")


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
    assert not [rule["name"] for rule in rules() if rule.get("state") == "firing"]


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
