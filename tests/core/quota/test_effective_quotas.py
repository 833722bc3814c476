"""Which declared quotas apply: a parent's quota limits its children; unknown names are ignored."""

import random

import pytest
from builders import an_engine, node

from gangsched.core import facts as f
from gangsched.core.cluster.supply import Supply, missing_resources
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.usage import Usage

KEY = (GPU, "")
H100 = "NVIDIA-H100-80GB-HBM3"


def tree(*children: int, parent: int = 64, lending: int | None = None) -> QueueTree:
    """Return a parent and its children a, b, ... with so many GPUs each."""
    queues = [Queue("top", quotas=(Quota(GPU, parent * 1000),))]
    for name, gpus in zip("abcdefgh", children, strict=False):
        queues.append(Queue(name, "top", (Quota(GPU, gpus * 1000, lending=lending),)))
    return QueueTree(queues)


@pytest.mark.parametrize(
    ("children", "count"),
    [
        ((16, 48), (16_000, 48_000)),
        ((16, 4000), (16_000, 48_000)),
        ((40, 40), (32_000, 32_000)),
        ((4000,), (64_000,)),
        ((10, 60, 60), (10_000, 27_000, 27_000)),
        ((64, 64, 64), (21_333, 21_333, 21_334)),
    ],
)
def test_excess_quota_of_children_is_taken_from_the_largest(children, count):
    made = tree(*children)
    assert made.nominal("top", KEY) == 64_000, "the parent's number is what its admin wrote"
    assert tuple(made.nominal(name, KEY) for name in "abc"[: len(children)]) == count
    assert set(made.lowered) == {
        name for name, gpus, one in zip("abc", children, count, strict=False) if one < gpus * 1000
    }
    assert not made.problems, "all of them can be used"


def test_a_child_above_its_parent_is_reported():
    made = tree(16, 4000)
    (sentence,) = made.notices("b")
    assert sentence == (
        "spec.quotas[nvidia.com/gpu].nominal: 4000 counts as 48, because queue top, above it, has "
        "64 for all below it"
    )
    (above,) = made.notices("top")
    assert "the queues below it add up to 4016, more than its 64" in above
    assert not made.notices("a")


def test_a_number_further_up_holds_too():
    made = QueueTree(
        [
            Queue("top", quotas=(Quota(GPU, 64_000),)),
            Queue("middle", "top"),
            Queue("low", "middle", (Quota(GPU, 100_000),)),
            Queue("lowest", "low", (Quota(GPU, 80_000),)),
        ]
    )
    for name in ("middle", "low", "lowest"):
        assert made.nominal(name, KEY) == 64_000
    assert "100 counts as 64, because queue top" in made.notices("low")[0]
    assert "80 counts as 64, because queue low, above it, has 64" in made.notices("lowest")[0]
    assert not made.notices("middle"), "nothing is written there"


def test_what_is_not_lent_is_part_of_what_counts():
    usage = Usage(tree(16, 4000, lending=0))
    assert usage.available("a", KEY) == 16_000, (
        "a sibling that asks for too much takes nothing from it"
    )
    assert usage.available("b", KEY) == 48_000


def test_a_queue_lends_what_it_has():
    made = tree(4, lending=8000)
    (said,) = made.notices("a")
    assert said.startswith("spec.quotas[nvidia.com/gpu].lendingLimit: 8 is more than its nominal 4")
    assert made.guaranteed_quota("a", KEY) == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_queue_reserves_more_than_it_has(seed):
    rng = random.Random(seed)
    queues = [Queue("q0", quotas=(Quota(GPU, rng.randint(0, 64_000)),))]
    for index in range(1, 12):
        quota = Quota(GPU, rng.randint(0, 64_000), lending=rng.choice((None, 0, 5000)))
        parent = f"q{rng.randrange(index)}"
        queues.append(Queue(f"q{index}", parent, (quota,) if rng.random() < 0.7 else ()))
    made = QueueTree(queues)
    for queue in queues:
        below = [
            made.nominal_quotas(child).get(KEY, 0) for child in made.children.get(queue.name, ())
        ]
        assert sum(below) <= made.nominal_quotas(queue.name).get(KEY, 0)
        assert made.subtree_quota(queue.name, KEY) >= 0
        for quota in queue.quotas:
            counts = made.nominal(queue.name, KEY)
            assert counts <= quota.nominal
            assert (counts < quota.nominal) == (KEY in made.lowered.get(queue.name, {}))


def test_a_queue_that_cannot_be_read_is_there_and_cannot_be_used():
    made = QueueTree([Queue("bad", broken="spec.x: it is wrong"), Queue("child", "bad")])
    assert made.problems["bad"] == "spec.x: it is wrong"
    assert "'bad', parent of 'child', cannot be used" in made.problems["child"]
    assert "bad" not in made
    assert "bad" in made.queues


# -- names that no node has -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        (Quota(GPU, 1), None),
        (Quota(GPU, 1, "H100"), None),
        (Quota("cpu", 1), None),
        (Quota("pods", 1), None),
        (Quota("gpu-credits", 1), None),
        (Quota("gpu", 1), "spec.quotas[gpu].resource: no node has 'gpu' (did you mean nvidia.com/"),
        (Quota("nvidia.com/gpus", 1), "(did you mean nvidia.com/gpu?)"),
        (Quota("fpga.example/x", 1), "no node has 'fpga.example/x'; it counts once a node has it"),
        (
            Quota(GPU, 1, "H1OO"),
            "[nvidia.com/gpu (H1OO)].gpuKind: no GPU's product name contains 'H1OO' (did you mean ",
        ),
        (Quota(GPU, 1, "h100"), "(did you mean H100?)"),
        (Quota(GPU, 1, "MI300"), f"(there are: {H100})"),
    ],
)
def test_a_quota_of_what_no_node_has(quota, said):
    engine = an_engine(node("n", gpu_model=H100))
    found = missing_resources(Queue("q", quotas=(quota,)), engine.view.cluster.supply())
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_limits_of_users_have_names_too():
    engine = an_engine(node("n"))
    (said,) = missing_resources(Queue("q", user_limits=(("gpu", 8),)), engine.view.cluster.supply())
    assert said.startswith("spec.userLimits[gpu]: no node has 'gpu'")


def test_nodes_that_come_and_go_are_seen():
    engine = an_engine()
    queue = Queue("q", quotas=(Quota(GPU, 1), Quota(GPU, 1, "H100")))
    assert engine.view.cluster.supply() == Supply()
    assert not missing_resources(queue, engine.view.cluster.supply()), (
        "without nodes no name is strange"
    )
    engine.observe(f.NodeSeen(node("cpu-only", gpus=0)), 0.0)
    assert len(missing_resources(queue, engine.view.cluster.supply())) == 2
    engine.observe(f.NodeSeen(node("n", gpu_model=H100)), 0.0)
    assert not missing_resources(queue, engine.view.cluster.supply())
    engine.observe(f.NodeGone(NodeName("n")), 0.0)
    assert len(missing_resources(queue, engine.view.cluster.supply())) == 2


def test_parts_of_gpus_are_gpus():
    engine = an_engine(node("n", gpus=0))
    mig = (("nvidia.com/mig-1g.5gb", 7),)
    made = node("m", gpus=0)
    engine.observe(f.NodeSeen(type(made)(made.name, (*made.allocatable, *mig))), 0.0)
    assert not missing_resources(Queue("q", quotas=(Quota(GPU, 1),)), engine.view.cluster.supply())
