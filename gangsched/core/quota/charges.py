"""The charge of a gang to its queue, and the members that have to start."""

from collections.abc import Iterable
from dataclasses import replace

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import Member, PendingGang
from gangsched.core.model.ids import NodeName
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.model.queues import Amounts, GpuTypes, QuotaKey, sum_requests
from gangsched.core.quota.usage import Usage

NodeAndNeeds = tuple[NodeName, PodRequirements]


def charge_of(waiting: PendingGang) -> Amounts:
    """Return the charge of the minimum of a gang."""
    return waiting.charge or charge_for(split_required_optional(waiting)[0])


def pod_classes_of(waiting: PendingGang) -> tuple[PodRequirements, ...]:
    """Return the different requirements among the members of a gang."""
    return waiting.pod_classes or tuple({id(m.needs): m.needs for m in waiting.members}.values())


def charge_for(members: tuple[Member, ...]) -> Amounts:
    """Return the charge of members, whatever GPUs they get."""
    counts: dict[PodRequirements, int] = {}
    for member in members:
        counts[member.needs] = counts.get(member.needs, 0) + 1
    return sum_requests(counts)


def charge_on_nodes(cluster: Cluster, kinds: GpuTypes, pods: Iterable[NodeAndNeeds]) -> Amounts:
    """Return the charge of pods on their nodes, with GPUs counted by type."""
    models: dict[str, dict[PodRequirements, int]] = {}
    for node, needs in pods:
        row = cluster.rows.get(node)
        here = models.setdefault(cluster.gpu_model(row) if row is not None else "", {})
        here[needs] = here.get(needs, 0) + 1
    total: dict[QuotaKey, int] = {}
    for model, counts in models.items():
        for key, quantity in kinds.with_gpu_types(sum_requests(counts), model):
            total[key] = total.get(key, 0) + quantity
    return tuple(sorted(total.items()))


def split_required_optional(waiting: PendingGang) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
    """Return the members that must start, lowest ranks first, and the others."""
    if waiting.members_min >= len(waiting.members):
        return waiting.members, ()
    left = dict(waiting.role_members_min)
    must: set[int] = set()
    for at, member in enumerate(waiting.members):
        if left.get(member.role, 0) > 0:
            left[member.role] -= 1
            must.add(at)
    for at in range(len(waiting.members)):
        if len(must) >= waiting.members_min:
            break
        must.add(at)
    chosen = tuple(member for at, member in enumerate(waiting.members) if at in must)
    return chosen, tuple(m for at, m in enumerate(waiting.members) if at not in must)


def gpu_types_to_try(waiting: PendingGang, usage: Usage) -> tuple[str, ...]:
    """Return the GPU types to try one after the other; ("",) if no quota names one."""
    declared = usage.tree.gpu_types(waiting.gang.queue)
    if not declared or not dict(charge_of(waiting)).get((GPU, "")):
        return ("",)
    return waiting.constraints.gpu_types or declared


def with_gpu_type(waiting: PendingGang, kind: str) -> PendingGang:
    """Return the gang restricted to one GPU type."""
    if not kind or waiting.constraints.gpu_types == (kind,):
        return waiting
    return replace(waiting, constraints=replace(waiting.constraints, gpu_types=(kind,)))
