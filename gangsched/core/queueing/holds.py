"""Quota kept in time, for gangs that lack it now: what `horizon.py` is for nodes.

Each hold knows what its tree will use when it begins: without the gangs that end before, with
the gangs other holds are for. A gang that would still run then must leave enough for all of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gangsched.core.accounts.usage import Usage
from gangsched.core.model import GangId
from gangsched.core.queues import Amounts
from gangsched.core.snapshot import Running

MOST = 16
"""Each is a copy of the usage of all queues."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a gang would take of its queue's quota, and for how long."""

    gang: GangId
    queue: str
    charge: Amounts
    runtime_s: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Quota kept from a moment on; `usage` is what there will be then beside it."""

    claim: Claim
    at_s: float
    usage: Usage

    @property
    def gang(self) -> GangId:
        """Return for whom."""
        return self.claim.gang

    @property
    def root(self) -> str:
        """Return the top of its tree."""
        return self.usage.tree.path(self.claim.queue)[-1]

    def overlaps(self, at_s: float) -> bool:
        """Tell whether its gang would run at a moment."""
        return self.at_s <= at_s < self.at_s + self.claim.runtime_s


class Holds:
    """The holds of one planning cycle."""

    def __init__(self) -> None:
        self._made: dict[GangId, Hold] = {}

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._made.values())

    def of(self, gang: GangId) -> Hold | None:
        """Return the hold for a gang."""
        return self._made.get(gang)

    def keep(
        self, claim: Claim, usage: Usage, ending: Iterable[Running], now_s: float
    ) -> Hold | None:
        """Keep quota from the first moment there is enough, as `ending` gangs end in turn.

        None if there never is, or there are as many holds as can be.
        """
        if len(self._made) >= MOST or claim.queue not in usage.tree:
            return None
        usage, at_s = usage.copy(), now_s
        for one in (None, *ending):
            if one is not None:
                usage.charge(one.gang.queue, one.charge, -1)
                at_s = one.free_s(now_s)
            if usage.fits(claim.queue, claim.charge) and self._beside(claim, usage, at_s):
                return self._add(claim, usage, at_s)
        return None

    def _beside(self, claim: Claim, usage: Usage, at_s: float) -> bool:
        """Tell whether a claim from a moment on leaves the other holds what they need."""
        then = [one.claim for one in self if one.overlaps(at_s)]
        for one in then:
            usage.charge(one.queue, one.charge)
        enough = usage.fits(claim.queue, claim.charge)
        for one in then:
            usage.charge(one.queue, one.charge, -1)
        end_s = at_s + claim.runtime_s
        later = (one for one in self if at_s < one.at_s < end_s)
        return enough and all(_both(one, claim.queue, claim.charge) for one in later)

    def _add(self, claim: Claim, usage: Usage, at_s: float) -> Hold:
        for one in self:
            if one.overlaps(at_s):
                usage.charge(one.claim.queue, one.claim.charge)
        made = Hold(claim, at_s, usage)
        for one in self:
            if made.overlaps(one.at_s):
                one.usage.charge(claim.queue, claim.charge)
        self._made[claim.gang] = made
        return made

    def cancel(self, gang: GangId) -> None:
        """Keep nothing for a gang any more."""
        gone = self._made.pop(gang, None)
        if gone is None:
            return
        for one in self:
            if gone.overlaps(one.at_s):
                one.usage.charge(gone.claim.queue, gone.claim.charge, -1)

    def started(self, queue: str, charge: Amounts, end_s: float) -> None:
        """Count a gang that starts now."""
        for one in self:
            if one.at_s < end_s:
                one.usage.charge(queue, charge)

    def blocking(self, queue: str, charge: Amounts, end_s: float) -> Hold | None:
        """Return a hold that would lack quota if a gang started now and ended then."""
        return next(
            (one for one in self if one.at_s < end_s and not _both(one, queue, charge)), None
        )


def _both(hold: Hold, queue: str, charge: Amounts) -> bool:
    """Tell whether a charge fits beside what is held."""
    hold.usage.charge(hold.claim.queue, hold.claim.charge)
    fits = hold.usage.fits(queue, charge)
    hold.usage.charge(hold.claim.queue, hold.claim.charge, -1)
    return fits
