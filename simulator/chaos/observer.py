"""An observer with its own watch and its own sums, independent of the scheduler's state."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gangsched.api.names import POD_GROUP_LABEL

_GPU = "nvidia.com/gpu"


class _Resources(msgspec.Struct):
    limits: dict[str, str] = {}


class _Container(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 -- the API's name
    containers: list[_Container] = []


class _Meta(msgspec.Struct):
    name: str
    uid: str
    namespace: str = ""
    labels: dict[str, str] = {}
    deletionTimestamp: str = ""  # noqa: N815 -- the API's name


class _Status(msgspec.Struct):
    phase: str = ""


class ObservedPod(msgspec.Struct):
    """The fields of a pod that are checked."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def gang(self) -> str:
        """Return the name of its gang."""
        return self.metadata.labels.get(POD_GROUP_LABEL, "")

    @property
    def gpus(self) -> int:
        """Return how many GPUs the pod requests."""
        return sum(
            int(container.resources.limits.get(_GPU, "0")) for container in self.spec.containers
        )

    @property
    def holds(self) -> bool:
        """Return whether the pod uses capacity of a node."""
        return bool(self.spec.nodeName) and self.status.phase not in ("Succeeded", "Failed")


_decode = msgspec.json.Decoder(ObservedPod).decode


@dataclass(slots=True)
class IndependentObserver:
    """Receives the watch on pods; `violations` has a sentence for each broken invariant."""

    capacity: dict[str, int]
    sizes: dict[str, int] = field(default_factory=dict)
    placed: Callable[[str], bool] = lambda _: False
    """Returns whether the scheduler reports that a gang runs."""

    namespace: str = ""
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    first_s: float = field(default_factory=time.monotonic)
    _excused: set[str] = field(default_factory=set)
    _lost: set[str] = field(default_factory=set)

    def on_update(self, raw: bytes) -> None:
        """Record a pod, and check its node."""
        pod = _decode(raw)
        before = self.pods.get(pod.metadata.uid)
        if pod.spec.nodeName in self._lost:
            self.excuse(pod.gang)
        if pod.metadata.deletionTimestamp or not pod.holds:
            self._look_at_stop(before)
        self.pods[pod.metadata.uid] = pod
        node = pod.spec.nodeName
        if before is not None and before.spec.nodeName and before.spec.nodeName != node:
            self._violated(f"pod {pod.metadata.name} moved from {before.spec.nodeName} to {node}")
        if node and pod.holds and (before is None or not before.spec.nodeName):
            self._look(node)

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Forget a pod."""
        self._look_at_stop(self.pods.get(uid))
        self.pods.pop(uid, None)

    def excuse(self, gang: str) -> None:
        """Allow a gang to end, because its user deletes it or one of its nodes fails."""
        self._excused.add(gang)

    def lose(self, node: str) -> None:
        """Record that a node fails with all its pods."""
        self._lost.add(node)
        for pod in self.pods.values():
            if pod.spec.nodeName == node:
                self.excuse(pod.gang)

    def _look_at_stop(self, before: ObservedPod | None) -> None:
        """Check that a pod that ends belongs to no whole gang without a reason to end."""
        if before is None or before.metadata.deletionTimestamp or not before.holds:
            return
        gang = before.gang
        expected = before.metadata.namespace == self.namespace and gang in self.sizes
        if not expected or gang in self._excused or not self.placed(gang):
            return
        if self.bound(gang) == self.sizes[gang]:
            self._violated(f"pod {before.metadata.name} of {gang}, which ran whole, was deleted")

    def _look(self, node: str) -> None:
        here = [pod for pod in self.pods.values() if pod.holds and pod.spec.nodeName == node]
        used = sum(pod.gpus for pod in here)
        if used > self.capacity.get(node, 0):
            names = ", ".join(sorted(pod.metadata.name for pod in here))
            self._violated(
                f"node {node} has {self.capacity.get(node, 0)} GPUs and pods of {used}: {names}"
            )

    def _violated(self, sentence: str) -> None:
        self.violations.append(f"{time.monotonic() - self.first_s:.1f} s: {sentence}")

    def _staying(self, gang: str) -> list[ObservedPod]:
        return [
            pod
            for pod in self.pods.values()
            if pod.gang == gang and not pod.metadata.deletionTimestamp
        ]

    def members(self, gang: str) -> int:
        """Return how many pods of a gang exist and are not terminating."""
        return len(self._staying(gang))

    def bound(self, gang: str) -> int:
        """Return how many of these pods are bound."""
        return sum(pod.holds for pod in self._staying(gang))

    def would_fit(self, pods: int, gpus: int) -> bool:
        """Return whether `pods` pods with `gpus` GPUs each would fit now."""
        free = dict(self.capacity)
        for pod in self.pods.values():
            if pod.holds:
                free[pod.spec.nodeName] = free.get(pod.spec.nodeName, 0) - pod.gpus
        return sum(left // gpus for left in free.values()) >= pods
