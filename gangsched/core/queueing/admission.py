"""Whether a gang's queue lets it start now, and with how many members: before any place is sought.

The cheap questions come first; each answers with one sentence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from gangsched.core.accounts.tree import SYSTEM_NAMESPACE, Tree, number, shown
from gangsched.core.accounts.usage import Usage, describe
from gangsched.core.cluster import Cluster
from gangsched.core.model import GPU, Constraints, Member, NodeName, PodNeeds, Waiting
from gangsched.core.queueing.guarantee import loan, sentence
from gangsched.core.queues import Amounts, GpuBudget, Kinds, Queue, QuotaKey, Stop, added
from gangsched.core.refusal import Reason, Refusal
from gangsched.core.snapshot import Snapshot

Users = Mapping[tuple[str, str], Mapping[QuotaKey, int]]
"""What users hold, by queue and user."""

Seat = tuple[NodeName, PodNeeds]

_QUEUES_TOLD = 10


def charge_of(waiting: Waiting) -> Amounts:
    """Return what the gang's minimum charges."""
    return waiting.charge or charge_for(split(waiting)[0])


def kinds_in(waiting: Waiting) -> tuple[PodNeeds, ...]:
    """Return the needs that differ among a gang's members."""
    return waiting.kinds or tuple({id(m.needs): m.needs for m in waiting.members}.values())


def charge_for(members: tuple[Member, ...]) -> Amounts:
    """Return what members charge, whatever GPUs they get."""
    counts: dict[PodNeeds, int] = {}
    for member in members:
        counts[member.needs] = counts.get(member.needs, 0) + 1
    return added(counts)


def charge_at(cluster: Cluster, kinds: Kinds, seats: Iterable[Seat]) -> Amounts:
    """Return what pods charge on the GPUs they have, by the kind of their nodes."""
    models: dict[str, dict[PodNeeds, int]] = {}
    for node, needs in seats:
        row = cluster.rows.get(node)
        here = models.setdefault(cluster.gpu_model(row) if row is not None else "", {})
        here[needs] = here.get(needs, 0) + 1
    total: dict[QuotaKey, int] = {}
    for model, counts in models.items():
        for key, quantity in kinds.counted(added(counts), model):
            total[key] = total.get(key, 0) + quantity
    return tuple(sorted(total.items()))


def split(waiting: Waiting) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
    """Return the members that must start, lowest ranks first, and those that may."""
    if waiting.minimum >= len(waiting.members):
        return waiting.members, ()
    left = dict(waiting.role_minimum)
    must: set[int] = set()
    for at, member in enumerate(waiting.members):
        if left.get(member.role, 0) > 0:
            left[member.role] -= 1
            must.add(at)
    for at in range(len(waiting.members)):
        if len(must) >= waiting.minimum:
            break
        must.add(at)
    chosen = tuple(member for at, member in enumerate(waiting.members) if at in must)
    return chosen, tuple(m for at, m in enumerate(waiting.members) if at not in must)


