"""What the watch of our PodGroups does with an object."""

from functools import partial
from typing import TYPE_CHECKING

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.gangs.incomplete import missing
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.kube.decoding import metadata, podgroups
from gangsched.kube.decoding.cluster import topologies
from gangsched.kube.status.events import ObjectRef

if TYPE_CHECKING:
    from gangsched.kube.service import Scheduler
from gangsched.kube.informers.base import NameTracking


class Groups(NameTracking):
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
        self.scheduler.status.hint(gang.id, topologies.misspelt(raw))
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
        claims = scheduler.volumes.asked(metadata.group_key(raw)[0])
        classes = scheduler.priorities, scheduler.default_priority
        gang, status, uid = podgroups.pod_group(raw, *classes, claims)
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
        namespace, name, _ = metadata.group_key(raw)
        self.misunderstood(raw, GangId(f"{namespace}/{name}"), message)

    def meet(self, raw: bytes, gang_id: GangId) -> str:
        """Learn which object stands for a gang; return its uid."""
        namespace, name, uid = metadata.group_key(raw)
        if self.remember(raw, gang_id):
            self.adopt(gang_id, raw)
        it = f"{names.GROUP}/{names.VERSION}", "PodGroup", namespace, name, uid
        subject = ObjectRef(*it, has_status=True, owned=metadata.is_owned(raw))
        self.scheduler.status.subject(gang_id, subject)
        return uid

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Take note that an object was deleted."""
        super().gone(uid, raw)
        self.scheduler.volumes.forget(uid)
        for again in self.scheduler.planned.release(uid):
            again()
