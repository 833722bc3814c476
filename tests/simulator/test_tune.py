"""`gangsched tune`: its proposals, its held-out weeks, and a continued search."""

import json

import pytest
import yaml

from gangsched.config import ConfigError
from simulator.experiments.tune import Gain, Search, Tuned, parameter

SCENARIO = {
    "version": "gangsched.io/simulation/v1",
    "name": "tuned",
    "cluster": {"nodes": [{"name": "node", "count": 4, "gpus": 8}]},
    "workload": {
        "generators": [
            {
                "jobs": 80, "every": "9m", "runtime": "40m", "spread": 1.2, "longest": "6h",
                "pods": {1: 3, 2: 1}, "gpus": {8: 1},
            }
        ],
    },
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "tuned.yaml"
    found.write_text(yaml.safe_dump(SCENARIO))
    return found


def test_the_gain_is_measured_on_windows_that_no_trial_used(path, tmp_path):
    chosen = [parameter("policies.order=fifo,shortest"), parameter("cluster.nodes.0.gpus=8")]
    search = Search(path, (), chosen, "wait_mean_s", tmp_path / "out")
    values = list(search.run(4))
    assert len(values) == 4
    assert values == sorted(values, reverse=True)  # the best so far
    found = search.result()
    assert found.best["policies.order"] == "shortest"
    assert [one.held_out for one in found.gains] == [False, False, False, True]
    assert found.gain(held_out=True)[0] > 0
    assert json.loads((tmp_path / "out" / "tune.json").read_text())["trials"] == 4
    # Asked for more, it goes on; asked for as many, there is nothing to do.
    assert list(Search(path, (), chosen, "wait_mean_s", tmp_path / "out").run(4)) == []
    assert len(list(Search(path, (), chosen, "wait_mean_s", tmp_path / "out").run(5))) == 1


def test_a_gain_is_a_share_of_what_was_lost_before():
    gains = (Gain(0, 10, 5, held_out=False), Gain(1, 8, 6, held_out=True))
    found = Tuned("wait_mean_s", {}, 1, gains)
    assert found.gain(held_out=True)[0] == pytest.approx(0.25)
    assert found.data()["gain"]["held_out"] == pytest.approx(0.25)
    assert found.data()["gains"][1]["after"] == 6
    assert Tuned("gpu_busy", {}, 1, gains).gain(held_out=False)[0] == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policies.order", "must be FIELD=A,B,C or FIELD=LOW:HIGH"),
        ("delays.plan=9:3", "must be FIELD=A,B,C or FIELD=LOW:HIGH"),
        ("delays.plan=1:3:cube", "with :log for a logarithmic scale"),
    ],
)
def test_an_invalid_parameter_names_the_valid_forms(text, said):
    with pytest.raises(ConfigError, match=said):
        parameter(text)


def test_an_invalid_value_fails_before_the_first_trial(path, tmp_path):
    with pytest.raises(ConfigError, match=r"workload\.nonsense"):
        Search(path, (), [parameter("workload.nonsense=1,2")], "wait_mean_s", tmp_path)
    with pytest.raises(ConfigError, match="is no objective; use wait_mean_s"):
        Search(path, (), [parameter("delays.plan=1:2")], "beauty", tmp_path)


def test_numbers_of_nodes_are_tuned_as_whole_numbers(path, tmp_path):
    chosen = [parameter("cluster.nodes.0.count=2:6"), parameter("delays.plan=1:3")]
    search = Search(path, (), chosen, "wait_mean_s", tmp_path / "out")
    assert len(list(search.run(1))) == 1
    best = search.result().best
    assert best["cluster.nodes.0.count"].isdecimal()
    assert not best["delays.plan"].isdecimal()
