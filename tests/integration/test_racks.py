"""Placement on a real API server: topology, slices, ranks, MIG, shared GPUs, reasons, moves."""

import json
from itertools import pairwise

import pytest
from cluster import GPU
from kubernetes.client.exceptions import ApiException
from mig_manager import MigManager
from refitted import other_nodes

from gangsched.local.nodes import NodeFile, NodeGroup

pytestmark = pytest.mark.by("extender")  # places are chosen earlier; kube-scheduler agrees to them

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"}
TOPOLOGY = """
apiVersion: gangsched.io/v1beta1
kind: Topology
metadata: {name: default}
spec:
  levels:
  - {nodeLabel: example.com/block, name: block, fabric: infiniband}
  - {nodeLabel: example.com/rack, name: rack}
"""


def rack(block: str, number: int) -> NodeGroup:
    """Two nodes of four GPUs; rack names repeat in every block, as they do in real clusters."""
    labels = {"example.com/block": block, "example.com/rack": f"r{number}"}
    return NodeGroup(name=f"{block}{number}", count=2, gpus=4, labels=labels, taints=())


NODES = NodeFile(
    nodes=(
        *(rack(block, number) for block in "ab" for number in (0, 1)),
        NodeGroup(
            name="cut",
            count=2,
            gpus=2,
            taints=(),
            labels={
                **A100,
                "gangsched.io/mig": "dynamic",
                "nvidia.com/mig.config": "all-disabled",
                "nvidia.com/mig.config.state": "success",
            },
        ),
    )
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Return the file of the scheduler's settings."""
    path = tmp_path_factory.mktemp("racks") / "settings.yaml"
    path.write_text("{}")
    return path


@pytest.fixture(scope="module")
def racks(cluster, settings):
    """Two blocks of two racks of two nodes with four GPUs, and two nodes with MIG."""
    with other_nodes(cluster, NODES, settings):
        cluster.apply("default", TOPOLOGY)
        yield cluster
        cluster.kubectl("delete", "-f", "-", stdin=TOPOLOGY)


@pytest.fixture
def space(racks):
    """A namespace of the test's own."""
    name = racks.new_namespace()
    yield name
    racks.remove_namespace(name)


def worker(gpus: int, annotations=None, **resources) -> dict:
    """Return a pod template."""
    amounts = ({GPU: str(gpus)} if gpus else {}) | resources
    return {
        "metadata": {"annotations": annotations or {}},
        "spec": {
            "schedulerName": "gangsched",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": amounts}}],
        },
    }


def submit(racks, space, name, count, gpus, *, pods=True, annotations=None, **spec) -> None:
    """Create a PodGroup whose pods exist already, labelled as a job controller would."""
    body = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"minMember": count, **spec},
    }
    racks.custom.create_namespaced_custom_object(
        "gangsched.io", "v1beta1", space, "podgroups", body
    )
    for index in range(count if pods else 0):
        template = worker(gpus)
        template["metadata"] = {
            "name": f"{name}-{index}",
            "labels": {"gangsched.io/pod-group": name, "gangsched.io/rank": str(index)},
        }
        racks.core.create_namespaced_pod(space, template)


def told(racks, space, name, word) -> dict:
    """Wait until the group's message has a word in it; return that very status."""

    def found() -> dict | None:
        status = racks.group_status(space, name)
        return status if word.lower() in status.get("message", "").lower() else None

    return racks.wait(found, f"{word!r} in the message of {name}")


def message(racks, space, name, word) -> str:
    """Wait until the group's message has a word in it; return the message."""
    return told(racks, space, name, word)["message"]


def in_rack(node: str) -> str:
    return node.rsplit("-", 1)[0]


