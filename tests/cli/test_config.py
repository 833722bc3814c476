"""Settings and node files: one clear sentence for each error."""

import pytest
import yaml

from gangsched.config import FORMER_NAMES, ConfigError, SchedulerConfig, load_config
from gangsched.local.nodes import load_nodes
from gangsched.plugins import load_policies

BAD_CONFIG = {
    "binds_in_flight: 0": "binds_in_flight: input should be greater than or equal to 1 (got 0)",
    "colour: red": "colour: there is no such field; there are: order, placer, sharing,",
    "plcaer: cpsat": "plcaer: there is no such field; did you mean 'placer'? It takes best-fit, ",
    "defragmnet: on": (
        "defragmnet: there is no such field; did you mean 'defragment'? It takes off, advise, apply"
    ),
    "schedule_timeot_s: 3": (
        "schedule_timeot_s: there is no such field; did you mean 'schedule_timeout_s'?"
    ),
    "barrier_s: 3\nschedule_timeout_s: 3": (
        "schedule_timeout_s and its former name barrier_s are both set; remove barrier_s"
    ),
    "barrier_s: 0": "schedule_timeout_s: input should be greater than 0 (got 0)",
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


FORMER = {
    "advice_s": ("advice_ttl_s", 7.0),
    "avoid_s": ("node_exclusion_s", 7.0),
    "barrier_s": ("schedule_timeout_s", 7.0),
    "courtesy_share": ("background_cpu_share", 0.5),
    "gpu_rates": ("gpu_weights", {"H100": 2.0}),
    "name_others": ("name_other_namespaces", True),
    "past_config_map": ("gang_history_config_map", "mine/past"),
    "replan_s": ("retry_interval_s", 7.0),
    "settle_s": ("startup_delay_s", 7.0),
    "starts_waiting": ("queued_binds_max", 7),
}
"""Each setting that had another name, its present name, and a value other than the default."""


@pytest.mark.parametrize("former", FORMER)
def test_a_file_of_an_earlier_release_is_read_to_the_same_values(tmp_path, caplog, former):
    name, value = FORMER[former]
    for key in (former, name):
        (tmp_path / f"{key}.yaml").write_text(yaml.safe_dump({"placer": "spread", key: value}))
    present = load_config(tmp_path / f"{name}.yaml")
    assert not caplog.records
    assert getattr(present, name) == value != getattr(SchedulerConfig(), name)
    assert load_config(tmp_path / f"{former}.yaml") == present
    (warning,) = caplog.records
    assert f"setting {former} is named {name} now" in warning.getMessage()


def test_every_former_name_is_tested():
    assert {former: name for former, (name, _) in FORMER.items()} == FORMER_NAMES


def test_policies_are_found_by_entry_point_and_the_nearest_is_named():
    assert type(load_policies(SchedulerConfig(placer="spread")).placer).__name__ == "SpreadPlacer"
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
