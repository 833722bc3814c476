"""Gangs that never start are not part of means, and improve no objective."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import yaml
from builders import node

from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine, Limits
from gangsched.recording.journal import RestoredEngine, write_facts
from simulator.experiments.notices import notices
from simulator.experiments.results import OBJECTIVES, run_figures, write
from simulator.experiments.run import run
from simulator.experiments.sweep import tasks, variants, work
from simulator.report import page
from simulator.scenarios.scenario import load

JOBS = """name,at_s,runtime_s,pods,gpus,queue
fine,0,600,1,8,a
holder,0,36000,2,8,b
late,1800,600,2,8,b
large,0,600,3,8,a
huge,0,600,5,8,default
"""
QUOTA = {"resource": "nvidia.com/gpu", "nominal": 16, "borrowingLimit": 0}
SCENARIO = {
    "version": "gangsched.io/simulation/v1",
    "name": "never",
    "cluster": {"nodes": [{"name": "node", "count": 4, "gpus": 8}]},
    "queues": [
        {"name": "all", "quotas": [{"resource": "nvidia.com/gpu", "nominal": 32}]},
        {"name": "a", "parent": "all", "quotas": [QUOTA]},
        {"name": "b", "parent": "all", "quotas": [QUOTA]},
    ],
    "workload": {"traces": [{"format": "gangsched", "path": "jobs.csv"}]},
    "horizon": "1h",
}
LARGE = "Queue a can use at most 16 nvidia.com/gpu, borrowed quota included; the gang needs 24."


@pytest.fixture
def path(tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    found = tmp_path / "never.yaml"
    found.write_text(yaml.safe_dump(SCENARIO))
    return found


def test_means_count_started_gangs_and_others_are_listed_by_reason(path, tmp_path):
    result = run(load(path), 0)
    found = run_figures(result)
    assert (found["jobs"], found["never_started"]) == (5, 3)
    assert (found["can_never_run"], found["still_waiting"]) == (2, 1)
    assert found["wait_mean_s"] == found["wait_p95_s"] == 0
    assert found["slowdown_mean"] == 1
    write(result, tmp_path / "out", {})
    rows = pq.read_table(tmp_path / "out" / "jobs.parquet").to_pylist()
    told = {row["name"]: (row["state"], row["why"], row["wait_s"], row["slowdown"]) for row in rows}
    assert told["fine"] == ("Finished", "", 0, 1)
    assert told["late"] == ("Waiting", "", None, None)
    assert told["large"] == ("CanNeverRun", LARGE, None, None)
    assert told["huge"][0] == "CanNeverRun"
    assert "4" in told["huge"][1]


def test_no_objective_is_better_because_gangs_never_start(path):
    never = run(load(path), 0)
    lent = run(load(path, ("queues.b.quotas.0.borrowingLimit=16",)), 0)
    assert never.outcomes[-1].started_s is None
    assert lent.outcomes[-1].started_s == 1800
    for name, (sign, value) in OBJECTIVES.items():
        if name != "jain":  # it tells how alike queues fare, not how well
            assert sign * value(lent) <= sign * value(never), name
    seen = {name: value(never) for name, (_, value) in OBJECTIVES.items()}
    assert seen["wait_mean_s"] == (1800 + 3600 + 3600) / 5
    assert seen["lost_gpu_h"] == (16 + 24 + 40) / 6


def test_what_can_never_run_is_said_before_the_run(path):
    large, huge = notices(variants(path, (), ()), None)
    assert large == f"large can never run (seed 0): {LARGE}"
    assert huge.startswith("huge can never run (seed 0): ")
    compared = variants(path, (), ("queues.a.quotas.0.borrowingLimit=0,16",))
    assert notices(compared, None)[0] == f"borrowingLimit=0: {large}"
    wrong = variants(path, ("queues.all.quotas.0.nominal=24",), ())
    assert notices(wrong, None)[0].startswith(
        "queue all: spec.quotas[nvidia.com/gpu].nominal: the queues below it add up to 32"
    )


def test_the_page_has_queues_and_jobs_that_never_ran(path, tmp_path):
    compare = ("queues.b.quotas.0.borrowingLimit=0,16",)
    listed = tasks(variants(path, (), compare), (0,), tmp_path / "out")
    assert len(list(work(listed, 1))) == 2
    runs = page.read(listed)
    text = page.render(runs)
    assert f"large can never run: {LARGE}" in text
    assert "late still pending when the simulation ended." in text
    keys = [column.key for column in page.QUEUE_COLUMNS]
    rows = {
        (row["queue"], row["variant"]): dict(zip(keys, row["cells"], strict=True))
        for row in page.by_queue(runs)
    }
    assert rows["b", "borrowingLimit=0"]["borrowed_gpu_h"] == "0"
    assert rows["b", "borrowingLimit=0"]["never_started"] == "1"
    assert [row["variant"] for row in page.by_queue(runs) if row["queue"] == ""] == [
        "borrowingLimit=16"
    ] * 4


def test_a_mean_of_fewer_gangs_is_not_coloured_as_better(path, tmp_path):
    (task,) = tasks(variants(path, (), ()), (0,), tmp_path / "out")
    figures_of = dict.fromkeys((column.key for column in page.COLUMNS), 0.0)
    first = page.StoredRun(
        "first", 0, figures_of | {"never_started": 0.0}, task.folder, {}, load(path)
    )
    outcomes = []
    for seed in range(3):
        more = {"wait_mean_s": 100.0 + seed, "never_started": 0.0}
        fewer = {"wait_mean_s": 10.0, "never_started": 5.0}
        outcomes.append(replace(first, seed=seed, figures=figures_of | more))
        outcomes.append(replace(first, variant="f", seed=seed, figures=figures_of | fewer))
        outcomes.append(
            replace(
                first, variant="g", seed=seed, figures=figures_of | fewer | {"never_started": 0.0}
            )
        )
    at = [column.key for column in page.COLUMNS].index("wait_mean_s")
    _, few, good = page.variant_rows(page.ReportRuns(tuple(outcomes)))
    assert few["cells"][at]["class"] == ""
    assert "of fewer jobs" in few["cells"][at]["range"]
    assert good["cells"][at]["class"] == "better"


def test_a_snapshot_without_gangs_is_an_error(path):
    idle = RestoredEngine(Engine(Limits()), 0.0, [f.NodeSeen(node("n0"))])
    write_facts(path.parent / "now.jsonl.gz", idle)
    scenario = load(path, ("cluster={snapshot: now.jsonl.gz}", "workload={}", "queues=[]"))
    with pytest.raises(
        ConfigError, match=r"no jobs: now\.jsonl\.gz has no running or pending gangs"
    ):
        run(scenario, 0)
