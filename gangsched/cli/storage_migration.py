"""Stores all objects of gangsched.io in the current storage version of their CRD.

After an upgrade etcd holds objects in the version in which they were last written. Each object is
written again, unchanged, which stores it in the current version. Then the CRD's
`status.storedVersions` names one version, and a later release may drop the earlier ones
(Kubernetes: "Versions in CustomResourceDefinitions", storage version migration).
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.api.crds import CRDS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import NotFound
from gangsched.kube.client.json_depth import decode_bounded

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PAGE = "500"


@dataclass(frozen=True, slots=True)
class MigratedKind:
    """A kind of which all objects are stored in one version, and how many were written."""

    crd: str
    version: str
    written: int = 0
    stored_before: Sequence[str] = ()

    def __str__(self) -> str:
        """Return a sentence about the kind."""
        if not self.stored_before:
            return f"{self.crd}: all in {self.version}"
        before = ", ".join(self.stored_before)
        return f"{self.crd}: {self.written} written in {self.version} (stored before: {before})"

    def data(self) -> dict[str, Any]:
        """Return the kind as JSON values."""
        return {
            "crd": self.crd,
            "version": self.version,
            "written": self.written,
            "storedBefore": list(self.stored_before),
        }


async def migrate(client: KubeClient) -> AsyncIterator[MigratedKind]:
    """Store every object of gangsched.io in its CRD's storage version; yield each kind when done.

    The migration may be interrupted and repeated at any time.
    """
    for kind in (crd for crd in CRDS if crd.group == names.GROUP):
        name = f"{kind.plural}.{kind.group}"
        crd: Any = msgspec.json.decode(await client.get(f"{_CRDS}/{name}"))
        storage = next(v["name"] for v in crd["spec"]["versions"] if v["storage"])
        stored = crd["status"]["storedVersions"]
        if stored == [storage]:
            yield MigratedKind(name, storage)
            continue
        written = await _rewrite(client, f"/apis/{kind.group}/{storage}", kind.plural)
        status = {"status": {"storedVersions": [storage]}}
        version = {"metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]}}
        # A CRD that was changed meanwhile may have another storage version: then the patch fails.
        await client.patch(f"{_CRDS}/{name}/status", version | status)
        yield MigratedKind(name, storage, written, stored)


async def _rewrite(client: KubeClient, root: str, plural: str) -> int:
    written, token = 0, ""
    while True:
        more = {"continue": token} if token else {}
        raw = await client.get(f"{root}/{plural}", limit=_PAGE, **more)
        page: Any = decode_bounded(msgspec.json.decode, raw)
        for item in page["items"]:
            metadata = item["metadata"]
            inside = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
            try:
                await client.patch(f"{root}/{inside}{plural}/{metadata['name']}", {})
            except NotFound:
                continue  # deleted meanwhile
            written += 1
        token = page["metadata"].get("continue", "")
        if not token:
            return written
