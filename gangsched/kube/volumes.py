"""PersistentVolumeClaims that are bound, and which nodes their volumes can be reached from.

A claim that is bound restricts its pods to the nodes of its volume (node affinity, and the labels
of a zone or region). One that is not bound yet, or whose volume is for one pod alone, is what the
planner does not model; whoever waits for one is read again once it is bound. kube-scheduler would
check all of it, and can only say that a node was the wrong one.
"""

from typing import TYPE_CHECKING

import msgspec

from gangsched.core.model import Expression, NodeTerm
from gangsched.kube import groups
from gangsched.kube.quantities import DecodeError
from gangsched.kube.receivers import Named, Receiver
from gangsched.kube.structs import NodeSelector, SelectorTerm

if TYPE_CHECKING:
    from gangsched.kube.scheduler import Scheduler

_CLAIMS = "/api/v1/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"

Terms = tuple[NodeTerm, ...]
"""One of them must hold; none at all restricts nothing."""

_Key = tuple[str, str]

_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_TERMS = 64


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class _Affinity(msgspec.Struct, rename="camel"):
    required: NodeSelector | None = None


class _Spec(msgspec.Struct, rename="camel"):
    volume_name: str = ""
    access_modes: list[str] = []
    node_affinity: _Affinity | None = None
    claim_ref: _Metadata | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Object)


class Volumes:
    """What is known of claims and volumes, and who waits for which claim."""

    def __init__(self) -> None:
        self.watched = False
        self._claims: dict[_Key, _Object] = {}
        self._volumes: dict[str, tuple[_Key, Terms | None]] = {}
        self._waits: dict[str, tuple[_Key, Receiver, bytes]] = {}
        self._waiting: dict[_Key, dict[str, None]] = {}

    def asked(self, namespace: str) -> "Asked":
        """Return what answers the claims of one object."""
        return Asked(self, namespace)

    def answer(self, key: _Key) -> Terms | str:
        """Return the nodes that a claim's volume can be reached from, or why that is not known.

        Where volumes are not watched, that needs no reason.
        """
        if not self.watched:
            return ""
        claim = self._claims.get(key)
        if claim is None:
            return "there is no such claim"
        if "ReadWriteOncePod" in claim.spec.access_modes:
            return "its volume is for one pod alone"
        if claim.status.phase != "Bound" or not claim.spec.volume_name:
            return "it is not bound"
        of, terms = self._volumes.get(claim.spec.volume_name, (("", ""), ()))
        if of != key:
            return "its volume is not there"
        return "its volume names too many nodes" if terms is None else terms

    def wait(self, receiver: Receiver, uid: str, raw: bytes, claim: _Key | None) -> None:
        """Have an object read again once a claim can be answered; None where it waits for none."""
        self.forget(uid)
        if claim is not None:
            self._waits[uid] = claim, receiver, raw
            self._waiting.setdefault(claim, {})[uid] = None

    def forget(self, uid: str) -> None:
        """Forget an object that waits."""
        known = self._waits.pop(uid, None)
        if known is not None:
            waiting = self._waiting[known[0]]
            del waiting[uid]
            if not waiting:
                del self._waiting[known[0]]

    def claim(self, raw: bytes) -> None:
        """Learn a claim."""
        found = _read(raw, "PersistentVolumeClaim")
        key = found.metadata.namespace, found.metadata.name
        self._claims[key] = found
        self._look(key)

    def claim_gone(self, key: _Key) -> None:
        """Forget a claim."""
        self._claims.pop(key, None)

    def volume(self, raw: bytes) -> None:
        """Learn a volume."""
        found = _read(raw, "PersistentVolume")
        of = found.spec.claim_ref
        key = (of.namespace, of.name) if of is not None else ("", "")
        self._volumes[found.metadata.name] = key, _terms(found)
        self._look(key)

    def volume_gone(self, name: str) -> None:
        """Forget a volume."""
        self._volumes.pop(name, None)

    def _look(self, key: _Key) -> None:
        """Read those again that wait for a claim which can be answered now."""
        if key not in self._waiting or isinstance(self.answer(key), str):
            return
        for uid in list(self._waiting[key]):
            if uid in self._waits:
                _, receiver, raw = self._waits[uid]
                receiver.seen(raw)


class Asked:
    """The claims of one object: answers, and the first claim that had none."""

    def __init__(self, volumes: Volumes, namespace: str) -> None:
        self._volumes = volumes
        self._namespace = namespace
        self.lacks: _Key | None = None

    def __call__(self, claim: str) -> Terms | str:
        """Return the nodes that a claim's volume can be reached from, or why that is not known."""
        key = self._namespace, claim
        found = self._volumes.answer(key)
        if isinstance(found, str) and found and self.lacks is None:
            self.lacks = key
        return found


class _Kept(Named):
    """Objects that are kept by name."""

    def __init__(self, scheduler: "Scheduler", kind: str) -> None:
        super().__init__(scheduler)
        self.kind = kind
        self.volumes = scheduler.volumes

    def malformed(self, raw: bytes, message: str) -> None:
        """Take what cannot be read for what is not there."""
        namespace, name, _ = groups.group_key(raw)
        self.left(f"{namespace}/{name}")


class ClaimsSeen(_Kept):
    """PersistentVolumeClaims."""

    def take(self, raw: bytes) -> None:
        """Learn a claim."""
        self.remember(raw, "/".join(groups.group_key(raw)[:2]))
        self.volumes.claim(raw)

    def left(self, name: str) -> None:
        """Forget a claim."""
        namespace, _, own = name.partition("/")
        self.volumes.claim_gone((namespace, own))


class VolumesSeen(_Kept):
    """PersistentVolumes."""

    def take(self, raw: bytes) -> None:
        """Learn a volume."""
        self.remember(raw, "/".join(groups.group_key(raw)[:2]))
        self.volumes.volume(raw)

    def left(self, name: str) -> None:
        """Forget a volume."""
        self.volumes.volume_gone(name.rpartition("/")[2])


def watched(scheduler: "Scheduler") -> dict[str, tuple[str, Receiver, bool]]:
    """Return what tells of volumes; whoever only asks a question may have no right to them."""
    if scheduler.look_only:
        return {}
    scheduler.volumes.watched = True
    volumes, claims = "PersistentVolume", "PersistentVolumeClaim"
    return {
        volumes: (_VOLUMES, VolumesSeen(scheduler, volumes), False),
        claims: (_CLAIMS, ClaimsSeen(scheduler, claims), False),
    }


def _read(raw: bytes, kind: str) -> _Object:
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise DecodeError(f"{kind}: {error}") from error


def _terms(volume: _Object) -> Terms | None:
    """Return the nodes of a volume, as terms one of which must hold; None where they are many."""
    zones = tuple(
        Expression(key, "In", tuple(volume.metadata.labels[key].split("__")))
        for key in _ZONES
        if key in volume.metadata.labels
    )
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else []
    if len(terms) > _TERMS:
        return None
    if not terms:
        return (NodeTerm(zones),) if zones else ()
    return tuple(_term(term, zones) for term in terms)


def _term(term: SelectorTerm, zones: tuple[Expression, ...]) -> NodeTerm:
    labels, fields = (
        tuple(Expression(one.key, one.operator, tuple(one.values)) for one in ones)
        for ones in (term.match_expressions, term.match_fields)
    )
    return NodeTerm((*labels, *zones), fields) if labels or fields else NodeTerm()
