"""Moves gangs off bought nodes that cost more than the moves, while no gang waits.

A node that gangs shall leave gets the annotation of a node that is about to stop: no gang starts
there, and gangs that ask before they are stopped save their work and start elsewhere. Once it is
idle it is given back as any other node.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gangsched.autoscaling_config import KarpenterConfig, KarpenterPool
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import NodeName
from gangsched.core.model.refusal import plural
from gangsched.core.policy import Placer
from gangsched.core.preemption.defragmentation import Budget, Defragmenter
from gangsched.core.preemption.shrinking import Shrinking, find_shrinking
from gangsched.core.progress import Progress, StoppedError
from gangsched.core.snapshot import Snapshot
from gangsched.kube.provisioning.karpenter.calls import NodeCalls
from gangsched.kube.provisioning.karpenter.objects import NodeClaim
from gangsched.kube.provisioning.passes import Hint, guarded, in_parallel, stopped_after

log = logging.getLogger(__name__)

_LOOK_S = 30.0
_SEARCH_S = 10.0
_GANGS_MAX = 8


class GangMoves:
    """Looks for moves now and then, and begins them."""

    def __init__(
        self,
        calls: NodeCalls,
        view: EngineView,
        placer: Placer,
        config: KarpenterConfig,
        hint: Hint,
    ) -> None:
        self._calls, self._view, self._placer, self._hint = calls, view, placer, hint
        self._settled_s = config.move_after_s
        self._settings: Mapping[str, KarpenterPool] = {pool.name: pool for pool in config.pools}
        self._next_s = 0.0

    async def step(self, claims: Sequence[NodeClaim], now_s: float) -> None:
        """Begin the moves that save the most, if some do and no gang waits."""
        if self._settled_s is None or now_s < self._next_s:
            return
        self._next_s = now_s + _LOOK_S
        snapshot = self._view.snapshot_all(now_s)
        if snapshot.pending or snapshot.starting or snapshot.terminating:
            return
        prices = {
            claim.node: self._settings[claim.pool].price
            for claim in claims
            if claim.node in snapshot.cluster.rows
            and not claim.deleting
            and claim.pool in self._settings
        }
        found = await self._search(snapshot, prices, now_s)
        if found is not None:
            await self._begin(found, snapshot, now_s)

    async def _search(
        self, snapshot: Snapshot, prices: Mapping[NodeName, float], now_s: float
    ) -> Shrinking | None:
        """Look for moves in a thread, for a limited time."""
        progress = Progress()
        snapshot = replace(snapshot, progress=progress)
        protected, budget = snapshot.rules.protected, Budget(gangs=_GANGS_MAX)
        defragmenter = Defragmenter(snapshot, self._placer, now_s, budget, protected)
        try:
            with stopped_after(progress, _SEARCH_S):
                return await asyncio.to_thread(
                    find_shrinking, defragmenter, prices, self._settled_s or 0.0
                )
        except StoppedError:
            log.info("no moves were found within %g s", _SEARCH_S)
            return None

    async def _begin(self, found: Shrinking, snapshot: Snapshot, now_s: float) -> None:
        moved = {move.gang for move in found.moves}
        saves_s = [gang.save_s or 0.0 for gang in snapshot.running if gang.gang.id in moved]
        at_s = now_s + max(saves_s, default=0.0)

        async def announce(node: NodeName) -> None:
            await guarded(f"node {node}", self._calls.announce_stop(node, at_s))

        await in_parallel(announce, found.nodes)
        count = plural(len(found.nodes), "node")
        saves = f"{found.saved - found.lost:,.2f} $"
        log.info("moving %s so that %s can be given back", ", ".join(sorted(moved)), count)
        for gang in sorted(moved):
            message = f"It moves to free nodes, so that {count} can be given back: {saves} less."
            self._hint(gang, message, "MovingToFreeNodes")
