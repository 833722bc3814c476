"""Settings and node files: one clear sentence for each error."""

import pytest

from gangsched.config import ConfigError, SchedulerConfig, load_config
from gangsched.local.nodes import load_nodes
from gangsched.plugins import load_policies

BAD_CONFIG = {
    "binds_in_flight: 0": "binds_in_flight: input should be greater than or equal to 1 (got 0)",
    "colour: red": "colour: there is no such field; there are: order, placer, sharing,",
    "plcaer: cpsat": "plcaer: there is no such field; did you mean 'placer'? It takes best-fit, ",
    "defragmnet: on": (
        "defragmnet: there is no such field; did you mean 'defragment'? It takes off, advise, apply"
    ),
    "barier_s: 3": "barier_s: there is no such field; did you mean 'barrier_s'?",
    "1: 2": "1: there is no such field",
    "- a": "must be a mapping of fields, not list",
    "a: [": "while parsing",
}


@pytest.mark.parametrize("text", BAD_CONFIG)
def test_a_wrong_setting_is_named(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert str(error.value).startswith(str(path))
    assert BAD_CONFIG[text] in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "absent.yaml")


def test_flags_win_over_the_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("placer: spread\nmetrics_port: 1\n")
    config = load_config(path, metrics_port=2, extender_port=None)
    assert (config.placer, config.metrics_port) == ("spread", 2)


def test_policies_are_found_by_entry_point_and_the_nearest_is_named():
    assert type(load_policies(SchedulerConfig(placer="spread")).placer).__name__ == "Spread"
    with pytest.raises(
        ConfigError, match=r"no policy 'sprad'; there are: .*; did you mean 'spread'"
    ):
        load_policies(SchedulerConfig(placer="sprad"))


def test_policies_take_options():
    options = {"objectives": ["domains", "fragmentation"], "budget": 0.2}
    placer = load_policies(SchedulerConfig(placer="cpsat", placer_options=options)).placer
    assert placer.objectives == ("domains", "fragmentation")
    assert placer.budget == 0.2
    wrong = {
        "objectives": (["cheap"], "'domains', 'preference', 'leftover' or 'fragmentation'"),
        "bugdet": (1, "there is no 'bugdet'; there are: objectives, budget"),
    }
    for name, (value, sentence) in wrong.items():
        config = SchedulerConfig(placer="cpsat", placer_options={name: value})
        with pytest.raises(ConfigError, match=f"placer_options of cpsat: .*{sentence}"):
            load_policies(config)


BAD_NODES = {
    "nodes: [{name: a, gpus: -1}]": "nodes.0.gpus: input should be greater than or equal to 0",
    "nodes: [{name: A}]": "nodes.0.name",
    "nodes: [{name: a}, {name: a}]": "two groups are named 'a'",
    "nodes: [{name: a, kind: cloud}]": "nodes.0.kind",
}


@pytest.mark.parametrize("text", BAD_NODES)
def test_a_wrong_node_file_is_named(tmp_path, text):
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_nodes(path)
    assert BAD_NODES[text] in str(error.value)
