"""Who stopped whom, so that nobody is stopped in turn."""

from dataclasses import dataclass, field

from gangsched.core.model.ids import GangId

_LOOP_S = 3600.0


@dataclass(slots=True)
class PreemptionHistory:
    """Who stopped whom a short time ago: whoever did is not stopped for the other in turn.

    `mutual_count` counts where that happened all the same; the rules forbid it.
    """

    mutual_count: int = 0
    _preempted: dict[tuple[GangId, GangId], float] = field(default_factory=dict)

    def record(self, victim: GangId, by: GangId, now_s: float) -> bool:
        """Take note; return whether the victim had itself stopped the other a short time ago."""
        self.recent(now_s)
        self._preempted[(victim, by)] = now_s
        loop = (by, victim) in self._preempted
        self.mutual_count += loop
        return loop

    def restore(self, victim: GangId, by: GangId, at_s: float) -> None:
        """Learn of a stop before this process began."""
        self._preempted.setdefault((victim, by), at_s)

    def entries(self, now_s: float) -> tuple[tuple[GangId, GangId, float], ...]:
        """Return who was stopped a short time ago, for whom, and when."""
        self.recent(now_s)
        return tuple((victim, by, at_s) for (victim, by), at_s in self._preempted.items())

    def recent(self, now_s: float) -> frozenset[tuple[GangId, GangId]]:
        """Return the pairs of a short time: who was stopped, and for whom."""
        for pair in [pair for pair, at in self._preempted.items() if now_s - at > _LOOP_S]:
            del self._preempted[pair]
        return frozenset(self._preempted)
