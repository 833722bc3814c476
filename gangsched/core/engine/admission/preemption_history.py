"""Recent preemptions, so that two gangs do not preempt each other in turn."""

from dataclasses import dataclass, field

from gangsched.core.model.ids import GangId

_LOOP_S = 3600.0


@dataclass(slots=True)
class PreemptionHistory:
    """Preemptions of the last hour: a gang that preempted another is not preempted for that gang.

    `mutual_count` counts preemptions that broke this rule; a correct planner makes none.
    """

    mutual_count: int = 0
    _preempted: dict[tuple[GangId, GangId], float] = field(default_factory=dict)

    def record(self, victim: GangId, by: GangId, now_s: float) -> bool:
        """Record a preemption; return whether the victim preempted the other gang recently."""
        self.recent(now_s)
        self._preempted[(victim, by)] = now_s
        loop = (by, victim) in self._preempted
        self.mutual_count += loop
        return loop

    def restore(self, victim: GangId, by: GangId, at_s: float) -> None:
        """Record a preemption by an earlier process."""
        self._preempted.setdefault((victim, by), at_s)

    def entries(self, now_s: float) -> tuple[tuple[GangId, GangId, float], ...]:
        """Return the recent preemptions: victim, the gang it was preempted for, and the time."""
        self.recent(now_s)
        return tuple((victim, by, at_s) for (victim, by), at_s in self._preempted.items())

    def recent(self, now_s: float) -> frozenset[tuple[GangId, GangId]]:
        """Return the recent preemptions as pairs: the victim, and the gang it was preempted for."""
        for pair in [pair for pair, at in self._preempted.items() if now_s - at > _LOOP_S]:
            del self._preempted[pair]
        return frozenset(self._preempted)
