"""The refusal of a gang that does not fit: what is short, by how much, and the closest node."""

from collections.abc import Callable, Iterable

import numpy as np

from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import UNKNOWN
from gangsched.core.model import mig_profiles
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.pods import PODS, PodRequirements
from gangsched.core.model.refusal import NearMiss, Reason, Refusal, format_amount, plural
from gangsched.core.placement.constraints import ResolvedConstraints
from gangsched.core.placement.demand import PodClass, pod_classes
from gangsched.core.placement.excluded_nodes import describe_excluded
from gangsched.core.placement.relaxations import Relaxation, relaxations, without_constraints
from gangsched.core.snapshot import Snapshot

_NAMED = 8
"""The number of names that a message lists."""

Fits = Callable[[PendingGang], bool]
Roles = tuple[str, ...]
Wanted = dict[PodRequirements, tuple[Roles, int]]


def explain(
    waiting: PendingGang, snapshot: Snapshot, scope: ResolvedConstraints, fits: Fits
) -> Refusal:
    """Return why the minimum of a gang does not fit, the worst obstacle first.

    The order is: a pod class that no node takes even when it is empty, a gang larger than the empty
    cluster, a lack of free capacity now, the binding constraint. `fits` plans a changed gang.
    """
    cluster = snapshot.cluster
    kinds = pod_classes(waiting, scope, cluster)
    split = next((kind for kind in kinds if kind.split), None)
    if split is not None:
        there = len(split.members)
        return Refusal(
            waiting.gang.id,
            Reason.TOPOLOGY,
            f"{plural(there, 'pod')} of {describe_pod(split.needs)} cannot be divided into "
            f"slices of {split.rules.unit(0)}; request a multiple of {split.rules.unit(0)}.",
            role=split.roles[0],
            wanted=split.rules.unit(0),
            possible=there,
        )
    wanted = _by_needs(kinds)
    for needs, (roles, count) in wanted.items():
        if not cluster.capacity_when_empty(needs).any():
            return _no_node_refusal(waiting, cluster, roles, needs, count)
    for needs, (roles, count) in wanted.items():
        ever = int(cluster.capacity_when_empty(needs).sum())
        if ever < count:
            return Refusal(
                waiting.gang.id,
                Reason.TOO_LARGE,
                f"{_subject(roles)} {plural(count, 'pod')} of {describe_pod(needs)} at once, "
                f"and the whole cluster takes {ever} even when it is empty"
                f"{_excluded_suffix(cluster, needs)}.",
                role=roles[0],
                wanted=count,
                possible=ever,
            )
    constrained = _constrained(waiting)
    if constrained and not _fits_when_empty(waiting, snapshot, fits):
        return _constraint_refusal(waiting, snapshot, scope, kinds, fits, empty=True)
    for needs, (roles, count) in wanted.items():
        possible = int((cluster.capacity(needs) * scope.allowed).sum())
        if possible < count and not (constrained and int(cluster.capacity(needs).sum()) >= count):
            return _capacity_refusal(waiting, cluster, roles, needs, count, possible)
    if constrained:
        return _constraint_refusal(waiting, snapshot, scope, kinds, fits, empty=False)
    total = sum(count for _, count in wanted.values())
    apart = waiting.pods_per_node_max
    learnt = (
        "" if apart is None else f" with at most {apart} on one node, as earlier refusals require"
    )
    return Refusal(
        waiting.gang.id,
        Reason.NOT_ENOUGH_FREE,
        f"Each pod class fits alone, but no placement was found for all {total} pods "
        f"together{learnt}.",
        wanted=total,
        proved=False,
    )


def _constrained(waiting: PendingGang) -> bool:
    return (
        waiting.constraints.is_restrictive()
        or bool(waiting.excluded_nodes)
        or any(near.required or near.slices for _, near in waiting.near_role)
    )


def _fits_when_empty(waiting: PendingGang, snapshot: Snapshot, fits: Fits) -> bool:
    """Return whether the gang would fit if nothing else ran."""
    with snapshot.when_empty():
        return fits(waiting)


