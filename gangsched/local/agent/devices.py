"""Which container holds which GPU of this machine, for the pods of process nodes.

    GPUs of the machine -> process nodes, as they declare them -> pods -> their containers

All process nodes share one machine. A node has GPUs only if the machine still has all that the node
declares; else what it declares are stand-ins, and its pods see no GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangsched.kube.decoding.quantities import quantity
from gangsched.local.agent.spec import Json, PodError
from gangsched.local.gpus import WHOLE, Device, MachineGpus
from gangsched.local.nodes import NodeFile

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MOST_NAMED = 64
_MIG = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True)
class PodDevices:
    """The devices of one pod by container; `hidden` are the device files it must not open.

    `known` is False on a machine without GPUs: then no variable is set.
    """

    by_container: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    known: bool = False

    def variables(self, container: str, wanted: str | None) -> dict[str, str]:
        """Return the variables that show a container its devices, and no others.

        `wanted` is the value of CUDA_VISIBLE_DEVICES in the pod's spec. It counts the container's
        own devices, as in any container, so it can only leave some of them out.
        """
        if not self.known:
            return {}
        own = [device.uuid for device in self.by_container.get(container, ())]
        seen = own if wanted is None else _narrowed(own, wanted)
        return {
            _VISIBLE: ",".join(seen),
            "NVIDIA_VISIBLE_DEVICES": ",".join(own) or "void",
        }


def _narrowed(own: Sequence[str], wanted: str) -> list[str]:
    """Return the devices that CUDA shows for a value of its variable, up to the first error."""
    seen: list[str] = []
    for name in wanted.split(",", _MOST_NAMED)[:_MOST_NAMED]:
        text = name.strip()
        if text.isascii() and text.isdecimal() and len(text) < 4:
            matching = own[int(text) : int(text) + 1]
        else:
            matching = [uuid for uuid in own if text and uuid.startswith(text)]
        if len(matching) != 1 or matching[0] in seen:
            break
        seen += matching
    return seen


class DevicePool:
    """The devices of the process nodes: free ones, and those that pods hold."""

    def __init__(
        self,
        machine: MachineGpus = MachineGpus(),  # noqa: B008 -- it cannot change
        nodes: Iterable[tuple[str, Mapping[str, str]]] = (),
    ) -> None:
        """`nodes` are names with what each declares; those that come first are served first."""
        self._machine = machine
        self._free: dict[tuple[str, str], list[Device]] = {}
        self._held: dict[str, tuple[str, PodDevices]] = {}
        self._total: dict[tuple[str, str], int] = {}
        left = {name: list(_of(machine.devices, name)) for name in machine.amounts()}
        for node, declared in nodes:
            asked = {n: quantity(n, count) for n, count in declared.items() if _is_device(n)}
            if any(len(left.get(name, ())) < count for name, count in asked.items()):
                continue
            for name, count in asked.items():
                self._free[node, name], left[name] = left[name][:count], left[name][count:]
                self._total[node, name] = count

    def nodes(self) -> list[str]:
        """Return the names of the nodes with GPUs of this machine."""
        return list(dict.fromkeys(node for node, _ in self._free))

    def take(self, pod: Json) -> PodDevices:
        """Give a pod the devices that its containers ask for; a pod that has some keeps them.

        Raises:
            PodError: pods that end still hold them.

        """
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if uid in self._held:
            return self._held[uid][1]
        given: dict[str, Device] = {}
        by_container: dict[str, list[Device]] = {}
        for resource in sorted({name for owner, name in self._free if owner == node}):
            needs = _needs(pod, resource)
            free, count = (
                self._free[node, resource],
                max((end for _, end in needs.values()), default=0),
            )
            if count > len(free):
                self._return(node, given.values())
                raise PodError(
                    "DeviceUnavailable",
                    f"the pod needs {count} {resource}, and {len(free)} of "
                    f"{self._total[node, resource]} of node {node} are free",
                )
            devices, self._free[node, resource] = free[:count], free[count:]
            given |= {device.uuid: device for device in devices}
            for container, (first, end) in needs.items():
                by_container.setdefault(container, []).extend(devices[first:end])
        pod_devices = PodDevices(
            {name: tuple(devices) for name, devices in by_container.items()},
            self._hidden(given.values()),
            known=bool(self._machine.gpus),
        )
        self._held[uid] = (node, pod_devices)
        return pod_devices

    def release(self, uid: str) -> None:
        """Take back the devices of a pod without processes."""
        node, held = self._held.pop(uid, ("", PodDevices()))
        devices = {d.uuid: d for part in held.by_container.values() for d in part}
        self._return(node, devices.values())

    def _return(self, node: str, devices: Iterable[Device]) -> None:
        for device in devices:
            free = self._free[node, device.resource]
            free.append(device)
            free.sort(key=self._machine.devices.index)

    def _hidden(self, given: Iterable[Device]) -> tuple[Path, ...]:
        """Return the device files of all GPUs that a pod has no part of."""
        own = {device.gpu.uuid for device in given}
        others = [gpu for gpu in self._machine.gpus if gpu.uuid not in own]
        return tuple(Path(f"/dev/nvidia{gpu.minor}") for gpu in others if gpu.minor is not None)


def device_pool(nodes: NodeFile, machine: MachineGpus) -> DevicePool:
    """Return the devices of a machine, for the process nodes that have them."""
    manifests = [m for group in nodes.of_kind("process") for m in group.manifests()]
    declared = [(m["metadata"]["name"], m["status"]["allocatable"]) for m in manifests]
    return DevicePool(machine, declared)


def _of(devices: Iterable[Device], resource: str) -> list[Device]:
    return [device for device in devices if device.resource == resource]


def _is_device(resource: str) -> bool:
    return resource == WHOLE or resource.startswith(_MIG)


def _needs(pod: Json, resource: str) -> dict[str, tuple[int, int]]:
    """Return which devices of a pod's own each container sees: container -> (first, end).

    Sidecars and containers have devices of their own. An init container uses those that the
    containers get after it, as the kubelet gives them out.
    """
    needs: dict[str, tuple[int, int]] = {}
    taken = 0
    for container in pod["spec"].get("initContainers", []):
        count = _count(container, resource)
        needs[container["name"]] = (taken, taken + count)
        if container.get("restartPolicy") == "Always":
            taken += count
    for container in pod["spec"]["containers"]:
        count = _count(container, resource)
        needs[container["name"]] = (taken, taken + count)
        taken += count
    return needs


def _count(container: Json, resource: str) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return quantity(resource, limits.get(resource, "0"))
