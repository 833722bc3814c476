"""Volumes of process nodes: claims, and folders kept in memory."""

from pathlib import Path

import pytest
from test_faults import wait_reason


@pytest.fixture
def place(laptop):
    """A namespace on process nodes."""
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


def run(laptop, namespace, name, script, volume, path="/data", **mount) -> str:
    """Run a script as a pod with one volume; return its log."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "v", "mountPath": path, **mount}],
    }
    spec = {
        "schedulerName": "gangsched",
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "v", **volume}],
    }
    laptop.core.create_namespaced_pod(namespace, {"metadata": {"name": name}, "spec": spec})

    def ended() -> str | None:
        phase = laptop.core.read_namespaced_pod(name, namespace).status.phase
        return phase if phase in ("Succeeded", "Failed") else None

    assert laptop.wait(ended, f"{name} to end") == "Succeeded"
    return laptop.kubectl("logs", "-n", namespace, name)


def test_a_claim_outlives_its_pods_and_goes_with_itself(laptop, place):
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": "c"}, "spec": spec}
    laptop.core.create_namespaced_persistent_volume_claim(place, body)
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    run(laptop, place, "writer", "mkdir -p /data/deep && echo kept > /data/deep/file", volume)
    assert run(laptop, place, "reader", "cat /data/file", volume, subPath="deep") == "kept\n"
    read_only = {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    log = run(laptop, place, "looker", "touch /data/new 2>/dev/null || echo refused", read_only)
    assert log == "refused\n"
    claim = laptop.core.read_namespaced_persistent_volume_claim("c", place)
    assert claim.spec.storage_class_name == "local"
    name = claim.spec.volume_name
    folder = Path(laptop.core.read_persistent_volume(name).spec.host_path.path)
    assert (folder / "deep" / "file").read_text() == "kept\n"
    for pod in ("writer", "reader", "looker"):
        laptop.core.delete_namespaced_pod(pod, place, grace_period_seconds=0)
    laptop.core.delete_namespaced_persistent_volume_claim("c", place)
    laptop.wait(lambda: not folder.exists(), "the folder to go")
    laptop.wait(
        lambda: name not in {v.metadata.name for v in laptop.core.list_persistent_volume().items},
        "the volume to go",
    )


def test_memory_is_as_large_as_it_was_asked_for(laptop, place):
    """The second guide's /dev/shm."""
    volume = {"emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
    script = "df -k /dev/shm | tail -1; df -h /dev/shm >&2"
    log = run(laptop, place, "shm", script, volume, "/dev/shm")
    assert log.split()[:2] == ["tmpfs", "16384"]


def test_a_bound_claim_takes_its_pods_to_its_node(cluster, namespace):
    """The gang is planned by its volume's node affinity; kube-scheduler refuses node after node."""
    node = "k-3"
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    asked = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
    }
    made = f"made-{namespace}"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": made},
        "spec": {
            **asked,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": namespace, "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {**asked, "volumeName": made, "resources": {"requests": {"storage": "1Gi"}}},
    }
    data = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    if cluster.binding == "direct":
        cluster.gang(namespace, "g", 2, gpus=4, volumes=data)
        wait_reason(cluster, namespace, "BeyondPlanner", said="there is no such claim")
    try:
        make(cluster, namespace, volume, claim)
        if cluster.binding != "direct":  # it would be tried, and tried again ever later
            cluster.gang(namespace, "g", 2, gpus=4, volumes=data)
        assert set(cluster.wait_placed(namespace, "g-", 2).values()) == {node}
    finally:
        cluster.kubectl("delete", "pv", made, "--wait=false")


def make(cluster, namespace, *bodies: dict) -> None:
    """Create objects, those that have a namespace in this one."""
    text = "---\n".join(cluster.yaml(body) for body in bodies)
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=text)


