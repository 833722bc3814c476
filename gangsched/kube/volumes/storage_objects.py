"""Claims, volumes and storage classes as a scheduler reads them."""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from gangsched.core.bounds import SELECTOR_VALUES
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.kube.decoding.quantities import DecodeError, quantity
from gangsched.kube.decoding.schemas import (
    Amounts,
    Metadata,
    NodeSelector,
    Requirement,
    Resources,
    SelectorTerm,
)

Terms = tuple[NodeTerm, ...]
"""Alternatives: one of the terms must hold; no terms restrict nothing."""

Key = tuple[str, str]
"""Namespace and name of a claim."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
ALONE = "ReadWriteOncePod"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_STATIC = ("", "kubernetes.io/no-provisioner")
_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_TERMS = 64


class ObjectMetadata(Metadata):
    """The metadata of an object that gangsched changes; the version guards a change."""

    resource_version: str = ""


class _Part(msgspec.Struct, rename="camel"):
    """A part of an API object; absent fields have the API's defaults."""


class _Selector(_Part):
    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []


class _Reference(_Part):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Affinity(_Part):
    required: NodeSelector | None = None


class _Phase(_Part):
    phase: str = ""


class ClaimSpec(_Part):
    """The API's PersistentVolumeClaimSpec; a null class means the default class."""

    volume_name: str = ""
    access_modes: list[str] = []
    storage_class_name: str | None = None
    resources: Resources = msgspec.field(default_factory=Resources)
    selector: _Selector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class _ClaimObject(_Part):
    metadata: ObjectMetadata
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: _Phase = msgspec.field(default_factory=_Phase)


class _VolumeSpec(_Part):
    access_modes: list[str] = []
    storage_class_name: str = ""
    capacity: Amounts = {}
    claim_ref: _Reference | None = None
    node_affinity: _Affinity | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class _VolumeObject(_Part):
    metadata: ObjectMetadata
    spec: _VolumeSpec = msgspec.field(default_factory=_VolumeSpec)
    status: _Phase = msgspec.field(default_factory=_Phase)


class _LabelRequirement(_Part):
    key: str
    values: list[str] = []


class _TopologyTerm(_Part):
    match_label_expressions: list[_LabelRequirement] = []


class _ClassObject(_Part):
    metadata: ObjectMetadata
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[_TopologyTerm] = []


class _DriverSpec(_Part):
    storage_capacity: bool = False


class _DriverObject(_Part):
    metadata: ObjectMetadata
    spec: _DriverSpec = msgspec.field(default_factory=_DriverSpec)


class _CapacityObject(_Part):
    metadata: ObjectMetadata
    storage_class_name: str = ""
    node_topology: _Selector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


Wanted = tuple[str, int, tuple[str, ...], tuple[Expression, ...], str, str]
"""The request of a claim: class, bytes, access modes, labels, mode, attributes class."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim; `selected` is the node for which its volume is provisioned."""

    key: Key
    uid: str
    version: str
    wanted: Wanted
    volume: str = ""
    bound: bool = False
    lost: bool = False
    selected: str = ""
    deleting: bool = False
    owner: str = ""

    @property
    def class_name(self) -> str:
        """Return the name of the claim's storage class."""
        return self.wanted[0]

    @property
    def alone(self) -> bool:
        """Return whether only one pod at a time may use the claim."""
        return ALONE in self.wanted[2]


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume, and the `terms` of the nodes that reach it; None if it names too many nodes."""

    name: str
    uid: str
    version: str
    wanted: Wanted
    labels: dict[str, str]
    of: Key
    of_uid: str
    available: bool
    deleting: bool
    terms: Terms | None


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class; `provisioner` is empty if an administrator creates its volumes."""

    name: str
    provisioner: str
    waits: bool
    topologies: Terms
    default: bool
    created: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """The largest volume of a class on some nodes; `terms` is None if no node has storage."""

    class_name: str
    size: int
    terms: Terms | None


_Read = TypeVar("_Read", bound=_Part)


def claim(raw: bytes) -> Claim:
    """Read a claim.

    Raises:
        DecodeError: the object is malformed.

    """
    claim_object = _decoded(raw, _ClaimObject, "PersistentVolumeClaim")
    meta, spec = claim_object.metadata, claim_object.spec
    owner = next((reference.uid for reference in meta.owner_references if reference.controller), "")
    return Claim(
        (meta.namespace, meta.name),
        meta.uid,
        meta.resource_version,
        _wanted(spec, meta.annotations.get(_BETA_CLASS, spec.storage_class_name or "")),
        spec.volume_name,
        bool(spec.volume_name) and claim_object.status.phase == "Bound",
        claim_object.status.phase == "Lost",
        meta.annotations.get(SELECTED_NODE, ""),
        meta.deletion_timestamp is not None,
        owner,
    )


