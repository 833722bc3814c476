"""`gangsched simulate`: its files, repeatability, and interrupted runs."""

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from pages import Shell
from waiting import patience_s

from gangsched.cli import main
from simulator.experiments.results import run_figures
from simulator.experiments.run import run
from simulator.experiments.sweep import tasks, variants, work
from simulator.scenarios.scenario import load, parse

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulations"
JOBS = 40
SMALL = {
    "version": "gangsched.io/simulation/v1",
    "name": "small",
    "cluster": {"nodes": [{"name": "node", "count": 4, "gpus": 8, "rack_size": 2}]},
    "queues": {"guarantee": "average"},
    "workload": {
        "generators": [
            {
                "jobs": JOBS, "every": "2m", "runtime": "20m", "longest": "3h",
                "pods": {1: 2, 2: 1}, "gpus": {2: 1, 8: 1}, "queues": {"a": 2, "b": 1},
            }
        ],
        "checkpoint": "10m",
    },
}  # fmt: skip


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"COLUMNS": "80"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(100),
    )


@pytest.fixture
def gangsched(monkeypatch, capfd):
    """Return the command, run in this process: its exit code and what it said."""
    monkeypatch.setenv("COLUMNS", "80")

    def run_it(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gangsched", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.main()
        said = capfd.readouterr()
        return ended.value.code, said.out, said.err

    return run_it


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "small.yaml"
    found.write_text(yaml.safe_dump(SMALL))
    return found


def test_a_comparison_is_written_and_resumed(path, tmp_path, gangsched):
    out = tmp_path / "out"
    words = ("simulate", str(path), "--compare", "order=fifo,shortest", "--seeds", "2")
    code, said, error = gangsched(*words, "--out", str(out))
    assert code == 0, error
    assert all(len(line) <= 80 for line in said.splitlines() if "report" not in line)
    assert "order=shortest" in said
    page = (out / "report.html").read_text()
    assert "paired by seed" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)  # it opens without a network
    runs = sorted(out.glob("*/*/run.json"))
    assert len(runs) == 4
    table = pq.read_table(runs[0].parent / "jobs.parquet")
    assert table.num_rows == JOBS
    assert pq.read_table(runs[0].parent / "samples.parquet").num_rows > 10
    # One run is lost half-way: only that one is done again.
    before = [one.stat().st_mtime_ns for one in runs]
    runs[1].unlink()
    code, said, _ = gangsched(*words, "--out", str(out), "-o", "json")
    assert code == 0
    told = json.loads(said)
    assert told["report"] == str(out / "report.html")
    assert [one["variant"] for one in told["variants"]] == ["order=fifo", "order=shortest"]
    assert {one["seeds"] for one in told["variants"]} == {2}
    assert all(one["figures"]["finished"] == JOBS for one in told["variants"])
    after = [one.stat().st_mtime_ns for one in runs]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True, True]


def test_the_same_seed_is_the_same_run_whatever_the_hash_seed(path, tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from simulator.experiments.sweep import tasks, variants, work\n"
        "path, out = map(Path, sys.argv[1:])\n"
        "list(work(tasks(variants(path, (), ()), (0,), out), 1))\n"
    )
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = python("-c", program, str(path), str(tmp_path / "other"), PYTHONHASHSEED=other)
    assert done.returncode == 0, done.stderr
    list(work(tasks(variants(path, (), ()), (0,), tmp_path / "here"), 1))
    there, here = (
        pq.read_table(tmp_path / out / "small" / "seed-0" / "jobs.parquet")
        for out in ("other", "here")
    )
    assert there.equals(here)


def test_another_scenario_is_not_taken_for_a_finished_one(path, tmp_path):
    listed = tasks(variants(path, (), ()), None, tmp_path / "out")
    assert [task.done() for task in work(listed, 1)] == [True]
    changed = tasks(variants(path, ("workload.checkpoint=5m",), ()), None, tmp_path / "out")
    assert not changed[0].done()


