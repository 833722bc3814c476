"""`gangsched doctor`: what a cluster lacks for gangsched to work well, and how to mend it.

Each check asks the API server and yields findings; one that cannot ask says so and the others go
on. Nothing is changed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gangsched.api import names
from gangsched.cli.cluster.leader import INSTALL, standing
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.json_depth import bounded
from gangsched.kube.decoding.quantities import seconds
from gangsched.kube.decoding.users import noted, policies_served
from gangsched.kube.stored.config_map import Kept
from gangsched.local.plane import serving
from gangsched.operators.ownership import KEY, others_now, standing_of
from gangsched.operators.ownership import Standing as Running
from gangsched.shipped import shipped

Json = dict[str, Any]
Level = Literal["ok", "warn", "fail"]

HOME = "gangsched-system"
"""The namespace that the overlays install into; a chart may have another."""

_OURS = f"/apis/{names.GROUP}/{names.VERSION}"
_OLDEST = (1, 34)
_SWITCH = "switch it on (docs/operations.md, Versions of Kubernetes)"
_BETA = "install with the component manifests/policies/v1beta1 (docs/operations.md)"
_LATER = "the API server needs MutatingAdmissionPolicy first"
_GPU = "nvidia.com/gpu"
_CLOCK_S = 2.0
_NAMED = 3
_AT_ONCE = 16
_PEERS = {
    "volcano-scheduler": "Volcano",
    "vc-scheduler": "Volcano",
    "kai-scheduler": "KAI",
    "kueue": "Kueue",
    "yunikorn-scheduler": "YuniKorn",
}
"""Schedulers and queueing systems by the last word of their image."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it stands, and, where it does not stand well, what to do."""

    level: Level
    subject: str
    said: str
    mend: str = ""

    def data(self) -> dict[str, str]:
        """Return it as JSON values."""
        told = {"level": self.level, "subject": self.subject, "message": self.said}
        return told | ({"mend": self.mend} if self.mend else {})


Check = Callable[[KubeClient, str], AsyncIterator[Finding]]
"""Asks a cluster in which gangsched lives in some namespace."""


async def examine(client: KubeClient, home: str = HOME) -> list[Finding]:
    """Return the findings of every check; `home` is the namespace of gangsched."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            found += [one async for one in check(client, home)]
        except KubeError as error:
            mend = "ask with an account that may read the cluster"
            found.append(Finding("warn", name, f"cannot be looked at: {error}", mend))
    return found


async def _version(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    told = msgspec.json.decode(await client.get("/version"))
    version = tuple(int(str(told[key]).rstrip("+")) for key in ("major", "minor"))
    said = f"Kubernetes {told['gitVersion']}"
    if version < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        yield Finding("fail", "version", said, f"gangsched is tested from {oldest} on; upgrade")
    else:
        yield Finding("ok", "version", said)
    if not await policies_served(client):
        yield Finding(
            "warn",
            "version",
            "MutatingAdmissionPolicy is not served: all gangs count as one user's, and with the "
            "extender kube-scheduler tries pods again and again while they wait",
            f"upgrade to Kubernetes 1.36, or {_SWITCH}",
        )


async def _kinds(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    wanted = {one["metadata"]["name"]: one for one in shipped("crds")}
    listed = await _get(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    there = {one["metadata"]["name"]: one for one in listed["items"]}
    apply = "kubectl apply --server-side -k crds"
    missing = sorted(wanted.keys() - there.keys())
    if missing:
        yield Finding("fail", "kinds", f"{_names(missing)} do not exist", apply)
    stale = [
        name
        for name in sorted(wanted.keys() & there.keys())
        if not _properties(wanted[name]) <= _properties(there[name])
    ]
    if stale:
        said = f"{_names(stale)} lack fields of this version"
        yield Finding("warn", "kinds", said, f"{apply}; another operator's may be meant: see docs")
    old = [
        name
        for name in sorted(wanted.keys() & there.keys())
        if there[name]["spec"]["group"] == names.GROUP
        and set(there[name].get("status", {}).get("storedVersions") or []) - _stored(there[name])
    ]
    if old:
        said = f"{_names(old)} may be stored in an earlier version"
        yield Finding("warn", "kinds", said, "gangsched migrate-storage")
    if not missing and not stale:
        yield Finding("ok", "kinds", f"{len(wanted)} kinds have every field of this version")


def _stored(crd: Json) -> set[str]:
    """Return the version in which a kind's objects are written now."""
    return {one["name"] for one in crd["spec"]["versions"] if one["storage"]}


