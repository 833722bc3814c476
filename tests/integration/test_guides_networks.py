"""The third guide's examples, and TensorFlow and network examples of the second, unchanged."""

import json
import textwrap

import pytest
import yaml
from test_guides import GUIDES, blocks, needs_guides

pytestmark = pytest.mark.by("extender")  # its controllers do not see who binds

A100 = {"accelerator": "nvidia-a100", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


@pytest.fixture
def kubeflow(cluster):
    """The namespace of the third guide, with what it takes for granted."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    code = {"metadata": {"name": "mnist-training-code"}, "data": {"mnist_train.py": ""}}
    with cluster.named_namespace("kubeflow") as namespace:
        for name in ("model-storage", "imagenet-data"):
            claim = {"metadata": {"name": name}, "spec": spec}
            cluster.core.create_namespaced_persistent_volume_claim(namespace, claim)
        cluster.core.create_namespaced_config_map(namespace, code)
        yield namespace


def environment(cluster, namespace, pod) -> dict[str, str]:
    """Return the variables of a pod's container."""
    (container,) = cluster.core.read_namespaced_pod(pod, namespace).spec.containers
    return {one.name: one.value for one in container.env or []}


def only_kube_scheduler_knows_volumes(cluster, namespace, name) -> bool:
    """Tell whether the job waits since nobody here checks claims, which is what it is told."""
    if cluster.binding != "direct":
        return False
    cluster.wait(
        lambda: "PersistentVolumeClaim" in cluster.group_status(namespace, name).get("message", ""),
        "the reason",
    )
    assert not cluster.bound(namespace)
    return True


def finish(cluster, namespace, pod) -> None:
    """Have a KWOK pod that runs end well."""
    cluster.wait(
        lambda: cluster.core.read_namespaced_pod(pod, namespace).status.phase == "Running",
        f"{pod} to run",  # KWOK would say so afterwards
    )
    state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    status = {"name": "tensorflow", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    body = {"status": {"phase": "Succeeded", "containerStatuses": [status | {"state": state}]}}
    cluster.core.patch_namespaced_pod_status(pod, namespace, body)


@needs_guides
def test_tfjob_mnist(cluster, kubeflow):
    """Parameter servers and workers start together; worker 0 decides; a server does not outlive."""
    cluster.kubectl(
        "apply", "--validate=strict", "-f", "-", stdin=blocks("002")["tfjob-mnist.yaml"]
    )
    if only_kube_scheduler_knows_volumes(cluster, kubeflow, "mnist-training"):
        return
    pods = {"mnist-training-ps-0", *(f"mnist-training-worker-{i}" for i in range(4))}
    cluster.wait(lambda: set(cluster.bound(kubeflow)) == pods, "five pods on nodes")
    config = json.loads(environment(cluster, kubeflow, "mnist-training-worker-2")["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 2}
    assert config["cluster"]["ps"] == ["mnist-training-ps-0.kubeflow.svc:2222"]
    assert len(config["cluster"]["worker"]) == 4
    cluster.wait(lambda: cluster.is_true(kubeflow, "mnist-training", "Running", "TFJob"), "it")
    finish(cluster, kubeflow, "mnist-training-worker-0")
    cluster.wait(
        lambda: cluster.is_true(kubeflow, "mnist-training", "Succeeded", "TFJob"), "its success"
    )
    assert (
        cluster.kubectl("get", "tfjobs", "-n", kubeflow, "--no-headers").split()[1] == "Succeeded"
    )


@needs_guides
def test_pytorchjob_resnet_keeps_its_static_rendezvous(cluster, kubeflow):
    text = blocks("002")["pytorchjob-resnet.yaml"]
    cluster.kubectl("apply", "--validate=strict", "-f", "-", stdin=text)
    name = "resnet-distributed"
    if only_kube_scheduler_knows_volumes(cluster, kubeflow, name):
        return
    pods = {f"{name}-master-0", *(f"{name}-worker-{i}" for i in range(3))}
    cluster.wait(lambda: set(cluster.bound(kubeflow)) == pods, "four pods on nodes")
    for rank, pod in enumerate([f"{name}-master-0", *(f"{name}-worker-{i}" for i in range(3))]):
        found = environment(cluster, kubeflow, pod)
        assert (found["RANK"], found["WORLD_SIZE"]) == (str(rank), "4")
        assert found["MASTER_ADDR"] == f"{name}-master-0"
        assert not [key for key in found if key.startswith("PET_RDZV_")], (
            "an elastic default would overrule the command's own rendezvous"
        )


@needs_guides
def test_gpu_node_affinity_starts_all_32_gpus_or_none(cluster, namespace):
    text = blocks("002")["gpu-node-affinity.yaml"]
    cluster.apply(namespace, text)
    cluster.wait(
        lambda: (
            "nodeSelector" in cluster.group_status(namespace, "a100-training").get("message", "")
        ),
        "why not",
    )
    try:
        for number in range(3):
            cluster.core.patch_node(f"k-{number}", {"metadata": {"labels": A100}})
        cluster.stays(lambda: not cluster.bound(namespace), 2, "a part of the gang")
        cluster.core.patch_node("k-3", {"metadata": {"labels": A100}})
        found = cluster.wait_placed(namespace, "a100-training-", 4)
        assert sorted(found.values()) == ["k-0", "k-1", "k-2", "k-3"]
        cluster.wait(lambda: cluster.is_true(namespace, "a100-training", "Running"), "it to run")
    finally:
        for number in range(4):
            gone = dict.fromkeys(A100)
            cluster.core.patch_node(f"k-{number}", {"metadata": {"labels": gone}})


@needs_guides
def test_single_pods_are_gangs_of_one(cluster, namespace):
    """The guide's pods as they are, and with our name: then what is missing is told."""
    for name in ("gpu-training-pod.yaml", "mig-training.yaml"):
        document = yaml.safe_load(blocks("002")[name])
        cluster.kubectl(
            "create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(document)
        )
        document["spec"]["schedulerName"] = "gangsched"
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(document))
    cluster.wait_placed(namespace, "gpu-training", 1)
    cluster.wait(
        lambda: any(
            "3g.20gb" in message for _, message in cluster.events(namespace, "mig-training")
        ),
        "the reason",
    )


TENSORFLOW = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: tensorflow-distributed
  namespace: default
spec:
  tfReplicaSpecs:
    Chief:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: tensorflow
            image: tensorflow/tensorflow:2.13.0-gpu
            command:
            - python
            - /opt/training/train.py
            resources:
              limits:
                nvidia.com/gpu: 1
                memory: 16Gi
              requests:
                nvidia.com/gpu: 1
                memory: 16Gi
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: tensorflow
            image: tensorflow/tensorflow:2.13.0-gpu
            command:
            - python
            - /opt/training/train.py
            resources:
              limits:
                nvidia.com/gpu: 1
                memory: 16Gi
              requests:
                nvidia.com/gpu: 1
                memory: 16Gi
"""


@needs_guides
def test_the_text_below_is_the_second_guides():
    """Its indentation was lost; its words were not."""
    (path,) = GUIDES.glob("001_*.txt")
    flat = [line.strip() for line in TENSORFLOW.strip().splitlines()]
    given = [line.strip() for line in path.read_text().splitlines()]
    first = given.index("kind: TFJob") - 1
    assert given[first : first + len(flat)] == flat


def test_tfjob_with_a_chief(cluster):
    name = "tensorflow-distributed"
    cluster.kubectl("apply", "--validate=strict", "-f", "-", stdin=TENSORFLOW)
    try:
        cluster.wait_placed("default", f"{name}-", 3)
        config = json.loads(environment(cluster, "default", f"{name}-worker-1")["TF_CONFIG"])
        assert config["cluster"]["chief"] == [f"{name}-chief-0.default.svc:2222"]
        finish(cluster, "default", f"{name}-chief-0")
        cluster.wait(
            lambda: cluster.is_true("default", name, "Succeeded", "TFJob"), "the chief to decide"
        )
    finally:
        cluster.kubectl("delete", "tfjob", name, "-n", "default")
        cluster.wait(lambda: not cluster.bound("default", name), "its pods to go")


HOST_NETWORK = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: NAME}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          hostNetwork: true
          dnsPolicy: ClusterFirstWithHostNet
          containers:
          - name: pytorch
            image: x
            resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_jobs_in_the_nodes_network_keep_out_of_each_others_way(cluster, namespace):
    """Every pod listens on port 23456 of its node: no two on one node, of one job or of two."""
    for name in ("one", "two"):
        cluster.apply(namespace, textwrap.dedent(HOST_NETWORK).replace("NAME", name))
    nodes = cluster.wait_placed(namespace, "", 4)
    assert sorted(nodes.values()) == ["k-0", "k-1", "k-2", "k-3"]
    cluster.apply(namespace, HOST_NETWORK.replace("NAME", "three"))
    cluster.wait(
        lambda: "port" in cluster.group_status(namespace, "three").get("message", ""),
        "why it waits",
    )
    cluster.stays(lambda: not cluster.bound(namespace, "three"), 1, "a part of the third")
