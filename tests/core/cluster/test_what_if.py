"""What-if changes of a cluster are undone completely."""

from builders import GPU, node

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import PodRequirements

N = NodeName("n")
MIG = "nvidia.com/mig-1g.5gb"
SLICE = PodRequirements(((MIG, 2),))


def test_a_resource_that_no_node_has_is_there_only_while_it_is_offered():
    cluster = Cluster()
    cluster.put_node(node("n"))
    row, resources, free = cluster.rows[N], list(cluster.resources), cluster.free()
    with cluster.with_allocatable({N: (((GPU, 1),), ((MIG, 7),))}):
        assert cluster.capacity(SLICE)[row] == 3
        cluster.add_pods(row, SLICE)
        assert cluster.capacity(SLICE)[row] == 2
    assert cluster.resources == resources
    assert cluster.free().shape == free.shape
    assert not cluster.capacity(SLICE).any()
    with cluster.with_allocatable({N: ((), ((MIG, 7),))}):
        assert cluster.capacity(SLICE)[row] == 2, "what was taken is still taken"
    cluster.remove_pods(row, SLICE)
    with cluster.with_allocatable({N: ((), ((MIG, 7),))}):
        assert cluster.capacity(SLICE)[row] == 3
    assert (cluster.free() == free).all()


def test_resources_may_be_offered_by_an_empty_cluster():
    cluster = Cluster()
    cluster.put_node(node("n", gpus=2))
    row = cluster.rows[N]
    cluster.add_pods(row, PodRequirements(((GPU, 2),)))
    with cluster.when_empty():
        with cluster.with_allocatable({N: (((GPU, 1),), ((MIG, 7),))}):
            assert cluster.capacity(SLICE)[row] == 3
        assert cluster.capacity(PodRequirements(((GPU, 1),)))[row] == 2
    assert cluster.capacity(PodRequirements(((GPU, 1),)))[row] == 0
