"""Whether a gang's queue lets it start now, and with how many members: before any place is sought.

The cheap questions come first; each answers with one sentence.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import Amounts, GpuBudget, GpuTypes, Queue, QuotaKey, Stop
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.quota.charges import (
    charge_for,
    charge_of,
    gpu_types_to_try,
    split_required_optional,
)
from gangsched.core.quota.guarantee import describe_shortfall, nominal_shortfall
from gangsched.core.quota.queue_tree import SYSTEM_NAMESPACE, QueueTree, format_quota, number
from gangsched.core.quota.usage import Usage, describe
from gangsched.core.snapshot import Snapshot

Users = Mapping[tuple[str, str], Mapping[QuotaKey, int]]
"""What users hold, by queue and user."""


_QUEUES_NAMED = 10


def admission_refusal(
    waiting: PendingGang, snapshot: Snapshot, usage: Usage, users: Users, now_s: float
) -> Refusal | None:
    """Return why the queue does not admit a gang, whatever capacity is free, or None.

    `users` is what users of queues with limits hold, starts of this cycle included.
    """
    gang, tree = waiting.gang, usage.tree
    namespace = gang.id.split("/", 1)[0]
    if gang.queue not in tree.queues:
        message = f"Queue {gang.queue!r} does not exist; {_queues_open_to(namespace, tree)}."
        return Refusal(gang.id, Reason.UNKNOWN_QUEUE, message)
    for name in tree.path(gang.queue) if gang.queue in tree else (gang.queue,):
        if not tree.queues[name].admits(namespace) and not waiting.is_refill:
            message = f"Namespace {namespace} may not use queue {name}"
            return _not_permitted(waiting, f"{message}; {_queues_open_to(namespace, tree)}.")
    if gang.queue not in tree:
        problem = f"Queue {gang.queue} cannot be used: {tree.problems[gang.queue]}."
        return Refusal(gang.id, Reason.QUEUE_INVALID, problem)
    if waiting.is_refill:
        return None  # it was admitted as a whole
    refusal = _priority(waiting, namespace, tree)
    if refusal is not None:
        return refusal
    for name in tree.path(gang.queue):
        queue = tree.queues[name]
        if queue.stop is not Stop.NONE:
            return Refusal(gang.id, Reason.QUEUE_STOPPED, f"Queue {name} is on hold.")
        refusal = _budget(waiting, queue, snapshot, now_s)
        if refusal is not None:
            return refusal
    alone = waiting.constraints.exclusive
    if alone is not None and not may_be_exclusive(
        snapshot.cluster, tree, gang.queue, waiting.constraints
    ):
        most = tree.exclusive(gang.queue)
        allowed = f"those of level {most}, and finer ones" if most else "none"
        message = (
            f"The gang requests domains of level {alone} for itself (topology.exclusive); queue "
            f"{gang.queue} allows {allowed} (spec.exclusive)."
        )
        return Refusal(gang.id, Reason.NOT_PERMITTED, message)
    return _user_limit(waiting, tree.queues[gang.queue], users)


def _not_permitted(waiting: PendingGang, message: str) -> Refusal:
    return Refusal(waiting.gang.id, Reason.NOT_PERMITTED, message)


def _queues_open_to(namespace: str, tree: QueueTree) -> str:
    """Write which queues a namespace may use; names of other queues are not disclosed."""
    known = list(islice(tree.open_to(namespace), _QUEUES_NAMED + 1))
    more = ", ..." if len(known) > _QUEUES_NAMED else ""
    return f"namespace {namespace} may use: {', '.join(known[:_QUEUES_NAMED]) or 'none'}{more}"


def _priority(waiting: PendingGang, namespace: str, tree: QueueTree) -> Refusal | None:
    """Return why a gang may not have the priority that it, or one of its pods, asks for."""
    most, queue = tree.priority_max(waiting.gang.queue, namespace)
    if waiting.priority <= most:
        return None
    subject = f"The gang's priority is {waiting.priority}"
    if queue:
        why = f"queue {queue} allows at most {most} (spec.maxPriorityClassName)"
    else:
        why = (
            f"classes above {most}, such as system-cluster-critical, are for namespace "
            f"{SYSTEM_NAMESPACE} unless spec.maxPriorityClassName of a queue allows them"
        )
    return _not_permitted(waiting, f"{subject}, and {why}; name another priorityClassName.")


def may_be_exclusive(cluster: Cluster, tree: QueueTree, queue: str, asked: Constraints) -> bool:
    """Return whether a queue lets gangs have domains of a level for themselves.

    No other gang may use what such a gang leaves free, and no quota counts that.
    """
    most = tree.exclusive(queue)
    wanted = cluster.level(asked.topology, asked.exclusive or "")
    if not most or wanted is None:  # the placer refuses a level that does not exist
        return bool(most)
    coarsest = cluster.level(asked.topology, most)
    return coarsest is not None and wanted >= coarsest


def _budget(waiting: PendingGang, queue: Queue, snapshot: Snapshot, now_s: float) -> Refusal | None:
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
        account = f"User {user} of queue {queue.name}" if user else f"Queue {queue.name}"
        return Refusal(
            gang.id,
            Reason.BUDGET,
            f"{account} has spent {spent / 3600:.3g} of {budget.gpu_s / 3600:.3g} GPU-hours; the "
            f"next period of {_period(budget)} begins in {_budget_renewal(budget, now_s)}.",
        )
    return None


def _period(budget: GpuBudget) -> str:
    days = budget.period_s / 86_400
    return f"{days:g} days" if days >= 1 else f"{budget.period_s / 3600:g} hours"


def _budget_renewal(budget: GpuBudget, now_s: float) -> str:
    left_s = budget.period_s - now_s % budget.period_s
    return f"{left_s / 86_400:.1f} days" if left_s > 86_400 else f"{left_s / 3600:.1f} hours"


def _user_limit(waiting: PendingGang, queue: Queue, users: Users) -> Refusal | None:
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
                f"User {user} may have {format_quota(key, most)} in queue {queue.name} and has "
                f"{number(key, held.get(key, 0))}; the gang needs {number(key, wanted)}.",
            )
    return None


def quota_refusal(waiting: PendingGang, usage: Usage, charge: Amounts) -> Refusal | None:
    """Return which queue on the way to the root lacks quota for a charge, or None."""
    short = usage.shortfalls(waiting.gang.queue, charge)
    if not short:
        return None
    first = short[0]
    never = usage.empty.shortfalls(waiting.gang.queue, charge)
    if never:
        shortfall = never[0]
        most = number(shortfall.key, shortfall.available)
        message = (
            f"Queue {waiting.gang.queue} can use at most {most} {shortfall.key[0]}, borrowed quota "
            f"included; the gang needs {number(shortfall.key, shortfall.wanted)}."
        )
        return Refusal(waiting.gang.id, Reason.LARGER_THAN_QUOTA, message)
    message = f"{describe(first, waiting.gang.queue, usage)}."
    return Refusal(waiting.gang.id, Reason.QUOTA_IN_USE, message)


def may_not_borrow(waiting: PendingGang, usage: Usage, charge: Amounts) -> Refusal | None:
    """Return why a gang that may not be preempted would need borrowed quota, or None."""
    if waiting.gang.preemptible:
        return None
    shortfall = nominal_shortfall(usage, waiting.gang.queue, charge)
    if shortfall is None:
        return None
    never = nominal_shortfall(usage.empty, waiting.gang.queue, charge)
    reason = Reason.MAY_NOT_BORROW if never is None else Reason.LARGER_THAN_QUOTA
    message = f"{describe_shortfall(never or shortfall, waiting.gang.queue)}."
    return Refusal(waiting.gang.id, reason, message)


def charge_if_allowed(waiting: PendingGang, usage: Usage, types: GpuTypes) -> bool:
    """Charge a gang to its queue; return False if the queue has no quota left for it."""
    for gpu_type in gpu_types_to_try(waiting, usage):
        charge = types.with_gpu_types(charge_of(waiting), gpu_type)
        if not (may_not_borrow(waiting, usage, charge) or quota_refusal(waiting, usage, charge)):
            usage.charge(waiting.gang.queue, charge, firm=not waiting.gang.preemptible)
            return True
    return False


def trim_to_quota(waiting: PendingGang, usage: Usage, kind: str, snapshot: Snapshot) -> PendingGang:
    """Return the gang with as many members above its minimum as its queue has quota for."""
    must, may = split_required_optional(waiting)
    if not may:
        return waiting
    kinds = snapshot.rules.gpu_types

    def admitted(count: int) -> bool:
        charge = kinds.with_gpu_types(charge_for((*must, *may[:count])), kind)
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
