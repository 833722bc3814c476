"""`gangsched doctor`: what a cluster lacks for gangsched, and what to do about it.

Each check reads from the API server and yields findings. A check that fails is itself a finding,
and the other checks still run. Nothing is changed.
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
from gangsched.cli.cluster.leader import INSTALL, leader_state
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError, NotFound
from gangsched.kube.client.json_depth import decode_bounded
from gangsched.kube.decoding.quantities import parse_timestamp
from gangsched.kube.decoding.users import policies_served, require_user_policy
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.local.plane import serving
from gangsched.operators.ownership import KEY, parse_owners, running_operators
from gangsched.operators.ownership import KindOwners as Running
from gangsched.shipped import shipped

Json = dict[str, Any]
Level = Literal["ok", "warn", "fail"]

HOME = "gangsched-system"
"""The namespace that the overlays install into; a chart may use another."""

_OURS = f"/apis/{names.GROUP}/{names.VERSION}"
_OLDEST = (1, 34)
_ENABLE = "enable it (docs/operations.md, Versions of Kubernetes)"
_V1BETA1 = "install with the component manifests/policies/v1beta1 (docs/operations.md)"
_FIRST = "the API server needs MutatingAdmissionPolicy first"
_GPU = "nvidia.com/gpu"
_CLOCK_S = 2.0
_NAMED_MAX = 3
_REVIEWS_AT_ONCE = 16
_PEERS = {
    "volcano-scheduler": "Volcano",
    "vc-scheduler": "Volcano",
    "kai-scheduler": "KAI",
    "kueue": "Kueue",
    "yunikorn-scheduler": "YuniKorn",
}
"""Schedulers and queueing systems by the last part of their image's name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: its level, its subject, the finding, and what to do about it."""

    level: Level
    subject: str
    message: str
    remedy: str = ""

    def data(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        data = {"level": self.level, "subject": self.subject, "message": self.message}
        return data | ({"mend": self.remedy} if self.remedy else {})


Check = Callable[[KubeClient, str], AsyncIterator[Finding]]
"""Checks a cluster; the second parameter is the namespace of gangsched."""


async def run_checks(client: KubeClient, home: str = HOME) -> list[Finding]:
    """Return the findings of every check; `home` is the namespace of gangsched."""
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            findings += [finding async for finding in check(client, home)]
        except KubeError as error:
            remedy = "use an account that may read the cluster"
            findings.append(Finding("warn", name, f"cannot be checked: {error}", remedy))
    return findings


async def _version(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    answer = msgspec.json.decode(await client.get("/version"))
    version = tuple(int(str(answer[key]).rstrip("+")) for key in ("major", "minor"))
    message = f"Kubernetes {answer['gitVersion']}"
    if version < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        remedy = f"upgrade; gangsched is tested with {oldest} and later"
        yield Finding("fail", "version", message, remedy)
    else:
        yield Finding("ok", "version", message)
    if not await policies_served(client):
        yield Finding(
            "warn",
            "version",
            "MutatingAdmissionPolicy is not served: all gangs count as those of one user, and "
            "with the extender, kube-scheduler retries pods while they wait",
            f"upgrade to Kubernetes 1.36, or {_ENABLE}",
        )


async def _kinds(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    wanted = {crd["metadata"]["name"]: crd for crd in shipped("crds")}
    listed = await _read(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    installed = {crd["metadata"]["name"]: crd for crd in listed["items"]}
    apply = "kubectl apply --server-side -k crds"
    missing = sorted(wanted.keys() - installed.keys())
    if missing:
        yield Finding("fail", "kinds", f"{_first_names(missing)} do not exist", apply)
    stale = [
        name
        for name in sorted(wanted.keys() & installed.keys())
        if not _spec_fields(wanted[name]) <= _spec_fields(installed[name])
    ]
    if stale:
        message = f"{_first_names(stale)} lack fields of this version"
        remedy = f"{apply}; if they belong to another operator, see docs/operations.md"
        yield Finding("warn", "kinds", message, remedy)
    old = [
        name
        for name in sorted(wanted.keys() & installed.keys())
        if installed[name]["spec"]["group"] == names.GROUP
        and set(installed[name].get("status", {}).get("storedVersions") or [])
        - _storage_version(installed[name])
    ]
    if old:
        message = f"{_first_names(old)} may be stored in an earlier version"
        yield Finding("warn", "kinds", message, "gangsched migrate-storage")
    if not missing and not stale:
        yield Finding("ok", "kinds", f"{len(wanted)} kinds have every field of this version")


def _storage_version(crd: Json) -> set[str]:
    """Return the version in which a kind's objects are stored now."""
    return {version["name"] for version in crd["spec"]["versions"] if version["storage"]}


def _spec_fields(crd: Json) -> set[str]:
    """Return the fields of a kind's spec, in all its versions."""
    fields: set[str] = set()
    for version in crd["spec"]["versions"]:
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        fields |= schema.get("properties", {}).get("spec", {}).get("properties", {}).keys()
    return fields


async def _running(client: KubeClient, home: str) -> AsyncIterator[Finding]:
    state = await leader_state(client, f"{home}/gangsched")
    yield Finding(state.level, "running", state.message, state.remedy)
    plane = serving(client.server)
    ended = [name for name in plane.programs.ended() if name != "gangsched"] if plane else []
    if plane and ended:
        message = f"{_first_names(ended)} of local control plane {plane.name!r} ended"
        yield Finding("fail", "running", message, f"gangsched local restart --name {plane.name}")


async def _permissions(client: KubeClient, home: str) -> AsyncIterator[Finding]:
    account = f"system:serviceaccount:{home}:gangsched"
    documents = list(shipped("manifests/base"))
    bound = {
        (document["roleRef"]["kind"], document["roleRef"]["name"])
        for document in documents
        if document["kind"] in ("ClusterRoleBinding", "RoleBinding")
        and any(subject["name"] == "gangsched" for subject in document["subjects"])
    }  # other roles are for the accounts of jobs
    rules = [
        (rule, document["metadata"].get("namespace", "").replace(HOME, home))
        for document in documents
        if (document["kind"], document["metadata"]["name"]) in bound
        for rule in document["rules"]
    ]
    permissions = [
        (group, resource, verb, namespace, (rule.get("resourceNames") or [""])[0])
        for rule, namespace in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    slots = asyncio.Semaphore(_REVIEWS_AT_ONCE)

    async def is_allowed(permission: tuple[str, ...]) -> bool:
        group, resource, verb, namespace, name = permission
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

    allowed = await asyncio.gather(*map(is_allowed, permissions))
    pairs = zip(permissions, allowed, strict=True)
    lacking = sorted(
        {f"{permission[2]} {permission[1]}" for permission, is_granted in pairs if not is_granted}
    )
    if lacking:
        yield Finding("fail", "rights", f"the account may not {_first_names(lacking)}", INSTALL)
    else:
        yield Finding("ok", "rights", f"the account has its {len(permissions)} permissions")


async def _labels(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    nodes = (await _read(client, "/api/v1/nodes"))["items"]
    gpus = [node for node in nodes if _GPU in (node["status"].get("allocatable") or {})]
    unknown = _nodes_without(gpus, "nvidia.com/gpu.product")
    if unknown:
        yield Finding(
            "warn",
            "labels",
            f"{len(unknown)} of {len(gpus)} GPU nodes lack the label nvidia.com/gpu.product: "
            f"{_first_names(unknown)}",
            "run NVIDIA's gpu-feature-discovery, or set the label",
        )
    try:
        topologies = (await _read(client, f"{_OURS}/topologies"))["items"]
    except NotFound:
        topologies = []
    for topology in topologies:
        name = topology["metadata"]["name"]
        for level in topology["spec"].get("levels") or []:
            lacking = _nodes_without(nodes, level["nodeLabel"])
            if lacking:
                yield Finding(
                    "warn",
                    "labels",
                    f"Topology {name}, level {level['name']}: {len(lacking)} of {len(nodes)} nodes "
                    f"lack {level['nodeLabel']}: {_first_names(lacking)}",
                    "label them; gangs that request this topology are never placed there",
                )
    if not topologies:
        yield Finding(
            "warn",
            "labels",
            "there is no Topology, so gangsched does not know racks and fabrics",
            "apply one of manifests/topologies, or write one (docs/placement.md)",
        )
    yield Finding("ok", "labels", f"{len(nodes)} nodes, {len(gpus)} with GPUs")


async def _clock(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    before_s = time.time()
    server_s = parsedate_to_datetime(await client.date()).timestamp()
    offset_s = server_s - (before_s + time.time()) / 2
    if abs(offset_s) > _CLOCK_S:
        message = f"the API server's clock differs from this machine's by {offset_s:+.0f} s"
        yield Finding("warn", "clock", message, "set one of the two clocks (NTP)")
    else:
        yield Finding("ok", "clock", "the clocks of the API server and this machine agree")
    leases = await _read(client, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    ahead = [
        lease["metadata"]["name"]
        for lease in leases["items"]
        if parse_timestamp((lease.get("spec") or {}).get("renewTime") or "") - server_s > _CLOCK_S
    ]
    if ahead:
        nodes = _first_names(sorted(ahead))
        message = f"the clocks of {len(ahead)} nodes are ahead of the API server's: {nodes}"
        yield Finding("warn", "clock", message, "set their clocks (NTP)")


async def _other_schedulers(client: KubeClient, home: str) -> AsyncIterator[Finding]:
    written = parse_owners(await ConfigMapEntry(client, f"{home}/gangsched-history", KEY).read())
    for finding in job_kind_findings(written, await running_operators(client, time.time())):
        yield finding
    listed = (await _read(client, "/apis/apps/v1/deployments"))["items"]
    for deployment in listed:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            image = container["image"].rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]
            if image in _PEERS:
                metadata = deployment["metadata"]
                yield Finding(
                    "warn",
                    "others",
                    f"{_PEERS[image]} runs too, as Deployment "
                    f"{metadata['namespace']}/{metadata['name']}",
                    "give each scheduler its own nodes: both count the same free capacity",
                )


def job_kind_findings(written: Running | None, now: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which kinds of job gangsched and other operators run.

    `written` is the decision that gangsched stored; `now` are the other operators that run now.
    """
    if written is None:
        for why, kinds in _by_reason(now).items():
            message = f"{kinds}: {why}; gangsched has not led here yet"
            remedy = "start gangsched: it does not run those kinds"
            yield Finding("warn", "others", message, remedy)
        return
    twice = {kind: why for kind, why in now.items() if kind in written.ours}
    for why, kinds in _by_reason(twice).items():
        message = f"{kinds}: gangsched and another controller run them: {why}"
        remedy = "stop one; job_kinds in the settings lists the kinds of gangsched"
        yield Finding("fail", "others", message, remedy)
    nowhere = {kind: why for kind, why in written.others.items() if kind not in now}
    elsewhere = {kind: now[kind] for kind in written.others if kind in now}
    for why, kinds in _by_reason(elsewhere).items():
        remedy = "nothing to do; or stop that operator, and gangsched takes over its jobs"
        yield Finding("warn", "others", f"{kinds}: not run by gangsched: {why}", remedy)
    for why, kinds in _by_reason(nowhere).items():
        message = f"{kinds}: run neither by gangsched nor by an operator that runs now: {why}"
        remedy = "name them in job_kinds, unless another controller runs them"
        yield Finding("warn", "others", message, remedy)
    ours = sorted(written.ours - twice.keys())
    yield Finding("ok", "others", f"gangsched runs {', '.join(ours) or 'no kind of job'}")


def _by_reason(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds of each reason, as a list in words."""
    grouped: dict[str, list[str]] = {}
    for kind, why in kinds.items():
        grouped.setdefault(why, []).append(kind)
    return {why: ", ".join(sorted(group)) for why, group in grouped.items()}


async def _queues(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    queues = (await _read(client, f"{_OURS}/queues"))["items"]
    wrong = [
        f"{body['metadata']['name']} ({condition['message']})"
        for body in queues
        for condition in (body.get("status") or {}).get("conditions") or []
        if condition["status"] == "False"
    ]
    for queue in wrong:
        yield Finding("warn", "queues", f"Queue {queue}", "correct it; its gangs wait until then")
    if not wrong:
        yield Finding("ok", "queues", f"{len(queues)} queues, and the default queue")


async def _users(client: KubeClient, _: str) -> AsyncIterator[Finding]:
    try:
        await require_user_policy(client)
    except NotFound:
        apply = "kubectl apply -f manifests/base/user.yaml"
        remedies = {"v1": apply, "v1beta1": _V1BETA1, "": _FIRST}
        yield Finding(
            "warn",
            "users",
            "the API server does not record who creates a gang: all count as those of one user",
            remedies[await policies_served(client)],
        )
    else:
        yield Finding("ok", "users", "the API server records who creates a gang")


CHECKS: dict[str, Check] = {
    "version": _version,
    "kinds": _kinds,
    "rights": _permissions,
    "running": _running,
    "labels": _labels,
    "clock": _clock,
    "others": _other_schedulers,
    "queues": _queues,
    "users": _users,
}


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print findings, the most severe last, next to the prompt."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    between = "\n" if console.is_terminal else " "  # in a pipe, a finding is one line
    for finding in sorted(findings, key=lambda item: ("ok", "warn", "fail").index(item.level)):
        text = Text(finding.message)
        if finding.remedy:
            text.append(between).append(f"→ {finding.remedy}", "dim")
        table.add_row(Text(finding.level, colours[finding.level]), finding.subject, text)
    console.print(table)


async def _read(client: KubeClient, path: str) -> Json:
    body: Json = decode_bounded(msgspec.json.decode, await client.get(path))
    return body


def _nodes_without(nodes: Sequence[Json], label: str) -> list[str]:
    return sorted(
        node["metadata"]["name"]
        for node in nodes
        if not (node["metadata"].get("labels") or {}).get(label)
    )


def _first_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
