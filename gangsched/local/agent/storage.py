"""Volume claims of process nodes: every volume is a folder of this machine.

Claims of the class `local`, the default one, are bound at once; those of `local-wait` once a
scheduler has chosen a node, as with most clouds.
The nodes are one machine, so a volume may be used by any number of them at once, whatever access
mode its claim asks for. Claims of other storage classes stay pending, as they would anywhere.
"""

import contextlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.kube.client.watch import Watch
from gangsched.local.agent.spec import Json, PodError

PROVISIONER = "gangsched.io/local"
CLASSES = {"local": "Immediate", "local-wait": "WaitForFirstConsumer"}
DEFAULT = "local"
SELECTED_NODE = "volume.kubernetes.io/selected-node"

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_CLAIMS = "/api/v1/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"

log = logging.getLogger("gangsched.agent")


class Storage:
    """Creates and removes a folder and a PersistentVolume for each claim of its classes."""

    def __init__(self, client: KubeClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    async def declare(self) -> None:
        """Create the storage classes."""
        for name, mode in CLASSES.items():
            default = str(name == DEFAULT).lower()
            body = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {
                    "name": name,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": default},
                },
                "provisioner": PROVISIONER,
                "reclaimPolicy": "Delete",
                "volumeBindingMode": mode,
            }
            with contextlib.suppress(Conflict):
                await self._client.create(_CLASSES, body)

    def watches(self, spawn: Any) -> list[Watch]:
        """Return the watches to run; `spawn` starts the work of each change."""
        return [
            Watch(self._client, _CLAIMS, _Changes(spawn, self.claimed)),
            Watch(self._client, _VOLUMES, _Changes(spawn, self.released)),
        ]

    async def claimed(self, claim: Json) -> None:
        """Create a volume for a claim of these classes that waits for one."""
        spec, metadata = claim["spec"], claim["metadata"]
        mode = CLASSES.get(spec.get("storageClassName"))
        if mode is None or spec.get("volumeName"):
            return
        chosen = SELECTED_NODE in (metadata.get("annotations") or {})
        if mode == "WaitForFirstConsumer" and not chosen:
            return
        name = f"pvc-{metadata['uid']}"
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            },
            "spec": {
                "storageClassName": spec["storageClassName"],
                "persistentVolumeReclaimPolicy": "Delete",
                "accessModes": spec["accessModes"],
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "volumeMode": "Filesystem",
                "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        }
        with contextlib.suppress(Conflict):
            await self._client.create(_VOLUMES, body)

    async def released(self, volume: Json) -> None:
        """Remove a volume of this provisioner after its claim."""
        metadata, status = volume["metadata"], volume.get("status") or {}
        ours = (metadata.get("annotations") or {}).get("pv.kubernetes.io/provisioned-by")
        if ours != PROVISIONER or status.get("phase") != "Released":
            return
        if metadata.get("deletionTimestamp"):
            return
        shutil.rmtree(self._folder / metadata["name"], ignore_errors=True)
        body = {"apiVersion": "v1", "kind": "DeleteOptions"}
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(f"{_VOLUMES}/{metadata['name']}", body)

    async def place(self, namespace: str, claim: str) -> Path:
        """Return the folder of a claim's volume.

        Raises:
            PodError: the claim has no volume yet, or a kind of volume that cannot be mounted.

        """
        path = object_path(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
        try:
            spec = json.loads(await self._client.get(path))["spec"]
            if not spec.get("volumeName"):
                raise PodError("FailedMount", f"persistentvolumeclaim {claim!r} is not bound")
            volume = json.loads(await self._client.get(f"{_VOLUMES}/{spec['volumeName']}"))["spec"]
        except NotFound as error:
            raise PodError("FailedMount", f"persistentvolumeclaim {claim!r} not found") from error
        for kind in ("hostPath", "local"):
            if kind in volume:
                return Path(volume[kind]["path"])
        kind = next(iter(set(volume) & {"csi", "nfs", "iscsi", "fc", "rbd", "cephfs"}), "unknown")
        raise PodError("FailedMount", f"a process node cannot mount a volume of kind {kind}")


class _Changes:
    """A receiver that starts work for every object."""

    def __init__(self, spawn: Any, work: Any) -> None:
        self._spawn, self._work = spawn, work

    def on_update(self, raw: bytes) -> None:
        self._spawn(self._tried(json.loads(raw)))

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Do nothing: a deleted claim releases its volume, which the other watch reports."""

    async def _tried(self, body: Json) -> None:
        try:
            await self._work(body)
        except (KubeError, OSError) as error:
            log.warning("volume of %s: %s", body["metadata"]["name"], error)
