"""Who schedules on a cluster: its Lease says it, or a local control plane of this machine.

A local control plane has one gangsched, which holds no Lease: nobody could take its place.
"""

import logging
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import aiohttp
import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.json_depth import bounded
from gangsched.kube.decoding.quantities import seconds
from gangsched.local.plane import Plane, serving

log = logging.getLogger(__name__)

INSTALL = "kubectl apply --server-side -k manifests/overlays/extender"

_LEASES = "/apis/coordination.k8s.io/v1"
_SLACK_S = 10.0
"""By how much the clock of who leads may be off before its Lease is taken for expired."""

_MOST = "50"
_UNKNOWN = (KubeError, aiohttp.ClientError, TimeoutError, ValueError)
"""Whoever asks may not read Leases, or was not told what the time is."""

_told: set[str] = set()


@dataclass(frozen=True, slots=True)
class Standing:
    """Who schedules; or that nobody does, how bad that is, and what to do."""

    level: Literal["ok", "warn", "fail"]
    said: str
    mend: str = ""


async def standing(client: KubeClient, lease: str) -> Standing:
    """Return who schedules, by the Lease NAMESPACE/NAME or a local control plane's own record."""
    namespace, _, name = lease.partition("/")
    try:
        raw = await client.get(f"{_LEASES}/namespaces/{namespace}/leases/{name}")
    except NotFound:
        plane = serving(client.server)
        if plane is not None:
            return _of_plane(plane, lease)
        said = f"there is no Lease {lease}: gangsched has not led here"
        mend = f"{INSTALL}; a single process without leader_elect holds none"
        return Standing("warn", said, mend)
    return _by(bounded(msgspec.json.decode, raw), lease, await _now_s(client))


async def _now_s(client: KubeClient) -> float:
    return parsedate_to_datetime(await client.date()).timestamp()


def _by(lease: dict[str, Any], called: str, now_s: float) -> Standing:
    spec = lease.get("spec") or {}
    holder, home = spec.get("holderIdentity"), called.partition("/")[0]
    mend = f"kubectl logs -n {home} deploy/gangsched"
    if not holder:
        return Standing("fail", f"nobody leads: the Lease {called} was given back", mend)
    ago_s = now_s - seconds(spec.get("renewTime") or "")
    if ago_s <= (spec.get("leaseDurationSeconds") or 0) + _SLACK_S:
        return Standing("ok", f"{holder} leads")
    said = f"nobody leads: {holder} renewed the Lease {called} {ago_s:.0f} s ago for the last time"
    return Standing("fail", said, mend)


def _of_plane(plane: Plane, lease: str) -> Standing:
    of = f"local control plane {plane.name!r}"
    ours = [one for one in plane.programs.all() if one.name == "gangsched"]
    if not ours:
        mend = f"{INSTALL} (its pods need process nodes), or gangsched run"
        said = f"there is no Lease {lease}, and {of} was started without gangsched"
        return Standing("warn", said, mend)
    if not ours[0].alive():
        mend = f"gangsched local restart --name {plane.name}"
        return Standing("fail", f"nobody leads: gangsched of {of} ended", mend)
    return Standing("ok", f"gangsched runs as process {ours[0].pid} of {of}")


async def tell(client: KubeClient, lease: str) -> None:
    """Say on standard error, once, that nobody schedules; nothing where that cannot be known."""
    try:
        found = await standing(client, lease)
        if found.level == "ok" or (found.level == "warn" and await _elsewhere(client, lease)):
            return
    except _UNKNOWN:
        return
    perhaps = "perhaps " if found.level == "warn" else ""
    sentence = f"note: {perhaps}no gang starts now: {found.said}; what helps: {found.mend}"
    if sentence not in _told:
        _told.add(sentence)
        log.warning("%s", sentence)


async def home(client: KubeClient, lease: str) -> str:
    """Return the namespace that gangsched leads from, as a chart may have another; "" if unknown.

    A Lease NAMESPACE/NAME at its own place counts before all others: any tenant may write one.
    """
    own, _, name = lease.partition("/")
    try:
        await client.get(f"{_LEASES}/namespaces/{own}/leases/{name}")
    except NotFound:
        try:
            found = await _holders(client, lease)
        except _UNKNOWN:
            return ""
        return found[0] if len(found) == 1 else ""
    except _UNKNOWN:
        return ""
    return own


async def _elsewhere(client: KubeClient, lease: str) -> bool:
    """Tell whether somebody leads by a Lease of that name in another namespace, as a chart has."""
    return bool(await _holders(client, lease))


async def _holders(client: KubeClient, lease: str) -> list[str]:
    """Return the namespaces of Leases of that name that a leader holds now."""
    name = lease.partition("/")[2]
    raw = await client.get(f"{_LEASES}/leases", fieldSelector=f"metadata.name={name}", limit=_MOST)
    now_s = await _now_s(client)
    leases = msgspec.json.decode(raw)["items"]
    return [one["metadata"]["namespace"] for one in leases if _by(one, lease, now_s).level == "ok"]
