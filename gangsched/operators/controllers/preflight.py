"""Checks before any object of a gang is created, so that it is not created in part.

Three checks, from cheap to expensive: the namespace's quotas admit all pods together; the
ConfigMaps that they read exist; the API server accepts one pod of each role. The last check is a
dry run, which applies limit ranges, pod security and all webhooks.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from gangsched.core.bounds import CONFIG_MAPS
from gangsched.core.model.text import shown
from gangsched.jobs.common.model import GROUP_VERSION, Intent, Json
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Forbidden, Invalid, NotFound
from gangsched.kube.client.paths import is_dns_name, object_path
from gangsched.kube.status.events import ObjectRef
from gangsched.operators.api_objects import collection, owned_by, owner_uid
from gangsched.operators.controllers.resource_quota import (
    exceeded_quota,
    names_uncounted_device,
    total_of_templates,
    total_usage,
)
from gangsched.operators.job_kind import BlockedError, RejectedError

_CLAIMED_S = 10.0
"""How long an admitted gang counts before its PodGroup is seen."""

_NO_DRY_RUN = "does not support dry run"
_POLICY = ("denied the request", "denied request")
"""Phrases of webhooks and admission policies: rules of this cluster, which may change."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """The part of the quota that an admitted gang takes until its PodGroup is written."""

    namespace: str
    until_s: float
    amounts: Mapping[str, int]


_CLAIMS: WeakKeyDictionary[KubeClient, dict[str, _Claim]] = WeakKeyDictionary()
"""By the owner's uid: two jobs that are checked at the same moment do not see each other yet."""


async def preflight(client: KubeClient, owner: ObjectRef, intents: Sequence[Intent]) -> None:
    """Return if all intended objects can be created now.

    Raises:
        BlockedError: they cannot be created now.
        RejectedError: they cannot be created until the owner is changed.
        KubeError: the API server gave no answer.

    """
    if not intents:
        return
    await _quotas(client, owner, intents)
    await _config_maps(client, owner.namespace, intents)
    for intent in intents:
        document = intent.document
        path = collection(document["apiVersion"], document["kind"], owner.namespace)
        try:
            await client.create(f"{path}?dryRun=All", owned_by(document, owner))
        except Conflict:
            continue  # its owner is checked at the creation
        except Forbidden as error:
            raise BlockedError(str(error)) from error
        except Invalid as error:
            if _NO_DRY_RUN in str(error):
                continue  # that webhook is called when the pods are created
            if any(words in str(error) for words in _POLICY):
                raise BlockedError(str(error)) from error
            raise RejectedError(str(error)) from error


async def _quotas(client: KubeClient, owner: ObjectRef, intents: Sequence[Intent]) -> None:
    inside = f"/api/v1/namespaces/{owner.namespace}"
    quotas = await _items(client, f"{inside}/resourcequotas")
    if not quotas:
        return
    pods = [(intent.count, intent.document["spec"]) for intent in intents if intent.count]
    if not names_uncounted_device(quotas):
        sentence = exceeded_quota(quotas, pods)
    else:
        live = "status.phase!=Succeeded,status.phase!=Failed"
        there = await _items(client, f"{inside}/pods", fieldSelector=live)
        groups = await _items(client, collection(GROUP_VERSION, "PodGroup", owner.namespace))
        claims = _CLAIMS.setdefault(client, {})
        sentence = _claim(claims, owner, pods, total_usage(there, groups), quotas, groups)
    if sentence is not None:
        raise BlockedError(sentence)


async def _items(client: KubeClient, path: str, **parameters: str) -> list[Json]:
    items: list[Json] = msgspec.json.decode(await client.get(path, **parameters))["items"]
    return items


def _claim(
    claims: dict[str, _Claim],
    owner: ObjectRef,
    pods: Sequence[tuple[int, Json]],
    usage: dict[str, int],
    quotas: Sequence[Json],
    groups: Sequence[Json],
) -> str | None:
    """Return which quota pods would exceed, admitted gangs included; else admit them."""
    now_s = time.monotonic()
    declared = {owner_uid(group) for group in groups} | {owner.uid}
    for uid, claim in list(claims.items()):
        if uid in declared or claim.until_s < now_s:
            del claims[uid]
        elif claim.namespace == owner.namespace:
            for name, amount in claim.amounts.items():
                usage[name] = usage.get(name, 0) + amount
    sentence = exceeded_quota(quotas, pods, usage)
    if sentence is None:
        claims[owner.uid] = _Claim(owner.namespace, now_s + _CLAIMED_S, total_of_templates(pods))
    return sentence


async def _config_maps(client: KubeClient, namespace: str, intents: Sequence[Intent]) -> None:
    """Check that ConfigMaps exist; users' Secrets are never read."""
    names = sorted({name for intent in intents for name in _read_by(intent.user_spec)})
    if len(names) > CONFIG_MAPS.most:
        raise RejectedError(
            f"the templates read {len(names)} ConfigMaps; {CONFIG_MAPS.most} are allowed"
        )
    for name in names:
        if not is_dns_name(name):
            raise RejectedError(
                f"a template reads ConfigMap {shown(name)}, which is not a valid name: lower case "
                f"letters, digits, '-' and '.' are allowed"
            )
        with contextlib.suppress(Forbidden):
            try:
                await client.get(object_path(f"/api/v1/namespaces/{namespace}/configmaps", name))
            except NotFound as error:
                raise BlockedError(
                    f"ConfigMap {namespace}/{name} does not exist and pods of this job cannot "
                    f"start without it; create it, or mark it optional in the template"
                ) from error


def _read_by(spec: Json) -> Iterator[str]:
    """Yield the names of the ConfigMaps that a pod cannot start without."""
    for source in _sources(spec):
        if source and source.get("name") and not source.get("optional"):
            yield str(source["name"])


def _sources(spec: Json) -> Iterator[Json | None]:
    for volume in spec.get("volumes") or []:
        yield volume.get("configMap")
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield source.get("configMap")
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        for source in container.get("envFrom") or []:
            yield source.get("configMapRef")
        for variable in container.get("env") or []:
            yield (variable.get("valueFrom") or {}).get("configMapKeyRef")
