"""Volumes of process nodes: claims, and folders kept in memory."""

from pathlib import Path

import pytest


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
    cluster.gang(namespace, "g", 2, gpus=4, volumes=data)
    if cluster.binding == "direct":
        cluster.wait(
            lambda: (
                "there is no such claim" in cluster.group_status(namespace, "g").get("message", "")
            ),
            "the reason",
        )
    try:
        for body in (volume, claim):
            cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=cluster.yaml(body))
        assert set(cluster.wait_placed(namespace, "g-", 2).values()) == {node}
    finally:
        cluster.kubectl("delete", "pv", made, "--wait=false")
