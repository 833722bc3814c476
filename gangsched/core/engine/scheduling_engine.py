"""What a driver needs of an engine: the engine itself has it, and what wraps an engine."""

from typing import Protocol

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.view import EngineView
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.refusal import Refusal
from gangsched.core.planning.planner import Plan
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import Snapshot


class SchedulingEngine(Protocol):
    """Facts and plans in, orders out; one task owns it, and every call brings the time."""

    @property
    def view(self) -> EngineView:
        """The state, for reading."""

    @property
    def history(self) -> RuntimeHistory:
        """Run times that were observed; a driver restores those of an earlier process."""

    @property
    def limits(self) -> Limits:
        """How long each step in the life of a gang may take."""

    @limits.setter
    def limits(self, limits: Limits) -> None: ...

    @property
    def driver_checks_unmodelled(self) -> bool:
        """Whether the driver checks what the planner does not model."""

    @driver_checks_unmodelled.setter
    def driver_checks_unmodelled(self, checks: bool) -> None: ...

    def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
        """Fold one fact in; return the orders that follow."""

    def tick(self, now_s: float) -> tuple[o.Order, ...]:
        """Act on every deadline that has passed; return the orders that follow."""

    def next_deadline_s(self) -> float | None:
        """Return when `tick` has something to do next, or None."""

    def has_pending_work(self) -> bool:
        """Return whether a plan made now may place a gang that the last plan did not."""

    def begin_cycle(self, now_s: float = 0.0, *, pods_max: int | None = None) -> Snapshot:
        """Return a snapshot with the gangs to plan next; planning ends after `pods_max` pods."""

    def accept(self, plan: Plan, now_s: float) -> tuple[o.Order, ...]:
        """Check each placement on the present state; return the orders of those that still fit."""

    def take_advice_requests(
        self, limit: int, now_s: float
    ) -> tuple[tuple[PendingGang, Refusal], ...]:
        """Return refused gangs that need advice, at most `limit`; they count as advised now."""

    def audit(self, now_s: float) -> dict[str, int]:
        """Compare the usage of queues with what exists, and correct it; return differences."""
