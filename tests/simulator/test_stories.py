"""Stories, times and names in the report: unique, and in the order of time."""

import pytest
import yaml

from gangsched.config import ConfigError
from simulator.experiments.run import run
from simulator.experiments.stories import details
from simulator.experiments.sweep import tasks, variants
from simulator.report.page import moment, placed_by
from simulator.scenarios.scenario import load, parse

PLAIN = {
    "version": "gangsched.io/simulation/v1",
    "name": "stories",
    "cluster": {"nodes": [{"name": "node", "count": 2, "gpus": 8}]},
    "queues": [
        {"name": "all", "quotas": [{"resource": "nvidia.com/gpu", "nominal": 16}]},
        {"name": "a", "parent": "all", "quotas": [{"resource": "nvidia.com/gpu", "nominal": 16}]},
    ],
    "workload": {
        "generators": [
            {"jobs": 12, "every": "4m", "runtime": "10m", "pods": {2: 1}, "gpus": {8: 1},
             "queues": {"a": 1}}
        ]
    },
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "stories.yaml"
    found.write_text(yaml.safe_dump(PLAIN))
    return found


def test_a_story_follows_the_clock_and_ends_with_the_work(path):
    stories = details(run(load(path), 0))["worst"]
    assert len(stories) == 10
    waited = 0
    for story in stories:
        at, words = zip(*story["events"], strict=True)
        assert list(at) == sorted(at)
        assert words[0] == "submitted"
        assert words[-1] == "done"
        assert not any("members run" in said or "does not exist" in said for said in words)
        reserved = next(n for n, said in enumerate(words) if "reserved" in said)
        bound = next(n for n, said in enumerate(words) if "bound" in said)
        assert reserved < bound < words.index("started")
        told = [said for said in words if "are in use" in said]
        assert len(told) <= 2  # the first words and the last
        waited += bool(told)
    assert waited


@pytest.mark.parametrize(
    ("value_s", "written"),
    [
        (0.2, "0 s"), (59.6, "1 min 0 s"), (725, "12 min 5 s"), (3600, "1 h 0 min"),
        (3 * 86_400 + 19 * 3600 + 725, "3 d 19 h 12 min"), (86_400, "1 d 0 h 0 min"),
        (-5400, "-1 h 30 min"),
    ],
)  # fmt: skip
def test_moments_have_days_hours_and_minutes(value_s, written):
    assert moment(value_s) == written


@pytest.mark.parametrize(
    ("compare", "labels"),
    [
        (("cluster.nodes.0.count=16,20",), ["count=16", "count=20"]),
        (("order=fifo",), ["order=fifo"]),
        (
            ("cluster.nodes.0.count=1", "workload.generators.0.jobs=3", "backfill=easy"),
            ["count=1 jobs=3 backfill=easy"],
        ),
        (
            ("queues.all.quotas.0.nominal=8", "queues.a.quotas.0.nominal=8"),
            ["all.quotas.0.nominal=8 a.quotas.0.nominal=8"],
        ),
        (("queues.0={name: all}",), ["queues.0={name: all}"]),
        ((), ["stories"]),
    ],
)
def test_variants_are_named_by_what_differs(compare, labels, path):
    assert [one.label for one in variants(path, (), compare)] == labels


def test_values_of_one_field_are_alternatives_and_each_is_there_once(path):
    twice = variants(path, (), ("order=fifo", "policies.order=shortest"))
    assert [one.label for one in twice] == ["order=fifo", "order=shortest"]
    with pytest.raises(ConfigError, match=r"--compare: policies\.order=fifo appears twice"):
        variants(path, (), ("order=fifo,fifo",))


def test_no_two_variants_share_a_folder(path, tmp_path):
    quoted = """queues.a.strict='true',"true\""""
    found = variants(path, (), (quoted, f"name=a,{'x' * 90},{'x' * 91}"))
    folders = {task.folder for task in tasks(found, (0,), tmp_path)}
    assert len(folders) == len(found) == 6
    assert all(len(folder.parent.name) < 100 for folder in folders)


def test_queues_may_be_named_where_a_field_is_changed(path):
    changed = load(path, ("queues.a.quotas.0.nominal=4",))
    assert changed.queues[1].quotas[0].nominal == 4
    with pytest.raises(ConfigError, match="'b' is no number, and none of: all, a"):
        load(path, ("queues.b.quotas.0.nominal=4",))


def test_a_default_placer_is_named(path, tmp_path):
    assert placed_by(load(path)).startswith("placer: pack; a cluster's default is cpsat")
    assert "--set policies.placer=cpsat" in placed_by(load(path))
    assert placed_by(load(path, ("policies.placer=pack",))) == ""
    assert placed_by(parse(PLAIN | {"policies": {"placer": "cpsat"}}, "test", tmp_path)) == ""
