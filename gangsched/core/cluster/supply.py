"""Quotas for resources that no node has: a misspelt name, or nodes that are added later."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from re import split

from gangsched.core.model.queues import CREDITS, Queue, Quota, quota_label
from gangsched.core.model.text import shown

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Supply:
    """The resources that any node has, and the product names of their GPUs."""

    resources: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()


def missing_resources(queue: Queue, supply: Supply) -> list[str]:
    """Return a sentence for each resource or GPU kind of a queue that no node has now.

    A cluster without nodes says nothing about names.
    """
    limited = tuple(resource for resource, _ in queue.user_limits)
    return list(_known(queue.quotas, limited, supply)) if supply.resources else []


@lru_cache(maxsize=4096)  # asked of every queue every two seconds
def _known(quotas: tuple[Quota, ...], limited: tuple[str, ...], supply: Supply) -> tuple[str, ...]:
    return tuple(_lacking(quotas, limited, supply))


def _lacking(quotas: tuple[Quota, ...], limited: tuple[str, ...], supply: Supply) -> Iterator[str]:
    for quota in quotas:
        if quota.key == CREDITS:
            continue  # no node's, but what GPUs are worth
        if quota.resource not in supply.resources:
            yield _no_resource(
                f"spec.quotas[{quota_label(quota.key)}].resource", quota.resource, supply
            )
        elif quota.gpu_type and not any(quota.gpu_type in model for model in supply.models):
            yield _no_kind(f"spec.quotas[{quota_label(quota.key)}].gpuKind", quota.gpu_type, supply)
    for resource in limited:
        if resource not in supply.resources:
            yield _no_resource(f"spec.userLimits[{resource}]", resource, supply)


def _no_resource(field: str, wanted: str, supply: Supply) -> str:
    """Write that no node has a resource, and which name may be meant."""
    known = {resource.rpartition("/")[2]: resource for resource in supply.resources}
    known |= {resource: resource for resource in supply.resources}
    hint = _hint(wanted, known)
    return f"{field}: no node has {shown(wanted)}{hint}; it counts once a node has it"


def _no_kind(field: str, wanted: str, supply: Supply) -> str:
    """Write that no GPU has a type, and which type may be meant."""
    words = {word.lower(): word for model in supply.models for word in split(r"[\s_-]+", model)}
    hint = _hint(wanted.lower(), words)
    if not hint:
        hint = f" (there are: {_some(supply.models) or 'none with a product name'})"
    problem = f"{field}: no GPU's product name contains {shown(wanted)}{hint}"
    return f"{problem}; it counts once a node has such GPUs"


def _hint(wanted: str, known: dict[str, str]) -> str:
    near = get_close_matches(wanted, sorted(known), 1, cutoff=0.5)
    return f" (did you mean {known[near[0]]}?)" if near else ""


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = ", ..." if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
