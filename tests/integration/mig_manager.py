"""A stand-in for NVIDIA's mig-manager: applies the label nvidia.com/mig.config on KWOK nodes.

It does to the API what the real one and the device plugin do together: state pending, then the new
resources in the node's allocatable, then state success. It refuses to cut a GPU in use.
"""

import threading

import yaml
from kubernetes import client

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"


class MigManager(threading.Thread):
    """Runs until `stop` is set; `cuts` lists what it was asked to do, `errors` what was wrong."""

    def __init__(self, api, delay_s: float = 0.5) -> None:
        super().__init__(daemon=True)
        self.core = client.CoreV1Api(api)
        self.stop = threading.Event()
        self.cuts: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.fail = False
        self._delay_s = delay_s
        # Looked at here and not by the thread: what is asked from now on is new.
        self._done = {name: config for name, config, _ in self._asked()}

    def run(self) -> None:
        while not self.stop.wait(0.1):
            for name, config, allocatable in self._asked():
                if self._done.get(name) != config:
                    self._done[name] = config
                    self.cuts.append((name, config))
                    self._cut(name, config, allocatable)

    def _asked(self) -> list[tuple[str, str, dict[str, str]]]:
        """Return what nodes are asked to be, and what they offer."""
        return [
            (node.metadata.name, node.metadata.labels[CONFIG], node.status.allocatable)
            for node in self.core.list_node(label_selector=CONFIG).items
        ]

    def _cut(self, name: str, config: str, before: dict[str, str]) -> None:
        self._label(name, "pending")
        self.stop.wait(self._delay_s)
        if self.fail:
            self._label(name, "failed")
            return
        found = self.core.read_namespaced_config_map("gangsched-mig-config", "gpu-operator")
        entries = yaml.safe_load(found.data["config.yaml"])["mig-configs"]
        offered: dict[str, int] = {}
        for part in entries[config]:
            layout = part.get("mig-devices", {}) if part["mig-enabled"] else {}
            resources = {f"nvidia.com/mig-{p.replace('+', '.')}": n for p, n in layout.items()}
            for resource, count in (resources or {"nvidia.com/gpu": 1}).items():
                offered[resource] = offered.get(resource, 0) + count * len(part["devices"])
        self._in_use(name, offered)
        gone = [r for r in before if r.startswith("nvidia.com/") and r not in offered]
        amounts = {r: str(n) for r, n in offered.items()} | dict.fromkeys(gone)
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        self.core.patch_node_status(name, status)
        self._label(name, "success")

    def _in_use(self, name: str, offered: dict[str, int]) -> None:
        pods = self.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={name}").items
        for pod in pods:
            if pod.status.phase in ("Succeeded", "Failed"):
                continue  # it holds nothing any more
            for container in pod.spec.containers:
                for resource, amount in (container.resources.requests or {}).items():
                    if resource.startswith("nvidia.com/") and offered.get(resource, 0) < int(
                        amount
                    ):
                        self.errors.append(f"{resource} of {pod.metadata.name} taken away")

    def _label(self, name: str, state: str) -> None:
        self.core.patch_node(name, {"metadata": {"labels": {STATE: state}}})
