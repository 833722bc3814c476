"""The real nodes, pods and their requests, with arithmetic independent of the scheduler.

A pod that names its own node is admitted as by a kubelet: if it fits beside the running pods and
the assignments.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from simulator.hostile.templates import GPU, NODES, Json

Amounts = dict[str, int]

ALLOCATABLE: Mapping[str, int] = {"cpu": 64_000, "memory": 256 * 2**30, GPU: 8, "pods": 110}
"""The allocatable amounts of each node; cpu in thousandths."""

GPU_MIB = 80_000
OWN_SHARE: Mapping[str, int] = {"cpu": 32_000, "memory": 128 * 2**30, GPU: 4, "pods": 50}
"""The ResourceQuota of a namespace, which limits pods that name their own node."""

_BINARY = {
    unit: 2 ** (10 * (at + 1)) for at, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL: Mapping[str, Fraction | int] = {
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}


def whole_amount(resource: str, value: object) -> int:
    """Return a quantity: cpu in thousandths, all else in whole units."""
    text = str(value)
    unit = next((suffix for suffix in _BINARY if text.endswith(suffix)), "")
    factor: Fraction | int = _BINARY.get(unit, 1)
    if not unit and text[-1:] in _DECIMAL:
        unit = text[-1]
        factor = _DECIMAL[unit]
    exact = Fraction(text.removesuffix(unit)) * factor
    return ceil(exact * 1000) if resource == "cpu" else ceil(exact)


def kubelet_requests(spec: Json) -> Amounts:
    """Return what a pod requests of its node, computed as by a kubelet."""
    total: Amounts = defaultdict(int)
    sidecars: Amounts = defaultdict(int)
    largest: Amounts = defaultdict(int)
    for container in spec.get("containers", ()):
        _add(total, _of(container))
    for container in spec.get("initContainers", ()):
        step = defaultdict(int, _of(container))
        if container.get("restartPolicy") == "Always":
            _add(total, step)
            _add(sidecars, step)
            step = defaultdict(int, sidecars)
        else:
            _add(step, sidecars)
        for resource, value in step.items():
            largest[resource] = max(largest[resource], value)
    for resource, value in largest.items():
        total[resource] = max(total[resource], value)
    return dict(total)


def allocated(document: Json) -> Amounts:
    """Return what a pod requests, or still holds during a resize: the larger amounts."""
    total = kubelet_requests(document["spec"])
    statuses = document.get("status", {}).get("containerStatuses") or ()
    running: Amounts = defaultdict(int)
    for container in statuses:
        _add(running, _of({"resources": {"requests": container.get("allocatedResources") or {}}}))
    for resource, value in running.items():
        total[resource] = max(total.get(resource, 0), value)
    return total


def host_ports(spec: Json) -> set[int]:
    """Return the ports of its node that a pod uses."""
    sidecars = [c for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    return {
        port["hostPort"]
        for container in (*spec.get("containers", ()), *sidecars)
        for port in container.get("ports", ())
        if port.get("hostPort")
    }


def _of(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    requests = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {resource: whole_amount(resource, value) for resource, value in requests.items()}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value


@dataclass(slots=True)
class RealPod:
    """A real pod; `by_us` is set if an order of the scheduler bound it."""

    document: Json
    asks: Amounts
    by_us: bool = False
    devices: tuple[int, ...] = ()

    @property
    def uid(self) -> str:
        """Return the uid of the pod."""
        return str(self.document["metadata"]["uid"])

    @property
    def key(self) -> str:
        """Return namespace and name."""
        metadata = self.document["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    @property
    def namespace(self) -> str:
        """Return the namespace of the pod."""
        return str(self.document["metadata"]["namespace"])

    @property
    def node(self) -> str:
        """Return the node of the pod, "" without one."""
        return str(self.document["spec"].get("nodeName", ""))

    @property
    def holds(self) -> bool:
        """Return whether the pod uses capacity of a node."""
        ended = self.document.get("status", {}).get("phase") in ("Succeeded", "Failed")
        return self.node in NODES and not ended

    @property
    def share_milli(self) -> int:
        """Return the thousandths of each shared GPU that the pod has."""
        annotations = self.document["metadata"].get("annotations") or {}
        if not self.devices:
            return 0
        if "gpu-memory" in annotations:
            return ceil(int(annotations["gpu-memory"]) * 1000 / GPU_MIB)
        return round(float(annotations.get("gpu-fraction", 0)) * 1000)


@dataclass(slots=True)
class Truth:
    """The existing pods by uid, and the assignments of pods that do not exist yet."""

    pods: dict[str, RealPod] = field(default_factory=dict)
    assigned: dict[str, dict[str, tuple[str, Amounts]]] = field(default_factory=dict)
    """By gang: pod name -> its node, and the amounts assigned there."""

    def here(self, node: str) -> Iterable[RealPod]:
        """Return the pods that use capacity of a node."""
        return [pod for pod in self.pods.values() if pod.holds and pod.node == node]

    def used(self, node: str) -> Amounts:
        """Return what pods use of a node; a shared GPU counts once."""
        total: Amounts = {"pods": 0}
        shared: set[int] = set()
        for pod in self.here(node):
            _add(total, pod.asks)
            total["pods"] += 1
            shared.update(pod.devices)
        total[GPU] = total.get(GPU, 0) + len(shared)
        return total

    def overcommitted(self, node: str) -> list[str]:
        """Return a sentence for each over-committed resource of a node."""
        used = self.used(node)
        problems = [
            f"{node} has {ALLOCATABLE[resource]} of {resource}, and pods of {used[resource]}"
            for resource in ALLOCATABLE
            if used.get(resource, 0) > ALLOCATABLE[resource]
        ]
        taken: set[int] = set()
        for pod in self.here(node):
            ports = host_ports(pod.document["spec"])
            if pod.by_us and not taken.isdisjoint(ports):
                problems.append(f"two pods of {node} take port {min(taken & ports)}")
            taken |= ports
        share_of: dict[int, int] = defaultdict(int)
        for pod in self.here(node):
            for device in pod.devices:
                share_of[device] += pod.share_milli
        problems += [
            f"GPU {device} of {node} is shared by pods of {milli} thousandths"
            for device, milli in share_of.items()
            if milli > 1000 or device >= ALLOCATABLE[GPU]
        ]
        return problems

    def held(self, namespace: str, *, by_us: bool) -> Amounts:
        """Return what a namespace holds, of what was or was not given by the scheduler."""
        total: Amounts = defaultdict(int)
        for pod in self.pods.values():
            if pod.holds and pod.namespace == namespace and pod.by_us == by_us:
                _add(total, pod.asks)
                total["pods"] += 1
                total["gpu-milli"] += pod.asks.get(GPU, 0) * 1000
                total["gpu-milli"] += pod.share_milli * len(pod.devices)
        return total

    def admits(self, pod: RealPod) -> bool:
        """Return whether kubelet and ResourceQuota admit a pod that names its own node."""
        if pod.node not in NODES:
            return False
        asks = {"pods": 1} | {key: value for key, value in pod.asks.items() if key in ALLOCATABLE}
        used = self.used(pod.node)
        for places in self.assigned.values():
            for name, (node, planned) in places.items():
                if node == pod.node and not self._is_there(name):
                    _add(used, planned)
                    used["pods"] += 1
        own = self.held(pod.namespace, by_us=False)
        return all(
            used.get(key, 0) + value <= ALLOCATABLE[key]
            and own.get(key, 0) + value <= OWN_SHARE[key]
            for key, value in asks.items()
        )

    def _is_there(self, name: str) -> bool:
        return any(pod.key == name and pod.holds for pod in self.pods.values())
