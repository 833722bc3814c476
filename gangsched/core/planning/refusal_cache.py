"""The refusals of one cycle: the reason of one gang holds for its equivalence class."""

from dataclasses import replace

from gangsched.core.model.gangs import EquivalenceClassView, PendingGang
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.planning.backfill_step import CAPACITY_REASONS
from gangsched.core.planning.context import ALWAYS, PlanningContext

_IN_TIME = frozenset({Reason.BEHIND, Reason.BOOKED})
"""Refusals that hold only for gangs that run for as long; others hold for the whole class."""


class RefusalCache:
    """The refusals of one cycle by request and priority."""

    def __init__(self, context: PlanningContext) -> None:
        self._context = context
        self._by_class: dict[tuple[int, int], tuple[float, float, bool, Refusal]] = {}

    def record(self, waiting: PendingGang, refusal: Refusal) -> None:
        """Record the refusal of a gang for its equivalence class."""
        if not waiting.request_fingerprint:
            return
        key = waiting.equivalence_key
        boundary_s = (
            self._context.last_boundary_s(waiting) if refusal.reason in _IN_TIME else ALWAYS
        )
        known = self._by_class.get(key)
        if known is None or boundary_s < known[0]:
            plain = refusal if refusal.starts_s is None else replace(refusal, starts_s=None)
            self._by_class[key] = (
                boundary_s,
                waiting.queued_since_s,
                refusal.reason in CAPACITY_REASONS,
                plain,
            )

    def applies_to_all(self, gangs: EquivalenceClassView) -> bool:
        """Return whether the refusal of the oldest holds for all of a class."""
        first = gangs.gangs[0]
        boundary_s, since_s, for_capacity, _ = self._by_class[first.equivalence_key]
        if since_s > first.queued_since_s or (for_capacity and self._context.may_reserve(first)):
            return False
        return (
            boundary_s == ALWAYS
            or self._context.last_boundary_before_s(gangs.shortest_s) >= boundary_s
        )

    def lookup(self, waiting: PendingGang) -> Refusal | None:
        """Return the refusal of an older gang of the class that runs for no longer, or None."""
        known = self._by_class.get(waiting.equivalence_key)
        if known is None:
            return None
        boundary_s, since_s, for_capacity, refusal = known
        if since_s > waiting.queued_since_s:
            return None
        if boundary_s != ALWAYS and self._context.last_boundary_s(waiting) < boundary_s:
            return None
        if self._context.availability.has_reservation(waiting.gang.id):
            return None  # its own reservation blocks only other gangs
        if for_capacity and self._context.may_reserve(waiting):
            return None  # it may get a reservation of its own
        return refusal
