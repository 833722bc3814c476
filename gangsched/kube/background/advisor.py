"""Advice on refused gangs of the live cluster: remedies, and moves of running gangs if allowed."""

from dataclasses import dataclass, replace

from gangsched.config import SchedulerConfig
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Eviction
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.advice import advise
from gangsched.core.planning.cycle import Refused
from gangsched.core.planning.planner import Plan, Planned, starts_next_cycle
from gangsched.core.policy import Policies
from gangsched.core.preemption.defragmentation import (
    Budget,
    Defragmentation,
    Defragmenter,
    move_remedy,
)
from gangsched.core.progress import Progress
from gangsched.core.snapshot import Snapshot
from gangsched.kube.background import disruption_budgets
from gangsched.kube.client.client import KubeClient


@dataclass(frozen=True, slots=True)
class Advisor:
    """Finds remedies for a refused gang; with a `budget`, also running gangs to move."""

    policies: Policies
    now_s: float
    budget: Budget | None
    protected: frozenset[GangId] = frozenset()

    def advise(
        self, waiting: PendingGang, refusal: Refusal, snapshot: Snapshot
    ) -> tuple[Refusal, Defragmentation | None]:
        """Return the refusal with its remedies, and moves that free capacity, or None."""
        advised = advise(waiting, snapshot, refusal, self._starts, self.now_s)
        if self.budget is None or refusal.reason not in (Reason.NOT_ENOUGH_FREE, Reason.TOPOLOGY):
            return advised, None
        mover = Defragmenter(
            snapshot,
            self.policies.placer,
            self.now_s,
            self.budget,
            self.protected,
            self._starts,
        )
        moves = mover.find_moves(waiting)
        if moves is None or moves.placement is None:
            return advised, None
        return replace(advised, remedies=(*advised.remedies, move_remedy(moves))), moves

    def _starts(self, waiting: PendingGang, snapshot: Snapshot, at_s: float | None) -> bool:
        return starts_next_cycle(
            waiting, snapshot, self.policies, self.now_s if at_s is None else at_s
        )


def budget_of(config: SchedulerConfig) -> Budget | None:
    """Return the limits of the cost of moves, or None if moves are off."""
    if config.defragment == "off":
        return None
    return Budget(config.defragment_gpu_s, config.defragment_gangs)


class LiveAdvisor:
    """Takes a snapshot of the cluster, and advises one refused gang after another on it."""

    def __init__(
        self,
        client: KubeClient,
        config: SchedulerConfig,
        policies: Policies,
    ) -> None:
        self._client = client
        self._mode = config.defragment
        self._budget = budget_of(config)
        self._policies = policies
        self._snapshot: Snapshot | None = None
        self._protected: frozenset[GangId] = frozenset()
        self._now_s = 0.0
        self._looks = 0

    async def refresh(self, engine: SchedulingEngine, now_s: float) -> None:
        """Take the snapshot to advise on."""
        if self._mode != "off":
            self._protected = await disruption_budgets.protected(
                self._client, engine.view, self._looks
            )
            self._looks += 1
        self._snapshot = engine.view.snapshot_all(now_s)
        self._now_s = now_s

    def on(self, waiting: PendingGang) -> Snapshot:
        """Return the snapshot for the advice on one gang, with its own progress."""
        assert self._snapshot is not None, "refresh comes first"  # noqa: S101
        progress = Progress(waiting.gang.id)
        return replace(self._snapshot, progress=progress)

    def plan_advice(self, waiting: PendingGang, refusal: Refusal, snapshot: Snapshot) -> Plan:
        """Return a plan: the refusal with remedies, or with `apply` a placement and its moves."""
        advisor = Advisor(self._policies, self._now_s, self._budget, self._protected)
        advised, moves = advisor.advise(waiting, refusal, snapshot)
        if self._mode == "apply" and moves is not None and moves.placement is not None:
            placement = replace(
                moves.placement,
                evicts=tuple(Eviction(move.gang, (), "Moved") for move in moves.moves),
            )
            return Plan((Planned(waiting.gang.id, waiting.version, placement),), advice=True)
        return Plan((), (Refused(waiting, advised),), advice=True)
