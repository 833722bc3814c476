"""Repartition the GPUs of real nodes with NVIDIA's mig-manager.

The mig-manager watches the node label nvidia.com/mig.config. The label names an entry of a
ConfigMap in mig-parted's format. gangsched writes the entry, then the label, and waits for the new
allocatable resources of the node.
"""

import contextlib
import json
from hashlib import sha256
from typing import Any

import yaml

from gangsched.api import names
from gangsched.core.model.text import shown
from gangsched.core.orders import RepartitionGpus
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Invalid, NotFound
from gangsched.kube.decoding.cluster.mig_labels import CONFIG_LABEL, STATE_LABEL, Layouts

_KEY = "config.yaml"


class MigWriter:
    """Requests a repartition: writes an entry of the mig-manager's ConfigMap, then the label."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._client = client
        self._namespace, _, self._name = config_map.partition("/")

    async def repartition(self, order: RepartitionGpus) -> None:
        """Request the repartition of a node's GPUs; the node shows the outcome."""
        entry = config_name(order.layouts)
        await self._write(entry, order.layouts)
        written = {"config": entry, "layouts": [dict(layout) for layout in order.layouts]}
        body = {
            "metadata": {
                "labels": {CONFIG_LABEL: entry, STATE_LABEL: "pending"},
                "annotations": {names.MIG_LAYOUT_ANNOTATION: json.dumps(written)},
            }
        }
        await self._client.patch(f"/api/v1/nodes/{order.node}", body)

    async def _write(self, entry: str, wanted: Layouts) -> None:
        while True:
            with contextlib.suppress(Conflict):  # another writer was first
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
        """Return the entries of the ConfigMap by name.

        Raises:
            Invalid: the ConfigMap does not have mig-parted's format.

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
    """Return mig-parted's YAML with an additional entry."""
    devices = []
    for layout in dict.fromkeys(wanted):
        indices = [index for index, gpu_layout in enumerate(wanted) if gpu_layout == layout]
        part: dict[str, Any] = {"devices": indices, "mig-enabled": bool(layout)}
        if layout:
            part["mig-devices"] = dict(layout)
        devices.append(part)
    entries = {**known, entry: devices}
    return yaml.safe_dump({"version": "v1", "mig-configs": entries}, sort_keys=False)
