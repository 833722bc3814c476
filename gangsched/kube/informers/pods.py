"""The informer of pods."""

import contextlib
from dataclasses import replace

import msgspec

from gangsched.api import names
from gangsched.api.keys import unknown
from gangsched.core import facts as f
from gangsched.core.engine.gangs.member import Stage
from gangsched.core.model.ids import PodUid
from gangsched.core.model.pods import PodRequirements
from gangsched.kube.decoding import pods
from gangsched.kube.decoding.claims import Claims
from gangsched.kube.decoding.external import groups as foreign
from gangsched.kube.decoding.membership import implicit_gang
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.schemas import Pod
from gangsched.kube.informers.base import Informer, log
from gangsched.kube.informers.context import GangContext, PodMemory
from gangsched.kube.informers.external_owners import Owners
from gangsched.kube.informers.workloads import Workloads
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.volumes.eligible_nodes import Volumes


class Pods(Informer):
    """The informer of all pods, also of other schedulers' pods."""

    kind = "Pod"

    def __init__(
        self,
        context: GangContext,
        volumes: Volumes,
        owners: Owners,
        workloads: Workloads,
        binder: PodMemory,
    ) -> None:
        super().__init__(context.metrics)
        self._facts, self._engine = context.facts, context.engine
        self._status, self._cluster = context.status, context.cluster
        self._volumes, self._owners, self._workloads = volumes, owners, workloads
        self._binder = binder
        self._needs: dict[str, tuple[object, PodRequirements]] = {}

    def predecode(self, raw: bytes) -> None:
        """Decode a pod before it is applied: for 50,000 pods decoding takes seconds."""
        with contextlib.suppress(Exception):  # reported when the pod is applied
            self._read(pods.decode_pod(raw))

    def _read(self, pod: Pod, claims: Claims | None = None) -> f.PodSeen:
        """Return the fact of a pod; the requirements of a bound pod change only by a resize."""
        stamp = pods.stamp(pod)
        known = self._needs.get(pod.metadata.uid)
        same = known is not None and stamp is not None and known[0] == stamp
        kept = known[1] if known and same else None
        fact = pods.pod_fact(pod, self._cluster.names, kept, claims)
        if not fact.invalid:  # the problem must be reported again
            self._needs[fact.uid] = (stamp, fact.needs)
        return fact

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        pod = pods.decode_pod(obj.raw)
        metadata = pod.metadata
        claims = self._volumes.asked(metadata.namespace, metadata.name, metadata.uid)
        fact = self._engine.reconciled(self._owners.of(self._read(pod, claims)))
        waits = fact.gang is not None and fact.node is None
        self._volumes.use(pod, runs=fact.node is not None and not fact.ended)
        self._volumes.wait(self, fact.uid, obj.raw, claims if waits else None)
        if self._status.strays.meet(pod, fact, self._cluster.names):
            return
        known = self._engine.pod(fact.uid)
        if fact.gang is not None:
            same = known is not None and known.gang == fact.gang and not known.invalid
            if not same or fact.gang not in self._engine.gangs:
                self._declare(pod, fact)
                self._workloads.pod(pod)
        if fact.invalid and (known is None or known.invalid != fact.invalid):
            log.warning("%s", fact.invalid)
            self._metrics.malformed.labels(self.kind).inc()
        self._facts.observe(fact)
        self._observe_scheduler_verdict(pod, fact)
        if fact.gang is not None and foreign.source_of(fact.gang) and (fact.ended or fact.ready):
            self._status.rewrite(fact.gang)

    def malformed(self, raw: bytes, message: str) -> None:
        """Observe a malformed pod that is bound, because it uses its node."""
        try:
            fact = pods.bare_fact(raw, self._cluster.names)
        except msgspec.DecodeError:
            log.exception("a pod is not counted: its node cannot be read: %s", message)
            return
        if self._engine.pod(fact.uid) is None and fact.node is not None:
            self._facts.observe(fact)

    def _declare(self, pod: Pod, fact: f.PodSeen) -> None:
        """Declare the gang of a pod, unless an object declares it."""
        assert fact.gang is not None, "asked by take"  # noqa: S101
        known = self._engine.gangs.get(fact.gang)
        gang = implicit_gang(pod)
        alone = gang is not None and gang.min_member == 1
        self._status.subject(fact.gang, _stands_for(pod, alone=alone))
        metadata = pod.metadata
        self._status.hint(fact.gang, unknown(metadata.labels, metadata.annotations))
        if self._owners.named(fact.gang) or gang is None or gang.id != fact.gang:
            return
        if known is not None and known.spec is not None:
            if fact.invalid or not known.spec.implicit:
                return  # an object declares the gang, so a label of one pod changes nothing
            gang = replace(gang, user=known.spec.user)
        self._facts.declare(gang)

    def _observe_scheduler_verdict(self, pod: Pod, fact: f.PodSeen) -> None:
        """Observe that kube-scheduler rejects the node of a reserved pod."""
        if fact.gang is None or fact.node is not None:
            return
        message = pods.unschedulable_message(pod)
        if message is None:
            return
        if names.REFUSAL_PREFIX in message:
            self._binder.mark_unschedulable(fact.uid)  # the answer may be of the last leader
            return
        gang = self._engine.gangs.get(fact.gang)
        member = gang.members.get(fact.name) if gang is not None else None
        if (
            member is not None
            and member.stage is Stage.PREPARING
            and member.assigned_node is not None
        ):
            self._facts.observe(f.PrepareFailed(fact.uid, member.assigned_node, message))

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of a pod."""
        self._needs.pop(uid, None)
        self._status.strays.forget(uid)
        self._volumes.forget(uid)
        self._binder.forget(PodUid(uid))
        pod = self._engine.pod(PodUid(uid))
        self._facts.observe(f.PodGone(PodUid(uid)))
        if pod is not None and pod.gang is not None:
            gang = self._engine.gangs.get(pod.gang)
            if gang is None or not gang.members:
                self._workloads.forget(pod.gang)
            if pod.gang not in self._engine.gangs:
                self._status.forget(pod.gang)


def _stands_for(pod: Pod, *, alone: bool) -> ObjectRef:
    """Return the object of the Events of a gang that no object declares.

    It is the controller of the pods, because a user would not find the right pod among many. If a
    pod is a gang by itself or has no controller, it is the pod.
    """
    metadata = pod.metadata
    owner = next(
        (reference for reference in metadata.owner_references if reference.controller), None
    )
    if owner is None or alone or not owner.uid:
        return ObjectRef("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
    return ObjectRef(owner.api_version, owner.kind, metadata.namespace, owner.name, owner.uid)
