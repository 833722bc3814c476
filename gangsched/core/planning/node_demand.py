"""Which gangs more nodes help, and whether their queues have the quota for them."""

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.queues import GpuTypes
from gangsched.core.model.refusal import Reason
from gangsched.core.planning.admission import may_not_borrow, quota_refusal
from gangsched.core.quota.charges import charge_of, gpu_types_to_try
from gangsched.core.quota.usage import Usage

LACKS_NODES = frozenset({Reason.NOT_ENOUGH_FREE, Reason.TOO_LARGE, Reason.UNSATISFIABLE})
"""Refusals that more nodes may end. They come after all rules and quotas of the queue."""


def charge_if_allowed(pending: PendingGang, usage: Usage, kinds: GpuTypes) -> bool:
    """Charge a gang to its queue; return False if the queue has no quota left for it."""
    for kind in gpu_types_to_try(pending, usage):
        charge = kinds.with_gpu_types(charge_of(pending), kind)
        refusal = may_not_borrow(pending, usage, charge) or quota_refusal(pending, usage, charge)
        if refusal is None:
            usage.charge(pending.gang.queue, charge, firm=not pending.gang.preemptible)
            return True
    return False
