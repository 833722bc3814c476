"""One planning cycle: turn by turn, quota, then place, else stop others, else keep room in time.

The order of steps is design.md's; each answer of a policy is verified before it counts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gangsched.core.accounts.estimate import ASSUMED_S
from gangsched.core.accounts.usage import Usage
from gangsched.core.model import GangId, NodeName, PodName, PodNeeds, Waiting
from gangsched.core.placement.choosers import fewest
from gangsched.core.placement.descent import Style
from gangsched.core.placement.fill import fits
from gangsched.core.placement.joint import BATCH_MAX, Outcome, better
from gangsched.core.placement.repartition import with_cut_gpus
from gangsched.core.policy import Candidate, Placement, Policies, Request
from gangsched.core.queueing.admission import (
    barred,
    charge_of,
    kinds_to_try,
    of_kind,
    over_quota,
    split,
    trimmed,
)
from gangsched.core.queueing.candidates import candidates
from gangsched.core.queueing.horizon import Horizon, Reserved, Stay
from gangsched.core.queueing.turns import Turns
from gangsched.core.queues import Amounts, added
from gangsched.core.refusal import Reason, Refusal
from gangsched.core.snapshot import Running, Snapshot, Trial

Verify = Callable[[Waiting, Placement, Snapshot, Trial], None]

_ROOM = frozenset({Reason.NO_ROOM, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED})
_STYLE = Style(fewest, descend=True)
_HOLDS_MAX = 16
_GRACE_S = 60.0
_FOREVER_S = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What one gang is told."""

    waiting: Waiting
    result: Placement | Refusal


@dataclass(slots=True)
class _Hold:
    """Quota kept for the head of a queue from a moment on: the usage there will be then."""

    gang: GangId
    at_s: float
    usage: Usage


