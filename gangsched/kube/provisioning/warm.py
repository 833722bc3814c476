"""Keeps the unused part of guarantees warm: autoscalers have nodes ready for it.

Each entry of the setting `warm` is a CapacityBuffer with as many pods as still fit into what its
queue has and does not use. Autoscalers that serve CapacityBuffers keep so much free.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.autoscaling_config import WarmGuarantee
from gangsched.core.engine.view import EngineView
from gangsched.core.model.pods import GPU
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, NotFound
from gangsched.kube.decoding.cluster.queues import parse_quota_amount
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import Metadata, Struct
from gangsched.kube.provisioning.passes import guarded, pass_once, repeat_passes
from gangsched.kube.provisioning.request import GROUP

log = logging.getLogger(__name__)

_API = f"/apis/{GROUP}/v1beta1"
_REPLICAS_MAX = 10_000


class _TemplateRef(Struct):
    name: str = ""


class _Spec(Struct):
    pod_template_ref: _TemplateRef = msgspec.field(default_factory=_TemplateRef)
    replicas: int = 0


class _Buffer(Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Buffers(Struct):
    items: list[_Buffer]


_decoder = msgspec.json.Decoder(_Buffers)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A buffer as it should be."""

    name: str
    template: str
    replicas: int


class WarmGuarantees:
    """Writes the CapacityBuffers of one scheduler."""

    def __init__(
        self,
        client: KubeClient,
        view: EngineView,
        entries: Sequence[WarmGuarantee],
        namespace: str,
    ) -> None:
        self._client, self._view, self._entries = client, view, entries
        self._buffers = f"{_API}/namespaces/{namespace}/capacitybuffers"
        self._templates = f"/api/v1/namespaces/{namespace}/podtemplates"
        self._written: list[_Wanted] | None = None
        self._unknown: set[str] = set()

    async def run(self) -> None:
        """Repeat passes until cancelled, at once when the use of a queue changes.

        Without entries the buffers of an earlier setting are deleted.
        """
        if not self._entries:
            await pass_once(self.step)
        kinds = f"CapacityBuffer of {GROUP}/v1beta1"
        await repeat_passes(self.step, kinds, wakes=lambda: self._wanted() != self._written)

    async def step(self) -> None:
        """Compare buffers with the use of queues once, and change what differs.

        Raises:
            NotFound: the cluster has no such kind, or the namespace does not exist.

        """
        selector = f"{names.PROVISIONING_LABEL}=true"
        content = await self._client.get(self._buffers, labelSelector=selector)
        there = {one.metadata.name: one for one in _decoder.decode(content).items}
        wanted = self._wanted()
        for one, entry in zip(wanted, self._entries, strict=True):
            existing = there.pop(one.name, None)
            if self._written is None or not _is(existing, one):
                await guarded(f"CapacityBuffer {one.name}", self._write(one, entry, existing))
        for name in there:
            await guarded(f"CapacityBuffer {name}", self._delete(name))
        self._written = wanted

    def _wanted(self) -> list[_Wanted]:
        return [
            _Wanted(one.name, _template_name(one), self._replicas(one)) for one in self._entries
        ]

    def _replicas(self, entry: WarmGuarantee) -> int:
        """Return how many pods still fit into what a queue has and does not use."""
        usage = self._view.ledger.usage
        tree = usage.tree
        if entry.queue not in tree:
            if entry.queue not in self._unknown:
                self._unknown.add(entry.queue)
                log.warning("warm: queue %s does not exist, or cannot be used", entry.queue)
            return 0
        self._unknown.discard(entry.queue)
        fits = []
        for resource, amount in entry.resources.items():
            key = (resource, entry.gpu_type if resource == GPU else "")
            nominal = tree.nominal_quotas(entry.queue).get(key)
            each = _amount(resource, amount)
            if nominal is not None and each > 0:
                fits.append(max(nominal - usage.used(entry.queue, key), 0) // each)
        return min([*fits, _REPLICAS_MAX]) if fits else 0

    async def _write(self, one: _Wanted, entry: WarmGuarantee, existing: _Buffer | None) -> None:
        """Create or change a buffer; its template belongs to it, and is deleted with it."""
        if existing is None:
            answer = await self._client.create(self._buffers, _buffer_body(one))
            uid = msgspec.json.decode(answer)["metadata"]["uid"]
        else:
            uid = existing.metadata.uid
            if not _is(existing, one):
                body = {"spec": _spec(one)}
                await self._client.patch(f"{self._buffers}/{one.name}", body)
            # An earlier process may have ended before it created the template.
            if self._written is not None and existing.spec.pod_template_ref.name == one.template:
                return
        owner = {"apiVersion": f"{GROUP}/v1beta1", "kind": "CapacityBuffer"}
        owner |= {"name": one.name, "uid": uid}
        try:
            template = pod_template_body(one.template, entry, owner)
            await self._client.create(self._templates, template)
        except Conflict:
            return

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(f"{self._buffers}/{name}")
        except NotFound:
            return


def pod_template_body(
    name: str, entry: WarmGuarantee, owner: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the template of the pods for which an autoscaler keeps nodes."""
    resources = dict(entry.resources)
    container = {
        "name": "none",
        "image": "none",
        "resources": {"requests": resources, "limits": resources},
    }
    spec = {
        "containers": [container],
        "nodeSelector": dict(entry.node_selector),
        "tolerations": [{"key": key, "operator": "Exists"} for key in entry.tolerate],
    }
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "ownerReferences": [owner] if owner else []},
        "template": {"spec": spec},
    }


def _is(existing: _Buffer | None, one: _Wanted) -> bool:
    """Return whether a buffer is as it should be."""
    if existing is None:
        return False
    spec = existing.spec
    return (spec.pod_template_ref.name, spec.replicas) == (one.template, one.replicas)


def _buffer_body(one: _Wanted) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": one.name, "labels": {names.PROVISIONING_LABEL: "true"}},
        "spec": _spec(one),
    }


def _spec(one: _Wanted) -> dict[str, Any]:
    return {"podTemplateRef": {"name": one.template}, "replicas": one.replicas}


def _template_name(entry: WarmGuarantee) -> str:
    """Return a name that another content does not have: templates are not changed."""
    text = json.dumps(pod_template_body("", entry), sort_keys=True)
    return f"{entry.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _amount(resource: str, amount: str) -> int:
    try:
        return parse_quota_amount(resource, amount, f"warm: {resource}")
    except DecodeError as error:
        log.warning("%s", error)
        return 0
