"""The tree of domains and its cached capacities are updated node by node."""

import random

import numpy as np
from builders import needs, node

from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN, TopologyTree
from gangsched.core.model.ids import NodeName
from gangsched.core.model.topology import Fabric, Level, Topology

LEVELS = Topology(
    "default",
    (
        Level("t/spine", "spine", Fabric.INFINIBAND),
        Level("t/rack", "rack"),
        Level("t/clique", "clique", Fabric.NVLINK),
    ),
)


def place(spine=None, rack=None, clique=None) -> dict[str, str]:
    """Return the labels of a place."""
    named = {"t/spine": spine, "t/rack": rack, "t/clique": clique}
    return {key: value for key, value in named.items() if value}


def cluster(*places: dict[str, str]) -> Cluster:
    """Return a cluster with one node a place."""
    made = Cluster()
    made.set_topologies((LEVELS,))
    for index, labels in enumerate(places):
        made.put_node(node(f"n{index}", labels=labels))
    return made


def names(made: Cluster, level: int) -> list[str]:
    """Return the domain of each node at a level."""
    tree = made.tree()
    codes = [tree.codes[level][made.rows[NodeName(f"n{i}")]] for i in range(len(made.rows))]
    return [tree.name(level, code) if code != UNKNOWN else "?" for code in codes]


def test_a_domain_is_its_whole_path():
    made = cluster(place("a", "1"), place("b", "1"), place("a", "1"))
    assert names(made, 1) == ["a/1", "b/1", "a/1"]


def test_a_missing_label_hides_what_is_below():
    made = cluster(place("a", "1", "x"), place("a", None, "x"), place(None, "1", "x"))
    assert names(made, 0) == ["a", "a", "?"]
    assert names(made, 2) == ["a/1/x", "?", "?"]
    assert made.tree().label_problem(made.rows[NodeName("n1")]) == "has no label t/rack"
    assert made.tree().label_problem(made.rows[NodeName("n0")]) is None


def test_an_nvlink_domain_of_two_racks_belongs_to_neither():
    made = cluster(place("a", "1", "x"), place("a", "2", "x"), place("a", "2", "y"))
    assert names(made, 2) == ["?", "?", "a/2/y"]
    problem = made.tree().label_problem(made.rows[NodeName("n0")])
    assert problem == "label t/clique=x is claimed in a/1 and a/2 at once"
    made.put_node(node("n1", labels=place("a", "2", "y")))
    assert names(made, 2) == ["a/1/x", "a/2/y", "a/2/y"]


def test_levels_are_found_by_name_label_and_tier():
    assert LEVELS.index("rack") == LEVELS.index("t/rack") == LEVELS.index("tier-2") == 1
    assert LEVELS.index("tier-1") == 2
    assert LEVELS.index("host") == LEVELS.index("kubernetes.io/hostname") == 3
    assert LEVELS.index("tier-9") is None
    assert LEVELS.fabric(Fabric.INFINIBAND) == 0
    assert LEVELS.fabric(Fabric.ROCE) is None


def test_changes_one_by_one_equal_a_rebuilt_tree():
    rng = random.Random(7)
    made = Cluster()
    made.set_topologies((LEVELS,))
    for _ in range(600):
        name = f"n{rng.randrange(40)}"
        if rng.random() < 0.2:
            made.remove_node(NodeName(name))
        else:
            parts = [rng.choice("12") if rng.random() < 0.9 else None for _ in range(3)]
            made.put_node(node(name, labels=place(*parts)))
        if rng.random() < 0.1:
            made.copy()  # shares the columns: the next change must not reach the copy
    fresh = TopologyTree(LEVELS, len(made.names))
    for name, row in made.rows.items():
        fresh.put(row, made.nodes[made.rows[name]])
    for level in range(3):
        ours = [made.tree().codes[level][row] for row in made.rows.values()]
        theirs = [fresh.codes[level][row] for row in made.rows.values()]
        assert [made.tree().name(level, c) if c >= 0 else "" for c in ours] == [
            fresh.name(level, c) if c >= 0 else "" for c in theirs
        ]


def test_updated_capacities_equal_those_counted_again():
    rng = random.Random(3)
    made = cluster(*(place("a", str(i % 3)) for i in range(30)))
    kinds = [needs(1), needs(3, 500), needs(0, 7000), needs(2, host_ports=(("TCP", "0.0.0.0", 1),))]
    for step in range(400):
        key = rng.randrange(60)
        if rng.random() < 0.6:
            made.allocate(key, NodeName(f"n{rng.randrange(30)}"), rng.choice(kinds))
        else:
            made.release(key)
        if step % 7 == 0:
            made.put_node(node(f"n{rng.randrange(30)}", gpus=rng.randrange(9)))
        for kind in kinds:
            anew = made.count(kind, slice(None), made.used)
            assert np.array_equal(made.capacity(kind), anew)
    copy = made.copy()
    before = copy.capacity(kinds[0]).copy()
    made.allocate("late", NodeName("n1"), kinds[0])
    assert np.array_equal(copy.capacity(kinds[0]), before)