def claim(name: str, storage_class: str) -> dict:
    """Return a claim of a class."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": claim_spec(storage_class),
    }


def claim_spec(storage_class: str) -> dict:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }


def pods_with(cluster, namespace, *volumes: dict, timeout_s: int | None = None) -> None:
    """Create a gang `g` of pods of half a node, each with one of the volumes."""
    more = {} if timeout_s is None else {"scheduleTimeoutSeconds": timeout_s}
    cluster.group(namespace, "g", len(volumes), **more)
    for index, volume in enumerate(volumes):
        labels = {"gangsched.io/pod-group": "g"}
        data = [{"name": "data", **volume}]
        cluster.pod(namespace, f"g-{index}", gpus=4, labels=labels, volumes=data)


def of_claim(name: str) -> dict:
    return {"persistentVolumeClaim": {"claimName": name}}


@pytest.fixture
def storage_class(cluster, namespace):
    """Return what makes a storage class whose claims wait for a node; it is gone afterwards."""
    made = []

    def make(provisioner: str) -> str:
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": f"c{len(made)}-{namespace}"},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        cluster.kubectl("create", "-f", "-", stdin=cluster.yaml(body))
        made.append(body["metadata"]["name"])
        return made[-1]

    yield make
    for name in made:
        cluster.kubectl("delete", "storageclass", name, "--wait=false")


def bound_claim(cluster, namespace, name):
    """Return a claim of a pod that runs, once its status says so too: that is written last."""

    def found():
        claim = cluster.core.read_namespaced_persistent_volume_claim(name, namespace)
        return claim if claim.status.phase == "Bound" else None

    return cluster.wait(found, f"claim {name} to be bound")


def test_claims_that_wait_for_their_pods_are_bound_with_the_gang(cluster, namespace):
    """One is named, the other is made of the template of an ephemeral volume."""
    make(cluster, namespace, claim("own", "local-wait"))
    template = {"volumeClaimTemplate": {"spec": claim_spec("local-wait")}}
    pods_with(cluster, namespace, of_claim("own"), {"ephemeral": template})
    nodes = cluster.wait_placed(namespace, "g-", 2)
    for name, pod in (("own", "g-0"), ("g-1-data", "g-1")):
        found = bound_claim(cluster, namespace, name)
        assert found.metadata.annotations["volume.kubernetes.io/selected-node"] == nodes[pod]


def test_each_of_a_gang_goes_to_a_volume_of_its_own(cluster, namespace, storage_class):
    """Both pods would fit on one node, where there is one volume."""
    made_by_hand = storage_class("kubernetes.io/no-provisioner")
    volumes = []
    for node in ("k-1", "k-3"):
        where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{node}-{namespace}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": made_by_hand,
                "capacity": {"storage": "2Gi"},
                "local": {"path": "/nowhere"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
                },
            },
        }
        volumes.append(body)
    try:
        make(cluster, namespace, *volumes, claim("a", made_by_hand), claim("b", made_by_hand))
        pods_with(cluster, namespace, of_claim("a"), of_claim("b"))
        nodes = cluster.wait_placed(namespace, "g-", 2)
        assert sorted(nodes.values()) == ["k-1", "k-3"]
        for name, pod in (("a", "g-0"), ("b", "g-1")):
            found = cluster.core.read_namespaced_persistent_volume_claim(name, namespace)
            assert found.spec.volume_name == f"{nodes[pod]}-{namespace}"
    finally:
        names = [body["metadata"]["name"] for body in volumes]
        cluster.kubectl("delete", "pv", *names, "--wait=false", "--ignore-not-found")


@pytest.mark.parametrize("cluster", ["direct"], indirect=True)
def test_a_gang_with_an_unanswered_provisioner_does_not_start(cluster, namespace, storage_class):
    silent = storage_class("nobody.example/silent")
    make(cluster, namespace, claim("good", "local-wait"), claim("bad", silent))
    pods_with(cluster, namespace, of_claim("good"), of_claim("bad"), timeout_s=3)
    cluster.wait_event(
        namespace, "Broken", "PersistentVolumeClaim bad was not bound by nobody.example/silent"
    )
    assert not cluster.bound(namespace)
    cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)

    def taken_back() -> bool:
        found = cluster.core.read_namespaced_persistent_volume_claim("bad", namespace)
        return "volume.kubernetes.io/selected-node" not in (found.metadata.annotations or {})

    cluster.wait(taken_back, "the node to be taken back")
