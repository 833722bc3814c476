"""What each watch does with an object: facts for the engine, subjects for the status writer."""

import contextlib
import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gangsched.api import names
from gangsched.api.keys import unknown
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.gangs import Stage
from gangsched.core.missing import missing
from gangsched.core.model import Gang, GangId, NodeName, PodName, PodNeeds, PodUid
from gangsched.kube import decode, foreign, groups
from gangsched.kube.claims import Claims
from gangsched.kube.errors import EngineError
from gangsched.kube.membership import implicit_gang
from gangsched.kube.quantities import DecodeError, UnknownClassError
from gangsched.kube.status import Subject
from gangsched.kube.structs import Pod

if TYPE_CHECKING:
    from gangsched.kube.scheduler import Scheduler

log = logging.getLogger(__name__)

OUR_MARK = "gangsched:"
"""Begins every refusal of the extender, so that its echo in a pod's condition is known as ours."""


class Receiver:
    """Common to all kinds: a malformed object is counted, told and skipped."""

    kind = ""

    def __init__(self, scheduler: "Scheduler") -> None:
        self.scheduler = scheduler
        self._lacking: dict[str, bytes] = {}

    def seen(self, raw: bytes) -> None:
        """Take an object as the API wrote it."""
        if self._lacking:
            self._lacking.pop(groups.group_key(raw)[2], None)
        try:
            self.take(raw)
        except DecodeError as error:
            self.wrong(raw, error)
        except (EngineError, RecursionError):  # the latter is read again, but for what is too deep
            raise
        except Exception as error:  # one object that we fail to read must not end all scheduling
            log.exception("skipped: %s %s/%s", self.kind, *groups.group_key(raw)[:2])
            self._skip(
                raw, f"it cannot be read ({type(error).__name__}: {error}); please report it"
            )

    def wrong(self, raw: bytes, error: DecodeError) -> None:
        """Skip an object that is not understood; what lacks a class is read again with it."""
        log.warning("skipped: %s", error)
        self._skip(raw, str(error))
        if isinstance(error, UnknownClassError):
            self._lacking[groups.group_key(raw)[2]] = raw

    def _skip(self, raw: bytes, message: str) -> None:
        self.scheduler.metrics.malformed.labels(self.kind).inc()
        self.malformed(raw, message)

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        raise NotImplementedError

    def ahead(self, raw: bytes) -> None:
        """Prepare what may be prepared before an object may be taken."""

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner, where there is a place for it."""

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        raise NotImplementedError

    def classes_changed(self) -> None:
        """Read again what names a PriorityClass that was not there."""
        for raw in list(self._lacking.values()):
            self.seen(raw)

    def adopt(self, gang: GangId, raw: bytes) -> None:
        """Go on from what the process before this one wrote of a group."""
        if not self.scheduler.ready.is_set():
            self.scheduler.status.adopt(gang, groups.stored_status(raw))


class Named(Receiver):
    """Objects known by name: one is gone when no successor has its name."""

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._holders: Counter[str] = Counter()
        self._names: dict[str, str] = {}

    def remember(self, raw: bytes, alias: str = "") -> bool:
        """Learn the name (or `alias`) of an object by its uid; tell whether it is a new object."""
        _, name, uid = groups.group_key(raw)
        if uid in self._names:
            return False
        self._names[uid] = alias or name
        self._holders[alias or name] += 1
        return True

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        self._lacking.pop(uid, None)
        name = self._names.pop(uid, None)
        if name is None:
            return
        self._holders[name] -= 1
        if not self._holders[name]:
            del self._holders[name]
            self.left(name)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        raise NotImplementedError


class Nodes(Named):
    """Nodes: what there is to give."""

    kind = "Node"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        fact = groups.node_fact(raw)
        self.remember(raw)
        self.scheduler.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner, where there is a place for it."""
        self.scheduler.observe(f.NodeGone(groups.node_name(raw)))  # never place on what is unknown

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self.scheduler.observe(f.NodeGone(NodeName(name)))


