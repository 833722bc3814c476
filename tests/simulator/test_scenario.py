"""Scenarios: valid fields, and one sentence for each invalid field."""

import pytest
import yaml

from gangsched.config import ConfigError
from simulator.scenarios.scenario import load, parse, parse_duration
from simulator.scenarios.workload import demand, jobs_of

PLAIN = {
    "version": "gangsched.io/simulation/v1",
    "name": "plain",
    "cluster": {"nodes": [{"name": "node", "count": 2, "gpus": 8}]},
    "workload": {"generators": [{"jobs": 5, "every": "1m"}]},
}


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "scenario.yaml"
    found.write_text(yaml.safe_dump(PLAIN))
    return found


@pytest.mark.parametrize(
    ("written", "meant"),
    [(90, 90), ("90s", 90), ("1h 30m", 5400), ("2d", 172_800), ("1w", 604_800), ("5ms", 0.005)],
)
def test_times(written, meant):
    assert parse_duration(written) == meant


WRONG = [
    ("workload.trace=3", "workload.trace: there is no such field; did you mean 'traces'?"),
    ("policies.ordr=fifo", "did you mean 'order'?"),
    ("cluster.nodes.0.gpu=3", "cluster.nodes[0].gpu: there is no such field; did you mean 'gpus'?"),
    ("queues=[{name: a, quota: []}]", "queues[0].quota: there is no such field"),
    ("queues=[{name: a, quotas: [{resource: cpu, nominl: 3}]}]", "quotas[0].nominl"),
    ("queues.guarantees=equal", "did you mean 'guarantee'?"),
    ("cluster.topology={levels: [{nodelabel: x}]}", "did you mean 'nodeLabel'?"),
    ("horizon=3x", "horizon: must be seconds, or a time such as 90s, 1h 30m or 2d (got '3x')"),
    ("delays.plan=-1", "delays.plan: input should be greater than or equal to 0 (got -1)"),
    ("workload.generators=[]", "there are no jobs: give traces, generators, or a snapshot"),
    ("version=v0", "version: input should be 'gangsched.io/simulation/v1' (got 'v0')"),
    ("workload.traces=[{format: phily, path: x}]", "did you mean 'philly'?"),
    ("cluster.load=-2", "cluster.load: input should be greater than 0"),
    ("seeds=[]", "seeds"),
    ("noequals", "--set: 'noequals' must be FIELD=VALUE"),
    ("workload.generators.7=1", "there is no such field to set (list assignment"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence(change, said, path):
    with pytest.raises(ConfigError) as raised:
        load(path, (change,))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_scenario(tmp_path):
    path = tmp_path / "x.yaml"
    with pytest.raises(ConfigError, match="No such file"):
        load(path)
    path.write_text("- 1")
    with pytest.raises(ConfigError, match="must be a mapping of fields, not list"):
        load(path)
    path.write_text("a: [")
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        load(path)


def test_generated_jobs_follow_their_seed_and_their_figures(tmp_path):
    wanted = {
        "jobs": 4000, "every": "10s", "by_day": 1, "runtime": "1h", "spread": 1, "longest": "2d",
        "pods": {1: 3, 4: 1}, "gpus": {8: 1}, "queues": {"a": 9, "b": 1}, "users": 3,
    }  # fmt: skip
    scenario = parse(PLAIN | {"workload": {"generators": [wanted]}}, "test", tmp_path)
    jobs = jobs_of(scenario, (), 1)
    assert jobs == jobs_of(scenario, (), 1)
    assert jobs != jobs_of(scenario, (), 2)
    assert len({job.name for job in jobs}) == 4000
    assert jobs == sorted(jobs, key=lambda job: job.at_s)
    span_s = jobs[-1].at_s
    assert 8 < span_s / 4000 < 14
    early = sum(job.at_s % 86_400 < 3600 * 6 for job in jobs)
    assert early < 0.2 * 4000 or span_s < 86_400
    assert 0.7 < sum(job.pods == 1 for job in jobs) / 4000 < 0.8
    assert 0.87 < sum(job.queue == "a" for job in jobs) / 4000 < 0.93
    runtimes = sorted(job.runtime_s for job in jobs)
    assert 3200 < runtimes[2000] < 4000
    assert all(job.runtime_s <= (job.estimate_s or 0) <= 5 * job.runtime_s for job in jobs)
    assert demand(jobs)["a"] > demand(jobs)["b"]
