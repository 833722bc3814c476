"""Traces: the jobs of each format, and one sentence for each error of a file."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_texts import GAVEL, SACCT, SWF, TABLES, THROUGHPUTS

from simulator.traces import FORMATS, TraceError, read


@pytest.mark.parametrize("name", TABLES)
def test_what_a_format_becomes(name, tmp_path):
    text, expected = TABLES[name]
    path = tmp_path / "trace.csv"
    path.write_text(text)
    jobs = read(path, name).jobs
    found = [(one.name, one.at_s, one.runtime_s, one.pods, one.gpus, one.queue) for one in jobs]
    assert found == expected
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read(packed, name).jobs == jobs


def test_what_users_said_is_kept(tmp_path):
    path = tmp_path / "trace"
    path.write_text(SWF)
    assert [job.estimate_s for job in read(path, "swf").jobs] == [200.0, None]
    path.write_text(SACCT)
    assert [job.estimate_s for job in read(path, "sacct").jobs] == [86_400.0, None]


def test_pods_of_openb_ask_for_parts_and_kinds_of_gpus(tmp_path):
    path = tmp_path / "pods.csv"
    path.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
        "openb-pod-0000,12000,16384,1,460,V100M16|V100M32,10,20\n"
        "openb-pod-0001,6000,1024,2,1000,,10,30\n"
    )
    part, whole = (job.needs for job in read(path, "openb").jobs)
    assert part.share.milli == 460
    assert part.selector[0].values == ("V100M16", "V100M32")
    assert dict(part.requests) == {"cpu": 12_000, "memory": 2**34}
    assert dict(whole.requests)["nvidia.com/gpu"] == 2


def test_steps_of_gavel_need_throughputs(tmp_path):
    path = tmp_path / "some.trace"
    path.write_text(GAVEL)
    with pytest.raises(TraceError, match="must be in the same folder"):
        read(path, "gavel")
    (tmp_path / "simulation_throughputs.json").write_text(THROUGHPUTS)
    jobs = read(path, "gavel").jobs
    assert [(job.at_s, job.runtime_s, job.gpus) for job in jobs] == [
        (0.0, 2.5, 2),
        (30.0, 250.0, 2),
    ]


def test_our_own_as_parquet(tmp_path):
    path = tmp_path / "trace.parquet"
    rows = [{"name": "a", "at_s": 0.0, "runtime_s": 5.0, "pods": 2, "checkpoint_s": None}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    (job,) = read(path, "gangsched").jobs
    assert (job.pods, job.runtime_s, job.checkpoint_s) == (2, 5.0, None)


PHILLY = "timestamp,duration,num_gpus,cluster\n"
WRONG = [
    ("philly", PHILLY + "2017-10-09,0,1,a\n", "line 2, column duration: '0' must be more than 0"),
    ("philly", PHILLY + "2017-10-09,-5,1,a\n", "'-5' must be more than 0"),
    ("philly", PHILLY + "2017-10-09,5,1.5,a\n", "column num_gpus: '1.5' must be a whole number"),
    ("philly", PHILLY + "2017-10-09,5,0,a\n", "column num_gpus: '0' must be at least 1"),
    ("philly", PHILLY + "today,5,1,a\n", "column timestamp: 'today' must be a time such as"),
    ("philly", PHILLY + "2017-10-09,inf,1,a\n", "column duration"),
    ("philly", "timestamp,duration,cluster\n", "no column 'num_gpus'; it has: timestamp, duration"),
    ("philly", PHILLY, "no row could be read"),
    ("philly", PHILLY + "2017-10-09,5\n", "line 2: has 2 of 4 columns; the file may be cut short"),
    ("swf", "1 0 5\n", "line 1: has 3 of 18 fields; the file may be cut short"),
    ("swf", SWF.replace("2 10", "2 -3"), "column submit: '-3' must be at least 0"),
    ("sacct", SACCT.replace("01:01:00|2|", "00:00:30|2|"), "column End"),
    ("sacct", SACCT.replace("2024-01-01T00:02:00|2024-01-01T00:03:00", "None|None"), "never ran"),
    ("pollux", "name,time,application,num_replicas\na,1,chess,1\n", "must be one of cifar10"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_place(name, text, said, tmp_path):
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(TraceError) as raised:
        read(path, name)
    assert str(raised.value).startswith(str(path))
    assert said in str(raised.value)


def test_wrong_rows_can_be_left_out_and_are_counted(tmp_path):
    path = tmp_path / "trace"
    path.write_text(PHILLY + "2017-10-09,0,1,a\n2017-10-09,5,1,a\n2017-10-09,-1,1,a\n")
    trace = read(path, "philly", skip=True)
    assert len(trace.jobs) == 1
    assert trace.left_out == {"duration must be more than 0": 2}


def test_time_that_goes_backwards(tmp_path):
    path = tmp_path / "trace"
    lines = SWF.splitlines()
    path.write_text("\n".join([lines[0], lines[2], lines[1]]) + "\n")
    with pytest.raises(TraceError, match=r"job-1 arrives at 0 s, before job-2 at 10 s"):
        read(path, "swf")
    trace = read(path, "swf", skip=True)
    assert [job.name for job in trace.jobs] == ["job-1", "job-2"]
    assert sum(trace.left_out.values()) == 1


def test_a_file_that_is_not_there_or_broken(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        read(tmp_path / "none.csv", "philly")
    broken = tmp_path / "cut.csv.gz"
    broken.write_bytes(gzip.compress(TABLES["itp"][0].encode() * 99)[:-20])
    with pytest.raises(TraceError, match="line"):
        read(broken, "itp")
    with pytest.raises(TraceError, match=r"no format 'phily'.*did you mean 'philly'"):
        read(broken, "phily")


def test_each_format_says_what_it_maps_drops_and_assumes():
    for one in FORMATS.values():
        assert one.maps
        assert one.drops
        assert one.assumes
