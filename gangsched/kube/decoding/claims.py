"""The volumes of a pod: what its claims say of nodes, and what is not known of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gangsched.core.bounds import NAME, SELECTOR_VALUES
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.schemas import PodSpec

Claims = Callable[[str, object], tuple[NodeTerm, ...] | str]
"""Answers a claim: the nodes it allows, or why they are not known.

It is asked by a claim's name; with the template that an ephemeral volume's claim is made of, by the
volume's name.
"""

_CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
_BEYOND_VOLUMES = {
    _CLAIM: "PersistentVolumeClaim",
    _EPHEMERAL: "ephemeral volume",
    "csi": "CSI volume",
}


def claims_of(spec: PodSpec) -> Iterator[tuple[str, object]]:
    """Yield what a pod's claims are asked by: a name, and the template of an ephemeral volume."""
    for volume in spec.volumes:
        asked = _asked(volume)
        if asked is not None:
            yield asked


def _asked(volume: dict[str, Any]) -> tuple[str, object] | None:
    found = volume.get(_CLAIM)
    name = found.get("claimName") if isinstance(found, dict) else None
    if isinstance(name, str):
        return name, None
    found, name = volume.get(_EPHEMERAL), volume.get("name")
    template = found.get("volumeClaimTemplate") if isinstance(found, dict) else None
    return (name, template) if isinstance(name, str) and isinstance(template, dict) else None


def claimed(
    spec: PodSpec, claims: Claims | None
) -> tuple[tuple[tuple[NodeTerm, ...], ...], list[str]]:
    """Return which nodes the claims of a pod allow, and the volumes not known about."""
    allowed, beyond = [], []
    for volume in spec.volumes:
        label = next((one for key, one in _BEYOND_VOLUMES.items() if key in volume), None)
        if label is None:
            continue
        asked = _asked(volume)
        answer = claims(*asked) if claims is not None and asked is not None else ""
        if isinstance(answer, tuple):
            allowed.append(answer)
        else:
            why = f" ({answer})" if answer else ""
            name = asked[0] if asked is not None else volume.get("name", "")
            beyond.append(f"{label} {name}{why}"[: NAME.most])
    return tuple(_narrowed(dict.fromkeys(one for one in allowed if one))), beyond


def _narrowed(allowed: Iterable[tuple[NodeTerm, ...]]) -> Iterator[tuple[NodeTerm, ...]]:
    """Yield what holds together: claims that list values of the same label are one such list."""
    lists: dict[str, tuple[str, ...]] = {}
    for terms in allowed:
        key = only_key(terms[0]) if len(terms) == 1 else None
        if key is None:
            yield terms
            continue
        values = terms[0].labels[0].values
        known = lists.get(key)
        both_have = values if known is None else tuple(one for one in known if one in set(values))
        lists[key] = both_have
    for key, values in lists.items():
        yield (NodeTerm((Expression(key, "In", values),)),)


def only_key(term: NodeTerm) -> str | None:
    """Return the label that a term lists values of, where that is all it says."""
    one = term.labels[0] if len(term.labels) == 1 and not term.names else None
    return one.key if one is not None and one.operator == "In" else None


def both(terms: tuple[NodeTerm, ...], others: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """Return terms one of which holds where one of each side does; no terms restrict nothing.

    Raises:
        DecodeError: there are too many.

    """
    if not terms or not others:
        return terms or others
    few(len(terms) * len(others), SELECTOR_VALUES)
    whole_terms = ((a, b) for a in terms for b in others if (a.labels or a.names))
    found = tuple(
        NodeTerm(a.labels + b.labels, a.names + b.names)
        for a, b in whole_terms
        if b.labels or b.names
    )
    return found or (NodeTerm(),)  # a term without conditions matches no node