def likes(node: str) -> dict:
    """Return a preference for one node, which leaves the others possible."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [here]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_slices_share_a_rack_and_ranks_follow(racks, space):
    submit(racks, space, "g", 8, 2, topology={"slices": [{"level": "rack", "size": 4}]})
    nodes = racks.wait_placed(space, "g-", 8)
    slices = [{in_rack(nodes[f"g-{i}"]) for i in range(start, start + 4)} for start in (0, 4)]
    assert [len(one) for one in slices] == [1, 1]
    order = [nodes[f"g-{i}"] for i in range(8)]
    assert len(set(order)) == sum(a != b for a, b in pairwise(order)) + 1
    status = racks.wait(
        lambda: (s := racks.group_status(space, "g")).get("phase") == "Placed" and s, "Placed"
    )
    assert status["proof"] == "proved"


def test_a_gang_that_needs_one_rack_waits_for_it_and_says_what_would_help(racks, space):
    for block in "ab":
        for number in (0, 1):
            name = f"fill-{block}{number}"
            racks.pod(
                space, name, gpus=4, nodeSelector={"kubernetes.io/hostname": f"{block}{number}-0"}
            )
    racks.wait_placed(space, "fill-", 4)
    submit(racks, space, "g", 8, 1, topology={"required": "rack"})
    status = told(racks, space, "g", "It would start now")
    text, refusal = status["message"], status["refusal"]
    assert "8 pods of 1 nvidia.com/gpu in one rack, which no domain offers now" in text
    assert "the rack with most capacity, a/r0, takes 4, the whole cluster 20" in text
    assert "block instead of rack" in text
    assert "4 pods instead of 8" in text
    assert "It starts by itself when 4 GPUs of gang" in text
    assert not racks.bound(space, "g-")
    assert refusal["reason"] == "TopologyDoesNotFit"
    assert refusal["proved"] is True
    assert {one["kind"] for one in refusal["remedies"]} == {"level", "members", "wait"}
    racks.core.delete_namespaced_pod("fill-b1", space)
    nodes = racks.wait_placed(space, "g-", 8)
    assert {in_rack(node) for node in nodes.values()} == {"b1"}


def test_a_job_has_the_condition_of_kueue(racks, space):
    template = worker(4, {"kueue.x-k8s.io/podset-required-topology": "example.com/block"})
    template["spec"]["containers"][0]["name"] = "pytorch"
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": template}}},
    }
    racks.create_job(space, body)
    nodes = racks.wait_placed(space, "job-worker-", 3)
    assert len({node[0] for node in nodes.values()}) == 1


def test_pods_without_a_group_object_ask_by_annotation(racks, space):
    for index in range(4):
        template = worker(4, {"kai.scheduler/topology-required-placement": "block"})
        template["metadata"] |= {
            "name": f"p-{index}",
            "labels": {"gangsched.io/pod-group": "p", "gangsched.io/min-member": "4"},
        }
        racks.core.create_namespaced_pod(space, template)
    nodes = racks.wait_placed(space, "p-", 4)
    assert len({node[0] for node in nodes.values()}) == 1


def test_wrong_requests_get_one_sentence_and_disturb_no_other(racks, space):
    wrong = {
        "level": ({"topology": {"required": "planet"}}, {}, "'planet' is not a level of topology"),
        "slice": (
            {"topology": {"slices": [{"level": "rack", "size": 3}]}},
            {},
            "slice size 3 does not divide the 4 pods of the gang.",
        ),
        "clash": (
            {},
            {
                "kueue.x-k8s.io/podset-required-topology": "example.com/rack",
                "kai.scheduler/topology-required-placement": "block",
            },
            "they must agree",
        ),
        "name": ({"topology": {"name": "moon", "required": "rack"}}, {}, "'moon' does not exist"),
        "kind": ({"gpuKinds": ["TPU"]}, {}, "No node has a GPU of type TPU."),
        "large": ({"topology": {"required": "host"}}, {}, "even in an empty cluster"),
    }
    for name, (spec, annotations, _) in wrong.items():
        submit(racks, space, name, 4, 4, annotations=annotations, **spec)
    for name, (_, _, word) in wrong.items():
        message(racks, space, name, word)
    submit(racks, space, "good", 2, 4)
    racks.wait_placed(space, "good-", 2)
    assert not [pod for pod in racks.bound(space) if not pod.startswith("good-")]


def test_a_topology_that_makes_no_sense_is_refused_by_the_api(racks, space):
    for levels in ([], [{"nodeLabel": "a"}, {"nodeLabel": "b"}, {"nodeLabel": "a"}]):
        body = {
            "apiVersion": "gangsched.io/v1beta1",
            "kind": "Topology",
            "metadata": {"name": "wrong"},
            "spec": {"levels": levels},
        }
        with pytest.raises(ApiException) as error:
            racks.custom.create_cluster_custom_object("gangsched.io", "v1beta1", "topologies", body)
        assert error.value.status == 422


def test_nodes_without_their_labels_are_reported(racks, space):
    status = racks.wait(
        lambda: (
            (found := racks.json("topology", "default").get("status") or {}).get("nodes") == 8
            and found.get("misplacedCount") == 2
            and found
        ),
        "the topology's status",
    )
    assert status["misplaced"][0] == {
        "node": "cut-0",
        "problem": "has no label example.com/block",
    }
    assert [(one["name"], one["domains"]) for one in status["levels"]] == [
        ("block", 2),
        ("rack", 4),
    ]


def test_gpu_fractions_share_one_gpu(racks, space):
    for index, fraction in enumerate(("0.5", "0.5", "0.4")):
        template = worker(0, {"gpu-fraction": fraction})
        template["metadata"]["name"] = f"s-{index}"
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "a0-0"}
        racks.core.create_namespaced_pod(space, template)
        racks.wait_placed(space, f"s-{index}", 1)
    pods = racks.core.list_namespaced_pod(space).items
    devices = [pod.metadata.annotations["gangsched.io/gpu-devices"] for pod in pods]
    assert devices == ["0", "0", "1"]
    for key, value in (("gangsched.io/gpu-devices", "3"), ("gpu-fraction", None)):
        wished = {"metadata": {"annotations": {key: value}}}
        with pytest.raises(ApiException, match=key):
            racks.core.patch_namespaced_pod("s-0", space, wished)
    template = worker(0, {"gpu-fraction": "0.5", "gangsched.io/gpu-devices": "3"})
    template["metadata"]["name"] = "forged"
    with pytest.raises(ApiException, match="is written when gangsched binds the pod"):
        racks.core.create_namespaced_pod(space, template)
    selector = {"kubernetes.io/hostname": "a0-0"}
    racks.pod(space, "whole", gpus=3, nodeSelector=selector)
    racks.wait(
        lambda: any("lacks 1 nvidia.com/gpu" in text for _, text in racks.events(space, "whole")),
        "the whole pod to be refused: two GPUs are shared",
    )


def test_a_mig_gang_has_idle_gpus_cut_and_then_runs(racks, space):
    manager = MigManager(racks.api)
    manager.start()
    try:
        racks.pod(space, "busy", gpus=1, nodeSelector={"kubernetes.io/hostname": "cut-0"})
        racks.wait_placed(space, "busy", 1)
        racks.group(
            space,
            "m",
            scheduleTimeoutSeconds=3600,  # the pods are made by this test, which may be slow
            roles=[
                {
                    "name": "w",
                    "count": 9,
                    "template": worker(0, **{"nvidia.com/mig-1g.5gb": "1"}),
                }
            ],
        )
        assignments = racks.wait(
            lambda: racks.group_status(space, "m").get("assignments"), "the reservation"
        )
        assert {one["node"] for one in assignments} == {"cut-1"}  # cut-0 has a GPU in use
        assert [node for node, _ in manager.cuts] == ["cut-1"]
        offered = racks.core.read_node("cut-1").status.allocatable
        assert int(offered["nvidia.com/mig-1g.5gb"]) >= 9
        for one in assignments:
            template = worker(0, **{"nvidia.com/mig-1g.5gb": "1"})
            template["metadata"] = {"name": one["pod"], "labels": {"gangsched.io/pod-group": "m"}}
            racks.core.create_namespaced_pod(space, template)
        racks.wait_placed(space, "m-", 9)
        assert not manager.errors
        assert racks.bound(space, "busy")
        check_layout(racks, "cut-1")
    finally:
        manager.stop.set()
        manager.join()


def check_layout(racks, name) -> None:
    """Check that a node's layout is written as mig-parted reads it."""
    found = racks.core.read_namespaced_config_map("gangsched-mig-config", "gpu-operator")
    node = racks.core.read_node(name)
    written = json.loads(node.metadata.annotations["gangsched.io/mig-layout"])
    assert written["config"] == node.metadata.labels["nvidia.com/mig.config"]
    assert f"{written['config']}:" in found.data["config.yaml"]


