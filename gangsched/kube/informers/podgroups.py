"""What the watch of our PodGroups does with an object."""

from functools import partial

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.gangs.incomplete import missing
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.kube.decoding import metadata, podgroups
from gangsched.kube.decoding.cluster import topologies
from gangsched.kube.informers.base import NameTracking
from gangsched.kube.informers.context import GangContext
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.volumes.eligible_nodes import Volumes


class Groups(NameTracking):
    """Objects that stand for a gang, ours and others'."""

    def __init__(self, context: GangContext) -> None:
        super().__init__(context.metrics)
        self._context, self._facts = context, context.facts
        self._engine, self._status = context.engine, context.status
        self._read: set[str] = set()

    def understood(self, raw: bytes, gang: Gang) -> bool:
        """Declare a gang; tell whether its object was never understood before."""
        uid = self.meet(raw, gang.id)
        new = uid not in self._read
        self._read.add(uid)
        self._status.valid(gang.id)
        self._facts.declare(gang)
        self._status.hint(gang.id, topologies.misspelt(raw))
        return new

    def misunderstood(self, raw: bytes, gang_id: GangId, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        uid = self.meet(raw, gang_id)
        self._status.invalid(gang_id, message, before=uid in self._read)

    def adopt(self, gang: GangId, raw: bytes) -> None:
        """Go on from what the process before this one wrote of a group."""
        if not self._context.started():
            self._status.adopt(gang, metadata.stored_status(raw))

    def meet(self, raw: bytes, gang_id: GangId) -> str:
        """Learn which object stands for a gang; return its uid."""
        raise NotImplementedError

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        super().gone(uid, raw)
        self._read.discard(uid)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        self._status.forget(GangId(name))
        self._facts.observe(f.GangGone(GangId(name)))


class PodGroups(Groups):
    """Our own PodGroups."""

    kind = "PodGroup"

    def __init__(self, context: GangContext, volumes: Volumes) -> None:
        super().__init__(context)
        self._volumes = volumes

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        context = self._context
        claims = self._volumes.asked(metadata.group_key(raw)[0])
        classes = context.cluster.priorities, context.cluster.default_priority
        gang, status, uid = podgroups.pod_group(raw, *classes, claims)
        self._volumes.wait(self, uid, raw, claims)
        runs = status.phase in ("Reserved", "Binding", "Placed")
        again = partial(self.seen, raw)
        context.planned.admit(uid, gang, self.kind, again, runs=runs)
        new = self.understood(raw, gang)
        if new and status.assignments and status.phase in ("Reserved", "Binding"):
            namespace = gang.id.split("/", 1)[0]
            places = tuple(
                (PodName(f"{namespace}/{place.pod}"), NodeName(place.node))
                for place in status.assignments
            )
            self._facts.observe(f.ReservationSeen(gang.id, places))
        if new:
            self._without_pods(gang)

    def _without_pods(self, gang: Gang) -> None:
        """Tell a new group that nothing happens before its pods are there."""
        state = self._engine.gangs.get(gang.id)
        if state is None or state.members or gang.started:
            return  # or it has run, and its pods are gone
        why = missing(state)
        if why is not None:
            report = o.Report(gang.id, state.state.value, why.reason.value, why.message, why)
            self._facts.report(report)

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner, where there is a place for it."""
        namespace, name, _ = metadata.group_key(raw)
        self.misunderstood(raw, GangId(f"{namespace}/{name}"), message)

    def meet(self, raw: bytes, gang_id: GangId) -> str:
        """Learn which object stands for a gang; return its uid."""
        namespace, name, uid = metadata.group_key(raw)
        if self.remember(raw, gang_id):
            self.adopt(gang_id, raw)
        it = f"{names.GROUP}/{names.VERSION}", "PodGroup", namespace, name, uid
        subject = ObjectRef(*it, has_status=True, owned=metadata.is_owned(raw))
        self._status.subject(gang_id, subject)
        return uid

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        super().gone(uid, raw)
        self._volumes.forget(uid)
        for again in self._context.planned.release(uid):
            again()
