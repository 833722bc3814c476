"""`gangsched history` with a file: what it lists, sums and refuses."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from gangsched.cli.main import app
from gangsched.config import ConfigError
from gangsched.recording.gang_record import GangOutcome, GangRecord
from gangsched.recording.history_file import HistoryLimits, HistoryWriter
from simulator.traces import TraceError, read


@pytest.fixture
def path(tmp_path):
    """Return a file with gangs that ended in the last hours."""
    now_s = datetime.now(UTC).timestamp()
    found = tmp_path / "history.db"
    writer = HistoryWriter(found, HistoryLimits(2**30, 1e12))

    def add(name, hours, outcome=GangOutcome.COMPLETED, **more):
        ended_s = now_s - hours * 3600
        values = {"namespace": "ns", "queue": "q", "user": "alice", "runs": 1, "ran_s": 3600.0}
        values |= {"started_s": ended_s - 3600, "pods": 2, "gpus_per_pod": 4.0, **more}
        writer.write(
            GangRecord(
                name=name,
                created_s=ended_s - 3660,
                submitted_s=ended_s - 3660,
                ended_s=ended_s,
                outcome=outcome,
                **values,
            )
        )

    add("job:one", 1, gpu_s={"H100": 8 * 3600.0}, nodes=("n-1", "n-2"), cost=32.8)
    add("two", 2, GangOutcome.FAILED, user="bob", reasons={"NotEnoughFree": 50.0})
    add("three", 30, queue="other", preemptions=2, lost_gpu_s=7200.0)
    add("four", 3, GangOutcome.CANCELLED, runs=0, ran_s=0.0, started_s=None, namespace="theirs")
    writer.close()
    return found


def run(path, *options):
    result = CliRunner().invoke(
        app, ["history", "--file", str(path), "-n", "ns", *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def names(path, *options):
    return [row["name"] for row in json.loads(run(path, "-o", "json", *options))]


def test_gangs_are_listed_the_last_one_last(path):
    assert names(path) == ["three", "two", "job:one"]
    assert names(path, "-A") == ["three", "four", "two", "job:one"]
    assert names(path, "--since", "12h") == ["two", "job:one"]
    assert names(path, "--until", "12h") == ["three"]
    assert names(path, "-u", "bob") == ["two"]
    assert names(path, "-q", "other") == ["three"]
    assert names(path, "-s", "f,CANCELLED", "-A") == ["four", "two"]
    assert names(path, "-j", "two,none") == ["two"]
    assert names(path, "--limit", "1") == ["job:one"]


def test_columns_are_chosen(path):
    lines = run(path, "--format", "name,state,wait,elapsed,nodes,gpukinds,reasons").splitlines()
    assert lines[0].split() == [
        *("NAME", "STATE", "WAIT", "ELAPSED", "NODES", "GPU-H", "BY", "KIND", "WAITED", "FOR"),
    ]
    assert lines[-1].split()[:6] == [
        *("job:one", "Completed", "00:01:00", "01:00:00", "n-[1-2]", "H100=8.00"),
    ]
    assert "NotEnoughFree=00:00:50" in lines[2]


def test_sums_by_queue(path):
    rows = json.loads(run(path, "--by", "queue", "-o", "json", "-A"))
    assert [(row["queue"], row["gangs"], row["failed"]) for row in rows] == [
        ("other", 1, 0),
        ("q", 3, 1),
    ]
    assert rows[0]["lostGpuHours"] == 2.0
    assert rows[1]["gpuHours"] == 8.0
    assert [row["cost"] for row in rows] == [None, 32.8]
    assert run(path, "--format", "name,cost").splitlines()[-1].split() == ["job:one", "32.80"]
    assert "MEAN WAIT" in run(path, "--by", "user")
    assert run(path, "--by", "day", "-o", "csv").startswith("day,gangs,")


def test_csv_has_values(path):
    rows = list(csv.DictReader(io.StringIO(run(path, "-o", "csv", "--format", "name,nodes,wait"))))
    assert rows[-1] == {"name": "job:one", "nodes": '["n-1","n-2"]', "wait": "60.0"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "yesterday"), "--since: 'yesterday' must be a time"),
        (("--states", "X"), "--states: 'X' is not allowed"),
        (("--format", "x"), "--format: 'x' is no column"),
        (("--by", "x"), "--by: 'x' is not allowed"),
        (("-o", "x"), "--output: 'x' is not allowed"),
    ],
)
def test_bad_options_are_named(path, options, said):
    with pytest.raises(ConfigError) as caught:
        run(path, *options)
    assert said in str(caught.value)


def test_a_simulation_reads_the_file(path, tmp_path):
    trace = read(path, "history")
    assert [(job.name, job.runtime_s, job.pods, job.gpus) for job in trace.jobs] == [
        ("ns-three", 3600.0, 2, 4),
        ("ns-two", 3600.0, 2, 4),
        ("ns-job-one", 3600.0, 2, 4),
    ]
    assert trace.left_out == {"never started": 1}
    with pytest.raises(TraceError, match="there is no such history"):
        read(tmp_path / "none.db", "history")
