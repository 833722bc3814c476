"""What one planning cycle works on: the cluster, the queues' usage, and what is to come."""

from dataclasses import replace

from gangsched.core.accounts.estimate import ASSUMED_S
from gangsched.core.model import GangId, NodeName, PodName, Waiting
from gangsched.core.policy import Placement, Policies
from gangsched.core.queueing.admission import charge_at, split
from gangsched.core.queueing.candidates import outranks
from gangsched.core.queueing.holds import Holds
from gangsched.core.queueing.horizon import Horizon, Stay
from gangsched.core.queues import Amounts
from gangsched.core.snapshot import Reserved, Running, Snapshot

_GRACE_S = 60.0
_FOREVER_S = 10 * 365 * 86_400.0


class Outlook:
    """The state of one planning cycle. `victims` are gangs that it stops.

    `kept` counts the reservations made in this cycle, which come first in the horizon's list.
    `leaving` take their room until they have left, those stopped in this cycle among them.
    """

    def __init__(self, snapshot: Snapshot, policies: Policies, now_s: float) -> None:
        self.snapshot = snapshot
        self.policies = policies
        self.now_s = now_s
        self.usage = snapshot.usage.copy()
        for waiting in snapshot.waiting:
            for needs in {id(m.needs): m.needs for m in waiting.members}.values():
                snapshot.cluster.vector(needs)  # a resource nobody has yet adds a column: now
        self.running = {one.gang.id: one for one in snapshot.running}
        self.stays = {one.gang.id: self._stay_of(one) for one in snapshot.running}
        leaving = [self._leaving(one) for one in snapshot.leaving]
        stays = [*self.stays.values(), *leaving]
        self.horizon = Horizon(snapshot.cluster, stays, now_s, snapshot.rules.bookings)
        self.holds = Holds()
        self.kept = 0
        self.waiting = {one.gang.id: one for one in snapshot.waiting}
        self.victims: set[GangId] = set()
        self.leaving: list[Running] = list(snapshot.leaving)

    @property
    def promised(self) -> tuple[Reserved, ...]:
        """Return the room kept in time, and the quota (without nodes)."""
        quota = (Reserved(hold.gang, hold.at_s, ()) for hold in self.holds)
        return (*self.horizon.reserved, *quota)

    def keep(self, gang: GangId, stay: Stay, nodes: tuple[tuple[PodName, NodeName], ...]) -> None:
        """Keep room for a gang, after those it was kept for before in this cycle."""
        self.horizon.reserve(gang, stay, nodes)
        self.horizon.reserved.insert(self.kept, self.horizon.reserved.pop())
        self.kept += 1

    def has_promise(self, gang: GangId) -> bool:
        """Tell whether room or quota is kept for a gang."""
        return self.horizon.keeps(gang) or self.holds.of(gang) is not None

    def turn_of(self, waiting: Waiting) -> Reserved | None:
        """Begin a gang's turn: return what it was promised, which is free for it again."""
        if not self.has_promise(waiting.gang.id):
            return None
        own = next(one for one in self.promised if one.gang == waiting.gang.id)
        self.cancel(own.gang)
        return own

    def cancel(self, gang: GangId) -> None:
        """Keep nothing for a gang any more."""
        self.horizon.cancel(gang)
        self.holds.cancel(gang)

    def lapse(self, first: Waiting) -> bool:
        """Take back what was promised to those a gang outranks; tell if there was any.

        Only for a gang that comes before them, has no promise, and does not fit beside theirs.
        """
        later = [
            one.gang
            for one in self.promised[self.kept :]
            if outranks(first, self.waiting[one.gang], self.usage)
        ]
        for gang in later:
            self.cancel(gang)
        return bool(later)

    def runtime_s(self, waiting: Waiting) -> float:
        """Return how long a gang is expected to run."""
        known = self.snapshot.rules.estimates.get(waiting.gang.id)
        if known is None:
            return waiting.gang.expected_runtime_s or ASSUMED_S
        return known.runtime_s

    def stay(
        self,
        waiting: Waiting,
        nodes: tuple[tuple[PodName, NodeName], ...],
        start_s: float | None = None,
    ) -> Stay:
        """Return the room a placement takes, from now or from a moment on."""
        needs = {member.name: member.needs for member in waiting.members}
        start_s = self.now_s if start_s is None else start_s
        end_s = start_s + self.runtime_s(waiting)
        return Stay(start_s, end_s, tuple((node, needs[name]) for name, node in nodes))

    def _leaving(self, one: Running) -> Stay:
        seats = tuple((place.node, place.needs) for place in one.places)
        return Stay(min(one.started_s, self.now_s), self.now_s + _GRACE_S, seats)

    def _stay_of(self, one: Running) -> Stay:
        seats = tuple((place.node, place.needs) for place in one.places)
        end_s = min(one.free_s(self.now_s), self.now_s + _FOREVER_S)
        return Stay(min(one.started_s, self.now_s), end_s, seats)

    def charged(self, waiting: Waiting, placed: Placement) -> Amounts:
        """Return what a placement charges, on the GPUs it really gets."""
        needs = {member.name: member.needs for member in waiting.members}
        seats = ((node, needs[name]) for name, node in placed.nodes)
        return charge_at(self.snapshot.cluster, self.snapshot.rules.kinds, seats)


def at_least(waiting: Waiting) -> Waiting:
    """Return the gang with the members it needs to start and no more."""
    if waiting.minimum >= len(waiting.members):
        return waiting
    must, _ = split(waiting)
    return replace(waiting, members=must, minimum=len(must))