def barred(
    waiting: Waiting, snapshot: Snapshot, usage: Usage, users: Users, now_s: float
) -> Refusal | None:
    """Return why the queue admits nothing of this gang whatever is free, or None.

    `users` is what users of queues with limits hold, starts of this cycle included.
    """
    gang, tree = waiting.gang, usage.tree
    namespace = gang.id.split("/", 1)[0]
    if gang.queue not in tree.queues:
        message = f"queue {gang.queue!r} does not exist; {_open_to(namespace, tree)}."
        return Refusal(gang.id, Reason.UNKNOWN_QUEUE, message)
    for name in tree.path(gang.queue) if gang.queue in tree else (gang.queue,):
        if not tree.queues[name].admits(namespace) and not waiting.repair:
            message = f"namespace {namespace} may not use queue {name}"
            return _not_permitted(waiting, f"{message}; {_open_to(namespace, tree)}.")
    if gang.queue not in tree:
        problem = f"queue {gang.queue} cannot be used: {tree.problems[gang.queue]}."
        return Refusal(gang.id, Reason.QUEUE_INVALID, problem)
    if waiting.repair:
        return None  # it was admitted as a whole
    refusal = _priority(waiting, namespace, tree)
    if refusal is not None:
        return refusal
    for name in tree.path(gang.queue):
        queue = tree.queues[name]
        if queue.stop is not Stop.NONE:
            return Refusal(gang.id, Reason.QUEUE_STOPPED, f"queue {name} is on hold.")
        refusal = _budget(waiting, queue, snapshot, now_s)
        if refusal is not None:
            return refusal
    alone = waiting.constraints.exclusive
    if alone is not None and not may_have(snapshot.cluster, tree, gang.queue, waiting.constraints):
        most = tree.exclusive(gang.queue)
        allowed = f"those of level {most}, and finer ones" if most else "none"
        message = (
            f"the gang wants its domains of level {alone} for itself (topology.exclusive), and of "
            f"such queue {gang.queue} allows {allowed} (spec.exclusive)."
        )
        return Refusal(gang.id, Reason.NOT_PERMITTED, message)
    return _user_limit(waiting, tree.queues[gang.queue], users)


def _not_permitted(waiting: Waiting, message: str) -> Refusal:
    return Refusal(waiting.gang.id, Reason.NOT_PERMITTED, message)


def _open_to(namespace: str, tree: Tree) -> str:
    """Write which queues a namespace may use: the names of others' are none of its business."""
    known = list(islice(tree.open_to(namespace), _QUEUES_TOLD + 1))
    more = ", ..." if len(known) > _QUEUES_TOLD else ""
    return f"namespace {namespace} may use: {', '.join(known[:_QUEUES_TOLD]) or 'none'}{more}"


def _priority(waiting: Waiting, namespace: str, tree: Tree) -> Refusal | None:
    """Return why a gang may not have the priority that it, or one of its pods, asks for."""
    most, queue = tree.highest(waiting.gang.queue, namespace)
    if waiting.priority <= most:
        return None
    said = f"its priority is {waiting.priority}"
    if queue:
        why = f"queue {queue} allows at most {most} (spec.maxPriorityClassName)"
    else:
        why = (
            f"classes above {most}, such as system-cluster-critical, are for namespace "
            f"{SYSTEM_NAMESPACE} unless spec.maxPriorityClassName of a queue allows them"
        )
    return _not_permitted(waiting, f"{said}, and {why}; name another priorityClassName.")


def may_have(cluster: Cluster, tree: Tree, queue: str, asked: Constraints) -> bool:
    """Tell whether a queue lets gangs have their domains of a level for themselves.

    Nobody else may use what such a gang leaves free, and no quota counts that.
    """
    most = tree.exclusive(queue)
    wanted = cluster.level(asked.topology, asked.exclusive or "")
    if not most or wanted is None:  # no such level: the gang is told when its place is sought
        return bool(most)
    coarsest = cluster.level(asked.topology, most)
    return coarsest is not None and wanted >= coarsest


def _budget(waiting: Waiting, queue: Queue, snapshot: Snapshot, now_s: float) -> Refusal | None:
    gang = waiting.gang
    if not queue.budgets or not dict(charge_of(waiting)).get((GPU, "")):
        return None
    for budget in queue.budgets:
        if budget.per_user and queue.name != gang.queue:
            continue
        user = gang.account[1] if budget.per_user else ""
        spent = snapshot.rules.spent.get((queue.name, user, budget.period_s), 0.0)
        if spent < budget.gpu_s:
            continue
        whose = f"user {user} in queue {queue.name}" if user else f"queue {queue.name}"
        return Refusal(
            gang.id,
            Reason.BUDGET,
            f"{whose} has spent {spent / 3600:.3g} of {budget.gpu_s / 3600:.3g} GPU-hours; the "
            f"next period of {_period(budget)} begins in {_left(budget, now_s)}.",
        )
    return None


