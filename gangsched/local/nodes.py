"""Nodes of a local control plane, from a small YAML: KWOK nodes and process nodes."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gangsched.config import ConfigError, one_sentence
from gangsched.local.gpus import WHOLE, MachineGpus

_LABEL_LETTERS = 63
KIND_LABEL = "gangsched.io/node-kind"
RACK_LABEL = "topology.gangsched.io/rack"
KWOK_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}


class NodeGroup(BaseModel):
    """Equal nodes; their names are `<name>-<index>`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    kind: Literal["kwok", "process"] = "kwok"
    count: int = Field(1, ge=1, le=100_000)
    cpu: str = "96"
    memory: str = "1Ti"
    pods: int = Field(110, ge=1)
    gpus: int = Field(0, ge=0, le=64)
    gpu_model: str = ""
    rack_size: int = Field(0, ge=0)
    """Nodes in one rack; 0: no rack label."""
    extended: dict[str, int] = {}
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] | None = None
    """None: KWOK nodes get KWOK's taint, so that pods with real work do not run on them."""

    def names(self) -> list[str]:
        """Return the name of every node of the group."""
        width = len(str(self.count - 1))
        return [f"{self.name}-{index:0{width}}" for index in range(self.count)]

    def label_keys(self) -> set[str]:
        """Return the labels of the nodes beside the usual ones."""
        return set(self.labels) | ({RACK_LABEL} if self.rack_size else set())

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Node objects to create."""
        return [self._manifest(index, name) for index, name in enumerate(self.names())]

    def _manifest(self, index: int, name: str) -> dict[str, Any]:
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            KIND_LABEL: self.kind,
        }
        if self.rack_size:
            labels[RACK_LABEL] = f"{self.name}-rack-{index // self.rack_size}"
        if self.gpu_model:
            labels["nvidia.com/gpu.product"] = self.gpu_model
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        if self.kind == "process":
            amounts["ephemeral-storage"] = "100Gi"  # every kubelet has some to give
        if self.gpus:
            amounts["nvidia.com/gpu"] = str(self.gpus)
        amounts |= {resource: str(count) for resource, count in self.extended.items()}
        default = [KWOK_TAINT] if self.kind == "kwok" else []
        taints = list(self.taints) if self.taints is not None else default
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels | self.labels,
                "annotations": {"kwok.x-k8s.io/node": "fake"} if self.kind == "kwok" else {},
            },
            "spec": {"taints": taints} if taints else {},
            "status": {"allocatable": amounts, "capacity": amounts},
        }


def check_distinct_names(groups: Iterable[NodeGroup]) -> None:
    """Check that no two groups have one name.

    Raises:
        ValueError: two groups have one name.

    """
    names = [group.name for group in groups]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two groups are named {twice[0]!r}; each name may appear once")


class NodeFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: tuple[NodeGroup, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> "NodeFile":
        check_distinct_names(self.nodes)
        return self

    def of_kind(self, kind: str) -> list[NodeGroup]:
        """Return the groups of one kind."""
        return [group for group in self.nodes if group.kind == kind]


DEFAULT = NodeFile(
    nodes=(NodeGroup(name="local", kind="process", count=2, cpu="64", memory="64Gi", gpus=4),)
)


OF_MACHINE = {"nodes": [{"name": "local", "kind": "process", "gpus": "machine"}]}
"""A node file of one process node with all GPUs of this machine, for `read_nodes`."""


def load_nodes(path: Path | None, machine: MachineGpus | None = None) -> NodeFile:
    """Read a node file; without one, two process nodes with four GPUs each.

    Raises:
        ConfigError: the file is missing, is no mapping, or a field is wrong; or a group has the
            GPUs of the machine, which has none.

    """
    if path is None:
        return DEFAULT
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return read_nodes(values or {}, str(path), machine)


def read_nodes(values: Any, where: str, machine: MachineGpus | None = None) -> NodeFile:
    """Return the nodes of a file's content; errors begin with `where`.

    Raises:
        ConfigError: as `load_nodes`.

    """
    try:
        return NodeFile.model_validate(_with_machine(values, machine or MachineGpus()))
    except ValidationError as error:
        raise ConfigError(one_sentence(error, where)) from error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _with_machine(values: Any, machine: MachineGpus) -> Any:
    """Replace `gpus: machine` of a group by what nvidia-smi lists on this machine."""
    groups = values.get("nodes") if isinstance(values, dict) else None
    if not isinstance(groups, list):
        return values
    replaced = [
        _group_with_machine(group, machine)
        if isinstance(group, dict) and group.get("gpus") == "machine"
        else group
        for group in groups
    ]
    return values | {"nodes": replaced}


def _group_with_machine(group: dict[str, Any], machine: MachineGpus) -> dict[str, Any]:
    name = f"nodes: group {group.get('name')!r}"
    if group.get("kind") != "process" or group.get("count", 1) != 1:
        raise ConfigError(f"{name}: gpus: machine is allowed for one node, of kind process")
    if not machine.devices:
        raise ConfigError(
            f"{name}: gpus: machine needs a GPU, and nvidia-smi lists none on this machine; "
            f"use a number for GPUs that are only counted"
        )
    amounts: dict[str, Any] = machine.amounts()
    first = machine.devices[0].gpu
    whole = amounts.pop(WHOLE, 0)
    memory = {"nvidia.com/gpu.memory": str(first.memory_mib)} if first.memory_mib else {}
    model = re.sub(r"[^A-Za-z0-9_.-]+", "-", first.model)[:_LABEL_LETTERS].strip("-_.")
    found = {"gpu_model": model, "extended": amounts, "labels": memory}
    for field, values in found.items():
        written = group.get(field, {})
        if isinstance(values, dict) and isinstance(written, dict):
            found[field] = values | written
        elif field in group:
            found[field] = written  # what is wrong in it is said when the file is checked
    return group | found | {"gpus": whole}
