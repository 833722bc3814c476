"""Decides which kinds of job gangsched runs: those of the settings, or those of no other operator.

    watches of Leases and Deployments -> conflicting_operators.py -> `changed`, the log, a ConfigMap

Each event renews the decision, and so does the expiry of a Lease. Only the Leases of operators are
watched: those of a large cluster's nodes change a thousand times a second.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from prometheus_client import Gauge

from gangsched.jobs.jobset import reconcile as jobset
from gangsched.jobs.katib import experiment, trial
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.trainer import reconcile as trainjob
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.kube.client.watch import Watch
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.operators.conflicting_operators import (
    LEASES,
    ConflictingOperators,
    Deployment,
    Lease,
    Sighting,
)

log = logging.getLogger(__name__)

KEY = "job-kinds.json"
"""The key of the ConfigMap under which the owner of each kind is stored for the commands."""

_LEASES = "/apis/coordination.k8s.io/v1/leases"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_NOT_NAMED = "job_kinds in the settings does not name it"
_SYNC_S = 10.0
"""How long the job controllers wait for lists that they may not be allowed to read."""

_RETRY_S = 30.0

_Body = TypeVar("_Body", Lease, Deployment)


@dataclass(frozen=True, slots=True)
class KindOwners:
    """The owner of each kind: gangsched's kinds, and all others with the reason as a clause."""

    ours: frozenset[str] = frozenset()
    others: Mapping[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Return the decision as JSON values."""
        return {"ours": sorted(self.ours), "others": dict(sorted(self.others.items()))}


def decide(
    known: Collection[str],
    wanted: Collection[str] | None,
    others: Mapping[str, str],
    otherwise: str = _NOT_NAMED,
) -> KindOwners:
    """Return the owner of each known kind; gangsched runs `wanted` kinds in any case.

    `otherwise` is the reason for a kind that is not wanted.
    """
    if wanted is None:
        elsewhere = {kind: why for kind, why in others.items() if kind in known}
        return KindOwners(frozenset(known) - elsewhere.keys(), elsewhere)
    elsewhere = {kind: others.get(kind) or otherwise for kind in known if kind not in wanted}
    return KindOwners(frozenset(wanted), elsewhere)


def changes_in_words(before: KindOwners | None, after: KindOwners) -> list[str]:
    """Return the changes, a sentence for each reason."""
    changes = []
    by_reason: dict[str, list[str]] = {}
    for kind, why in after.others.items():
        if before is None or before.others.get(kind) != why:
            by_reason.setdefault(why, []).append(kind)
    for why, kinds in by_reason.items():
        is_running = " by its " in why
        remedy = "; name a kind in job_kinds to run it here" if is_running else ""
        changes.append(
            f"gangsched does not run jobs of kind {', '.join(sorted(kinds))}: {why}{remedy}"
        )
    taken = sorted(after.ours - before.ours) if before is not None else []
    if taken:
        changes.append(
            f"gangsched runs jobs of kind {', '.join(taken)} from now on: no other operator does"
        )
    if not after.ours and (before is None or before.ours):
        changes.append("gangsched runs no kind of job; it still schedules gangs of pods")
    return changes


class _SignReceiver:
    """Reports the objects of one watch to the decision; malformed ones are skipped."""

    def __init__(
        self, type_: type[_Body], take: Callable[[Any], None], gone: Callable[[str], None]
    ) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(type_)
        self._take, self._gone = take, gone

    def on_update(self, raw: bytes) -> None:
        """Record an object that exists now."""
        try:
            self._take(self._decoder.decode(raw))
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("skipped a malformed Lease or Deployment: %s", error)

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Record that an object no longer exists."""
        del raw
        self._gone(uid)


class Ownership:
    """The owner of each kind; `changed` is set at the start and when gangsched's kinds change."""

    def __init__(
        self,
        client: KubeClient,
        known: Collection[str],
        wanted: Collection[str] | None,
        kept: ConfigMapEntry | None = None,
        gauge: Gauge | None = None,
        now_s: Callable[[], float] = time.time,
        otherwise: str = _NOT_NAMED,
    ) -> None:
        """`kept` stores the decision for the commands; `gauge` exports it.

        `otherwise` is the reason for known kinds that are not wanted.
        """
        self.owners: KindOwners | None = None
        self.changed = asyncio.Event()
        self._client, self._known, self._wanted = client, tuple(known), wanted
        self._otherwise = otherwise
        self._kept, self._gauge, self._now_s = kept, gauge, now_s
        self._operators = ConflictingOperators()
        self._woken = asyncio.Event()
        self._refused: dict[tuple[str, tuple[str, str]], float] = {}
        self._written = ""

    async def run(self) -> None:
        """Watch and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            # Without watches, the kinds of the settings are gangsched's in any case.
            watches = self._watches() if self._wanted is None else []
            for watch in watches:
                group.create_task(watch.run())
            try:
                async with asyncio.timeout(_SYNC_S):
                    for watch in watches:
                        await watch.synced.wait()
            except TimeoutError:
                log.warning("other operators are not known yet: Leases or Deployments not listed")
            await self._decide_on()

    def _watches(self) -> list[Watch]:
        signs = self._operators

        def gone(uid: str) -> None:
            signs.gone(uid)
            self._woken.set()

        def lease(body: Lease) -> None:
            signs.lease_seen(body, self._now_s())
            self._woken.set()

        def deployment(body: Deployment) -> None:
            signs.deployment_seen(body, self._now_s())
            self._woken.set()

        return [
            Watch(self._client, _DEPLOYMENTS, _SignReceiver(Deployment, deployment, gone)),
            *(
                Watch(
                    self._client,
                    _LEASES,
                    _SignReceiver(Lease, lease, gone),
                    params={"fieldSelector": f"metadata.name={name}"},
                )
                for name in LEASES
            ),
        ]

    async def _decide_on(self) -> None:
        while True:
            self._woken.clear()
            retries = await self._verify()
            self._decide()
            written = await self._write()
            now_s = self._now_s()
            ends_s = self._operators.next_expiry_s(now_s)
            waits = [_RETRY_S] if retries or not written else []
            waits += [ends_s - now_s + 0.05] if ends_s is not None else []
            try:
                async with asyncio.timeout(min(waits, default=None)):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _verify(self) -> bool:
        """Verify signs that are not confirmed; return whether some have to be verified again."""
        now_s = self._now_s()
        unconfirmed = self._operators.unconfirmed(now_s)
        keys = {(uid, sign.account) for uid, sign in unconfirmed.items()}
        self._refused = {key: at_s for key, at_s in self._refused.items() if key in keys}
        for uid, sign in unconfirmed.items():
            key = uid, sign.account
            if now_s - self._refused.get(key, -_RETRY_S) < _RETRY_S:
                continue
            if await has_operator_rights(self._client, sign):
                self._operators.confirm(uid)
                continue
            if key not in self._refused:
                log.warning(
                    "%s looks like that of %s, but its account may not write the status of %ss in "
                    "all namespaces: it does not count as an operator",
                    sign.where,
                    sign.operator.name,
                    sign.operator.kinds[0],
                )
            self._refused[key] = now_s
        return bool(self._refused)

    def _decide(self) -> None:
        others = self._operators.kinds_run(self._now_s())
        after = decide(self._known, self._wanted, others, self._otherwise)
        before, self.owners = self.owners, after
        if after == before:
            return
        for sentence in changes_in_words(before, after):
            log.warning("%s", sentence)
        if self._gauge is not None:
            for kind in self._known:
                self._gauge.labels(kind).set(kind in after.ours)
        if before is None or after.ours != before.ours:
            self.changed.set()

    async def _write(self) -> bool:
        """Store the decision if it is new; return whether it is stored."""
        if self._kept is None or self.owners is None:
            return True
        text = json.dumps(self.owners.data())
        if text == self._written:
            return True
        try:
            await self._kept.write(text)
        except KubeError as error:
            log.warning("%s: %s", self._kept, error)
            return False
        self._written = text
        return True


async def store_no_kinds(client: KubeClient, kept: ConfigMapEntry) -> None:
    """Store that gangsched runs no kind of job, and wait until cancelled."""
    known = (*FRAMEWORKS, jobset.KIND, trainjob.KIND, experiment.KIND, trial.KIND)
    why = "gangsched was started with --no-operators"
    await Ownership(client, known, (), kept, otherwise=why).run()


async def has_operator_rights(client: KubeClient, sign: Sighting) -> bool:
    """Return whether the account behind a sign has the rights of an operator."""
    namespace, account = sign.account
    try:
        if sign.renewed:
            pod = await client.get(object_path(f"/api/v1/namespaces/{namespace}/pods", account))
            account = msgspec.json.decode(pod)["spec"].get("serviceAccountName") or "default"
        attributes = {
            "group": sign.operator.group,
            "resource": f"{sign.operator.kinds[0].lower()}s",
            "subresource": "status",
            "verb": "update",
        }
        spec = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": [
                "system:authenticated",
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
            ],
            "resourceAttributes": attributes,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = msgspec.json.decode(await client.create(_REVIEWS, review))
    except NotFound:
        return False  # a Lease that no pod holds
    except Forbidden as error:
        log.warning("cannot verify the rights behind %s; they count: %s", sign.where, error)
        return True
    except KubeError as error:
        log.warning("%s: %s", sign.where, error)
        return False
    return bool(answer["status"].get("allowed"))


async def running_operators(client: KubeClient, now_s: float) -> dict[str, str]:
    """Return the kinds that other operators run now, each with a clause about the operator.

    Raises:
        KubeError: the API server gave no answer.

    """
    operators = ConflictingOperators()
    params = {"fieldSelector": "metadata.namespace!=kube-node-lease"}
    for body in msgspec.json.decode(await client.get(_LEASES, **params))["items"]:
        if body["metadata"]["name"] in LEASES:
            operators.lease_seen(msgspec.convert(body, Lease), now_s)
    for body in msgspec.json.decode(await client.get(_DEPLOYMENTS))["items"]:
        operators.deployment_seen(msgspec.convert(body, Deployment), now_s)
    for uid, sign in operators.unconfirmed(now_s).items():
        if await has_operator_rights(client, sign):
            operators.confirm(uid)
    return operators.kinds_run(now_s)


def parse_owners(text: str) -> KindOwners | None:
    """Return a stored decision; None if it is malformed."""
    try:
        stored = json.loads(text)
        ours = frozenset(str(kind) for kind in stored["ours"])
        return KindOwners(ours, {str(kind): str(why) for kind, why in stored["others"].items()})
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