class Cycle:
    """The state of one planning cycle. `verify` charges a placement to a trial, or raises."""

    def __init__(
        self, snapshot: Snapshot, policies: Policies, now_s: float, verify: Verify
    ) -> None:
        self.snapshot = snapshot
        self.usage = snapshot.usage.copy()
        self._policies = policies
        self._now_s = now_s
        self._verify = verify
        for waiting in snapshot.waiting:
            for needs in {id(m.needs): m.needs for m in waiting.members}.values():
                snapshot.cluster.vector(needs)  # a resource nobody has yet adds a column: now
        self._running = {one.gang.id: one for one in snapshot.running}
        self._stays = {one.gang.id: self._stay_of(one) for one in snapshot.running}
        leaving = [self._leaving(one) for one in snapshot.leaving]
        stays = [*self._stays.values(), *leaving]
        self.horizon = Horizon(snapshot.cluster, stays, now_s, snapshot.rules.bookings)
        self._turns = Turns(snapshot.waiting, self.usage, policies, now_s, charge_of)
        self._holds: list[_Hold] = []
        self._refused: dict[tuple[object, ...], tuple[float, Refusal]] = {}
        self._victims: set[GangId] = set()
        self.decisions: list[Decision] = []

    @property
    def reserved(self) -> list[Reserved]:
        """Return the room kept for gangs in time."""
        return self.horizon.reserved

    # -- turn by turn -------------------------------------------------------------------------

    def run(self, trial: Trial) -> list[Decision]:
        """Decide on every waiting gang; placements are charged to the trial."""
        for waiting in self._turns:
            known = self._told(waiting)
            if known is not None:
                self._say(waiting, replace(known, gang=waiting.gang.id))
                continue
            for one, result in self._batch(waiting):
                if isinstance(result, Placement):
                    self._start(one, result, trial)
                else:
                    self._refuse(one, result, trial)
        return self.decisions

    def _batch(self, first: Waiting) -> Outcome:
        """Plan a gang, together with those its order calls peers."""
        peers = self._turns.peers(first, BATCH_MAX - 1)
        if not peers:
            return [(first, self._plan(first))]
        batch = [first, *peers]

        def in_order(gangs: list[Waiting]) -> Outcome:
            found: Outcome = []
            charged: list[tuple[str, Amounts]] = []
            cluster = self.snapshot.cluster
            claims = dict(cluster.exclusive)
            with self.snapshot.trial() as trial:
                for waiting in gangs:
                    result = self._plan(waiting)
                    if isinstance(result, Placement):
                        self._verify(waiting, result, self.snapshot, trial)
                        cluster.claim(waiting.gang.id, waiting.constraints)
                        charge = self._charged(waiting, result)
                        self.usage.charge(waiting.gang.queue, charge)
                        charged.append((waiting.gang.queue, charge))
                    found.append((waiting, result))
            for queue, charge in charged:
                self.usage.charge(queue, charge, -1)
            cluster.exclusive = claims
            return found

        outcome = in_order(batch)
        if all(isinstance(result, Placement) for _, result in outcome):
            return outcome
        return better(batch, self.snapshot, outcome, in_order)

    def _start(self, waiting: Waiting, placed: Placement, trial: Trial) -> None:
        """Count a placement; whoever comes later plans on what it leaves."""
        if placed.evicts:
            self._evict(placed, trial)
        self._verify(waiting, placed, self.snapshot, trial)
        self.snapshot.cluster.claim(waiting.gang.id, waiting.constraints)
        charge = self._charged(waiting, placed)
        self.usage.charge(waiting.gang.queue, charge)
        stay = self._stay(waiting, placed.nodes)
        self.horizon.started(stay)
        for hold in self._holds:
            if stay.end_s > hold.at_s:
                hold.usage.charge(waiting.gang.queue, charge)
        self._turns.charged(waiting.gang.queue)
        self.decisions.append(Decision(waiting, placed))

    def _refuse(self, waiting: Waiting, refusal: Refusal, trial: Trial) -> None:
        """Look for another way to start a gang: stop others; else keep room for it."""
        if refusal.reason in _ROOM or refusal.reason is Reason.OVER_QUOTA:
            placed = self._preempt(waiting)
            if isinstance(placed, Placement):
                self._start(waiting, placed, trial)
                return
            refusal = placed or refusal
            refusal = self._reserve(waiting, refusal)
        self._remember(waiting, refusal)
        self._say(waiting, refusal)
        self._behind(waiting, refusal)

    def _behind(self, waiting: Waiting, refusal: Refusal) -> None:
        """Where the queue is strict nobody passes; elsewhere those alike are told the same."""
        queue = self.usage.tree.queues.get(waiting.gang.queue)
        if queue is not None and queue.strict and not waiting.surplus and not waiting.repair:
            head = waiting.gang.id
            message = f"queue {queue.name} is strictly in order, and {head} is before it."
            for one in self._turns.block(queue.name):
                self._say(one, Refusal(one.gang.id, Reason.BLOCKED, message))
            return
        for one in self._turns.skip(waiting, lambda other: self._told(other) is not None):
            known = self._told(one)
            if known is not None:
                self._say(one, replace(known, gang=one.gang.id))

    def _say(self, waiting: Waiting, refusal: Refusal) -> None:
        self.decisions.append(Decision(waiting, refusal))

    def _remember(self, waiting: Waiting, refusal: Refusal) -> None:
        if waiting.shape:
            plain = replace(refusal, starts_s=None)
            self._refused.setdefault(self._alike(waiting), (waiting.since_s, plain))

    def _told(self, waiting: Waiting) -> Refusal | None:
        """Return what a gang of the same request, no younger, was told in this cycle."""
        known = self._refused.get(self._alike(waiting)) if waiting.shape else None
        return known[1] if known is not None and known[0] <= waiting.since_s else None

    def _alike(self, waiting: Waiting) -> tuple[object, ...]:
        """Gangs alike in this are answered alike: also how long they stay plays a part."""
        # Two that outlive the same reservations see the same cluster.
        if not self.horizon.reserved and not self._holds:
            return (waiting.shape, waiting.priority)
        end_s = self._now_s + self._runtime_s(waiting)
        ahead = sum(1 for one in self.horizon.reserved if one.start_s < end_s)
        holds = sum(1 for one in self._holds if one.at_s < end_s)
        return (waiting.shape, waiting.priority, ahead, holds)

    # -- one gang -----------------------------------------------------------------------------

    def _plan(self, waiting: Waiting) -> Placement | Refusal:
        refusal = barred(waiting, self.snapshot, self.usage, self._now_s)
        if refusal is not None:
            return refusal
        if not self.snapshot.beyond_is_judged:
            for member in waiting.members:
                if member.needs.beyond:
                    return Refusal(
                        waiting.gang.id,
                        Reason.BEYOND_PLANNER,
                        f"pod {member.name} asks for {', '.join(member.needs.beyond)}, which "
                        f"direct binding does not check; run gangsched with --binding extender "
                        f"for it.",
                    )
        answer: Refusal | None = None
        for kind in kinds_to_try(waiting, self.usage):
            short = None if waiting.repair else self._quota(waiting, kind)
            if short is not None:
                answer = answer or short
                continue
            trial = of_kind(trimmed(waiting, self.usage, kind, self.snapshot), kind)
            result = self._place(trial)
            if isinstance(result, Placement):
                return result
            answer = result
        assert answer is not None, "there is always a kind to try"  # noqa: S101
        return answer

    def _quota(self, waiting: Waiting, kind: str) -> Refusal | None:
        charge = self.snapshot.rules.kinds.counted(charge_of(waiting), kind)
        short = over_quota(waiting, self.usage, charge)
        if short is not None:
            return short
        end_s = self._now_s + self._runtime_s(waiting)
        for hold in self._holds:
            if end_s > hold.at_s and not hold.usage.fits(waiting.gang.queue, charge):
                message = f"it would take quota that is kept for {hold.gang}, which is before it."
                return Refusal(waiting.gang.id, Reason.BEHIND, message)
        return None

    def _place(self, waiting: Waiting) -> Placement | Refusal:
        gang = waiting.gang
        namespace = gang.id.split("/", 1)[0]
        end_s = self._now_s + self._runtime_s(waiting)
        view = self.horizon.view(namespace, gang.queue, end_s)
        snapshot = self.snapshot
        if view is not snapshot.cluster and not waiting.repair:
            snapshot = replace(snapshot, cluster=view)
        placer = self._policies.placer
        result = placer.place(waiting, snapshot)
        if not isinstance(result, Refusal) or result.reason is Reason.MISCONFIGURED:
            return result
        cut = with_cut_gpus(waiting, snapshot, placer)
        if cut is not None:
            return cut
        if snapshot is not self.snapshot and fits(waiting, self.snapshot, _STYLE):
            return self._kept_out(waiting, end_s)
        return result

    def _kept_out(self, waiting: Waiting, end_s: float) -> Refusal:
        """Say for whom the room is kept that the gang would fit into."""
        gang = waiting.gang
        first = next((one for one in self.horizon.reserved if one.start_s < end_s), None)
        if first is not None:
            message = f"it would delay {first.gang}, for which room is reserved."
            return Refusal(gang.id, Reason.BEHIND, message)
        booked = self.horizon.booked(gang.id.split("/", 1)[0], gang.queue, end_s)
        names = ", ".join(one.name for one in booked)
        message = f"the free nodes are booked ({names}), and the gang would not end before."
        return Refusal(gang.id, Reason.BOOKED, message)

    # -- stopping others ----------------------------------------------------------------------

    def _preempt(self, waiting: Waiting) -> Placement | Refusal | None:
        """Find whom to stop; a refusal says that those who leave already are enough."""
        preemptor = self._policies.preemptor
        if preemptor is None or waiting.surplus:
            return None
        leaving = self.snapshot.leaving
        running = tuple(
            one for one in self._running.values() if one.gang.id not in self._victims
        )
        usage = self.usage
        for one in leaving:
            usage.charge(one.gang.queue, one.charge, -1)
        try:
            for kind in kinds_to_try(waiting, usage):
                found = self._preempt_kind(waiting, kind, running, leaving)
                if found is not None:
                    return found
            return None
        finally:
            for one in leaving:
                usage.charge(one.gang.queue, one.charge, 1)

    def _preempt_kind(
        self,
        waiting: Waiting,
        kind: str,
        running: tuple[Running, ...],
        leaving: tuple[Running, ...],
    ) -> Placement | Refusal | None:
        charge = self.snapshot.rules.kinds.counted(charge_of(waiting), kind)
        found: tuple[Candidate, ...] = tuple(
            candidates(waiting, running, self.usage, charge, self._now_s)
        )
        if not found and not leaving:
            return None
        snapshot = self._after(leaving)
        least = of_kind(at_least(waiting), kind)
        if leaving and self.usage.fits(waiting.gang.queue, charge):
            if fits(least, snapshot, _STYLE):
                named = ", ".join(one.gang.id for one in leaving[:3])
                message = f"room comes free as gangs leave that were stopped: {named}."
                return Refusal(waiting.gang.id, Reason.NO_ROOM, message)
        if not found:
            return None
        request = Request(
            least, snapshot, self.usage, charge, found, self._policies.placer, self._now_s
        )
        preemptor = self._policies.preemptor
        assert preemptor is not None, "asked by _preempt"  # noqa: S101
        placed = preemptor.choose(request)
        if placed is None:
            return None
        gone = [self._stays[one.gang] for one in placed.evicts if not one.pods]
        if self.horizon.delayed(self._stay(waiting, placed.nodes), gone):
            return None
        return placed

    def _after(self, leaving: tuple[Running, ...]) -> Snapshot:
        """Return the snapshot as it will be once those have left who were told to."""
        if not leaving:
            return self.snapshot
        cluster = self.snapshot.cluster.copy()
        for one in leaving:
            for place in one.places:
                row = cluster.rows.get(place.node)
                if row is not None:
                    cluster.give(row, place.needs, 1, one.gang.id, (place.devices,))
        return replace(self.snapshot, cluster=cluster)

    def _evict(self, placed: Placement, trial: Trial) -> None:
        """Take the room and quota of those who are stopped back, for the rest of the cycle."""
        for eviction in placed.evicts:
            one = self._running[eviction.gang]
            gone = [p for p in one.places if not eviction.pods or p.name in eviction.pods]
            counts: dict[PodNeeds, int] = {}
            for place in gone:
                counts[place.needs] = counts.get(place.needs, 0) + 1
                row = self.snapshot.cluster.rows.get(place.node)
                if row is not None:
                    trial.release(row, place.needs, one.gang.id, place.devices)
            self.usage.charge(one.gang.queue, added(counts), -1)
            self._turns.charged(one.gang.queue)
            self._victims.add(eviction.gang)

    # -- room in time -------------------------------------------------------------------------

    def _reserve(self, waiting: Waiting, refusal: Refusal) -> Refusal:
        """Keep room for a gang that does not fit, where the backfill policy says so."""
        backfill = self._policies.backfill
        if backfill is None or waiting.surplus:
            return refusal
        if refusal.reason is Reason.OVER_QUOTA:
            return self._hold_quota(waiting, refusal)
        if refusal.reason not in _ROOM or not backfill.reserves(len(self.horizon.reserved)):
            return refusal
        least = at_least(waiting)
        namespace = waiting.gang.id.split("/", 1)[0]
        runtime_s = self._runtime_s(waiting)

        def at(time_s: float) -> Snapshot:
            view = self.horizon.view_at(
                namespace, waiting.gang.queue, time_s, time_s + runtime_s
            )
            return replace(self.snapshot, cluster=view)

        times = self.horizon.times()
        first = _first(times, lambda time_s: fits(least, at(time_s), _STYLE))
        for time_s in times[first : first + 3] if first is not None else ():
            placed = self._policies.placer.place(least, at(time_s))
            if isinstance(placed, Placement):
                stay = self._stay(waiting, placed.nodes, time_s)
                self.horizon.reserve(waiting.gang.id, stay, placed.nodes)
                return replace(refusal, starts_s=time_s)
        return refusal

    def _hold_quota(self, waiting: Waiting, refusal: Refusal) -> Refusal:
        """Keep quota for a queue's head from the moment enough of it comes free."""
        if len(self._holds) >= _HOLDS_MAX:
            return refusal
        charge = charge_of(waiting)
        usage = self.usage.copy()
        ending = sorted(
            self._running.values(), key=lambda one: (one.free_s(self._now_s), one.gang.id)
        )
        for one in ending:
            if one.gang.id in self._victims:
                continue
            usage.charge(one.gang.queue, one.charge, -1)
            if usage.fits(waiting.gang.queue, charge):
                at_s = one.free_s(self._now_s)
                usage.charge(waiting.gang.queue, charge)
                self._holds.append(_Hold(waiting.gang.id, at_s, usage))
                return replace(refusal, starts_s=at_s)
        return refusal

    # -- small helpers ------------------------------------------------------------------------

    def _runtime_s(self, waiting: Waiting) -> float:
        known = self.snapshot.rules.estimates.get(waiting.gang.id)
        if known is None:
            return waiting.gang.expected_runtime_s or ASSUMED_S
        return known.runtime_s

    def _stay(
        self,
        waiting: Waiting,
        nodes: tuple[tuple[PodName, NodeName], ...],
        start_s: float | None = None,
    ) -> Stay:
        needs = {member.name: member.needs for member in waiting.members}
        start_s = self._now_s if start_s is None else start_s
        end_s = start_s + self._runtime_s(waiting)
        return Stay(start_s, end_s, tuple((node, needs[name]) for name, node in nodes))

    def _leaving(self, one: Running) -> Stay:
        seats = tuple((place.node, place.needs) for place in one.places)
        return Stay(min(one.started_s, self._now_s), self._now_s + _GRACE_S, seats)

    def _stay_of(self, one: Running) -> Stay:
        seats = tuple((place.node, place.needs) for place in one.places)
        end_s = min(one.free_s(self._now_s), self._now_s + _FOREVER_S)
        return Stay(min(one.started_s, self._now_s), end_s, seats)

    def _charged(self, waiting: Waiting, placed: Placement) -> Amounts:
        """Return what a placement charges, on the GPUs it really gets."""
        needs = {member.name: member.needs for member in waiting.members}
        cluster, kinds = self.snapshot.cluster, self.snapshot.rules.kinds
        counts: dict[str, dict[PodNeeds, int]] = {}
        for name, node in placed.nodes:
            model = cluster.gpu_model(cluster.rows[node])
            here = counts.setdefault(model, {})
            here[needs[name]] = here.get(needs[name], 0) + 1
        total: dict[tuple[str, str], int] = {}
        for model, parts in counts.items():
            for key, quantity in kinds.counted(added(parts), model):
                total[key] = total.get(key, 0) + quantity
        return tuple(sorted(total.items()))


def at_least(waiting: Waiting) -> Waiting:
    """Return the gang with the members it needs to start and no more."""
    if waiting.minimum >= len(waiting.members):
        return waiting
    must, _ = split(waiting)
    return replace(waiting, members=must, minimum=len(must))


def _first(times: list[float], works: Callable[[float], bool]) -> int | None:
    """Return the first moment that works, taking it that a later one never works worse."""
    high = 1
    while high < len(times) and not works(times[high - 1]):
        high *= 2
    high = min(high, len(times))
    if not times or not works(times[high - 1]):
        return None
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(times[middle - 1]) else (middle, high)
    return high - 1
