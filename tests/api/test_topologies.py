"""The Topology of a local control plane agrees with the labels of its nodes."""

from pathlib import Path

import pytest
import typer.testing
import yaml

from gangsched.api.topology import TopologySpec
from gangsched.cli import local
from gangsched.local.bootstrap import spelt
from gangsched.local.nodes import DEFAULT, RACK_LABEL, NodeFile, NodeGroup, load_nodes
from gangsched.shipped import shipped

ROOT = Path(__file__).parents[2]
PREFIX = RACK_LABEL.rpartition("/")[0]
NODE_FILES = sorted(
    path
    for path in (ROOT / "examples").glob("*.yaml")
    if set(next(yaml.safe_load_all(path.read_text()))) == {"nodes"}
)


def labels(nodes: NodeFile) -> list[str]:
    """Return the labels of the levels of the Topology that is made, from the coarsest."""
    return [level["nodeLabel"] for one in spelt(nodes) for level in one["spec"]["levels"]]


@pytest.mark.parametrize("path", NODE_FILES, ids=lambda path: path.name)
def test_every_place_that_an_example_labels_is_a_level(path):
    nodes = load_nodes(path)
    have = {key for g in nodes.nodes for one in g.manifests() for key in one["metadata"]["labels"]}
    assert set(labels(nodes)) == {key for key in have if key.startswith(f"{PREFIX}/")} != set()


def test_levels_that_no_node_has_are_left_out_and_the_others_keep_their_order():
    group = NodeGroup(
        name="n", rack_size=2, labels={f"{PREFIX}/nvlink": "a", "example.com/row": "r"}
    )
    block = NodeGroup(name="m", labels={f"{PREFIX}/block": "b"})
    assert labels(NodeFile(nodes=(group,))) == [RACK_LABEL, f"{PREFIX}/nvlink"]
    assert labels(NodeFile(nodes=(group, block)))[0] == f"{PREFIX}/block"


def test_without_such_labels_there_is_no_topology():
    assert spelt(DEFAULT) == []
    assert spelt(NodeFile(nodes=(NodeGroup(name="n", labels={"example.com/rack": "r"}),))) == []


def test_every_shipped_topology_is_one():
    documents = shipped("manifests/topologies")
    assert len(documents) == len(list((ROOT / "manifests" / "topologies").iterdir()))
    for document in documents:
        spec = TopologySpec.model_validate(document["spec"])
        assert spec.topology(document["metadata"]["name"]).levels


def test_a_plane_that_is_started_by_the_command_gets_its_topology(monkeypatch):
    seen = []

    def up(_, nodes, options, progress):
        seen.append(options.topology)
        raise TimeoutError("enough")

    monkeypatch.setattr(local.Plane, "up", up)
    typer.testing.CliRunner().invoke(local.local, ["up"])
    assert seen == [True]
