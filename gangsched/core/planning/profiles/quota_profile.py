"""Quota at the start of each backfill reservation: what `node_profile` is for nodes.

Each reservation has the usage of its tree at its start: without the gangs that end before, and
with those of other reservations. A gang that would still run then must leave enough quota for all.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Amounts
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import RunningGang


@dataclass(frozen=True, slots=True)
class QuotaClaim:
    """The quota that a gang would use of its queue, and for how long."""

    gang: GangId
    queue: str
    charge: Amounts
    runtime_s: float


@dataclass(frozen=True, slots=True)
class QuotaReservation:
    """Quota that is reserved from `at_s` on; `usage` is the usage then, its own charge included."""

    claim: QuotaClaim
    at_s: float
    usage: Usage

    @property
    def gang(self) -> GangId:
        """Return the gang of the reservation."""
        return self.claim.gang

    def overlaps(self, at_s: float) -> bool:
        """Return whether its gang would run at that moment."""
        return self.at_s <= at_s < self.at_s + self.claim.runtime_s

    def fits_beside(self, queue: str, charge: Amounts) -> bool:
        """Return whether a charge fits beside the reserved one."""
        return self.usage.fits(queue, charge)


class QuotaProjection:
    """The usage of one tree as time passes; `ending` are its gangs in the order of their ends.

    Gangs in `gone` are preempted already, so that their ends do not count.
    """

    def __init__(
        self,
        usage: Usage,
        ending: Sequence[tuple[float, RunningGang]],
        now_s: float,
        gone: Container[GangId] = (),
    ) -> None:
        self.usage = usage
        self.at_s = now_s
        self._ending = ending
        self._ended = gone
        self._next = 0

    def advance(self) -> bool:
        """Advance to the end of the next gang; return whether there was one."""
        if self._next == len(self._ending):
            return False
        end_s, gang = self._ending[self._next]
        self._next += 1
        if gang.gang.id not in self._ended:
            self.usage.charge(gang.gang.queue, gang.charge, -1)
            self.at_s = max(self.at_s, end_s)
        return True

    def advance_to(self, at_s: float) -> None:
        """Advance to a moment."""
        while self._next < len(self._ending):
            if self._ending[self._next][0] > at_s:
                break
            self.advance()
        self.at_s = max(self.at_s, at_s)


class QuotaProfile:
    """The quota reservations of one planning cycle."""

    def __init__(self) -> None:
        self._reservations: dict[GangId, QuotaReservation] = {}

    def __iter__(self) -> Iterator[QuotaReservation]:
        return iter(self._reservations.values())

    def is_available(self, claim: QuotaClaim, ahead: QuotaProjection) -> bool:
        """Return whether a claim from a moment on fits beside all other reservations."""
        then = [reservation.claim for reservation in self if reservation.overlaps(ahead.at_s)]
        for reservation in then:
            ahead.usage.charge(reservation.queue, reservation.charge)
        enough = ahead.usage.fits(claim.queue, claim.charge)
        for reservation in then:
            ahead.usage.charge(reservation.queue, reservation.charge, -1)
        end_s = ahead.at_s + claim.runtime_s
        later = (reservation for reservation in self if ahead.at_s < reservation.at_s < end_s)
        return enough and all(
            reservation.fits_beside(claim.queue, claim.charge) for reservation in later
        )

    def reserve(self, claim: QuotaClaim, ahead: QuotaProjection) -> None:
        """Reserve quota from a moment on; the reservation owns the projected usage afterwards."""
        for reservation in self:
            if reservation.overlaps(ahead.at_s):
                ahead.usage.charge(reservation.claim.queue, reservation.claim.charge)
        ahead.usage.charge(claim.queue, claim.charge)
        reserved = QuotaReservation(claim, ahead.at_s, ahead.usage)
        for reservation in self:
            if reserved.overlaps(reservation.at_s):
                reservation.usage.charge(claim.queue, claim.charge)
        self._reservations[claim.gang] = reserved

    def release(self, gang: GangId) -> None:
        """Release the quota reservation of a gang, if it has one."""
        released = self._reservations.pop(gang, None)
        if released is None:
            return
        for reservation in self:
            if released.overlaps(reservation.at_s):
                reservation.usage.charge(released.claim.queue, released.claim.charge, -1)

    def started(self, queue: str, charge: Amounts, end_s: float, sign: int = 1) -> None:
        """Count a gang that starts now; with sign -1, undo that."""
        for reservation in self:
            if reservation.at_s < end_s:
                reservation.usage.charge(queue, charge, sign)

    def blocking(self, queue: str, charge: Amounts, end_s: float) -> QuotaReservation | None:
        """Return a reservation that would lack quota if a gang ran from now until `end_s`."""
        return next(
            (
                reservation
                for reservation in self
                if reservation.at_s < end_s and not reservation.fits_beside(queue, charge)
            ),
            None,
        )
