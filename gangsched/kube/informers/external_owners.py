"""Informers of objects of other controllers with pods that are a gang.

Such an object, for example a Job, declares its gang only when one of its pods names gangsched.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from gangsched.core import facts as f
from gangsched.core.model.dependencies import Outcome
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.kube.decoding.external import groups as foreign
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.membership import TRAINING, foreign_id
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import DecodeError, UnknownClassError
from gangsched.kube.decoding.schemas import GroupObject
from gangsched.kube.informers.context import GangContext
from gangsched.kube.informers.external_groups import ExternalGroups, ExternalPodGroups

_DEEP = 3
"""Length of the longest chain of objects that control each other, such as a Job of a RayJob."""


@dataclass(frozen=True, slots=True)
class Known:
    """An object, and the gangs of its pods.

    `raw` is the object, or only its identity. `gangs` are by stage, or the error of a malformed
    object. If another object of these kinds is the `controller` of this object, the pods belong to
    the controller's gang. `outcome` is how the object ended, if it has.
    """

    raw: bytes
    gangs: dict[str, tuple[Gang, frozenset[str]]] | DecodeError
    controller: GangId | None
    outcome: Outcome | None = None

    def parts(self) -> tuple[GangId | None, dict[str, frozenset[str]]]:
        """Return the fields that decide the gang of a pod: the controller, and roles by stage."""
        gangs = {} if isinstance(self.gangs, DecodeError) else self.gangs
        return self.controller, {stage: roles for stage, (_, roles) in gangs.items()}

    def stage(self, role: str) -> GangId | None:
        """Return the gang of a role's pods if the object has several gangs, else None."""
        if isinstance(self.gangs, DecodeError) or len(self.gangs) < 2:
            return None
        return next((gang.id for gang, roles in self.gangs.values() if role in roles), None)

    def declaration(self, gang_id: GangId, *, copies: bool) -> Gang | None:
        """Return the declaration of a gang of the object."""
        assert not isinstance(self.gangs, DecodeError), "asked before"  # noqa: S101
        if copies:
            return replace(self.gangs[""][0], id=gang_id)
        return next((gang for gang, _ in self.gangs.values() if gang.id == gang_id), None)