def _constraint_refusal(
    waiting: PendingGang,
    snapshot: Snapshot,
    scope: ResolvedConstraints,
    kinds: list[PodClass],
    fits: Fits,
    *,
    empty: bool,
) -> Refusal:
    """Refuse by the binding constraint: the gang would fit without it."""
    binding: Relaxation | None = None
    domain = ""
    if empty:
        with snapshot.when_empty():
            binding = next((one for one in relaxations(waiting, scope) if fits(one.waiting)), None)
            domain = _best_domain(snapshot.cluster, scope, kinds)
    else:
        binding = next((one for one in relaxations(waiting, scope) if fits(one.waiting)), None)
        domain = _best_domain(snapshot.cluster, scope, kinds)
    total = sum(kind.pods_min for kind in kinds)
    asks = _named(
        f"{plural(kind.pods_min, 'pod')} of {describe_pod(kind.needs)}"
        for kind in kinds
        if kind.pods_min
    )
    when = "even in an empty cluster" if empty else "now"
    if binding is None:
        alone = fits(without_constraints(waiting))
        what = "its constraints together" if alone else "its roles together"
        sentence = f"The gang needs {asks}, and {what} leave no placement {when}"
    else:
        sentence = f"The gang needs {asks} {binding.binding}, which no domain offers {when}"
    return Refusal(
        waiting.gang.id,
        Reason.TOO_LARGE if empty else Reason.TOPOLOGY,
        f"{sentence}{domain}.",
        wanted=total,
        proved=len(kinds) == 1,
    )


def _best_domain(cluster: Cluster, scope: ResolvedConstraints, kinds: list[PodClass]) -> str:
    """Write which domain of the required level takes most pods, and how many all domains take."""
    level = scope.rules.required
    if level is None:
        level = next((at for kind in kinds for at, _ in kind.rules.slices), None)
    if level is None:
        return ""
    kind = max(kinds, key=lambda one: one.pods_min)
    capacity = cluster.capacity(kind.needs) * scope.allowed
    codes = scope.codes(level, len(capacity))
    known = codes != UNKNOWN
    totals = np.bincount(codes[known], weights=capacity[known]).astype(np.int64)
    if not len(totals) or not totals.any():
        return ""
    best = int(np.argmax(totals))
    return (
        f"; the {scope.level_name(level)} with most capacity, {scope.name(level, best, cluster)}, "
        f"takes {totals[best]}, the whole cluster {int(capacity.sum())}"
    )


def _by_needs(kinds: list[PodClass]) -> Wanted:
    """Count pods of equal requirements together, whatever their roles."""
    wanted: Wanted = {}
    for kind in kinds:
        if kind.pods_min > 0:
            roles, total = wanted.get(kind.needs, ((), 0))
            wanted[kind.needs] = ((*roles, *kind.roles), total + kind.pods_min)
    return wanted


def describe_pod(needs: PodRequirements) -> str:
    """Write what one pod requests, the scarcest resource first."""
    order = sorted(needs.requests, key=lambda item: (item[0] in ("cpu", "memory"), item[0]))
    parts = [format_amount(name, quantity) for name, quantity in order]
    if needs.share is not None:
        share = needs.share
        part = f"{share.memory_mib} MiB" if share.memory_mib else f"{share.milli / 1000:g}"
        parts.insert(0, f"{part} of {plural(share.devices, 'GPU')}")
    ports = [str(port) for _, _, port in needs.host_ports]
    if ports:
        named = ", ".join(ports[:_NAMED]) + (" and others" if len(ports) > _NAMED else "")
        parts.append(f"port{'s' if len(ports) > 1 else ''} {named} of its node")
    if len(parts) > _NAMED:
        parts[_NAMED:] = [f"and {len(parts) - _NAMED} others"]
    return ", ".join(parts) or "no resources"


def _named(parts: Iterable[str]) -> str:
    """Join the parts; of many, only the first."""
    names = list(parts)
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} others"]
    return " and ".join(names)


def _lacks(miss: NearMiss) -> str:
    return _named(format_amount(name, quantity) for name, quantity in miss.lacks)


def _subject(roles: Roles) -> str:
    """Write subject and verb: `Role A needs`, `Roles A and B need`."""
    named = [role for role in roles if role]
    if not named:
        return "The gang needs"
    return f"Role {named[0]} needs" if len(named) == 1 else f"Roles {_named(named)} need"