def test_an_unknown_mig_profile_is_reported_at_once(racks, space):
    template = worker(0, **{"nvidia.com/mig-1g.18gb": "1"})
    racks.group(space, "m", roles=[{"name": "w", "count": 1, "template": template}])
    text = message(racks, space, "m", "can be partitioned")
    assert "no GPU of this cluster can be partitioned into 1g.18gb" in text
    assert "A100-40GB has 1g.5gb" in text


def test_defrag_shows_which_gang_to_move(racks, space):
    for name, node in (("x", "a0-0"), ("y", "a1-0"), ("z", "b0-0"), ("w", "b1-0")):
        racks.group(space, name, 1, movable=name == "x")
        racks.pod(
            space,
            f"{name}-0",
            gpus=2,
            labels={"gangsched.io/pod-group": name},
            affinity=likes(node),
        )
    nodes = racks.wait_placed(space, "", 4)
    assert len({in_rack(one) for one in nodes.values()}) == 4
    submit(racks, space, "big", 2, 4, topology={"required": "rack"})
    text = message(racks, space, "big", "It would start after moving")
    assert f"moving {space}/x elsewhere" in text
    asked = ("defrag", "--gang", f"{space}/big")
    code, text = racks.gangsched(*asked, "--output", "json")
    assert code == 0, text
    (move,) = json.loads(text)["moves"]
    assert (move["gang"], move["from"]) == (f"{space}/x", ["a0-0"])
    code, table = racks.gangsched(*asked)
    assert code == 0, table
    assert f"then {space}/big starts" in table
    assert all(len(line) <= 80 for line in table.splitlines())
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"gangsched.io/pod-group": "x"}}},
    }
    racks.kubectl("apply", "-n", space, "-f", "-", stdin=json.dumps(budget))
    code, text = racks.gangsched(*asked)
    assert code == 1
    assert "no moves within the budget free enough" in text


