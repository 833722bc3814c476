"""Which gangs a gang may preempt, by the rules of the queues.

Three grounds, each of which is a strict order, so that no two gangs can ever preempt each other
in turn: a lower priority (or the same and a later arrival) in the same queue; borrowed quota
that its queue reclaims; a share that stays above the gang's own. A gang that runs on its queue's
own guarantee is preempted on the first ground alone.

A gang that passed a gang with a reservation, because it would have ended in time, and runs for
longer than declared, may be preempted for that gang: as in EASY, where the limit ends a job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gangsched.core.bounds import UNDISTURBED_S
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.queues import Amounts, QuotaKey, Reclaim, Within
from gangsched.core.policy import Candidate, PreemptionReason
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import RunningGang

ByQueue = Mapping[str, Sequence[RunningGang]]
"""Running gangs that may be preempted at all, by queue; see `preemptible`."""


def preemptible(
    running: Iterable[RunningGang], usage: Usage, now_s: float
) -> dict[str, list[RunningGang]]:
    """Return by queue the gangs that may be preempted: preemptible, past their minimum run time."""
    tree = usage.tree
    least_s: dict[str, float] = {}
    by_queue: dict[str, list[RunningGang]] = {}
    for victim in running:
        queue = victim.gang.queue
        if victim.terminating or not victim.gang.preemptible or queue not in tree:
            continue
        if queue not in least_s:
            least_s[queue] = max(tree.queues[name].min_runtime_s for name in tree.path(queue))
        own_s = min(victim.gang.min_runtime_s, UNDISTURBED_S.most)
        if now_s - victim.started_s >= max(least_s[queue], own_s):
            by_queue.setdefault(queue, []).append(victim)
    return by_queue


Groups = dict[tuple[str, ...], list[tuple[str, tuple[str, ...]]]]
"""Queues with their way up to the common ancestor, by one's own way up to it."""