def test_a_trace_exported_again_is_another_scenario(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("name,at_s,runtime_s\na,0,10\n")
    own = SMALL | {"workload": {"traces": [{"format": "gangsched", "path": "jobs.csv"}]}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    listed = tasks(variants(tmp_path / "own.yaml", (), ()), None, tmp_path / "out")
    assert [task.done() for task in work(listed, 1)] == [True]
    trace.write_text("name,at_s,runtime_s\na,0,20\n")
    assert not listed[0].done()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--compare", "order=fifo,shortst"), "no policy 'shortst'"),
        (("--compare", "order"), "must be FIELD=A,B"),
        (("--set", "workload.traces=[{format: swf, path: none.swf}]"), "none.swf: No such file"),
        (("--set", "queues=[{name: c}]"), "names queue 'a'; the queues are: c, default"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(words, said, path, tmp_path, gangsched):
    code, _, error = gangsched("simulate", str(path), "--out", str(tmp_path / "out"), *words)
    assert code == 2
    assert said in error
    assert "Traceback" not in error


def test_figures_follow_from_the_jobs(tmp_path):
    result = run(parse(SMALL, "test", tmp_path), 3)
    found = run_figures(result)
    assert found["finished"] == JOBS
    assert found["never_started"] == 0
    ran_s = sum((end - start) * f.job.all_gpus() for f in result.outcomes for start, end in f.runs)
    left_s = sum(f.stopped * f.job.grace_s * f.job.all_gpus() for f in result.outcomes)
    whole = found["gpus"] * result.end_s
    assert found["gpu_busy_all"] == pytest.approx((ran_s + left_s) / whole)
    assert found["wait_mean_s"] == pytest.approx(sum(f.wait_s or 0 for f in result.outcomes) / JOBS)
    assert 0 < found["jain"] <= 1
    held = [sum(used for used in picture if used > 0) for _, picture in result.pictures]
    assert max(held) <= 32


def test_work_lost_with_nodes_is_done_again(tmp_path):
    broken = SMALL | {"faults": {"node_mtbf": "4h", "node_repair": "10m", "rack_mtbf": "8h"}}
    result = run(parse(broken, "test", tmp_path), 0)
    found = run_figures(result)
    assert found["finished"] == JOBS
    assert found["stopped"] > found["preempted"]
    assert found["lost_gpu_h"] > 0
    for outcome in result.outcomes:
        ran_s = sum(end - start for start, end in outcome.runs)
        assert ran_s >= outcome.job.runtime_s - 1e-6


def test_a_horizon_cuts_the_run(tmp_path):
    result = run(parse(SMALL | {"horizon": "30m"}, "test", tmp_path), 0)
    found = run_figures(result)
    assert result.end_s == 1800
    assert found["jobs"] < JOBS
    assert found["running"] > 0


@pytest.mark.parametrize("name", sorted(one.stem for one in EXAMPLES.glob("*.yaml")))
def test_the_shipped_scenarios_run(name):
    scenario = load(EXAMPLES / f"{name}.yaml", ("horizon=6h",))
    assert run_figures(run(scenario, 0))["jobs"] > 10


def test_the_guide_of_the_page_works(tmp_path):
    """The commands of docs/simulator.md, on the output of sacct that it asks for."""
    reader = Shell(tmp_path)
    said = reader.walk(
        "docs/simulator.md",
        "The simulator",
        "Choose a policy from your own accounting",
        "Which pools do I need?",
        "Fault injection",
        "Many runs, and better settings",
    )
    assert (tmp_path / "jobs.txt").read_text().startswith("JobID|JobName|User|")
    done = tmp_path / "build" / "simulations" / "my-cluster" / "backfill=easy"
    document = json.loads((done / "seed-0" / "run.json").read_text())
    assert document["figures"]["finished"] == 9
    assert sum(document["left_out"].values()) == 1
    sizes, tuned = [text for line, text in said.items() if line.startswith("gangsched tune")]
    assert "best of 1 trials: pools.demand.nodes=" in sizes
    assert "best of 2 trials" in tuned


def test_no_run_is_kept_from_the_collector(path, tmp_path):
    """The command froze what it imported before."""
    gc.freeze()
    list(work(tasks(variants(path, (), ()), (0,), tmp_path / "out"), 1))
    assert gc.get_freeze_count() == 0


def test_a_killed_run_leaves_nothing_half_done(path, tmp_path):
    listed = tasks(variants(path, (), ()), (0, 1), tmp_path / "out")
    (listed[0].folder).mkdir(parents=True)
    (listed[0].folder / "run.json.partial").write_text("{")
    assert not listed[0].done()
    assert len(list(work(listed, 1))) == 2
    assert json.loads((listed[0].folder / "run.json").read_text())["seed"] == 0
