"""The volumes of a pod: the nodes that its claims allow, and the volumes that allow no answer."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gangsched.core.bounds import NAME, SELECTOR_VALUES
from gangsched.core.model.pods import Expression, NodeTerm
from gangsched.kube.decoding.pod_limits import few
from gangsched.kube.decoding.schemas import PodSpec

Claims = Callable[[str, object], tuple[NodeTerm, ...] | str]
"""Returns the nodes that a claim allows, or the reason why they are not known.

The arguments are the name of a claim and None; for an ephemeral volume, the name of the volume and
the template of its claim.
"""

_CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
_BEYOND_VOLUMES = {
    _CLAIM: "PersistentVolumeClaim",
    _EPHEMERAL: "ephemeral volume",
    "csi": "CSI volume",
}


def claims_of(spec: PodSpec) -> Iterator[tuple[str, object]]:
    """Yield the arguments of `Claims` for each claim of a pod."""
    for volume in spec.volumes:
        claim = _asked(volume)
        if claim is not None:
            yield claim


def _asked(volume: dict[str, Any]) -> tuple[str, object] | None:
    source = volume.get(_CLAIM)
    name = source.get("claimName") if isinstance(source, dict) else None
    if isinstance(name, str):
        return name, None
    source, name = volume.get(_EPHEMERAL), volume.get("name")
    template = source.get("volumeClaimTemplate") if isinstance(source, dict) else None
    return (name, template) if isinstance(name, str) and isinstance(template, dict) else None


def claimed(
    spec: PodSpec, claims: Claims | None
) -> tuple[tuple[tuple[NodeTerm, ...], ...], list[str]]:
    """Return the nodes that the claims of a pod allow, and the volumes with unknown nodes."""
    allowed, beyond = [], []
    for volume in spec.volumes:
        label = next(
            (name_of_kind for key, name_of_kind in _BEYOND_VOLUMES.items() if key in volume), None
        )
        if label is None:
            continue
        claim = _asked(volume)
        answer = claims(*claim) if claims is not None and claim is not None else ""
        if isinstance(answer, tuple):
            allowed.append(answer)
        else:
            why = f" ({answer})" if answer else ""
            name = claim[0] if claim is not None else volume.get("name", "")
            beyond.append(f"{label} {name}{why}"[: NAME.most])
    return tuple(
        _narrowed(dict.fromkeys(terms_of_claim for terms_of_claim in allowed if terms_of_claim))
    ), beyond


def _narrowed(allowed: Iterable[tuple[NodeTerm, ...]]) -> Iterator[tuple[NodeTerm, ...]]:
    """Yield the terms of all claims; lists of values of one label become their intersection."""
    lists: dict[str, tuple[str, ...]] = {}
    for terms in allowed:
        key = only_key(terms[0]) if len(terms) == 1 else None
        if key is None:
            yield terms
            continue
        values = terms[0].labels[0].values
        known = lists.get(key)
        both_have = (
            values if known is None else tuple(value for value in known if value in set(values))
        )
        lists[key] = both_have
    for key, values in lists.items():
        yield (NodeTerm((Expression(key, "In", values),)),)


def only_key(term: NodeTerm) -> str | None:
    """Return the label of a term that only lists values of one label, or None."""
    expression = term.labels[0] if len(term.labels) == 1 and not term.names else None
    return expression.key if expression is not None and expression.operator == "In" else None


def both(terms: tuple[NodeTerm, ...], others: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """Return the terms that hold where both sides hold; a side without terms restricts nothing.

    Raises:
        DecodeError: the result has too many terms.

    """
    if not terms or not others:
        return terms or others
    few(len(terms) * len(others), SELECTOR_VALUES)
    whole_terms = ((a, b) for a in terms for b in others if (a.labels or a.names))
    combined = tuple(
        NodeTerm(a.labels + b.labels, a.names + b.names)
        for a, b in whole_terms
        if b.labels or b.names
    )
    return combined or (NodeTerm(),)  # a term without conditions matches no node
