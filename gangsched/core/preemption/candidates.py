"""Which gangs a gang may preempt, by the rules of the queues.

There are three reasons: a lower priority (or an equal one and a later arrival) in the same queue;
borrowed quota that the queue of the gang reclaims; a share that stays above the gang's own. Each is
a strict order, so that two gangs never preempt each other in turn. A gang that runs within the
nominal quota of its queue is preempted only for the first reason.

A gang may also be backfilled before a gang with a reservation, because it would end in time. If it
runs for longer than declared, it may be preempted for that gang, as in EASY, where the limit ends a
job.
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
"""Other queues with their paths up to the common ancestor, by the own path up to it."""


class BorrowingQueues:
    """The queues above their nominal quota, by the queue that looks for victims."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, tuple[QuotaKey, ...]], Groups] = {}
        self._borrowing: dict[tuple[QuotaKey, ...], dict[str, None]] = {}
        self._stale: dict[tuple[QuotaKey, ...], dict[str, None]] = {}
        self._weakest: dict[str, RunningGang] = {}

    def changed(self, queues: Iterable[str]) -> None:
        """Record that the usage of queues changed; it is compared again when it is needed."""
        self._groups.clear()
        for queue in queues:
            self._weakest.pop(queue, None)
            for stale in self._stale.values():
                stale[queue] = None

    def reachable_from(
        self, usage: Usage, running: ByQueue, queue: str, wanted: tuple[QuotaKey, ...]
    ) -> Groups:
        """Return the other queues that exceed their nominal quota together with their ancestors."""
        groups = self._groups.get((queue, wanted))
        if groups is None:
            groups = self._groups[(queue, wanted)] = {}
            above = usage.tree.path(queue)[1:]  # their own gangs belong to no child
            for other in dict.fromkeys((*self._over_nominal(usage, running, wanted), *above)):
                own_path, other_path = usage.tree.paths_below_common_ancestor(queue, other)
                if other == queue or other not in running:
                    continue
                if all(exceeds_nominal(usage, name, wanted) for name in other_path):
                    groups.setdefault(own_path, []).append((other, other_path))
        return groups

    def _over_nominal(
        self, usage: Usage, running: ByQueue, wanted: tuple[QuotaKey, ...]
    ) -> dict[str, None]:
        """Return the queues that use more than their nominal quota."""
        borrowing = self._borrowing.get(wanted)
        stale: Iterable[str] = self._stale.get(wanted, ()) if borrowing is not None else running
        if borrowing is None:
            borrowing = self._borrowing[wanted] = {}
        for queue in stale:
            borrowing.pop(queue, None)
            if exceeds_nominal(usage, queue, wanted):
                borrowing[queue] = None
        self._stale[wanted] = {}
        return borrowing

    def weakest(self, running: ByQueue, queue: str) -> RunningGang | None:
        """Return the first gang to preempt in a queue: the lowest priority, then the youngest."""
        gangs = running.get(queue)
        if gangs and queue not in self._weakest:
            self._weakest[queue] = max(
                gangs, key=lambda gang: (-gang.priority, gang.queued_since_s, gang.gang.id)
            )
        return self._weakest.get(queue)


def preemption_candidates(
    waiting: PendingGang,
    running: ByQueue,
    borrowers: BorrowingQueues,
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
        weakest = borrowers.weakest(running, queue)
        if weakest is not None and _outranks(waiting, weakest, rules.within):
            for victim in running[queue]:
                if _outranks(waiting, victim, rules.within):
                    yield Candidate(victim, PreemptionReason.PRIORITY)
    if rules.reclaim is Reclaim.NEVER and not rules.fair:
        return
    groups = borrowers.reachable_from(
        usage, running, queue, contested_resources(usage, queue, charge)
    )
    for own_path, others in groups.items():
        reclaims = rules.reclaim is not Reclaim.NEVER and within_nominal(usage, own_path, charge)
        fair = rules.fair and bool(own_path)
        if not reclaims and not fair:
            continue
        our_share = usage.share(own_path[-1], charge) if fair else 0.0
        for other, other_path in others:
            # The victim must not be able to take its share back, or preemption would never end.
            spares = (
                usage.spare_above_share(other_path[-1], our_share) if fair and other_path else ()
            )
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
    """Yield the gangs that started after this one was queued, and exceed their declared run time.

    Gangs with `preemptible: false` are included: the declared run time let them start early.
    """
    tree = usage.tree
    for victim in running:
        declared_s, ran_s = victim.gang.expected_runtime_s, now_s - victim.started_s
        if (
            declared_s is None
            or ran_s <= declared_s
            or victim.started_s <= waiting.queued_since_s
            or victim.terminating
        ):
            continue
        if victim.priority > waiting.priority or victim.gang.queue not in tree:
            continue
        if ran_s >= max(tree.queues[name].min_runtime_s for name in tree.path(victim.gang.queue)):
            yield Candidate(victim, PreemptionReason.OVERRUN)


def _leaves_share(charge: Amounts, spares: Amounts) -> bool:
    """Return whether a charge takes no more than may be spared of at least one resource."""
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
    """Return the charged resources that the queue has quotas for, or all if it has none."""
    limited = usage.tree.quota_keys(queue)
    keys = tuple(key for key, _ in charge if key[0] != "pods")
    return tuple(key for key in keys if key in limited) or keys


def within_nominal(
    usage: Usage, path: tuple[str, ...], charge: Amounts, without: Amounts = ()
) -> bool:
    """Return whether a charge stays within the nominal quota of the top queue of a path.

    `without` is the charge of gangs below it that count as gone.
    """
    if not path:
        return False
    name, counted = path[-1], False
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
    waiting: PendingGang, yields: Amounts, other: PendingGang, passed: Amounts, usage: Usage
) -> bool:
    """Return whether a gang may start on capacity that is reserved for another gang.

    A higher priority is a reason, and nominal quota against borrowed quota. A smaller share is not:
    the next queue changes with every start, so that no reservation would last. Two charges do not
    make nominal quota count as borrowed: that of gangs in its own queue that the gang may preempt
    (`yields`), and that of gangs in the other queue that overtook the other gang (`passed`).
    """
    queues = usage.tree.queues
    if waiting.is_refill or other.gang.queue not in usage.tree:
        return True
    if waiting.gang.queue == other.gang.queue:
        return waiting.priority > other.priority
    own_path, other_path = usage.tree.paths_below_common_ancestor(
        waiting.gang.queue, other.gang.queue
    )
    if not own_path or not other_path:
        return False
    if queues[own_path[-1]].priority != queues[other_path[-1]].priority:
        return queues[own_path[-1]].priority > queues[other_path[-1]].priority
    if not within_nominal(usage, own_path, waiting.charge, yields):
        return False
    return not within_nominal(usage, other_path, other.charge, passed)


def exceeds_nominal(usage: Usage, name: str, wanted: tuple[QuotaKey, ...]) -> bool:
    """Return whether a queue uses more than its nominal quota of any wanted resource."""
    for key in wanted:
        used = usage.used(name, key)
        if used > 0 and used > (usage.tree.nominal(name, key) or 0):
            return True
    return False