class PodOwners(ExternalGroups):
    """The informer of one kind of objects with pods that are one gang or several.

    Another scheduler may place most of these objects, or their controller may have made a group.
    So the informer only records the gangs of an object until a pod names gangsched. It writes no
    status or Event before.
    """

    def __init__(self, context: GangContext, kind: foreign.ExternalKind, owners: "Owners") -> None:
        super().__init__(context, kind)
        self._owners = owners
        self._known: dict[GangId, Known] = {}
        self._declared: dict[GangId, dict[GangId, None]] = {}

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Record an object; declare its gangs that have pods of ours."""
        known = self._learn(obj)
        home = self._id_of(obj)
        self.track(obj, home)
        before = self._known.get(home)
        self._known[home] = known
        gangs = self._engine.gangs
        before_it = self._declared.get(home, {})
        declared = self._declared[home] = {
            gang_id: None for gang_id in before_it if gang_id in gangs
        }
        for gang_id in [gang_id for gang_id in before_it if gang_id not in declared]:
            self.released(gang_id)  # its last pod is gone
        # A controller writes the object's status for each pod; such a change concerns no gang.
        news = before is None or (before.raw, before.gangs) != (known.raw, known.gangs)
        for gang_id in list(declared) if news else ():
            self._declare(gang_id, obj)
        if before is not None and before.outcome is not known.outcome is not None:
            for gang_id in declared:
                self._report_end(gang_id, known)
        if before is None or before.parts() != known.parts():
            self._owners.appeared(home, known.controller)
        if news:
            self._owners.changed(home)
        for gang_id in self._named_before(home) if before is None else ():
            self.named(gang_id)

    def _named_before(self, home: GangId) -> list[GangId]:
        """Return the gangs of an object with pods that were observed before the object."""
        known, gangs = self._known[home], self._engine.gangs
        if isinstance(known.gangs, DecodeError):
            return [home] if home in gangs else []
        if not self._kind.copies:
            return [gang.id for gang, _ in known.gangs.values() if gang.id in gangs]
        copies = (GangId(f"{home}-{index}") for index in itertools.count())
        return list(itertools.takewhile(gangs.__contains__, copies))

    def _learn(self, obj: ApiObject) -> Known:
        cluster = self._context.cluster
        try:
            group = obj.group
            by_stage = self._kind.read(group, cluster.priorities, cluster.names)
        except DecodeError as error:
            again = isinstance(error, UnknownClassError)  # the object is read again with its class
            return Known(obj.raw if again else obj.identity(), error, None)
        outcome = self._kind.outcome(group.status)
        return Known(obj.identity(), by_stage, _controller(group), outcome)

    def known(self, gang_id: GangId) -> Known | None:
        """Return the object that a gang would belong to, or None if it is unknown."""
        return self._known.get(self._kind.home(gang_id))

    def declaration_of(self, gang_id: GangId) -> Gang | None:
        """Return the declaration of a gang by its object, or None if there is none."""
        known = self.known(gang_id)
        if known is None or isinstance(known.gangs, DecodeError):
            return None
        return known.declaration(gang_id, copies=self._kind.copies)

    def accept(self, obj: ApiObject, gang: Gang) -> bool:
        """Declare a gang; return whether its object was never valid before.

        If another operator takes over a training job of ours, the running pods stay in our
        PodGroup. Their number lowers the minimum here: a pod that the operator recreates must not
        wait for a whole second gang.
        """
        if self._kind.source in TRAINING.values():
            own = GangId(f"{obj.metadata.namespace}/{obj.metadata.name}")
            state = self._engine.gangs.get(own)
            there = state.members.bound_count() if state is not None else 0
            if there and self._status.owned(own):
                gang = replace(gang, min_member=max(gang.min_member - there, 1))
        return super().accept(obj, gang)

    def named(self, gang_id: GangId) -> bool:
        """Declare the gang of a pod of ours; return whether an object of this kind has the gang."""
        home = self._kind.home(gang_id)
        known = self._known.get(home)
        if known is None:
            return False
        declared = self._declared.setdefault(home, {})
        if gang_id not in declared or gang_id not in self._engine.gangs:
            declared[gang_id] = None
            self._declare(gang_id, ApiObject(known.raw))
        return True

    def _declare(self, gang_id: GangId, obj: ApiObject) -> None:
        known = self._known[self._kind.home(gang_id)]
        if isinstance(known.gangs, DecodeError):
            self.wrong(obj.raw, known.gangs)
            return
        gang = known.declaration(gang_id, copies=self._kind.copies)
        if gang is not None:
            try:
                self.admit(gang, partial(self._declare_again, gang_id, obj.raw))
            except DecodeError as error:
                self.wrong(obj.raw, error)
                return
            self.accept(obj, gang)
            self._report_end(gang_id, known)

    def _report_end(self, gang_id: GangId, known: Known) -> None:
        if known.outcome is not None and gang_id in self._engine.gangs:
            self._facts.observe(f.JobEnded(gang_id, known.outcome))

    def _declare_again(self, gang_id: GangId, raw: bytes) -> None:
        """Declare a gang that the limit of planned pods rejected, if it has pods still."""
        declared = self._declared.get(self._kind.home(gang_id), {})
        if gang_id in declared and gang_id in self._engine.gangs:
            self._declare(gang_id, ApiObject(raw))

    def malformed(self, raw: bytes, message: str) -> None:
        """Report a malformed object; the last valid declaration stays in effect."""
        obj = ApiObject(raw)
        home = self._id_of(obj)
        for gang_id in list(self._declared.get(home, ())) or [home]:
            self.reject(obj, gang_id, message)

    def dropped(self, gang_id: GangId) -> None:
        """Forget a declared gang: all its pods belong to the gang of another object."""
        if self._declared.get(self._kind.home(gang_id), {}).pop(gang_id, self) is None:
            super().on_name_released(gang_id)

    def on_name_released(self, name: str) -> None:
        """Observe that no object has the name any more."""
        home = GangId(name)
        known = self._known.pop(home, None)
        self._owners.left(home, known.controller if known is not None else None)
        for gang_id in self._declared.pop(home, ()):
            super().on_name_released(gang_id)
            self.released(gang_id)


class Owners:
    """The informers of all kinds with pods that are a gang, and of PodGroups made for them."""

    def __init__(self, context: GangContext) -> None:
        self.receivers = tuple(PodOwners(context, kind, self) for kind in OWNERS)
        self.groups = tuple(ExternalPodGroups(context, kind, self) for kind in foreign.KINDS)
        self._engine, self._facts = context.engine, context.facts
        self._by_kind: dict[str, list[PodOwners]] = {}
        for kind, receiver in zip(OWNERS, self.receivers, strict=True):
            self._by_kind.setdefault(kind.source, []).append(receiver)
        self._held: dict[GangId, None] | None = None
        self._parts: dict[GangId, dict[GangId, None]] = {}

    def pause(self) -> None:
        """Hold back declarations: pods are read one by one, and a gang must not seem incomplete."""
        self._held = {}

    def resume(self) -> None:
        """Declare the gangs of all pods that came during the pause."""
        held, self._held = self._held or {}, None
        for gang_id in held:
            self.named(gang_id)

    def named(self, gang_id: GangId) -> bool:
        """Declare the gang of a pod of ours, if an object has it; return whether."""
        if self._held is not None:
            self._held[gang_id] = None
            return False
        return any(receiver.named(gang_id) for receiver in self._kind_of(gang_id))

    def declaration(self, gang_id: GangId) -> Gang | None:
        """Return the declaration of a gang by its object, or None if there is none."""
        declarations = (receiver.declaration_of(gang_id) for receiver in self._kind_of(gang_id))
        return next((gang for gang in declarations if gang is not None), None)

    def changed(self, home: GangId) -> None:
        """Declare the groups that were made for a changed object again."""
        for groups in self.groups:
            groups.changed(home)

    def of(self, fact: f.PodSeen) -> f.PodSeen:
        """Return the fact of a pod with the gang that its owners decide."""
        if fact.gang is None:
            return fact
        gang_id = fact.gang
        for _ in range(_DEEP):
            known = self._known(gang_id)
            if known is None:
                break
            if known.controller is None or self._known(known.controller) is None:
                gang_id = known.stage(fact.role) or gang_id
                break
            gang_id = known.controller
        return fact if gang_id == fact.gang else replace(fact, gang=gang_id)

    def appeared(self, home: GangId, controller: GangId | None) -> None:
        """Move pods that were observed before their object to the gangs that the object decides."""
        if controller is not None:
            self._parts.setdefault(controller, {})[home] = None
        engine = self._engine
        for gang_id in (home, *self._parts.get(home, ())):
            gang = engine.gangs.get(gang_id)
            for member in list(gang.members.values()) if gang is not None else ():
                fact = engine.pod(member.pod) if member.pod is not None else None
                moved = self.of(fact) if fact is not None else None
                if moved is None or fact is None or moved.gang in (None, fact.gang):
                    continue
                if engine.reconciled(moved).gang == moved.gang:
                    assert moved.gang is not None, "just asked"  # noqa: S101
                    self.named(moved.gang)
                    self._facts.observe(moved)
            if gang is not None and gang_id != home and not gang.members:
                for receiver in self._kind_of(gang_id):
                    receiver.dropped(gang_id)

    def left(self, home: GangId, controller: GangId | None) -> None:
        """Forget a deleted object."""
        if controller is None:
            return
        parts = self._parts.get(controller, {})
        parts.pop(home, None)
        if not parts:
            self._parts.pop(controller, None)

    def _kind_of(self, gang_id: GangId) -> Sequence[PodOwners]:
        return self._by_kind.get(foreign.source_of(gang_id), ())

    def _known(self, gang_id: GangId) -> Known | None:
        objects = (receiver.known(gang_id) for receiver in self._kind_of(gang_id))
        return next((known for known in objects if known is not None), None)


_KINDS = {(kind.api_version, kind.kind): kind.source for kind in OWNERS}


def _controller(group: GroupObject) -> GangId | None:
    """Return the controller of an object if it is of these kinds, else None."""
    metadata = group.metadata
    for owner in metadata.owner_references:
        source = _KINDS.get((owner.api_version, owner.kind))
        if owner.controller and source is not None:
            return foreign_id(metadata.namespace, source, owner.name)
    return None