def _properties(crd: Json) -> set[str]:
    """Return the fields of a kind's spec, in any version that is served."""
    found: set[str] = set()
    for version in crd["spec"]["versions"]:
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        found |= schema.get("properties", {}).get("spec", {}).get("properties", {}).keys()
    return found


async def _running(client: KubeClient, home: str) -> AsyncIterator[Finding]:
    found = await standing(client, f"{home}/gangsched")
    yield Finding(found.level, "running", found.said, found.mend)
    plane = serving(client.server)
    ended = [one for one in plane.programs.ended() if one != "gangsched"] if plane else []
    if plane and ended:
        said = f"{_names(ended)} of local control plane {plane.name!r} ended"
        yield Finding("fail", "running", said, f"gangsched local restart --name {plane.name}")


async def _rights(client: KubeClient, home: str) -> AsyncIterator[Finding]:
    account = f"system:serviceaccount:{home}:gangsched"
    rules = [
        (rule, one["metadata"].get("namespace", "").replace(HOME, home))
        for one in shipped("manifests/base")
        if one["kind"] in ("ClusterRole", "Role")
        for rule in one["rules"]
    ]
    asked = [
        (group, resource, verb, namespace, (rule.get("resourceNames") or [""])[0])
        for rule, namespace in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    slots = asyncio.Semaphore(_AT_ONCE)

    async def may(one: tuple[str, ...]) -> bool:
        group, resource, verb, namespace, name = one
        kind, _, part = resource.partition("/")
        attributes = {
            "group": group,
            "resource": kind,
            "subresource": part,
            "verb": verb,
            "namespace": namespace,
            "name": name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "resourceAttributes": attributes},
        }
        async with slots:
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            answer = await client.create(path, body)
        return bool(msgspec.json.decode(answer)["status"].get("allowed"))

    allowed = await asyncio.gather(*map(may, asked))
    lacking = sorted(
        {f"{one[2]} {one[1]}" for one, yes in zip(asked, allowed, strict=True) if not yes}
    )
    if lacking:
        yield Finding("fail", "rights", f"the account may not {_names(lacking)}", INSTALL)
    else:
        yield Finding("ok", "rights", f"the account has its {len(asked)} rights")


