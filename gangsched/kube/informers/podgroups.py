"""The informer of PodGroups of gangsched.io."""

from functools import partial

from gangsched.api import names
from gangsched.api.keys import unknown
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.gangs.incomplete import incomplete_reason
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.kube.decoding import podgroups
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.informers.base import NameTracking
from gangsched.kube.informers.context import GangContext
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.volumes.eligible_nodes import Volumes


class Groups(NameTracking):
    """The informer of objects that declare a gang, of gangsched.io and of other APIs."""

    def __init__(self, context: GangContext) -> None:
        super().__init__(context.metrics)
        self._context, self._facts = context, context.facts
        self._engine, self._status = context.engine, context.status
        self._read: set[str] = set()

    def accept(self, obj: ApiObject, gang: Gang) -> bool:
        """Declare a gang; return whether its object was never valid before."""
        uid = self.attach_status(obj, gang.id)
        new = uid not in self._read
        self._read.add(uid)
        self._status.clear_invalid(gang.id)
        self._facts.declare(gang)
        metadata = obj.metadata
        self._status.hint(gang.id, unknown(metadata.labels, metadata.annotations))
        return new

    def reject(self, obj: ApiObject, gang_id: GangId, message: str) -> None:
        """Report a malformed object; the last valid declaration stays in effect."""
        uid = self.attach_status(obj, gang_id)
        self._status.invalid(gang_id, message, before=uid in self._read)

    def restore(self, gang: GangId, obj: ApiObject) -> None:
        """Restore the status that an earlier process wrote."""
        if not self._context.started():
            self._status.restore(gang, obj.group.status)

    def attach_status(self, obj: ApiObject, gang_id: GangId) -> str:
        """Attach the status of a gang to its object; return the uid."""
        raise NotImplementedError

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""
        super().on_delete(uid, raw)
        self._read.discard(uid)

    def on_name_released(self, name: str) -> None:
        """Observe that no object has the name any more."""
        self._status.forget(GangId(name))
        self._facts.observe(f.GangGone(GangId(name)))


class PodGroups(Groups):
    """The informer of our PodGroups."""

    kind = "PodGroup"

    def __init__(self, context: GangContext, volumes: Volumes) -> None:
        super().__init__(context)
        self._volumes = volumes

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        context = self._context
        claims = self._volumes.asked(obj.group.metadata.namespace)
        classes = context.cluster.priorities, context.cluster.default_priority
        gang, status, uid = podgroups.pod_group(obj.group, *classes, claims)
        self._volumes.wait(self, uid, obj.raw, claims)
        runs = status.phase in ("Reserved", "Binding", "Placed")
        again = partial(self.on_update, obj.raw)
        context.planned.admit(uid, gang, self.kind, again, runs=runs)
        new = self.accept(obj, gang)
        if new and status.assignments and status.phase in ("Reserved", "Binding"):
            namespace = gang.id.split("/", 1)[0]
            places = tuple(
                (PodName(f"{namespace}/{place.pod}"), NodeName(place.node))
                for place in status.assignments
            )
            self._facts.observe(f.AssignmentsRestored(gang.id, places))
        if new:
            self._without_pods(gang)

    def _without_pods(self, gang: Gang) -> None:
        """Report on a new group that it waits for its pods."""
        state = self._engine.gangs.get(gang.id)
        if state is None or state.members or gang.started:
            return  # the gang has pods, or had some
        why = incomplete_reason(state)
        if why is not None:
            report = o.Report(gang.id, state.state.value, why.reason.value, why.message, why)
            self._facts.report(report)

    def malformed(self, raw: bytes, message: str) -> None:
        """Report a malformed PodGroup; the last valid declaration stays in effect."""
        obj = ApiObject(raw)
        gang_id = GangId(f"{obj.metadata.namespace}/{obj.metadata.name}")
        self.reject(obj, gang_id, message)

    def attach_status(self, obj: ApiObject, gang_id: GangId) -> str:
        """Attach the status of a gang to its object; return the uid."""
        metadata = obj.metadata
        if self.track(obj, gang_id):
            self.restore(gang_id, obj)
        key = metadata.namespace, metadata.name, metadata.uid
        kind = f"{names.GROUP}/{names.VERSION}", "PodGroup"
        subject = ObjectRef(*kind, *key, has_status=True, owned=obj.is_owned)
        self._status.subject(gang_id, subject)
        return metadata.uid

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Apply the deletion of an object."""
        super().on_delete(uid, raw)
        self._volumes.forget(uid)
        for again in self._context.planned.release(uid):
            again()
