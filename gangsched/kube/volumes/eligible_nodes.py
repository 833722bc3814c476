"""PersistentVolumeClaims, and the nodes that they allow their pods.

A bound claim restricts its pods to the nodes of its volume. With direct binding, a claim that waits
for its first consumer restricts its pods to nodes where a volume of its class exists or may be
made; `binding.py` binds the claim when the gang is at the barrier. An object that waits for a claim
is read again when the answer for the claim changes. With the extender, kube-scheduler binds claims.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gangsched.kube.decoding.claims import claims_of
from gangsched.kube.decoding.schemas import Pod
from gangsched.kube.volumes import storage_objects as read
from gangsched.kube.volumes.matching import (
    any_of,
    newer,
    on_nodes,
    prebound,
    provisioned_on,
    suitable_volumes,
)
from gangsched.kube.volumes.storage_objects import (
    Capacity,
    Claim,
    Key,
    StorageClass,
    Terms,
    Volume,
    Wanted,
)

Of = TypeVar("Of", Key, str)


class UpdateReceiver(Protocol):
    """Reads an object again."""

    def on_update(self, raw: bytes) -> None:
        """Take an object as the API wrote it."""


@dataclass(frozen=True, slots=True)
class Use:
    """A claim of a pod; `template` is the template of an ephemeral volume's claim."""

    key: Key
    template: object = field(default=None, compare=False)


@dataclass(slots=True)
class _Waiting:
    receiver: UpdateReceiver
    raw: bytes
    asked: "Asked"
    classes: tuple[str, ...]


