"""What the nodes that were bought cost each queue."""

from collections.abc import Mapping, Sequence

from gangsched.autoscaling_config import KarpenterPool
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.kube.provisioning.karpenter.objects import NodeClaim


def spent_by_queue(
    claims: Sequence[NodeClaim], view: EngineView, settings: Mapping[str, KarpenterPool]
) -> dict[str, float]:
    """Return what the nodes of claims cost for an hour, by the queue of the gang that has them.

    A node that comes, or that no gang uses, is spent for the gang that it was bought for.
    """
    spent: dict[str, float] = {}
    for claim in claims:
        pool, state = settings.get(claim.pool), view.gangs.get(_holder(claim, view))
        if claim.deleting or pool is None or state is None or state.spec is None:
            continue
        queue = state.spec.queue
        spent[queue] = round(spent.get(queue, 0.0) + pool.price, 6)
    return spent


def _holder(claim: NodeClaim, view: EngineView) -> GangId:
    row = view.cluster.rows.get(claim.node) if claim.node is not None else None
    there = view.cluster.gangs_by_row.get(row) if row is not None else None
    return min(there) if there else claim.gang