class PodsSeen(Receiver):
    """Pods, ours and others'."""

    kind = "Pod"

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._needs: dict[str, tuple[object, PodNeeds]] = {}

    def ahead(self, raw: bytes) -> None:
        """Read what a pod asks while it is kept back: with 50,000 pods, that takes seconds."""
        with contextlib.suppress(Exception):  # said when it is taken
            self._read(decode.decode_pod(raw))

    def _read(self, pod: Pod, claims: Claims | None = None) -> f.PodSeen:
        """Turn a pod into its fact; what a bound one takes changes as it is resized alone."""
        stamp = decode.stamp(pod)
        known = self._needs.get(pod.metadata.uid)
        same = known is not None and stamp is not None and known[0] == stamp
        kept = known[1] if known and same else None
        fact = decode.pod_fact(pod, self.scheduler.names, kept, claims)
        if not fact.invalid:  # what is wrong with it must be said again
            self._needs[fact.uid] = (stamp, fact.needs)
        return fact

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler = self.scheduler
        pod = decode.decode_pod(raw)
        metadata = pod.metadata
        claims = scheduler.volumes.asked(metadata.namespace, metadata.name, metadata.uid)
        fact = scheduler.engine.as_known(scheduler.owners.of(self._read(pod, claims)))
        waits = fact.gang is not None and fact.node is None
        scheduler.volumes.use(pod, runs=fact.node is not None and not fact.ended)
        scheduler.volumes.wait(self, fact.uid, raw, claims if waits else None)
        if scheduler.status.strays.meet(pod, fact, scheduler.names):
            return
        known = scheduler.engine.pod(fact.uid)
        if fact.gang is not None:
            same = known is not None and known.gang == fact.gang and not known.invalid
            if not same or fact.gang not in scheduler.engine.gangs:
                self._declare(pod, fact)
                self.scheduler.workloads.pod(pod)
        if fact.invalid and (known is None or known.invalid != fact.invalid):
            log.warning("%s", fact.invalid)
            scheduler.metrics.malformed.labels(self.kind).inc()
        scheduler.observe(fact)
        self._judge(pod, fact)
        if fact.gang is not None and foreign.whose(fact.gang) and (fact.ended or fact.ready):
            scheduler.status.touch(fact.gang)

    def malformed(self, raw: bytes, message: str) -> None:
        """Let a pod that is not understood take its room all the same, where it runs."""
        try:
            fact = decode.bare_fact(raw, self.scheduler.names)
        except msgspec.DecodeError:
            log.exception("a pod is not counted, for not even its node can be read: %s", message)
            return
        if self.scheduler.engine.pod(fact.uid) is None and fact.node is not None:
            self.scheduler.observe(fact)

    def _declare(self, pod: Pod, fact: f.PodSeen) -> None:
        """Tell the engine of a gang that its pods declare; a wrong one never changes another."""
        assert fact.gang is not None, "asked by take"  # noqa: S101
        known = self.scheduler.engine.gangs.get(fact.gang)
        gang = implicit_gang(pod)
        alone = gang is not None and gang.min_member == 1
        self.scheduler.status.subject(fact.gang, _stands_for(pod, alone=alone))
        metadata = pod.metadata
        self.scheduler.status.hint(fact.gang, unknown(metadata.labels, metadata.annotations))
        if self.scheduler.owners.named(fact.gang) or gang is None or gang.id != fact.gang:
            return
        if known is not None and known.spec is not None:
            if fact.invalid or not known.spec.implicit:
                return  # its object says what it is: a label of one pod changes nothing
            gang = replace(gang, user=known.spec.user)
        self.scheduler.declare(gang)

    def _judge(self, pod: Pod, fact: f.PodSeen) -> None:
        """Take kube-scheduler's own word that a reserved pod cannot go to its node."""
        if fact.gang is None or fact.node is not None:
            return
        message = decode.unschedulable_message(pod)
        if message is None:
            return
        if OUR_MARK in message:
            if self.scheduler.binding is not None:
                self.scheduler.binding.asleep(fact.uid)  # who led before may have said it
            return
        gang = self.scheduler.engine.gangs.get(fact.gang)
        member = gang.members.get(fact.name) if gang is not None else None
        if member is not None and member.stage is Stage.PREPARING and member.node is not None:
            self.scheduler.observe(f.PrepareFailed(fact.uid, member.node, message))

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        self._needs.pop(uid, None)
        self.scheduler.status.strays.forget(uid)
        self.scheduler.volumes.forget(uid)
        if self.scheduler.binding is not None:
            self.scheduler.binding.forget(PodUid(uid))
        pod = self.scheduler.engine.pod(PodUid(uid))
        self.scheduler.observe(f.PodGone(PodUid(uid)))
        if pod is not None and pod.gang is not None:
            gang = self.scheduler.engine.gangs.get(pod.gang)
            if gang is None or not gang.members:
                self.scheduler.workloads.forget(pod.gang)
            if pod.gang not in self.scheduler.engine.gangs:
                self.scheduler.status.forget(pod.gang)


