"""Planning again at every event: by hand, and against Muri's published figures."""

import json
import sys
from pathlib import Path

import pytest
from builders import node

from gangsched.core.policy import Policies
from policies.first_fit import FirstFit
from policies.shortest import Shortest
from simulator.jobs import Job
from simulator.virtual.offline_replan import replan

ROOT = Path(__file__).parents[2]
SRTF = Policies(Shortest(patience_s=1e12), FirstFit())


def free(job: Job) -> float:
    return 0.0


def dear(job: Job) -> float:
    return 3.0


def test_the_shorter_takes_the_place_and_gives_it_back():
    """One node of eight: 100 s at 0, 10 s at 20 for all of it, and 50 s at 25 for half."""
    jobs = [Job("long", 0.0, 100.0, 1, 8), Job("short", 20.0, 10.0, 1, 8), Job("half", 25.0, 50.0)]
    done = {one.job.name: one for one in replan([node("n0")], jobs, SRTF, free)}
    assert done["short"].ended_s == 30.0
    assert done["half"].ended_s == 80.0  # it is shorter than what is left of `long`
    assert done["long"].ended_s == 160.0
    assert {name: one.interrupted for name, one in done.items()} == {
        "long": 1,
        "short": 0,
        "half": 0,
    }


def test_an_event_costs_every_running_job():
    jobs = [Job("a", 0.0, 100.0, 1, 8), Job("b", 40.0, 100.0, 1, 8)]
    done = {one.job.name: one for one in replan([node("n0")], jobs, SRTF, dear)}
    assert done["a"].ended_s == 103.0  # at 40 s it has done 37
    assert done["b"].ended_s == 203.0


def test_a_job_larger_than_the_cluster_is_said():
    with pytest.raises(ValueError, match=r"1 jobs fit nowhere, ns/big among them"):
        replan([node("n0")], [Job("big", 0.0, 1.0, 2, 8)], SRTF, free)


@pytest.mark.long  # `make bench NAME=muri` compares all four traces
@pytest.mark.skipif(
    not (ROOT.parent / "shared" / "data" / "muri").is_dir(), reason="Muri's traces are not here"
)
def test_muri_s_figures_to_the_digit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.delitem(sys.modules, "muri", raising=False)
    import muri

    expected = json.loads((muri.DATA / "expected_sim_fig9_10.json").read_text())
    at = expected["traces"].index("trace3_pr")
    found = muri.measure("trace3_pr", "SRTF")
    for key in ("jct", "makespan", "p99"):
        assert found[key] == pytest.approx(expected["SRTF"][key][at], rel=1e-8)