class Volumes:
    """Observed claims and volumes, and the objects that wait for each claim."""

    def __init__(self) -> None:
        self.watched = False
        self.binds = False
        """Whether gangsched binds claims that wait for their first consumer."""

        self.claims: dict[Key, Claim] = {}
        self.known: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.assumed: dict[str, Key] = {}
        """Volumes that are chosen for claims of gangs at the barrier."""

        self.going: dict[Key, tuple[str, ...]] = {}
        """Claims of gangs at the barrier, with the nodes of their pods."""

        self.dropped: set[Key] = set()
        """Claims with a selected node that is being taken back."""

        self.alone: dict[Key, str] = {}
        """Claims for one pod alone, with the uid of their pod at the barrier."""

        self.on_change: Callable[[], None] = lambda: None
        self._of: dict[Key, dict[str, None]] = {}
        self._capacities: dict[str, Capacity] = {}
        self._drivers: dict[str, bool] = {}
        self._offers: dict[Wanted, Terms | str] = {}
        self._uses: dict[str, tuple[str, tuple[Use, ...]]] = {}
        self._users: dict[Key, dict[str, None]] = {}
        self._waits: dict[str, _Waiting] = {}
        self._of_key: dict[Key, dict[str, None]] = {}
        self._of_class: dict[str, dict[str, None]] = {}

    def asked(self, namespace: str, pod: str = "", uid: str = "") -> "Asked":
        """Return the function that answers the claims of one object; `pod` is the name of a pod."""
        return Asked(self, namespace, pod, uid)

    # -- answers ------------------------------------------------------------------------------

    def answer(self, use: Use, uid: str = "") -> Terms | str:
        """Return the nodes that a claim allows a pod, or the reason why they are not known.

        The reason is empty if volumes are not watched.
        """
        if not self.watched:
            return ""
        claim = self.claim_of(use)
        if claim is None:
            return "there is no such claim"
        if use.template is not None and claim.uid and uid and claim.owner != uid:
            return f"there is a claim {claim.key[1]} that is not the pod's own"
        if claim.alone:
            if not self.binds:
                return "its volume is for one pod alone"
            other = self.used_by(use.key, uid)
            if other:
                return f"pod {other} has it, and it is for one pod alone"
        if claim.bound and self.bound(claim):
            terms = self.known[claim.volume].terms
            return "its volume names too many nodes" if terms is None else terms
        if use.key in self.going:
            return on_nodes(*self.going[use.key])
        if claim.bound:
            return "its volume is not there"
        return self._unbound(claim) if self.binds else "it is not bound"

    def claim_of(self, use: Use) -> Claim | None:
        """Return a claim, or the future claim of a template."""
        claim = self.claims.get(use.key)
        if claim is None and use.template is not None:
            return read.template(use.key, use.template, self._default_class())
        return claim

    def bound(self, claim: Claim) -> bool:
        """Return whether a claim and its volume are bound to each other."""
        volume = self.known.get(claim.volume)
        return claim.bound and volume is not None and prebound(claim, volume)

    def waits_for_consumer(self, claim: Claim) -> bool:
        """Return whether a claim is bound only when its pod has a node."""
        of = self.classes.get(claim.class_name)
        return of is not None and of.waits and not claim.volume

    def used_by(self, key: Key, but: str) -> str:
        """Return the name of a pod other than `but` that uses a claim, or is about to use it."""
        others = (uid for uid in self._users.get(key, ()) if uid != but)
        other = next(others, self.alone.get(key, but))
        return self._uses[other][0] if other != but and other in self._uses else ""

    def offers(self, claim: Claim) -> list[Volume]:
        """Return the volumes that suit a claim, the smallest first."""
        own = [name for name, key in self.assumed.items() if key == claim.key]
        names = own or [name for name in self._of.get(claim.key, ()) if self._kept(name, claim)]
        return suitable_volumes(
            claim,
            (
                volume
                for volume in (map(self.known.__getitem__, names) if names else self.known.values())
                if self.assumed.get(volume.name, claim.key) == claim.key
            ),
        )

    def _kept(self, name: str, claim: Claim) -> bool:
        return name in self.known and prebound(claim, self.known[name])

    def made_on(self, claim: Claim) -> Terms | str:
        """Return the nodes for which a new volume may be made, or why none can be made."""
        of = self.classes[claim.class_name]
        reports_capacity = self._drivers.get(of.provisioner, False)
        return provisioned_on(claim, of, self._capacities.values() if reports_capacity else None)

    def _unbound(self, claim: Claim) -> Terms | str:
        if claim.deleting:
            return "it is being deleted"
        if claim.lost:
            return "its volume is lost"
        if not self.waits_for_consumer(claim):
            if claim.class_name and claim.class_name not in self.classes:
                return f"it is not bound, and there is no StorageClass {claim.class_name}"
            return "it is not bound"
        if claim.selected and claim.key not in self.dropped:
            return on_nodes(claim.selected)
        if any(self._kept(name, claim) for name in self._of.get(claim.key, ())):
            return self._terms_of(claim)
        if claim.wanted not in self._offers:  # many claims have equal requests
            self._offers[claim.wanted] = self._terms_of(claim)
        return self._offers[claim.wanted]

    def _terms_of(self, claim: Claim) -> Terms | str:
        static = [volume.terms for volume in self.offers(claim) if volume.terms is not None]
        provisioned = self.made_on(claim)
        if any(self._kept(name, claim) for name in self._of.get(claim.key, ())):
            return any_of(static) if static else "the PersistentVolume kept for it does not suit it"
        if isinstance(provisioned, tuple):
            return any_of([*static, provisioned])
        return any_of(static) if static else provisioned

    def _default_class(self) -> str:
        defaults = [option for option in self.classes.values() if option.default]
        return (
            max(defaults, key=lambda option: (option.created, option.name)).name if defaults else ""
        )

    # -- waiting objects ----------------------------------------------------------------------

    def wait(
        self, receiver: UpdateReceiver, uid: str, raw: bytes, answered: "Asked | None"
    ) -> None:
        """Read an object again when the answer for one of its claims changes."""
        self._wait_no_more(uid)
        if answered is None or all(map(self._final, answered.answers)):
            return
        claims = {use.key: self.claim_of(use) for use in answered.answers}
        classes = {claim.class_name: None for claim in claims.values() if claim is not None}
        self._waits[uid] = _Waiting(receiver, raw, answered, tuple(classes))
        for key in claims:
            self._of_key.setdefault(key, {})[uid] = None
        for name in classes:
            self._of_class.setdefault(name, {})[uid] = None

    def _wait_no_more(self, uid: str) -> None:
        known = self._waits.pop(uid, None)
        if known is None:
            return
        for use in known.asked.answers:
            _drop(self._of_key, use.key, uid)
        for name in known.classes:
            _drop(self._of_class, name, uid)

    def _final(self, use: Use) -> bool:
        claim = self.claims.get(use.key)
        return claim is not None and not claim.alone and self.bound(claim)

    def forget(self, uid: str) -> None:
        """Forget a deleted object."""
        self._wait_no_more(uid)
        self._used(uid, ())
        for use in self._uses.pop(uid, ("", ()))[1]:
            if self.alone.get(use.key) == uid:
                del self.alone[use.key]

    def use(self, pod: Pod, *, runs: bool) -> None:
        """Record the claims of a pod, and whether the pod runs with them."""
        uid, where = pod.metadata.uid, (pod.metadata.namespace, pod.metadata.name)
        uses = (
            tuple(_use(*where, *volume_claim) for volume_claim in claims_of(pod.spec))
            if pod.spec.volumes
            else ()
        )
        if uses:
            self._uses[uid] = "/".join(where), uses
        for use in uses if runs else ():
            if self.alone.get(use.key) == uid:
                del self.alone[use.key]  # `_users` has the pod from now on
        if uses or uid in self._uses:
            self._used(uid, [claim_use.key for claim_use in uses] if runs else ())

    def uses(self, uid: str) -> tuple[Use, ...]:
        """Return the claims of a pod."""
        return self._uses.get(uid, ("", ()))[1]

    def _used(self, uid: str, keys: Iterable[Key]) -> None:
        for use in self.uses(uid):
            if (uid in self._users.get(use.key, ())) == (use.key in keys):
                continue
            if use.key in keys:
                self._users.setdefault(use.key, {})[uid] = None
            else:
                _drop(self._users, use.key, uid)
            self.claim_changed(use.key)

    # -- observed objects ---------------------------------------------------------------------

    def claim(self, raw: bytes) -> None:
        """Record a claim."""
        claim = read.claim(raw)
        if newer(claim, self.claims.get(claim.key)):
            self.claims[claim.key] = claim
            self.claim_changed(claim.key)

    def claim_gone(self, key: Key) -> None:
        """Forget a claim."""
        if self.claims.pop(key, None) is not None:
            self.claim_changed(key)

    def claim_changed(self, key: Key) -> None:
        """Read the objects again that wait for a claim."""
        self._look(self._of_key.get(key, ()))

    def volume(self, raw: bytes) -> None:
        """Record a volume."""
        volume = read.volume(raw)
        known = self.known.get(volume.name)
        if not newer(volume, known):
            return
        self.known[volume.name] = volume
        if known is not None and known.of != volume.of:
            self._volume_left(known)
        if volume.of[1]:
            self._of.setdefault(volume.of, {})[volume.name] = None
        self._volume_changed(volume, anybodys=not (known or volume).of[1] or not volume.of[1])

    def volume_gone(self, name: str) -> None:
        """Forget a volume."""
        known = self.known.pop(name, None)
        if known is not None:
            self._volume_left(known)
            self._volume_changed(known, anybodys=not known.of[1])

    def _volume_left(self, known: Volume) -> None:
        if known.of[1]:
            _drop(self._of, known.of, known.name)
            self.claim_changed(known.of)

    def _volume_changed(self, volume: Volume, *, anybodys: bool) -> None:
        """Read the objects again that may use a volume; most volumes are for one claim alone."""
        if anybodys:
            self.class_changed(volume.wanted[0])
        self.claim_changed(volume.of)

    def class_seen(self, raw: bytes) -> None:
        """Record a storage class."""
        storage_class = read.storage_class(raw)
        self.classes[storage_class.name] = storage_class
        self.class_changed()

    def class_gone(self, name: str) -> None:
        """Forget a storage class."""
        self.classes.pop(name, None)
        self.class_changed()

    def driver_seen(self, name: str, raw: bytes) -> None:
        """Record whether a driver reports the storage that it has for each topology segment."""
        self._drivers[name] = read.reports_capacity(raw)
        self.class_changed()

    def driver_gone(self, name: str) -> None:
        """Forget a driver."""
        self._drivers.pop(name, None)
        self.class_changed()

    def capacity_seen(self, uid: str, raw: bytes) -> None:
        """Record how much storage of a class some nodes can reach."""
        capacity = self._capacities[uid] = read.capacity(raw)
        self.class_changed(capacity.class_name)

    def capacity_gone(self, uid: str) -> None:
        """Forget a storage capacity."""
        known = self._capacities.pop(uid, None)
        if known is not None:
            self.class_changed(known.class_name)

    def class_changed(self, name: str | None = None) -> None:
        """Read the objects again that wait for a volume of a class; None stands for any class."""
        if name is None:
            self._offers.clear()
            self._look(self._waits)
            return
        for wanted in [offer for offer in self._offers if offer[0] == name]:
            del self._offers[wanted]
        self._look(self._of_class.get(name, ()))

    def _look(self, waiting: Iterable[str]) -> None:
        """Read waiting objects again if the answer for one of their claims has changed."""
        self.on_change()
        for uid in list(waiting):
            reader = self._waits.get(uid)
            if reader is not None and any(
                self.answer(use, uid) != answer for use, answer in reader.asked.answers.items()
            ):
                reader.receiver.on_update(reader.raw)


class Asked:
    """Answers the claims of one object, and records the answers."""

    def __init__(self, volumes: Volumes, namespace: str, pod: str, uid: str) -> None:
        self._volumes = volumes
        self._namespace, self._pod, self._uid = namespace, pod, uid
        self.answers: dict[Use, Terms | str] = {}

    def __call__(self, name: str, template: object) -> Terms | str:
        """Return the nodes that a claim allows, or why they are not known."""
        use = _use(self._namespace, self._pod, name, template)
        terms = self._volumes.answer(use, self._uid)
        if terms != "":
            self.answers[use] = terms
        return terms


def _drop(sets: dict[Of, dict[str, None]], key: Of, name: str) -> None:
    """Remove a name from a set; remove the set when it is empty."""
    known = sets.get(key, {})
    known.pop(name, None)
    if not known:
        sets.pop(key, None)


def _use(namespace: str, pod: str, name: str, template: object) -> Use:
    """Return the use of a claim; the claim of an ephemeral volume has the pod's name in its own."""
    if template is None:
        return Use((namespace, name))
    own = f"{pod}-{name}" if pod else f"/{name}"  # no claim has this name of a role's template
    return Use((namespace, own), template)
