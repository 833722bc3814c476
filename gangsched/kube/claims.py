"""The volumes of a pod: what its bound claims say of nodes, and what nobody here knows about."""

from collections.abc import Callable

from gangsched.core.bounds import SELECTOR_VALUES
from gangsched.core.model import NodeTerm
from gangsched.kube.asking import few
from gangsched.kube.structs import PodSpec

Claims = Callable[[str], tuple[NodeTerm, ...] | str]
"""Answers a claim by name: the nodes its volume allows, or why that is not known."""

_CLAIM = "persistentVolumeClaim"
_BEYOND_VOLUMES = {
    _CLAIM: "PersistentVolumeClaim",
    "ephemeral": "ephemeral volume",
    "csi": "CSI volume",
}


def claimed(
    spec: PodSpec, claims: Claims | None
) -> tuple[tuple[tuple[NodeTerm, ...], ...], list[str]]:
    """Return which nodes the bound claims of a pod allow, and the volumes not known about."""
    allowed, beyond = [], []
    for volume in spec.volumes:
        for key, label in _BEYOND_VOLUMES.items():
            claim = volume.get(key) if claims and key == _CLAIM else None
            name = claim.get("claimName") if isinstance(claim, dict) else None
            answer = claims(name) if claims and isinstance(name, str) else ""
            if isinstance(answer, tuple):
                allowed.append(answer)
            elif key in volume:
                why = f" ({answer})" if answer else ""
                beyond.append(f"{label} {volume.get('name', '')}{why}")
    return tuple(dict.fromkeys(one for one in allowed if one)), beyond


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
