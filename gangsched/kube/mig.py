"""MIG on real nodes: reading their layouts, and having NVIDIA's mig-manager cut them anew.

The mig-manager watches the node label nvidia.com/mig.config. It names an entry of a ConfigMap in
mig-parted's format; we write the entry, then the label, and wait for the new allocatable.
"""

import contextlib
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import yaml

from gangsched.api import names
from gangsched.core import mig
from gangsched.core.bounds import SHARED_GPUS
from gangsched.core.model import GPU, Layout
from gangsched.core.numbers import whole
from gangsched.core.orders import CutGpus
from gangsched.core.shown import shown
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, Invalid, NotFound

_CONFIG = "nvidia.com/mig.config"
_STATE = "nvidia.com/mig.config.state"
_PRODUCT = "nvidia.com/gpu.product"
_MEMORY = "nvidia.com/gpu.memory"
_KEY = "config.yaml"

Layouts = tuple[Layout, ...]


def failed(labels: Mapping[str, str]) -> bool:
    """Tell whether the mig-manager gave up on the node's last configuration."""
    return labels.get(_STATE) == "failed"


def layouts(
    labels: Mapping[str, str], annotations: Mapping[str, str], allocatable: Mapping[str, int]
) -> Layouts:
    """Return the layout of each GPU of a node that opted in, or () where it is not sure.

    Sure means: the configuration is one we know, the mig-manager is done with it, and the kubelet
    offers exactly its instances.
    """
    if labels.get(names.MIG_LABEL) != names.MIG_DYNAMIC:
        return ()
    if labels.get(_STATE, "success") != "success":
        return ()
    found = _known(labels, annotations, allocatable)
    offered: dict[str, int] = {}
    for layout in found:
        for name, count in mig.offers(layout).items():
            offered[name] = offered.get(name, 0) + count
    mentioned = {
        name
        for name, count in allocatable.items()
        if count and (name == GPU or mig.profile_of(name))
    }
    same = all(allocatable.get(name, 0) == count for name, count in offered.items())
    return found if same and mentioned <= offered.keys() else ()


def _known(
    labels: Mapping[str, str], annotations: Mapping[str, str], allocatable: Mapping[str, int]
) -> Layouts:
    config = labels.get(_CONFIG, "all-disabled")
    if names.MIG_LAYOUT_ANNOTATION in annotations:
        try:
            written = json.loads(annotations[names.MIG_LAYOUT_ANNOTATION])
            if written["config"] == config:
                return tuple(
                    tuple(sorted((str(name), int(count)) for name, count in one.items()))
                    for one in written["layouts"]
                )
        except (ValueError, TypeError, KeyError, AttributeError):
            return ()  # ours alone: a scribble there makes the node unknown, not wrong
    if config == "all-disabled":
        return ((),) * _gpus(allocatable.get(GPU, 0))
    memory = labels.get(_MEMORY, "")
    model = mig.model_of(labels.get(_PRODUCT, ""), whole(memory) or 0)
    full = None if model is None else mig.full(model, config.removeprefix("all-"))
    if full is None:
        return ()
    ((profile, each),) = full
    return (full,) * _gpus(allocatable.get(mig.resource(profile), 0) // each)


def _gpus(count: int) -> int:
    """Return how many GPUs to list one by one: none of a node that says it has any number."""
    return count if count <= SHARED_GPUS.most else 0


class MigWriter:
    """Orders cuts: an entry in the mig-manager's ConfigMap, then the node's label."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._client = client
        self._namespace, _, self._name = config_map.partition("/")

    async def cut(self, order: CutGpus) -> None:
        """Have the GPUs of a node cut; the outcome is seen in the node."""
        entry = config_name(order.layouts)
        await self._write(entry, order.layouts)
        written = {"config": entry, "layouts": [dict(layout) for layout in order.layouts]}
        body = {
            "metadata": {
                "labels": {_CONFIG: entry, _STATE: "pending"},
                "annotations": {names.MIG_LAYOUT_ANNOTATION: json.dumps(written)},
            }
        }
        await self._client.patch(f"/api/v1/nodes/{order.node}", body)

    async def _write(self, entry: str, wanted: Layouts) -> None:
        while True:
            with contextlib.suppress(Conflict):  # another wrote meanwhile
                await self._write_once(entry, wanted)
                return

    async def _write_once(self, entry: str, wanted: Layouts) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        try:
            current = json.loads(await self._client.get(f"{path}/{self._name}"))
        except NotFound:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "data": {_KEY: _with({}, entry, wanted)},
            }
            await self._client.create(path, body)
            return
        data = current.get("data") or {}
        known = self._read(data.get(_KEY, ""))
        if entry not in known:
            current["data"] = {**data, _KEY: _with(known, entry, wanted)}
            await self._client.request("PUT", f"{path}/{self._name}", body=current)

    def _read(self, text: str) -> dict[str, Any]:
        """Return the layouts that are declared, by name.

        Raises:
            Invalid: that is not what is written there.

        """
        where = f"ConfigMap {self._namespace}/{self._name}, {_KEY}"
        try:
            config = yaml.safe_load(text) or {}
        except (yaml.YAMLError, RecursionError) as error:
            raise Invalid(0, f"{where}: {error}") from error
        known = config.get("mig-configs") or {} if isinstance(config, dict) else None
        if not isinstance(known, dict):
            raise Invalid(0, f"{where} is {shown(config)}; it must have mig-configs: a mapping")
        return known


def config_name(wanted: Layouts) -> str:
    """Return the name of the entry for a layout of all GPUs of a node; equal layouts share it."""
    text = json.dumps(wanted)
    return f"gangsched-{sha256(text.encode()).hexdigest()[:12]}"


def _with(known: dict[str, Any], entry: str, wanted: Layouts) -> str:
    """Return mig-parted's YAML with one entry more."""
    devices = []
    for layout in dict.fromkeys(wanted):
        indices = [index for index, one in enumerate(wanted) if one == layout]
        part: dict[str, Any] = {"devices": indices, "mig-enabled": bool(layout)}
        if layout:
            part["mig-devices"] = dict(layout)
        devices.append(part)
    entries = {**known, entry: devices}
    return yaml.safe_dump({"version": "v1", "mig-configs": entries}, sort_keys=False)
