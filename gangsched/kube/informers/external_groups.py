"""Informers of PodGroups of other schedulers.

The minimum that an operator writes into a PodGroup may be too high, for two reasons: the operator
may not lower it when pods are scaled down, and it may count pods that it makes only when other pods
run. So the declaration of the object that the group was made for (`owners.py`) has precedence.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from gangsched.core.bounds import GROUPS_OF_OBJECT
from gangsched.core.model.constraints import NO_CONSTRAINTS
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.kube.decoding.external import groups as foreign
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.membership import (
    LWS,
    RAY,
    RAYJOB,
    TRAINING,
    foreign_id,
    leader_worker_gang,
)
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import GroupObject
from gangsched.kube.informers.context import GangContext
from gangsched.kube.informers.podgroups import Groups
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.status.external_status import status_of

_MAKERS = {
    (kind.api_version, kind.kind): kind.source
    for kind in OWNERS
    if kind.source in {RAY, RAYJOB, *TRAINING.values()}
}
"""Kinds with operators that make a PodGroup for each object, with the object as its owner."""


class ExternalGroups(Groups):
    """The informer of one kind of another API; each object declares a gang."""

    def __init__(self, context: GangContext, kind: foreign.ExternalKind) -> None:
        super().__init__(context)
        self.kind = f"{kind.kind}.{kind.api_version}"
        self.path = kind.path
        self._kind = kind

    def malformed(self, raw: bytes, message: str) -> None:
        """Report a malformed object; the last valid declaration stays in effect."""
        obj = ApiObject(raw)
        self.reject(obj, self._id_of(obj), message)

    def _id_of(self, obj: ApiObject) -> GangId:
        metadata = obj.metadata
        return foreign_id(metadata.namespace, self._kind.source, metadata.name)

    def attach_status(self, obj: ApiObject, gang_id: GangId) -> str:
        """Attach the status of a gang to its object; return the uid."""
        metadata, kind = obj.metadata, self._kind
        if self.track(obj, gang_id) and status_of(kind) is not None:
            self.restore(gang_id, obj)
        key = metadata.namespace, metadata.name, metadata.uid
        subject = ObjectRef(kind.api_version, kind.kind, *key, external_kind=kind)
        self._status.subject(gang_id, subject)
        return metadata.uid

    def admit(self, gang: Gang, again: Callable[[], None]) -> None:
        """Count the pods of a gang that are planned before they exist.

        `again` is called as soon as fewer pods are planned.

        Raises:
            DecodeError: too many pods are planned.

        """
        if not gang.late and not self._context.planned.counts(gang.id):
            return
        state = self._engine.gangs.get(gang.id)
        runs = state is not None and state.holds_nodes()
        self._context.planned.admit(gang.id, gang, self._kind.kind, again, runs=runs)

    def released(self, gang_id: GangId) -> None:
        """Stop counting the pods of a gang; retry the rejected gangs of its namespace."""
        for again in self._context.planned.release(gang_id):
            again()


@dataclass(frozen=True, slots=True)
class OperatorGroup:
    """The object that a group was made for (`home`: the id of its first gang), and one gang."""

    home: GangId
    gang: GangId


class GroupMakers(Protocol):
    """Declarations of the objects that operators make PodGroups for."""

    def declaration(self, gang_id: GangId) -> Gang | None:
        """Return the declaration of a gang by the object that owns its pods."""


class ExternalPodGroups(ExternalGroups):
    """The informer of PodGroups of one other API."""

    def __init__(
        self, context: GangContext, kind: foreign.ExternalKind, makers: GroupMakers
    ) -> None:
        super().__init__(context, kind)
        self._makers = makers
        self._made_for: dict[GangId, OperatorGroup] = {}
        self._written: dict[GangId, dict[GangId, tuple[bytes, Gang]]] = {}

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of a group, merged with its object's declaration."""
        cluster = self._context.cluster
        group = obj.group
        gang = self._kind.read(group, cluster.priorities, cluster.names)[""][0]
        self._forget(gang.id)
        made_for = _made_for(group)
        if made_for is not None:
            written = self._written.setdefault(made_for.home, {})
            if len(written) < GROUPS_OF_OBJECT.most:
                self._made_for[gang.id] = made_for
                written[gang.id] = obj.identity(), gang
        self._declare(obj, gang)
        self._status.rewrite(gang.id)

    def changed(self, home: GangId) -> None:
        """Declare the groups of a changed object again."""
        for raw, gang in list(self._written.get(home, {}).values()):
            self._declare(ApiObject(raw), gang)

    def _declare(self, obj: ApiObject, written: Gang) -> None:
        made_for = self._made_for.get(written.id)
        declaration = self._makers.declaration(made_for.gang) if made_for is not None else None
        gang = _merged(written, declaration)
        try:
            self.admit(gang, partial(self._declare_again, obj.raw, written))
        except DecodeError as error:
            self.wrong(obj.raw, error)
        else:
            self.accept(obj, gang)

    def _declare_again(self, raw: bytes, written: Gang) -> None:
        self._declare(ApiObject(raw), written)

    def _forget(self, gang_id: GangId) -> None:
        made_for = self._made_for.pop(gang_id, None)
        if made_for is None:
            return
        written = self._written[made_for.home]
        del written[gang_id]
        if not written:
            del self._written[made_for.home]

    def on_name_released(self, name: str) -> None:
        """Observe that no object has the name any more."""
        gang_id = GangId(name)
        self._forget(gang_id)
        super().on_name_released(name)
        self.released(gang_id)


def _made_for(group: GroupObject) -> OperatorGroup | None:
    """Return the object and gang that a PodGroup was made for, or None if they are unknown."""
    metadata = group.metadata
    if name := leader_worker_gang(metadata.labels):
        gang = foreign_id(metadata.namespace, LWS, name)
        return OperatorGroup(foreign_id(metadata.namespace, LWS, name.rpartition("-")[0]), gang)
    for owner in metadata.owner_references:
        source = _MAKERS.get((owner.api_version, owner.kind))
        if source is not None:
            gang = foreign_id(metadata.namespace, source, owner.name)
            return OperatorGroup(gang, gang)
    return None


def _merged(written: Gang, declaration: Gang | None) -> Gang:
    """Return the gang of a group, merged with the declaration of the object that it was made for.

    Only that declaration says which pods come late. If the group's minimum counts the late pods,
    the gang would wait for them for ever. If the minimum is the first pod, the gang would start on
    nodes without free capacity for the late pods.
    """
    if declaration is None:
        return written
    if not declaration.late:
        return replace(written, min_member=min(written.min_member, declaration.min_member))
    constraints = (
        declaration.constraints if written.constraints == NO_CONSTRAINTS else written.constraints
    )
    return replace(
        written, min_member=declaration.min_member, roles=declaration.roles, constraints=constraints
    )
