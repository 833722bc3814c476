"""Match volumes to claims by kube-scheduler's rules.

Follows FindMatchingVolume of k8s.io/component-helpers/storage/volume, and volumebinding/binder.go:
the smallest volume that fits comes before a new volume.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gangsched.core.engine.gangs.pod_templates import holds, matches
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.kube.decoding.claims import both, only_key
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.volumes.storage_objects import Capacity, Claim, Key, StorageClass, Terms, Volume

Versioned = TypeVar("Versioned", Claim, Volume)

_VALUES = 400
"""Upper bound for the conditions and values of merged alternatives; smallest volumes first.

The terms of two claims of a pod have to fit into the bound of a pod's node selectors.
"""


def suits(claim: Claim, volume: Volume) -> bool:
    """Return whether a volume suits a claim, on any node."""
    if volume.deleting or volume.terms is None:
        return False
    (name, size, modes, labels, mode, attributes) = claim.wanted
    (their_class, capacity, offers, _, their_mode, their_attributes) = volume.wanted
    if capacity < size or mode != their_mode or attributes != their_attributes:
        return False
    if prebound(claim, volume):
        return True
    return (
        not volume.of[1]
        and volume.available
        and their_class == name
        and set(modes) <= set(offers)
        and all(holds(selector, volume.labels) for selector in labels)
    )


def prebound(claim: Claim, volume: Volume) -> bool:
    """Return whether a volume is kept for a claim."""
    return volume.of == claim.key and volume.of_uid in ("", claim.uid)


def suitable_volumes(claim: Claim, volumes: Iterable[Volume]) -> list[Volume]:
    """Return the volumes that suit a claim, the smallest first, or those that are kept for it."""
    suitable = [volume for volume in volumes if suits(claim, volume)]
    kept = [volume for volume in suitable if prebound(claim, volume)]
    return sorted(kept or suitable, key=lambda volume: (volume.wanted[1], volume.name))


def provisioned_on(
    claim: Claim, of: StorageClass, capacities: Iterable[Capacity] | None
) -> Terms | str:
    """Return the nodes for which a new volume may be made, or why none can be made.

    `capacities` is None if the driver does not report capacities.
    """
    if not of.provisioner:
        return f"no PersistentVolume of StorageClass {of.name} is available for it"
    if capacities is None:
        return of.topologies
    reachable = [
        capacity.terms
        for capacity in capacities
        if capacity.class_name == of.name
        and capacity.size >= claim.wanted[1]
        and capacity.terms is not None
    ]
    if not reachable:
        return f"no node has capacity for its volume, of StorageClass {of.name}"
    return all_of(of.topologies, any_of(reachable))


def any_of(alternatives: Iterable[Terms]) -> Terms:
    """Return the fewest terms that hold where the terms of one alternative hold."""
    values: dict[str, dict[str, None]] = {}
    others: dict[NodeTerm, None] = {}
    left = _VALUES
    for terms in alternatives:
        if not terms:
            return ()
        for term in terms:
            key = only_key(term)
            if key is None:
                size = sum(1 + len(expression.values) for expression in (*term.labels, *term.names))
                if size <= left and term not in others:
                    others[term] = None
                    left -= size
                continue
            known = values.setdefault(key, {})
            added = [value for value in dict.fromkeys(term.labels[0].values) if value not in known][
                :left
            ]
            known.update(dict.fromkeys(added))
            left -= len(added)
    merged = (NodeTerm((Expression(key, "In", tuple(known)),)) for key, known in values.items())
    return (*merged, *others)


def on_nodes(*names: str) -> Terms:
    """Return the terms of these nodes."""
    return (NodeTerm((), (Expression("metadata.name", "In", names),)),)


def all_of(terms: Terms, others: Terms) -> Terms | str:
    """Return the terms that hold where both sides hold, or why they cannot be built."""
    try:
        return both(terms, others)
    except DecodeError as error:
        return str(error)


def reaches(terms: Terms | None, node: Node) -> bool:
    """Return whether terms hold on a node."""
    return terms is not None and (not terms or any(matches(term, node) for term in terms))


@dataclass(frozen=True, slots=True)
class Want:
    """A claim of a gang at the barrier, and the volumes that suit it on the nodes of its pods."""

    claim: Claim
    offers: Sequence[Volume]


def shared_out(wants: Iterable[Want]) -> dict[Key, Volume]:
    """Return a volume for as many claims as possible, small claims first."""
    order = sorted(wants, key=lambda want: (want.claim.wanted[1], want.claim.key))
    has: dict[str, Want] = {}
    for want in order:
        _give(want, has, set())
    volumes = {volume.name: volume for want in order for volume in want.offers}
    return {want.claim.key: volumes[name] for name, want in has.items()}


def _give(first: Want, has: dict[str, Want], tried: set[str]) -> bool:
    """Give a claim a volume; the claim that has this volume takes another (an augmenting path)."""
    came: dict[str, tuple[Want, str | None]] = {}
    queue: list[tuple[Want, str | None]] = [(first, None)]
    while queue:
        want, through = queue.pop(0)
        for volume in want.offers:
            name = volume.name
            if name in tried:
                continue
            tried.add(name)
            came[name] = want, through
            if name not in has:
                _pass_on(name, came, has)
                return True
            queue.append((has[name], name))
    return False


def _pass_on(
    name: str | None, came: Mapping[str, tuple[Want, str | None]], has: dict[str, Want]
) -> None:
    while name is not None:
        has[name], name = came[name]


def newer(decoded: Versioned, known: Versioned | None) -> bool:
    """Return whether an object is not older than the recorded one, which may come from a write.

    Kubernetes guarantees since 1.35 that versions of one object can be compared.
    """
    if known is None or known.uid != decoded.uid:
        return True
    versions = decoded.version, known.version
    return not all(version.isdecimal() for version in versions) or int(versions[0]) >= int(
        versions[1]
    )