@pytest.fixture
def moving(racks, settings):
    """The same nodes, and from now on a scheduler that may move gangs: the last test uses it."""
    settings.write_text("defragment: apply\nadvice_interval_s: 0.2\n")
    racks.restart("gangsched")
    return racks


def job(name: str, workers: int, gpus: int, annotations: dict[str, str], **spec) -> dict:
    """Return a PyTorchJob of workers."""
    template = worker(gpus)
    template["spec"]["containers"][0]["name"] = "pytorch"
    template["spec"] |= spec
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}},
    }


def test_a_movable_gang_is_moved_and_runs_again(moving, space):
    """Of two racks, one has a gang that may be moved, and the other one that may not."""
    movable = {"gangsched.io/movable": "true"}
    two_racks = {"nodeSelector": {"example.com/rack": "r0"}}  # one in each block
    moving.create_job(space, job("small", 1, 2, movable, affinity=likes("a0-0"), **two_racks))
    moving.create_job(space, job("fixed", 1, 2, {}, affinity=likes("b0-0"), **two_racks))
    before = moving.wait_placed(space, "", 2, 60)
    assert before == {"small-worker-0": "a0-0", "fixed-worker-0": "b0-0"}
    near = {"gangsched.io/topology-required": "rack"}
    moving.create_job(space, job("big", 2, 4, near, **two_racks))
    placed = moving.wait_placed(space, "big-worker-", 2, 60)
    assert sorted(placed.values()) == ["a0-0", "a0-1"]
    again = moving.wait(
        lambda: moving.bound(space, "small-worker-"), "the moved gang to run again", 60
    )
    assert set(again.values()) <= {"b0-0", "b0-1"}
    assert moving.bound(space, "fixed-") == {"fixed-worker-0": "b0-0"}
    assert not moving.overcommitted()
    moving.wait(
        lambda: any(f"Preempted by gang {space}/big" in text for _, text in moving.events(space)),
        "it to be told",
    )
