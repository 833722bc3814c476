"""Whether gangsched runs on a cluster, by its Lease or a local control plane of this machine.

A local control plane has one gangsched process. It holds no Lease, because there is no standby.
"""

import logging
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import aiohttp
import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.json_depth import decode_bounded
from gangsched.kube.decoding.quantities import parse_timestamp
from gangsched.local.plane import Plane, serving

log = logging.getLogger(__name__)

INSTALL = "kubectl apply --server-side -k manifests/overlays/extender"

_LEASES = "/apis/coordination.k8s.io/v1"
_SLACK_S = 10.0
"""Largest clock difference to the leader at which its Lease does not count as expired."""

_MOST = "50"
_UNKNOWN = (KubeError, aiohttp.ClientError, TimeoutError, ValueError)
"""The account may not read Leases, or the API server's time is not known."""

_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class LeaderState:
    """Whether gangsched leads on a cluster, how severe it is if not, and what to do."""

    level: Literal["ok", "warn", "fail"]
    message: str
    remedy: str = ""


async def leader_state(client: KubeClient, lease: str) -> LeaderState:
    """Return the state of the leader, by the Lease NAMESPACE/NAME or a local plane's record."""
    namespace, _, name = lease.partition("/")
    try:
        raw = await client.get(f"{_LEASES}/namespaces/{namespace}/leases/{name}")
    except NotFound:
        plane = serving(client.server)
        if plane is not None:
            return _local_plane_state(plane, lease)
        message = f"there is no Lease {lease}: gangsched has not led here"
        remedy = f"{INSTALL}; a single process without leader_elect holds no Lease"
        return LeaderState("warn", message, remedy)
    return _lease_state(decode_bounded(msgspec.json.decode, raw), lease, await _now_s(client))


async def _now_s(client: KubeClient) -> float:
    return parsedate_to_datetime(await client.date()).timestamp()


def _lease_state(lease: dict[str, Any], name: str, now_s: float) -> LeaderState:
    spec = lease.get("spec") or {}
    holder, namespace = spec.get("holderIdentity"), name.partition("/")[0]
    remedy = f"kubectl logs -n {namespace} deploy/gangsched"
    if not holder:
        return LeaderState("fail", f"no process leads: the Lease {name} was released", remedy)
    ago_s = now_s - parse_timestamp(spec.get("renewTime") or "")
    if ago_s <= (spec.get("leaseDurationSeconds") or 0) + _SLACK_S:
        return LeaderState("ok", f"{holder} leads")
    message = f"no process leads: {holder} last renewed the Lease {name} {ago_s:.0f} s ago"
    return LeaderState("fail", message, remedy)


def _local_plane_state(plane: Plane, lease: str) -> LeaderState:
    place = f"local control plane {plane.name!r}"
    schedulers = [program for program in plane.programs.all() if program.name == "gangsched"]
    if not schedulers:
        remedy = f"{INSTALL} (its pods need process nodes), or gangsched run"
        message = f"there is no Lease {lease}, and {place} was started without gangsched"
        return LeaderState("warn", message, remedy)
    if not schedulers[0].alive():
        remedy = f"gangsched local restart --name {plane.name}"
        return LeaderState("fail", f"no process leads: gangsched of {place} ended", remedy)
    return LeaderState("ok", f"gangsched runs as process {schedulers[0].pid} of {place}")


async def warn_without_leader(client: KubeClient, lease: str) -> None:
    """Warn on standard error, once, if no process leads; stay silent if that is not known."""
    try:
        state = await leader_state(client, lease)
        if state.level == "ok" or (state.level == "warn" and await _leads_elsewhere(client, lease)):
            return
    except _UNKNOWN:
        return
    perhaps = "perhaps " if state.level == "warn" else ""
    sentence = f"note: {perhaps}no gang starts now: {state.message}; what helps: {state.remedy}"
    if sentence not in _warned:
        _warned.add(sentence)
        log.warning("%s", sentence)


async def leader_namespace(client: KubeClient, lease: str) -> str:
    """Return the namespace of the leading gangsched, or "" if it is not known.

    A chart may install gangsched in another namespace than the settings name. A Lease in the
    namespace of the settings takes precedence, because any tenant may create a Lease elsewhere.
    """
    own, _, name = lease.partition("/")
    try:
        await client.get(f"{_LEASES}/namespaces/{own}/leases/{name}")
    except NotFound:
        try:
            namespaces = await _leading_namespaces(client, lease)
        except _UNKNOWN:
            return ""
        return namespaces[0] if len(namespaces) == 1 else ""
    except _UNKNOWN:
        return ""
    return own


async def _leads_elsewhere(client: KubeClient, lease: str) -> bool:
    """Return whether a process holds a Lease of that name in any namespace, as a chart has it."""
    return bool(await _leading_namespaces(client, lease))


async def _leading_namespaces(client: KubeClient, lease: str) -> list[str]:
    """Return the namespaces of the Leases of that name that are held now."""
    name = lease.partition("/")[2]
    raw = await client.get(f"{_LEASES}/leases", fieldSelector=f"metadata.name={name}", limit=_MOST)
    now_s = await _now_s(client)
    leases = msgspec.json.decode(raw)["items"]
    return [
        body["metadata"]["namespace"]
        for body in leases
        if _lease_state(body, lease, now_s).level == "ok"
    ]
