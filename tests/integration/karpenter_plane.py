"""A control plane whose nodes come from the real Karpenter, with its provider of KWOK nodes."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import yaml
from cluster import GPU, Cluster
from conftest import a_plane
from upstream import KARPENTER
from waiting import patience_s

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import PlaneOptions, client_environment

API = "karpenter.sh", "v1"
NODES = NodeFile(nodes=(NodeGroup(name="head", kind="kwok", count=1, taints=()),))
"""One node without GPUs. Without any, the control plane would have no KWOK."""

LABELS = {"bought": "true", "gangsched.io/node-kind": "kwok"}
RESOURCES = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}


def node_pool(name: str, gpus: int) -> dict:
    """Return a NodePool at zero that may have so many GPUs."""
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    key = "node.kubernetes.io/instance-type"
    spec = {
        "nodeClassRef": node_class,
        "requirements": [{"key": key, "operator": "In", "values": ["h100", "a100"]}],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
            "limits": {GPU: str(gpus)},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized",
                           "consolidateAfter": "0s"},
        },
    }  # fmt: skip


def instance_type(name: str, price: float) -> dict:
    requirements = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (
            ("karpenter.sh/capacity-type", "on-demand"),
            ("topology.kubernetes.io/zone", "zone-a"),
        )
    ]
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": RESOURCES,
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
    }


class Bought:
    """A control plane without GPUs, with Karpenter, and a scheduler that wants nodes."""

    def __init__(self, plane, folder: Path, settings: dict) -> None:
        self.cluster, self.plane, self.folder = Cluster(plane, "direct"), plane, folder
        self.scheduler = self.karpenter = None
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        types = [instance_type("h100", 98.25), instance_type("a100", 40.0)]
        (folder / "types.json").write_text(json.dumps(types))

    def install(self) -> None:
        """Create Karpenter's kinds as they are in its module, two pools, and start it."""
        source = KARPENTER.source()
        crds = [*(source / "pkg/apis/crds").iterdir(), *(source / "kwok/apis/crds").iterdir()]
        for path in crds:
            self.cluster.kubectl("apply", "--server-side", "-f", str(path))
        self.cluster.kubectl("wait", "--for=condition=Established", "--all", "crd")
        node_class = {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "spec": {"nodeRegistrationDelay": "1s"},
        }
        for body in (node_class, node_pool("gpu", 16), node_pool("small", 8)):
            self.cluster.apply("default", json.dumps(body))
        environment = {
            **os.environ,
            **client_environment(self.plane),
            "DISABLE_LEADER_ELECTION": "true",
            "FEATURE_GATES": "CapacityBuffer=true",
            "METRICS_PORT": "0",
            "HEALTH_PROBE_PORT": "0",
            "KARPENTER_SERVICE": "karpenter",
            "SYSTEM_NAMESPACE": "default",
            "INSTANCE_TYPES_FILE_PATH": str(self.folder / "types.json"),
        }
        self.karpenter = self._run([str(KARPENTER.program())], environment, "karpenter")

    def start(self) -> None:
        own = self.plane.folder / "gangsched.kubeconfig"  # least privilege, as it is deployed
        command = [sys.executable, "-m", "gangsched", "run", "--binding", "direct"]
        command += ["--config", str(self.config), "--kubeconfig", str(own)]
        environment = {**os.environ, **client_environment(self.plane)}
        self.scheduler = self._run(command, environment, "gangsched")

    def _run(self, command, environment, name):
        with (self.plane.programs.logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait(patience_s(30))

    def stop(self) -> None:
        for process in (self.scheduler, self.karpenter):
            if process is not None:
                process.kill()
                process.wait(patience_s(30))

    def claims(self) -> list[dict]:
        return self.cluster.custom.list_cluster_custom_object(*API, "nodeclaims")["items"]

    def nodes(self) -> list:
        return self.cluster.core.list_node(label_selector="bought=true").items

    def bound(self, namespace: str, gang: str) -> set[str]:
        """Return the nodes on which pods of a gang are."""
        pods = self.cluster.core.list_namespaced_pod(
            namespace, label_selector=f"gangsched.io/pod-group={gang}"
        )
        return {pod.spec.node_name for pod in pods.items if pod.spec.node_name}

    def wait_until_given_back(self) -> None:
        """Wait until no node is left that was made for a gang."""
        self.cluster.wait(lambda: not self.claims(), "all claims to be given back", 120)
        self.cluster.wait(lambda: not self.nodes(), "all nodes to be gone", 120)


@contextmanager
def karpenter_plane(name: str, folder: Path, settings: dict):
    """Run a control plane with Karpenter and a scheduler with these settings."""
    options = PlaneOptions(binding="off", operators=False)
    with a_plane(name, NODES, options) as plane:
        made = Bought(plane, folder, settings)
        try:
            made.install()
            made.start()
            yield made
        finally:
            made.stop()