async def _labels(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    nodes = (await _get(client, "/api/v1/nodes"))["items"]
    gpus = [node for node in nodes if _GPU in (node["status"].get("allocatable") or {})]
    unknown = _without(gpus, "nvidia.com/gpu.product")
    if unknown:
        yield Finding(
            "warn",
            "labels",
            f"{len(unknown)} of {len(gpus)} GPU nodes do not say their product: {_names(unknown)}",
            "run NVIDIA's gpu-feature-discovery, or label nvidia.com/gpu.product",
        )
    try:
        topologies = (await _get(client, f"{_OURS}/topologies"))["items"]
    except NotFound:
        topologies = []
    for topology in topologies:
        name = topology["metadata"]["name"]
        for level in topology["spec"].get("levels") or []:
            lacking = _without(nodes, level["nodeLabel"])
            if lacking:
                yield Finding(
                    "warn",
                    "labels",
                    f"Topology {name}, level {level['name']}: {len(lacking)} of {len(nodes)} nodes "
                    f"lack {level['nodeLabel']}: {_names(lacking)}",
                    "label them; gangs that ask for this topology never go there",
                )
    if not topologies:
        yield Finding(
            "warn",
            "labels",
            "there is no Topology: racks and fabrics are not known",
            "choose one of manifests/topologies, or write one (docs/placement.md)",
        )
    yield Finding("ok", "labels", f"{len(nodes)} nodes, {len(gpus)} with GPUs")


async def _clock(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    before_s = time.time()
    theirs_s = parsedate_to_datetime(await client.date()).timestamp()
    off_s = theirs_s - (before_s + time.time()) / 2
    if abs(off_s) > _CLOCK_S:
        mend = "set this machine's clock, or the API server's (NTP)"
        yield Finding("warn", "clock", f"the API server's is {off_s:+.0f} s from ours", mend)
    else:
        yield Finding("ok", "clock", "the API server's and ours agree")
    leases = await _get(client, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    ahead = [
        one["metadata"]["name"]
        for one in leases["items"]
        if seconds((one.get("spec") or {}).get("renewTime") or "") - theirs_s > _CLOCK_S
    ]
    if ahead:
        said = f"{len(ahead)} nodes are ahead of the API server: {_names(sorted(ahead))}"
        yield Finding("warn", "clock", said, "set their clocks (NTP)")


async def _others(client: KubeClient, home: str) -> AsyncIterator[Finding]:
    written = standing_of(await Kept(client, f"{home}/gangsched-history", KEY).read())
    for finding in of_kinds(written, await others_now(client, time.time())):
        yield finding
    listed = (await _get(client, "/apis/apps/v1/deployments"))["items"]
    for one in listed:
        for container in one["spec"]["template"]["spec"]["containers"]:
            word = container["image"].rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]
            if word in _PEERS:
                where = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
                yield Finding(
                    "warn",
                    "others",
                    f"{_PEERS[word]} runs too, as Deployment {where}",
                    "let each have nodes or pods of its own: both count the same free room",
                )


def of_kinds(written: Running | None, now: Mapping[str, str]) -> Iterator[Finding]:
    """Yield who runs which kinds of job: by what gangsched wrote, and by what is seen `now`."""
    if written is None:
        for why, kinds in _by_reason(now).items():
            said = f"{kinds}: {why}; whether gangsched does too is not known: it never led here"
            yield Finding("warn", "others", said, "start gangsched: it leaves those kinds alone")
        return
    twice = {kind: why for kind, why in now.items() if kind in written.ours}
    for why, kinds in _by_reason(twice).items():
        said = f"{kinds}: two controllers run them, gangsched and another: {why}"
        yield Finding("fail", "others", said, "stop one; job_kinds in the settings names ours")
    nowhere = {kind: why for kind, why in written.others.items() if kind not in now}
    left = {kind: now[kind] for kind in written.others if kind in now}
    for why, kinds in _by_reason(left).items():
        mend = "leave it so, or stop that operator: gangsched takes its jobs over"
        yield Finding("warn", "others", f"{kinds}: not run by gangsched: {why}", mend)
    for why, kinds in _by_reason(nowhere).items():
        said = f"{kinds}: not run by gangsched, nor by an operator that is seen: {why}"
        yield Finding("warn", "others", said, "name them in job_kinds, unless they run elsewhere")
    ours = sorted(written.ours - twice.keys())
    yield Finding("ok", "others", f"gangsched runs {', '.join(ours) or 'no kind of job'}")


def _by_reason(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds of each reason, as words."""
    found: dict[str, list[str]] = {}
    for kind, why in kinds.items():
        found.setdefault(why, []).append(kind)
    return {why: ", ".join(sorted(some)) for why, some in found.items()}


async def _queues(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    queues = (await _get(client, f"{_OURS}/queues"))["items"]
    wrong = [
        f"{one['metadata']['name']} ({condition['message']})"
        for one in queues
        for condition in (one.get("status") or {}).get("conditions") or []
        if condition["status"] == "False"
    ]
    for sentence in wrong:
        yield Finding("warn", "queues", f"Queue {sentence}", "mend it; gangs of it wait")
    if not wrong:
        yield Finding("ok", "queues", f"{len(queues)} queues, and the default one")


async def _users(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    try:
        await noted(client)
    except NotFound:
        mends = {"v1": "kubectl apply -f manifests/base/user.yaml", "v1beta1": _BETA, "": _LATER}
        yield Finding(
            "warn",
            "users",
            "the API server does not note who asks for gangs: all count as one user's",
            mends[await policies_served(client)],
        )
    else:
        yield Finding("ok", "users", "the API server notes who asks for gangs")


CHECKS: dict[str, Check] = {
    "version": _version,
    "kinds": _kinds,
    "rights": _rights,
    "running": _running,
    "labels": _labels,
    "clock": _clock,
    "others": _others,
    "queues": _queues,
    "users": _users,
}


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print findings, the worst last, where the eye is."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    between = "\n" if console.is_terminal else " "  # what is piped has one line for each finding
    for one in sorted(findings, key=lambda one: ("ok", "warn", "fail").index(one.level)):
        said = Text(one.said)
        if one.mend:
            said.append(between).append(f"→ {one.mend}", "dim")
        table.add_row(Text(one.level, colours[one.level]), one.subject, said)
    console.print(table)


async def _get(client: KubeClient, path: str) -> Json:
    found: Json = bounded(msgspec.json.decode, await client.get(path))
    return found


def _without(nodes: Sequence[Json], label: str) -> list[str]:
    return sorted(
        node["metadata"]["name"]
        for node in nodes
        if not (node["metadata"].get("labels") or {}).get(label)
    )


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
