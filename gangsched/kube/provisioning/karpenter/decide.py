"""What to do about each purchase, as a function of its claims and the cluster.

    claims missing            created again if this process has not created them all before
    one gone, or late         all are given back, and their pool is left out for a time
    all there, gang waits     their nodes are opened together
    nodes without gangs       closed, and then given back

The caller knows which claims it created, and since when nodes are idle.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gangsched.autoscaling_config import KarpenterConfig
from gangsched.core.model.ids import GangId, NodeName
from gangsched.kube.provisioning.karpenter.objects import NodeClaim, Nodes, pool_of

PurchaseKey = tuple[str, int]


class PurchaseState(StrEnum):
    """How far a purchase has come."""

    COMING = "Coming"
    """Some nodes are not there yet."""
    ARRIVED = "Arrived"
    """All nodes were there."""
    FAILED = "Failed"
    """A node did not come, or too late."""
    ENDING = "Ending"
    """Some of its nodes are gone; the others are there."""


@dataclass(frozen=True, slots=True)
class PurchaseView:
    """One purchase that exists: its claims by index, and its state."""

    gang: GangId
    base: str
    attempt: int
    nodes: Nodes
    claims: Mapping[int, NodeClaim]
    state: PurchaseState
    since_s: float
    """When its last node was there, or its first claim was created."""
    why: str = ""
    """Why it failed."""
    blame: frozenset[str] = frozenset()
    """The pools that did not make their nodes."""

    @property
    def key(self) -> PurchaseKey:
        """Return what identifies it."""
        return self.base, self.attempt


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the cluster shows of a bought node: whether it is closed, and since when it is idle."""

    closed: bool
    idle_since_s: float | None = None
    """None while it has pods of gangs, or places for them."""


@dataclass(slots=True)
class PurchaseSteps:
    """What to change now."""

    create: list[tuple[PurchaseView, int]] = field(default_factory=list)
    """Claims that are missing, by index."""
    open: list[NodeName] = field(default_factory=list)
    close: list[NodeName] = field(default_factory=list)
    delete: list[NodeClaim] = field(default_factory=list)


def purchases(
    claims: Sequence[NodeClaim],
    created: Collection[PurchaseKey],
    config: KarpenterConfig,
    now_s: float,
) -> list[PurchaseView]:
    """Return the purchases that claims belong to.

    `created` are those of which this process knows that every claim existed: a claim of them that
    is missing was given up by Karpenter. `now_s` is on the clock of the API server's times.
    """
    by_key: dict[PurchaseKey, dict[int, NodeClaim]] = {}
    for claim in claims:
        by_key.setdefault(claim.purchase, {})[claim.index] = claim
    return [
        _view(by_key[key], whole=key in created, config=config, now_s=now_s)
        for key in sorted(by_key)
    ]


def _view(
    claims: dict[int, NodeClaim], *, whole: bool, config: KarpenterConfig, now_s: float
) -> PurchaseView:
    first = claims[min(claims)]
    nodes, total = first.nodes, sum(count for _, count in first.nodes)
    missing = [index for index in range(total) if index not in claims]
    gone = [index for index, claim in claims.items() if claim.deleting] + missing * whole
    coming = [claim for claim in claims.values() if claim.node is None and not claim.deleting]
    since_s = min(claim.created_s for claim in claims.values())
    state, why, blame = PurchaseState.COMING, "", [pool_of(nodes, index) for index in gone]
    if gone:
        state = PurchaseState.FAILED if coming else PurchaseState.ENDING
        why = f"Karpenter gave up {len(gone)} of {total} nodes"
    elif (coming or missing) and now_s - since_s > config.late_s:
        state, blame = PurchaseState.FAILED, [claim.pool for claim in coming]
        words = next((f": {claim.message}" for claim in coming if claim.message), "")
        why = f"{len(coming)} of {total} nodes were not there after {config.late_s:g} s{words}"
    elif not coming and not missing:
        state = PurchaseState.ARRIVED
        since_s = max(claim.ready_s for claim in claims.values())
    return PurchaseView(
        first.gang, *first.purchase, nodes, claims, state, since_s, why, frozenset(blame)
    )


def steps(
    existing: Sequence[PurchaseView],
    wanted: Mapping[GangId, str | None],
    nodes: Mapping[NodeName, NodeState],
    config: KarpenterConfig,
    now_s: float,
) -> PurchaseSteps:
    """Return what to change about the purchases that exist.

    `wanted` has the base of the demand of each gang that waits, or None for one that has nodes and
    waits for its pods. A purchase of another base is for a gang that changed or is gone.
    """
    found = PurchaseSteps()
    reserved = {one.key for one in existing if wanted.get(one.gang, "") in (None, one.base)}
    topped_up = {
        one.gang for one in existing if one.state is PurchaseState.COMING and one.key in reserved
    }
    for one in existing:
        if one.state is PurchaseState.COMING and one.key in reserved:
            total = sum(count for _, count in one.nodes)
            found.create += [(one, index) for index in range(total) if index not in one.claims]
            continue
        arrived = one.state is PurchaseState.ARRIVED
        waits = now_s - one.since_s < config.reserved_s and arrived
        held = one.key in reserved and (waits or one.gang in topped_up)
        for claim in one.claims.values():
            node = nodes.get(claim.node) if claim.node is not None else None
            if held and arrived:
                if claim.node is not None and node is not None and node.closed:
                    found.open.append(claim.node)
            elif not claim.deleting:
                _give_back(claim, node, held=held, config=config, now_s=now_s, found=found)
    return found


def _give_back(
    claim: NodeClaim,
    node: NodeState | None,
    *,
    held: bool,
    config: KarpenterConfig,
    now_s: float,
    found: PurchaseSteps,
) -> None:
    """Close an idle node first, so that no gang is placed there; give a closed node back."""
    if claim.node is None or node is None:  # it is not there yet, or not any more
        found.delete.append(claim)
    elif node.idle_since_s is None:
        return
    elif node.closed:
        found.delete.append(claim)
    elif not held and now_s - node.idle_since_s >= config.idle_s:
        found.close.append(claim.node)