def _period(budget: GpuBudget) -> str:
    days = budget.period_s / 86_400
    return f"{days:g} days" if days >= 1 else f"{budget.period_s / 3600:g} hours"


def _left(budget: GpuBudget, now_s: float) -> str:
    left_s = budget.period_s - now_s % budget.period_s
    return f"{left_s / 86_400:.1f} days" if left_s > 86_400 else f"{left_s / 3600:.1f} hours"


def _user_limit(waiting: Waiting, queue: Queue, users: Users) -> Refusal | None:
    if not queue.user_limits:
        return None
    user = waiting.gang.account[1]
    held = users.get(waiting.gang.account, {})
    asked = dict(charge_of(waiting))
    for resource, most in queue.user_limits:
        key: QuotaKey = (resource, "")
        wanted = asked.get(key, 0)
        if wanted and held.get(key, 0) + wanted > most:
            return Refusal(
                waiting.gang.id,
                Reason.USER_LIMIT,
                f"user {user} may have {shown(key, most)} in queue {queue.name} and has "
                f"{number(key, held.get(key, 0))}; the gang needs {number(key, wanted)}.",
            )
    return None


def kinds_to_try(waiting: Waiting, usage: Usage) -> tuple[str, ...]:
    """Return the GPU kinds to try one after the other; ("",) where kinds play no part."""
    declared = usage.tree.kinds(waiting.gang.queue)
    if not declared or not dict(charge_of(waiting)).get((GPU, "")):
        return ("",)
    return waiting.constraints.gpu_kinds or declared


def of_kind(waiting: Waiting, kind: str) -> Waiting:
    """Return the gang bound to one kind of GPU."""
    if not kind or waiting.constraints.gpu_kinds == (kind,):
        return waiting
    return replace(waiting, constraints=replace(waiting.constraints, gpu_kinds=(kind,)))


def over_quota(waiting: Waiting, usage: Usage, charge: Amounts) -> Refusal | None:
    """Return which queue on the way to the root lacks quota for a charge, or None."""
    short = usage.shortfalls(waiting.gang.queue, charge)
    if not short:
        return None
    first = short[0]
    never = usage.nothing.shortfalls(waiting.gang.queue, charge)
    if never:
        said = never[0]
        most = number(said.key, said.room)
        message = (
            f"queue {waiting.gang.queue} can never have more than {most} {said.key[0]}, loans "
            f"included; the gang needs {number(said.key, said.wanted)}."
        )
        return Refusal(waiting.gang.id, Reason.BEYOND_QUOTA, message)
    message = f"{describe(first, waiting.gang.queue, usage)}."
    return Refusal(waiting.gang.id, Reason.OVER_QUOTA, message)


def may_not_borrow(waiting: Waiting, usage: Usage, charge: Amounts) -> Refusal | None:
    """Return why a gang that may not be stopped would run on a loan, or None."""
    if waiting.gang.preemptible:
        return None
    found = loan(usage, waiting.gang.queue, charge)
    if found is None:
        return None
    never = loan(usage.nothing, waiting.gang.queue, charge)
    reason = Reason.MAY_NOT_BORROW if never is None else Reason.BEYOND_QUOTA
    message = f"{sentence(never or found, waiting.gang.queue)}."
    return Refusal(waiting.gang.id, reason, message)


def trimmed(waiting: Waiting, usage: Usage, kind: str, snapshot: Snapshot) -> Waiting:
    """Return the gang with as many members above its minimum as its queue has quota for."""
    must, may = split(waiting)
    if not may:
        return waiting
    kinds = snapshot.rules.kinds

    def admitted(count: int) -> bool:
        charge = kinds.counted(charge_for((*must, *may[:count])), kind)
        fits = usage.fits(waiting.gang.queue, charge)
        return fits and may_not_borrow(waiting, usage, charge) is None

    if admitted(len(may)):
        return waiting
    low, high = 0, len(may)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    kept = {member.name for member in (*must, *may[:low])}
    return replace(waiting, members=tuple(m for m in waiting.members if m.name in kept))
