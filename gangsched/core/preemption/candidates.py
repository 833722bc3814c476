"""Whom a gang may stop, by the rules of the queues.

Three grounds, each of which is a strict order, so that no two gangs can ever stop each other in
turn: a lower priority (or the same and a later arrival) in the same queue; quota lent to others
that its owner wants back; a share that stays above one's own. A gang that runs on its queue's own
guarantee is stopped on the first ground alone.

And whoever passed a gang with room reserved, because it would have ended in time, and runs for
longer than it said, may be stopped for that gang: as in EASY, where the limit ends a job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gangsched.core.bounds import UNDISTURBED_S
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.queues import Amounts, QuotaKey, Reclaim, Within
from gangsched.core.policy import Candidate, PreemptionReason
from gangsched.core.quota.usage import Usage
from gangsched.core.snapshot import RunningGang

ByQueue = Mapping[str, Sequence[RunningGang]]
"""Running gangs that may be stopped at all, by queue; see `stoppable`."""


def preemptible(
    running: Iterable[RunningGang], usage: Usage, now_s: float
) -> dict[str, list[RunningGang]]:
    """Return by queue the gangs that may be stopped: preemptible, past their minimum run time."""
    tree = usage.tree
    least_s: dict[str, float] = {}
    found: dict[str, list[RunningGang]] = {}
    for one in running:
        queue = one.gang.queue
        if one.terminating or not one.gang.preemptible or queue not in tree:
            continue
        if queue not in least_s:
            least_s[queue] = max(tree.queues[name].min_runtime_s for name in tree.path(queue))
        own_s = min(one.gang.min_runtime_s, UNDISTURBED_S.most)
        if now_s - one.started_s >= max(least_s[queue], own_s):
            found.setdefault(queue, []).append(one)
    return found


Groups = dict[tuple[str, ...], list[tuple[str, tuple[str, ...]]]]
"""Queues with their way up to the common ancestor, by one's own way up to it."""


class BorrowingQueues:
    """Who holds more than is guaranteed, seen from each queue; to be told what `changed`."""

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
        found = self._groups.get((queue, wanted))
        if found is None:
            found = self._groups[(queue, wanted)] = {}
            above = usage.tree.path(queue)[1:]  # what they run beside their children is no branch
            for other in dict.fromkeys((*self._over_nominal(usage, running, wanted), *above)):
                ours, theirs = usage.tree.paths_below_common_ancestor(queue, other)
                if other == queue or other not in running:
                    continue
                if all(exceeds_nominal(usage, name, wanted) for name in theirs):
                    found.setdefault(ours, []).append((other, theirs))
        return found

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
        """Return who is stopped first inside a queue: the lowest priority, then the youngest."""
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
    """Yield the gangs that may be stopped for one with this charge."""
    queue = waiting.gang.queue
    if waiting.is_scale_up or queue not in usage.tree:
        return
    rules = usage.tree.queues[queue].preemption
    if now_s - waiting.queued_since_s < rules.delay_s:
        return
    if rules.within is not Within.NEVER:
        weakest = lenders.weakest(running, queue)
        if weakest is not None and _outranks(waiting, weakest, rules.within):
            for one in running[queue]:
                if _outranks(waiting, one, rules.within):
                    yield Candidate(one, PreemptionReason.PRIORITY)
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
            for one in running[other]:
                if reclaims and (rules.reclaim is Reclaim.ANY or one.priority < waiting.priority):
                    yield Candidate(one, PreemptionReason.RECLAIM)
                elif spares and _leaves_share(one.charge, spares):
                    yield Candidate(one, PreemptionReason.FAIR)


def overrun(
    waiting: PendingGang, running: Iterable[RunningGang], usage: Usage, now_s: float
) -> Iterator[Candidate]:
    """Yield the gangs that started after this one came and outlived their own word.

    It counts for those too that are not preemptible: they started before their turn by it.
    """
    tree = usage.tree
    for one in running:
        said_s, ran_s = one.gang.expected_runtime_s, now_s - one.started_s
        if (
            said_s is None
            or ran_s <= said_s
            or one.started_s <= waiting.queued_since_s
            or one.terminating
        ):
            continue
        if one.priority > waiting.priority or one.gang.queue not in tree:
            continue
        if ran_s >= max(tree.queues[name].min_runtime_s for name in tree.path(one.gang.queue)):
            yield Candidate(one, PreemptionReason.OVERRUN)


def _leaves_share(charge: Amounts, spares: Amounts) -> bool:
    """Return whether a charge leaves of any one resource as much as is to be left."""
    taken = dict(charge)
    return any(taken.get(key, 0) <= most for key, most in spares)


def _outranks(waiting: PendingGang, one: RunningGang, within: Within) -> bool:
    if one.priority != waiting.priority:
        return one.priority < waiting.priority
    return within is Within.NEWER and (one.queued_since_s, one.gang.id) > (
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
    """Return whether a gang may start in room that was promised to another.

    A smaller share is no reason: who is next changes with every start, and promises would be worth
    nothing. Reasons are the priority, and a guarantee against a loan. Neither what gangs of its
    own queue hold that it may stop (`yields`), nor what gangs of the other's queue hold that went
    round that one (`passed`), makes a loan of a guarantee.
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