def _no_node_refusal(
    waiting: PendingGang, cluster: Cluster, roles: Roles, needs: PodRequirements, count: int
) -> Refusal:
    eligible = cluster.eligible(needs)
    nodes = int(cluster.live.sum())
    cannot = _missing_mig_profile(cluster, needs)
    if cannot:
        sentence, miss = cannot, None
    elif not nodes:
        sentence, miss = "the cluster has no nodes.", None
    elif not eligible.any():
        passes = f"none of {plural(nodes, 'node')} passes nodeSelector, affinity and"
        sentence, miss = f"{passes} tolerations{_excluded_suffix(cluster, needs)}.", None
    elif barred := describe_excluded(cluster, needs, cluster.capacity_when_empty):
        sentence, miss = f"no node takes one pod of {describe_pod(needs)}; {barred}.", None
    else:
        miss = closest_node(cluster, needs, empty=True)
        lacks = _lacks(miss)
        closest = f"the closest, {miss.node}, lacks {lacks}" if lacks else "none has such GPUs"
        sentence = f"no node is large enough for one pod of {describe_pod(needs)}; {closest}."
    return Refusal(
        waiting.gang.id,
        Reason.UNSATISFIABLE,
        f"{_subject(roles).rsplit(' ', 1)[0]}: {sentence}",
        role=roles[0],
        wanted=count,
        near_miss=miss,
    )


def _excluded_suffix(cluster: Cluster, needs: PodRequirements) -> str:
    barred = describe_excluded(cluster, needs, cluster.capacity_when_empty)
    return f"; {barred}" if barred else ""


def _missing_mig_profile(cluster: Cluster, needs: PodRequirements) -> str:
    """Write which requested MIG profile no GPU model of the cluster has; "" if all exist."""
    for name, _ in needs.requests:
        profile = mig_profiles.profile_of(name)
        if profile is None or (
            name in cluster.resources
            and cluster.allocatable[:, cluster.resources.index(name)].any()
        ):
            continue
        nodes = [node for node in cluster.nodes if node is not None and node.gpu_model]
        gpu_models = {mig_profiles.model_of(node.gpu_model, node.gpu_memory_mib) for node in nodes}
        models = sorted(
            (model for model in gpu_models if model is not None), key=lambda one: one.name
        )
        if any(model.shape(profile) for model in models):
            continue
        known = any(model.shape(profile) for model in mig_profiles.MODELS.values())
        has = "; ".join(f"{model.name} has {model.names()}" for model in models)
        what = "" if known else " (no GPU model has such a MIG profile)"
        there = has or "no node has a GPU model with MIG"
        return f"no GPU of this cluster can be partitioned into {profile}{what}; {there}."
    return ""


def _capacity_refusal(
    waiting: PendingGang,
    cluster: Cluster,
    roles: Roles,
    needs: PodRequirements,
    count: int,
    possible: int,
) -> Refusal:
    miss = None
    closest = ""
    if possible == 0:
        miss = closest_node(cluster, needs, empty=False)
        lacks = _lacks(miss)
        closest = f" The closest node, {miss.node}, lacks {lacks}." if lacks else ""
    barred = describe_excluded(cluster, needs, cluster.capacity)
    if barred:
        closest += f" {barred}."
    return Refusal(
        waiting.gang.id,
        Reason.NOT_ENOUGH_FREE,
        f"{_subject(roles)} {plural(count, 'pod')} of {describe_pod(needs)} at once, and the "
        f"free capacity takes {possible} now.{closest}",
        role=roles[0],
        wanted=count,
        possible=possible,
        near_miss=miss,
    )


def closest_node(cluster: Cluster, needs: PodRequirements, *, empty: bool) -> NearMiss:
    """Return the eligible node that lacks the smallest part of one pod's requests."""
    vector = cluster.request_vector(needs)
    free = cluster.allocatable if empty else cluster.free()
    lacking = np.maximum(vector - np.maximum(free, 0), 0)
    share = (lacking / np.maximum(vector, 1)).sum(axis=1)
    share[~cluster.eligible(needs)] = np.inf
    row = int(np.argmin(share))
    lacks = tuple(
        (cluster.resources[column], int(lacking[row, column]))
        for column in np.flatnonzero(lacking[row])
    )
    lacks = (*lacks, *cluster.unknown_requests(needs))
    named = tuple(("pod slots" if name == PODS else name, quantity) for name, quantity in lacks)
    return NearMiss(cluster.names[row], named)
