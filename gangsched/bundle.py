"""`gangsched support-bundle`: one file for whoever helps, without what is nobody's business.

Secrets are never read. Of pods' templates only what a scheduler reads is kept: no environment, no
command, no annotation but ours. With hidden names even those are digests.
"""

import io
import json
import re
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from gangsched import __version__
from gangsched.api import names
from gangsched.doctor import HOME, examine, show
from gangsched.kube.client import KubeClient
from gangsched.kube.depth import bounded
from gangsched.kube.errors import KubeError
from gangsched.pseudonyms import Pseudonyms

_LOG_LINES = "2000"
_GROUP = f"/apis/{names.GROUP}/{names.VERSION}"
_LISTS = {
    "queues": f"{_GROUP}/queues",
    "topologies": f"{_GROUP}/topologies",
    "reservations": f"{_GROUP}/reservations",
    "podgroups": f"{_GROUP}/podgroups",
    "events": "/api/v1/namespaces/{home}/events",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{home}/leases",
    "deployments": "/apis/apps/v1/namespaces/{home}/deployments",
}
_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|(?i:bearer )\S+")
_GONE = ("managedFields", "env", "envFrom", "command", "args", "data", "stringData")
"""Fields of objects that are left out, wherever they stand."""


async def write(client: KubeClient, out: Path, hide: Pseudonyms | None, home: str = HOME) -> int:
    """Write the bundle; return how many files it has. `home` is the namespace of gangsched."""
    count = 0
    with tarfile.open(out, "x:gz") as archive:
        async for name, text in _files(client, home):
            clean = _TOKEN.sub("<token>", text)
            content = (hide.text(clean) if hide is not None else clean).encode()
            entry = tarfile.TarInfo(f"gangsched/{name}")
            entry.size, entry.mtime = len(content), int(time.time())
            archive.addfile(entry, io.BytesIO(content))
            count += 1
    return count


async def _files(client: KubeClient, home: str) -> AsyncIterator[tuple[str, str]]:
    yield "version.txt", f"gangsched {__version__}\n"
    page = Console(file=io.StringIO(), width=100)
    show(await examine(client, home), page)
    yield "doctor.txt", page.file.getvalue()  # type: ignore[attr-defined]
    for name, template in _LISTS.items():
        path = template.format(home=home)
        try:
            listed = bounded(msgspec.json.decode, await client.get(path))["items"]
        except KubeError as error:
            yield f"{name}.txt", f"{path}: {error}\n"
        else:
            yield f"{name}.json", json.dumps([redacted(one) for one in listed], indent=1)
    pods = f"/api/v1/namespaces/{home}/pods"
    for pod in msgspec.json.decode(await client.get(pods))["items"]:
        own = pod["metadata"]["name"]
        yield f"pods/{own}.json", json.dumps(redacted(pod), indent=1)
        for word, previous in (("log", "false"), ("previous.log", "true")):
            try:
                log = await client.get(f"{pods}/{own}/log", tailLines=_LOG_LINES, previous=previous)
            except KubeError:
                continue  # it has not run, or not before
            yield f"pods/{own}.{word}", log.decode(errors="replace")


def redacted(value: Any) -> Any:
    """Return a JSON value without what is left out, and with no annotations but ours."""
    if isinstance(value, dict):
        found = {key: redacted(one) for key, one in value.items() if key not in _GONE}
        if isinstance(found.get("annotations"), dict):
            found["annotations"] = {
                key: one for key, one in found["annotations"].items() if names.GROUP in key
            }
        return found
    if isinstance(value, list):
        return [redacted(one) for one in value]
    return value