def template(key: Key, body: Any, default_class: str) -> Claim:
    """Return the claim that will be made of the template of an ephemeral volume.

    Raises:
        DecodeError: the object is malformed.

    """
    try:
        spec = msgspec.convert(body.get("spec", {}) if isinstance(body, dict) else {}, ClaimSpec)
    except msgspec.ValidationError as error:
        raise DecodeError(f"volumeClaimTemplate.spec: {error}") from error
    name = default_class if spec.storage_class_name is None else spec.storage_class_name
    return Claim(key, "", "", _wanted(spec, name))


def volume(raw: bytes) -> Volume:
    """Read a volume.

    Raises:
        DecodeError: the object is malformed.

    """
    volume_object = _decoded(raw, _VolumeObject, "PersistentVolume")
    meta, spec = volume_object.metadata, volume_object.spec
    of = spec.claim_ref or _Reference()
    wanted = (
        meta.annotations.get(_BETA_CLASS, spec.storage_class_name),
        quantity("storage", spec.capacity.get("storage", 0)),
        tuple(spec.access_modes),
        (),
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
    )
    return Volume(
        meta.name,
        meta.uid,
        meta.resource_version,
        wanted,
        meta.labels,
        (of.namespace, of.name),
        of.uid,
        volume_object.status.phase == "Available",
        meta.deletion_timestamp is not None,
        _terms(volume_object),
    )


def storage_class(raw: bytes) -> StorageClass:
    """Read a storage class.

    Raises:
        DecodeError: the object is malformed.

    """
    class_object = _decoded(raw, _ClassObject, "StorageClass")
    meta = class_object.metadata
    return StorageClass(
        meta.name,
        "" if class_object.provisioner in _STATIC else class_object.provisioner,
        class_object.volume_binding_mode == "WaitForFirstConsumer",
        tuple(
            NodeTerm(
                tuple(
                    Expression(expression.key, "In", tuple(expression.values))
                    for expression in term.match_label_expressions
                )
            )
            for term in class_object.allowed_topologies
        ),
        meta.annotations.get(_DEFAULT_CLASS) == "true",
        meta.creation_timestamp,
    )


def reports_capacity(raw: bytes) -> bool:
    """Return whether a CSIDriver reports the storage that it has for each topology segment.

    Raises:
        DecodeError: the CSIDriver is malformed.

    """
    return _decoded(raw, _DriverObject, "CSIDriver").spec.storage_capacity


def capacity(raw: bytes) -> Capacity:
    """Read a CSIStorageCapacity.

    Raises:
        DecodeError: the object is malformed.

    """
    capacity_object = _decoded(raw, _CapacityObject, "CSIStorageCapacity")
    limit = (
        capacity_object.capacity
        if capacity_object.maximum_volume_size is None
        else capacity_object.maximum_volume_size
    )
    where, terms = capacity_object.node_topology, None
    if where is not None:
        labels = _labels(where)
        terms = (NodeTerm(labels),) if labels else ()
    size = -1 if limit is None else quantity("storage", limit)
    return Capacity(capacity_object.storage_class_name, size, terms)


def _decoded(raw: bytes, kind: type[_Read], name: str) -> _Read:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise DecodeError(f"{name}: {error}") from error


def _wanted(spec: ClaimSpec, class_name: str) -> Wanted:
    labels = _labels(spec.selector) if spec.selector is not None else ()
    if sum(1 + len(expression.values) for expression in labels) > SELECTOR_VALUES.most:
        raise DecodeError(
            f"PersistentVolumeClaim: spec.selector has more than {SELECTOR_VALUES.most} conditions "
            f"and values"
        )
    return (
        class_name,
        quantity("storage", spec.resources.requests.get("storage", 0)),
        tuple(spec.access_modes),
        labels,
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
    )


def _labels(selector: _Selector) -> tuple[Expression, ...]:
    """Return the conditions of a label selector."""
    exact = (Expression(key, "In", (value,)) for key, value in selector.match_labels.items())
    more = (_expression(expression) for expression in selector.match_expressions)
    return (*exact, *more)


def _expression(requirement: Requirement) -> Expression:
    return Expression(requirement.key, requirement.operator, tuple(requirement.values))


def _terms(volume_object: _VolumeObject) -> Terms | None:
    """Return the nodes of a volume as alternative terms; None if there are too many."""
    zones = tuple(
        Expression(key, "In", tuple(volume_object.metadata.labels[key].split("__")))
        for key in _ZONES
        if key in volume_object.metadata.labels
    )
    affinity = volume_object.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else []
    if len(terms) > _TERMS:
        return None
    if not terms:
        return (NodeTerm(zones),) if zones else ()
    return tuple(_term(term, zones) for term in terms)


def _term(term: SelectorTerm, zones: tuple[Expression, ...]) -> NodeTerm:
    labels, fields = (
        tuple(map(_expression, ones)) for ones in (term.match_expressions, term.match_fields)
    )
    return NodeTerm((*labels, *zones), fields) if labels or fields else NodeTerm()