class BorrowingQueues:
    """Queues that hold more than is guaranteed, seen from each queue; `changed` updates them."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, tuple[QuotaKey, ...]], Groups] = {}
        self._borrowing: dict[tuple[QuotaKey, ...], dict[str, None]] = {}
        self._stale: dict[tuple[QuotaKey, ...], dict[str, None]] = {}
        self._weakest: dict[str, RunningGang] = {}

    def changed(self, queues: Iterable[str]) -> None:
        """Take note of queues that hold more, or less, than before."""
        self._groups.clear()
        for queue in queues:
            self._weakest.pop(queue, None)
            for stale in self._stale.values():
                stale[queue] = None

    def reachable_from(
        self, usage: Usage, running: ByQueue, queue: str, wanted: tuple[QuotaKey, ...]
    ) -> Groups:
        """Return the other queues that run beyond their guarantee, with all above them."""
        groups = self._groups.get((queue, wanted))
        if groups is None:
            groups = self._groups[(queue, wanted)] = {}
            above = usage.tree.path(queue)[1:]  # what they run beside their children is no branch
            for other in dict.fromkeys((*self._over_nominal(usage, running, wanted), *above)):
                ours, theirs = usage.tree.paths_below_common_ancestor(queue, other)
                if other == queue or other not in running:
                    continue
                if all(exceeds_nominal(usage, name, wanted) for name in theirs):
                    groups.setdefault(ours, []).append((other, theirs))
        return groups

    def _over_nominal(
        self, usage: Usage, running: ByQueue, wanted: tuple[QuotaKey, ...]
    ) -> dict[str, None]:
        """Return the queues that hold more than their guarantee."""
        lending = self._borrowing.get(wanted)
        stale: Iterable[str] = self._stale.get(wanted, ()) if lending is not None else running
        if lending is None:
            lending = self._borrowing[wanted] = {}
        for queue in stale:
            lending.pop(queue, None)
            if exceeds_nominal(usage, queue, wanted):
                lending[queue] = None
        self._stale[wanted] = {}
        return lending

    def weakest(self, running: ByQueue, queue: str) -> RunningGang | None:
        """Return the first gang to preempt in a queue: the lowest priority, then the youngest."""
        ones = running.get(queue)
        if ones and queue not in self._weakest:
            self._weakest[queue] = max(
                ones, key=lambda one: (-one.priority, one.queued_since_s, one.gang.id)
            )
        return self._weakest.get(queue)


def candidates(
    waiting: PendingGang,
    running: ByQueue,
    lenders: BorrowingQueues,
    usage: Usage,
    charge: Amounts,
    now_s: float,
) -> Iterator[Candidate]:
    """Yield the gangs that may be preempted for a gang with this charge."""
    queue = waiting.gang.queue
    if waiting.is_scale_up or queue not in usage.tree:
        return
    rules = usage.tree.queues[queue].preemption
    if now_s - waiting.queued_since_s < rules.delay_s:
        return
    if rules.within is not Within.NEVER:
        weakest = lenders.weakest(running, queue)
        if weakest is not None and _outranks(waiting, weakest, rules.within):
            for victim in running[queue]:
                if _outranks(waiting, victim, rules.within):
                    yield Candidate(victim, PreemptionReason.PRIORITY)
    if rules.reclaim is Reclaim.NEVER and not rules.fair:
        return
    groups = lenders.reachable_from(
        usage, running, queue, contested_resources(usage, queue, charge)
    )
    for ours, others in groups.items():
        reclaims = rules.reclaim is not Reclaim.NEVER and within_nominal(usage, ours, charge)
        fair = rules.fair and bool(ours)
        if not reclaims and not fair:
            continue
        our_share = usage.share(ours[-1], charge) if fair else 0.0
        for other, theirs in others:
            # What is taken must not be worth taking back, or it would go on for ever.
            spares = usage.spare_above_share(theirs[-1], our_share) if fair and theirs else ()
            for victim in running[other]:
                if reclaims and (
                    rules.reclaim is Reclaim.ANY or victim.priority < waiting.priority
                ):
                    yield Candidate(victim, PreemptionReason.RECLAIM)
                elif spares and _leaves_share(victim.charge, spares):
                    yield Candidate(victim, PreemptionReason.FAIR)


def overrun(
    waiting: PendingGang, running: Iterable[RunningGang], usage: Usage, now_s: float
) -> Iterator[Candidate]:
    """Yield the gangs that started after this one came and outlived their declared run time.

    It counts for those too that are not preemptible: they started before their turn by it.
    """
    tree = usage.tree
    for victim in running:
        said_s, ran_s = victim.gang.expected_runtime_s, now_s - victim.started_s
        if (
            said_s is None
            or ran_s <= said_s
            or victim.started_s <= waiting.queued_since_s
            or victim.terminating
        ):
            continue
        if victim.priority > waiting.priority or victim.gang.queue not in tree:
            continue
        if ran_s >= max(tree.queues[name].min_runtime_s for name in tree.path(victim.gang.queue)):
            yield Candidate(victim, PreemptionReason.OVERRUN)


def _leaves_share(charge: Amounts, spares: Amounts) -> bool:
    """Return whether a charge leaves of any one resource as much as is to be left."""
    taken = dict(charge)
    return any(taken.get(key, 0) <= most for key, most in spares)


def _outranks(waiting: PendingGang, victim: RunningGang, within: Within) -> bool:
    if victim.priority != waiting.priority:
        return victim.priority < waiting.priority
    return within is Within.NEWER and (victim.queued_since_s, victim.gang.id) > (
        waiting.queued_since_s,
        waiting.gang.id,
    )


def contested_resources(usage: Usage, queue: str, charge: Amounts) -> tuple[QuotaKey, ...]:
    """Return what two queues can argue about: what the one that asks has quotas for."""
    limited = usage.tree.quota_keys(queue)
    keys = tuple(key for key, _ in charge if key[0] != "pods")
    return tuple(key for key in keys if key in limited) or keys


def within_nominal(
    usage: Usage, branch: tuple[str, ...], charge: Amounts, without: Amounts = ()
) -> bool:
    """Return whether a charge stays within what the top of a branch is guaranteed.

    `without` is what some gangs below it hold: it is looked at as if they were gone.
    """
    if not branch:
        return False
    name, counted = branch[-1], False
    less = dict(without)
    limited = usage.tree.quota_keys(name)
    for key, quantity in charge:
        if key in limited:
            counted = True
            held = usage.used(name, key) - less.get(key, 0)
            if held + quantity > (usage.tree.nominal(name, key) or 0):
                return False
    return counted


def may_take_over(
    one: PendingGang, yields: Amounts, other: PendingGang, passed: Amounts, usage: Usage
) -> bool:
    """Return whether a gang may start on capacity that is reserved for another.

    A smaller share is no reason: the next queue changes with every start, and reservations would
    be worth nothing. Reasons are the priority, and a guarantee against borrowed quota. Guaranteed
    quota does not count as borrowed through what the gang may preempt in its own queue (`yields`),
    nor through gangs of the other's queue that went round the other (`passed`).
    """
    queues = usage.tree.queues
    if one.is_refill or other.gang.queue not in usage.tree:
        return True
    if one.gang.queue == other.gang.queue:
        return one.priority > other.priority
    ours, theirs = usage.tree.paths_below_common_ancestor(one.gang.queue, other.gang.queue)
    if not ours or not theirs:
        return False
    if queues[ours[-1]].priority != queues[theirs[-1]].priority:
        return queues[ours[-1]].priority > queues[theirs[-1]].priority
    if not within_nominal(usage, ours, one.charge, yields):
        return False
    return not within_nominal(usage, theirs, other.charge, passed)


def exceeds_nominal(usage: Usage, name: str, wanted: tuple[QuotaKey, ...]) -> bool:
    """Return whether a queue holds more than its guarantee of anything that is wanted."""
    for key in wanted:
        used = usage.used(name, key)
        if used > 0 and used > (usage.tree.nominal(name, key) or 0):
            return True
    return False
