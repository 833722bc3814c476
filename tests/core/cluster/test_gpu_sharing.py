"""Shared GPUs: devices are filled one after another; whole and shared pods are counted together."""

import random

from builders import GPU, node

from gangsched.core.bounds import PODS_OF_NODE
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import GpuShare, PodRequirements

N = NodeName("n")


def share(milli=0, memory_mib=0, devices=1) -> PodRequirements:
    """Return a pod that asks for a part of GPUs."""
    return PodRequirements((), share=GpuShare(milli, memory_mib, devices))


WHOLE = PodRequirements(((GPU, 1),))


def cluster(gpus=2, memory_mib=40_000) -> Cluster:
    """Return a cluster of one node."""
    made = Cluster()
    made.put_node(node("n", gpus, gpu_memory_mib=memory_mib))
    return made


def room(made: Cluster, wants: PodRequirements) -> int:
    return int(made.capacity(wants)[made.rows[N]])


def test_shares_fill_one_gpu_before_they_open_the_next():
    made = cluster()
    assert made.allocate("a", N, share(600)) == (0,)
    assert made.allocate("b", N, share(600)) == (1,)
    assert made.allocate("c", N, share(300)) == (0,)
    assert made.allocate("d", N, share(400)) == (1,)
    assert room(made, share(100)) == 1
    assert room(made, WHOLE) == 0


def test_a_shared_gpu_is_no_whole_one_until_the_last_share_leaves():
    made = cluster()
    made.allocate("a", N, share(100))
    assert room(made, WHOLE) == 1
    made.release("a")
    assert room(made, WHOLE) == 2


def test_memory_is_turned_into_thousandths_of_the_nodes_own_gpus():
    assert room(cluster(1, 40_000), share(memory_mib=10_000)) == 4
    assert room(cluster(1, 80_000), share(memory_mib=10_000)) == 8
    assert room(cluster(1, 0), share(memory_mib=10_000)) == 0
    assert room(cluster(1, 8_000), share(memory_mib=10_000)) == 0


def test_counting_what_fits_beside_shares_equals_trying():
    rng = random.Random(1)
    for _ in range(300):
        gpus, devices, milli = rng.randint(1, 6), rng.randint(1, 4), rng.randrange(50, 900)
        made = cluster(gpus)
        for index in range(rng.randint(1, 4)):
            first = share(rng.randrange(50, 900), devices=rng.randint(1, gpus))
            if room(made, first):
                made.allocate(f"first {index}", N, first)
        wants, fitted = share(milli, devices=devices), room(made, share(milli, devices=devices))
        for index in range(fitted):
            assert room(made, wants) >= fitted - index
            made.allocate(index, N, wants)
        assert not made.shared.overfull(made.rows[N])


def test_no_number_of_gpus_is_too_many_to_count():
    made = cluster(8)
    made.allocate("a", N, share(1))
    assert room(made, share(1, devices=999_999_999)) == 0
    many = Cluster()
    many.put_node(node("n", 10**12, pods=10**13))
    many.allocate("a", N, share(1))
    assert room(many, share(500)) == PODS_OF_NODE.most - 1


def test_a_pod_with_parts_of_several_gpus_gets_distinct_ones():
    made = cluster(2)
    assert room(made, share(500, devices=2)) == 2
    assert made.allocate("a", N, share(500, devices=2)) == (0, 1)
    made.allocate("b", N, share(500))
    assert room(made, share(500, devices=2)) == 0
    assert room(made, share(500)) == 1


def test_a_known_device_is_kept():
    made = cluster(2)
    assert made.allocate("a", N, share(500), devices=(1,)) == (1,)
    assert made.allocate("b", N, share(500)) == (1,)


def test_every_gpu_holds_at_most_itself_whatever_comes_and_goes():
    rng = random.Random(5)
    made = cluster(4)
    for _ in range(2000):
        key = rng.randrange(12)
        made.release(key)
        wants = rng.choice((WHOLE, share(rng.choice((200, 300, 500, 700)), 0, rng.choice((1, 2)))))
        before = room(made, wants)
        if before:
            made.allocate(key, N, wants)
            assert room(made, wants) == before - 1 or wants.share is not None
        assert all(taken <= 1000 for taken in made.shared.of(made.rows[N]).values())
        assert not made.overcommitted()