class Groups(Named):
    """Objects that stand for a gang, ours and others'."""

    def __init__(self, scheduler: "Scheduler") -> None:
        super().__init__(scheduler)
        self._read: set[str] = set()

    def understood(self, raw: bytes, gang: Gang) -> bool:
        """Declare a gang; tell whether its object was never understood before."""
        uid = self.meet(raw, gang.id)
        new = uid not in self._read
        self._read.add(uid)
        self.scheduler.status.valid(gang.id)
        self.scheduler.declare(gang)
        self.scheduler.status.hint(gang.id, groups.misspelt(raw))
        return new

    def misunderstood(self, raw: bytes, gang_id: GangId, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        uid = self.meet(raw, gang_id)
        self.scheduler.status.invalid(gang_id, message, before=uid in self._read)

    def meet(self, raw: bytes, gang_id: GangId) -> str:
        """Learn which object stands for a gang; return its uid."""
        raise NotImplementedError

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        super().gone(uid, raw)
        self._read.discard(uid)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self.scheduler.status.forget(GangId(name))
        self.scheduler.observe(f.GangGone(GangId(name)))


class PodGroups(Groups):
    """Our own PodGroups."""

    kind = "PodGroup"

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler = self.scheduler
        claims = scheduler.volumes.asked(groups.group_key(raw)[0])
        classes = scheduler.priorities, scheduler.default_priority
        gang, status, uid = groups.pod_group(raw, *classes, claims)
        scheduler.volumes.wait(self, uid, raw, claims)
        runs = status.phase in ("Reserved", "Binding", "Placed")
        again = partial(self.seen, raw)
        scheduler.planned.admit(uid, gang, self.kind, again, runs=runs)
        new = self.understood(raw, gang)
        if new and status.assignments and status.phase in ("Reserved", "Binding"):
            namespace = gang.id.split("/", 1)[0]
            places = tuple(
                (PodName(f"{namespace}/{place.pod}"), NodeName(place.node))
                for place in status.assignments
            )
            scheduler.observe(f.ReservationSeen(gang.id, places))
        if new:
            self._without_pods(gang)

    def _without_pods(self, gang: Gang) -> None:
        """Tell a new group that nothing happens before its pods are there."""
        state = self.scheduler.engine.gangs.get(gang.id)
        if state is None or state.members or gang.started:
            return  # or it has run, and its pods are gone
        why = missing(state)
        if why is not None:
            report = o.Report(gang.id, state.state.value, why.reason.value, why.message, why)
            self.scheduler.execute((report,))

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner, where there is a place for it."""
        namespace, name, _ = groups.group_key(raw)
        self.misunderstood(raw, GangId(f"{namespace}/{name}"), message)

    def meet(self, raw: bytes, gang_id: GangId) -> str:
        """Learn which object stands for a gang; return its uid."""
        namespace, name, uid = groups.group_key(raw)
        if self.remember(raw, gang_id):
            self.adopt(gang_id, raw)
        it = f"{names.GROUP}/{names.VERSION}", "PodGroup", namespace, name, uid
        subject = Subject(*it, has_status=True, owned=groups.is_owned(raw))
        self.scheduler.status.subject(gang_id, subject)
        return uid

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        super().gone(uid, raw)
        self.scheduler.volumes.forget(uid)
        for again in self.scheduler.planned.release(uid):
            again()


def _stands_for(pod: Pod, *, alone: bool) -> Subject:
    """Return what Events of a gang are about that no object declares.

    That is what made the pods: of many pods nobody would look at the right one. Of a pod that is a
    gang by itself, or that nobody made, it is the pod.
    """
    metadata = pod.metadata
    owner = next((one for one in metadata.owner_references if one.controller), None)
    if owner is None or alone or not owner.uid:
        return Subject("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
    return Subject(owner.api_version, owner.kind, metadata.namespace, owner.name, owner.uid)
