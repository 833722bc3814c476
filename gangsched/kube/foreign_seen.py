"""What the watches tell of others' objects that stand for a gang.

An object whose pods are the gang, such as a Job, is declared once one of its pods names us.
"""

from typing import TYPE_CHECKING

from gangsched.core.model import Gang, GangId
from gangsched.kube import foreign, groups
from gangsched.kube.membership import foreign_id
from gangsched.kube.owners import OWNERS
from gangsched.kube.quantities import DecodeError, UnknownClassError
from gangsched.kube.receivers import Groups
from gangsched.kube.status import Subject

if TYPE_CHECKING:
    from gangsched.kube.scheduler import Scheduler


class Foreign(Groups):
    """PodGroups of others."""

    def __init__(self, scheduler: "Scheduler", kind: foreign.Kind) -> None:
        super().__init__(scheduler)
        self.kind = f"{kind.kind}.{kind.api_version}"
        self.path = kind.path
        self._kind = kind

    def take(self, raw: bytes) -> None:
        """Turn an object into facts."""
        scheduler = self.scheduler
        gang = self.read(raw)
        self.understood(raw, gang)
        if self._kind.status is not None:
            scheduler.status.touch(gang.id)

    def read(self, raw: bytes) -> Gang:
        """Return the gang that an object stands for.

        Raises:
            DecodeError: it is not understood.

        """
        scheduler = self.scheduler
        group = groups.decode_group(raw)
        return self._kind.read(group, scheduler.priorities, scheduler.names)

    def malformed(self, raw: bytes, message: str) -> None:
        """Tell the object's owner; the last valid declaration stays."""
        namespace, name, _ = groups.group_key(raw)
        self.misunderstood(raw, foreign_id(namespace, self._kind.whose, name), message)

    def meet(self, raw: bytes, gang_id: GangId) -> str:
        """Learn which object stands for a gang; return its uid."""
        namespace, name, uid = groups.group_key(raw)
        kind = self._kind
        if self.remember(raw, gang_id) and kind.status is not None:
            self.adopt(gang_id, raw)
        subject = Subject(kind.api_version, kind.kind, namespace, name, uid, theirs=kind)
        self.scheduler.status.subject(gang_id, subject)
        return uid


def groups_of_others(scheduler: "Scheduler") -> list[Foreign]:
    """Return what reads PodGroups of others, kind by kind."""
    return [Foreign(scheduler, kind) for kind in foreign.KINDS]


class PodOwners(Foreign):
    """Objects of one kind whose pods are a gang; most may be scheduled elsewhere.

    For an object without a pod of ours the gang is only remembered, and no status or Event is
    written: its controller may have made a group for it, or another scheduler may place its pods.
    """

    def __init__(self, scheduler: "Scheduler", kind: foreign.Kind) -> None:
        super().__init__(scheduler, kind)
        self._unnamed: dict[GangId, tuple[bytes, Gang | DecodeError]] = {}

    def take(self, raw: bytes) -> None:
        """Turn an object into facts, once it is known to be a gang of ours."""
        namespace, name, _ = groups.group_key(raw)
        gang_id = foreign_id(namespace, self._kind.whose, name)
        if gang_id in self.scheduler.engine.gangs:
            self._unnamed.pop(gang_id, None)
            super().take(raw)
            return
        self.remember(raw, gang_id)
        found: Gang | DecodeError
        try:
            found = self.read(raw)
        except DecodeError as error:
            found = error
        again = isinstance(found, UnknownClassError)  # it is read again with the class
        self._unnamed[gang_id] = raw if again else groups.identity(raw), found

    def named(self, gang_id: GangId) -> None:
        """Declare a gang that a pod of ours belongs to, if it is of this kind and not declared."""
        kept = self._unnamed.pop(gang_id, None)
        if kept is None:
            return
        raw, found = kept
        if isinstance(found, Gang):
            self.understood(raw, found)
        else:
            self.wrong(raw, found)

    def left(self, name: str) -> None:
        """Turn it into facts that nothing has this name any more."""
        if self._unnamed.pop(GangId(name), None) is None:
            super().left(name)


class Owners:
    """All kinds of objects whose pods are a gang."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self.receivers = tuple(PodOwners(scheduler, kind) for kind in OWNERS)

    def named(self, gang_id: GangId) -> None:
        """Declare a gang that a pod of ours belongs to, if an object here stands for it."""
        for one in self.receivers:
            one.named(gang_id)
