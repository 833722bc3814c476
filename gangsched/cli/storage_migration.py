"""Brings what is stored of our kinds to the version that is stored now.

After an upgrade etcd holds objects in the version they were last written in. Each is written once
more, unchanged, which stores it anew; then the CRD's `status.storedVersions` names one version,
and a later release may do without the earlier ones (Kubernetes: "Versions in
CustomResourceDefinitions", storage version migration).
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.api.crds import CRDS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import NotFound
from gangsched.kube.client.json_depth import bounded

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PAGE = "500"


@dataclass(frozen=True, slots=True)
class Moved:
    """One of our kinds, all in one version: how many objects were written for that."""

    crd: str
    version: str
    written: int = 0
    stored_before: Sequence[str] = ()

    def __str__(self) -> str:
        """Say it in a sentence."""
        if not self.stored_before:
            return f"{self.crd}: all in {self.version}"
        before = ", ".join(self.stored_before)
        return f"{self.crd}: {self.written} written in {self.version} (were stored: {before})"

    def data(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "crd": self.crd,
            "version": self.version,
            "written": self.written,
            "storedBefore": list(self.stored_before),
        }


async def migrate(client: KubeClient) -> AsyncIterator[Moved]:
    """Store every object of our kinds in its CRD's storage version; yield each kind when done.

    It may be broken off at any time, and begun again.
    """
    for kind in (one for one in CRDS if one.group == names.GROUP):
        name = f"{kind.plural}.{kind.group}"
        crd: Any = msgspec.json.decode(await client.get(f"{_CRDS}/{name}"))
        storage = next(v["name"] for v in crd["spec"]["versions"] if v["storage"])
        stored = crd["status"]["storedVersions"]
        if stored == [storage]:
            yield Moved(name, storage)
            continue
        written = await _rewrite(client, f"/apis/{kind.group}/{storage}", kind.plural)
        status = {"status": {"storedVersions": [storage]}}
        version = {"metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]}}
        # Whoever changed the CRD meanwhile may have changed what is stored: then it fails.
        await client.patch(f"{_CRDS}/{name}/status", version | status)
        yield Moved(name, storage, written, stored)


async def _rewrite(client: KubeClient, root: str, plural: str) -> int:
    written, token = 0, ""
    while True:
        more = {"continue": token} if token else {}
        raw = await client.get(f"{root}/{plural}", limit=_PAGE, **more)
        page: Any = bounded(msgspec.json.decode, raw)
        for one in page["items"]:
            metadata = one["metadata"]
            inside = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
            try:
                await client.patch(f"{root}/{inside}{plural}/{metadata['name']}", {})
            except NotFound:
                continue  # deleted meanwhile
            written += 1
        token = page["metadata"].get("continue", "")
        if not token:
            return written
