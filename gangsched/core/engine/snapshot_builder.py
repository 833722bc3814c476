"""What others may ask of the engine; the answers change nothing about any gang.

But for one that a snapshot cannot take: that is set aside, like one that no plan can be made for.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from gangsched.core import facts as f
from gangsched.core.bounds import KINDS
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.gangs.gang_views import GangState
from gangsched.core.engine.gangs.member import MemberState, Stage, State
from gangsched.core.engine.lifecycle.preemption_history import PreemptionHistory
from gangsched.core.engine.lifecycle.timers import Timers
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.model.gangs import EquivalenceClassView, Gang, PendingGang
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.pods import PodNeeds, Requests
from gangsched.core.model.queues import Amounts, Booking, Queue, QuotaKey
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.planning.namespace_quotas import add_to, asked
from gangsched.core.quota.charges import charge_of, charge_on_nodes, split_required_optional
from gangsched.core.quota.ledger import Ledger
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import Asked, BackfillReservation, QueueRules, RunningGang, Snapshot

_NEEDS_KEPT = 4096
_COUNTED_AHEAD = 1024
"""Kinds of pods counted before a plan is made; the others are counted when it is their turn."""


class Views:
    """The questions; the engine sets the attributes."""

    limits: Limits
    history: RuntimeHistory
    bookings: dict[str, Booking]
    namespaces: dict[str, dict[str, dict[str, int]]]
    reserved: Mapping[GangId, BackfillReservation]
    protected: frozenset[GangId]
    unhelped: set[tuple[int, int]]
    cluster: Cluster
    gangs: dict[GangId, GangState]
    beyond_is_judged: bool
    _pods: dict[PodUid, f.PodSeen]
    _timers: Timers
    _backlog: PendingQueue
    _now_s: float
    _leavers: dict[GangId, None]
    _changes: dict[GangId, None]
    _running: dict[GangId, RunningGang]
    _coming: dict[GangId, RunningGang]
    _running_stamp: int
    _tree_stamp: int
    loops: PreemptionHistory
    _waiting_known: dict[GangId, tuple[tuple[int, int], PendingGang, tuple[int, int]]]
    _needs_known: dict[PodNeeds, PodNeeds]

    @property
    def ledger(self) -> Ledger:
        """What the queues hold."""
        raise NotImplementedError

    def capacity(self) -> dict[QuotaKey, int]:
        """Return what the whole cluster has, in the units of quotas."""
        raise NotImplementedError

    def next_due_s(self) -> float | None:
        """Return when `tick` has something to do next, or None."""
        return self._timers.next_s()

    def _due_s(self, gang_id: GangId) -> float | None:
        gang = self.gangs.get(gang_id)
        return gang.due_s() if gang is not None else None

    def wants_plan(self) -> bool:
        """Tell whether a gang waits that was not refused on the present room already."""
        return self._backlog.any()

    def waits(self) -> bool:
        """Tell whether any gang waits."""
        return self._backlog.waits()

    def snapshot(
        self, now_s: float = 0.0, *, who: Asked = Asked.DUE, starts: int | None = None
    ) -> Snapshot:
        """Return a frozen view with the gangs to plan; planning ends after `starts` pods.

        Who is refused on the present room is left out, but for those that have room reserved in
        time: whoever is planned must know of them. A forecast wants all.
        """
        lines: tuple[EquivalenceClassView, ...] = ()
        gangs: Iterable[GangState] = ()
        if who is Asked.ALL:
            gangs = [gang for gang in self.gangs.values() if gang.plannable()]
        elif who is Asked.DUE:
            for one in self._readable(self._backlog.fresh()):
                self._backlog.join(one, alone=one.gang.id in self.reserved)
            queues = self.ledger.usage.tree.queues
            strict = {name for name, queue in queues.items() if queue.strict}
            gangs, lines = self._backlog.due(strict)
        waiting = self._readable(gangs)
        shapes = (*waiting, *(line.gangs[0] for line in lines))
        ahead = {id(kind): kind for one in shapes for kind in one.kinds[: KINDS.most]}
        for needs in islice(ahead.values(), _COUNTED_AHEAD):
            with suppress(Exception):  # the plan meets it as well, and its gang is set aside
                self.cluster.capacity(needs)  # counted here and kept up to date from now on
        usage = self.ledger.usage
        usage.capacity = self.capacity()
        usage.decayed = self.ledger.decayed(now_s)
        return Snapshot(
            self.cluster.copy(),
            tuple(waiting),
            usage.copy(),
            self.beyond_is_judged,
            self.running(),
            self.leaving(),
            tuple(self.reserved.values()),
            frozenset(self.unhelped),
            lines=lines,
            starts=starts,
            number=self._backlog.number,
            rules=self._rules(shapes, now_s),
            coming=self.coming(),
        )

    def newcomers(self) -> list[GangId]:
        """Return the gangs that changed since they were planned last, or were never planned."""
        return self._backlog.newcomers()

    def _readable(self, gangs: Iterable[GangState]) -> list[PendingGang]:
        """Return gangs as planners see them; who cannot be shown to them is set aside."""
        found = []
        for gang in gangs:
            try:
                found.append(self._waiting(gang))
            except Exception as error:  # noqa: BLE001 -- one gang must not keep others from plans
                self._set_aside(_failed(gang.id, error), self._now_s)
        return found

    def _set_aside(self, failed: f.PlanFailed, now_s: float) -> None:
        """Leave a gang out of plans for a while."""
        raise NotImplementedError

    def _rules(self, waiting: Iterable[PendingGang], now_s: float) -> QueueRules:
        """Return what queues say; those of one line have one user."""
        tree, ledger = self.ledger.usage.tree, self.ledger
        spent: dict[tuple[str, str, float], float] = {}
        for queue in tree.queues.values():
            for budget in queue.budgets:
                users = {one.gang.account for one in waiting if one.gang.queue == queue.name}
                for account in users if budget.per_user else ((queue.name, ""),):
                    spent[(*account, budget.period_s)] = ledger.spent(account, budget, now_s)
        limited = {name for name, queue in tree.queues.items() if queue.user_limits}
        return QueueRules(
            users={key: dict(held) for key, held in ledger.users.items() if key[0] in limited}
            if limited
            else {},
            spent=spent,
            bookings=tuple(self.bookings[name] for name in sorted(self.bookings)),
            stopped=self.loops.recent(now_s),
            kinds=ledger.kinds,
            namespaces={name: dict(quotas) for name, quotas in self.namespaces.items()},
            unborn=self._unborn(),
            protected=self.protected,
        )

    def _unborn(self) -> dict[str, dict[str, int]]:
        """Return what is reserved for pods that do not exist, in namespaces that have quotas."""
        found: dict[str, dict[str, int]] = {}
        for one in self.coming() if self.namespaces else ():
            namespace = one.gang.id.partition("/")[0]
            gang = self.gangs.get(one.gang.id)
            if gang is not None and self.namespaces.get(namespace):
                needs = (m.needs for m in gang.members.values() if m.stage and m.pod is None)
                add_to(found.setdefault(namespace, {}), asked(needs))
        return found

    def _waiting(self, gang: GangState) -> PendingGang:
        """Return a waiting gang with what its queue adds; worked out once for each version."""
        known = self._waiting_known.get(gang.id)
        stamp = (gang.version, self._tree_stamp)
        if known is not None and known[0] == stamp:
            made = known[1]
            learnt = self.history.stamp(made.gang.user)
            if known[2] == learnt:
                return made
            queue = self.ledger.usage.tree.queues.get(made.gang.queue)
            made = replace(made, estimate=self.history.estimate(made.gang, queue))
        else:
            made = self._made(gang)
            learnt = self.history.stamp(made.gang.user)
        self._waiting_known[gang.id] = (stamp, made, learnt)
        return made

    def _made(self, gang: GangState) -> PendingGang:
        made = gang.waiting()
        queue = self.ledger.usage.tree.queues.get(made.gang.queue)
        counts: dict[PodNeeds, int] = {}
        for member in made.members:
            counts[member.needs] = counts.get(member.needs, 0) + 1
        namespace = gang.id.split("/", 1)[0]
        unborn: Requests = ()
        if self.namespaces.get(namespace):
            must, _ = split_required_optional(made)
            unborn = asked(m.needs for m in must if gang.members[m.name].pod is None)
        shape = hash(
            (
                (namespace, made.gang.queue, made.gang.user, made.minimum, made.role_minimum),
                (made.constraints, made.near_role, made.seated, made.avoid, made.most_per_node),
                (tuple(counts.items()), made.repair, made.surplus, unborn),
                (made.gang.preemptible, made.preempts),
            )
        )
        if len(self._needs_known) > _NEEDS_KEPT:
            self._needs_known.clear()
        kinds = tuple(self._needs_known.setdefault(needs, needs) for needs in counts)
        charge = charge_of(made)
        if made.repair:
            held = self.ledger.of_gang(gang.id)
            made = replace(
                made,
                # What is more than it ever had is admitted like any other.
                repair=all(
                    held.get(key, 0) + more <= gang.admitted.get(key, 0) for key, more in charge
                ),
            )
        return replace(
            made,
            priority=self._priority(made.gang, made.priority, queue),
            charge=charge,
            unborn=unborn,
            shape=shape or 1,
            kinds=kinds,
            estimate=self.history.estimate(made.gang, queue),
        )

    def reservation(self, uid: PodUid) -> NodeName | None:
        """Return the node a pod may go to now, for a driver's look-up."""
        found = self._member(uid)
        if found is None or found[0].held_back or found[1].stage is None:
            return None
        return found[1].node

    def awaited(self, gang: GangId, name: PodName) -> NodeName | None:
        """Return the node that is reserved for a pod of which no fact has come yet."""
        state = self.gangs.get(gang)
        member = state.members.get(name) if state is not None else None
        if state is None or member is None or state.held_back or member.pod is not None:
            return None
        return member.node if member.stage is Stage.RESERVED else None

    def unadvised(self, limit: int, now_s: float) -> tuple[tuple[PendingGang, Refusal], ...]:
        """Return refused gangs to think about, at most `limit`; they count as advised now."""
        due = self._backlog.unadvised(limit, now_s, self.limits.advice_s)
        return tuple((self._waiting(gang), refusal) for gang, refusal in due)

    @property
    def refusals(self) -> Mapping[GangId, Refusal]:
        """Return why each waiting gang does not start."""
        return self._backlog.refusals

    def reasons(self) -> dict[Reason, int]:
        """Return how many gangs wait for which reason."""
        return self._backlog.refusals.reasons()

    def running(self) -> tuple[RunningGang, ...]:
        """Return every gang that runs whole, with an estimate of how long."""
        self._follow()
        return tuple(self._running.values())

    def coming(self) -> tuple[RunningGang, ...]:
        """Return what is reserved, or bound before its gang is whole, with an estimate."""
        self._follow()
        return tuple(self._coming.values())

    def _follow(self) -> None:
        """Look again at the gangs that changed."""
        revalued = self._running_stamp != self._tree_stamp  # what they are worth has changed
        if revalued:
            self._running_stamp = self._tree_stamp
            self._changes.update(dict.fromkeys((*self._running, *self._coming)))
        for gang_id in self._changes:
            gang = self.gangs.get(gang_id)
            whole = gang is not None and gang.state is State.PLACED and gang.spec is not None
            self._keep(self._running, gang_id, gang.running() if gang and whole else None)
            if revalued or gang is None or not self._comes_as_before(gang):
                self._keep(self._coming, gang_id, gang.coming() if gang else None)
        self._changes.clear()

    def _comes_as_before(self, gang: GangState) -> bool:
        """Tell whether a gang still takes what is kept of it: pods that are bound change nothing.

        Its places are given once, by a plan; only members that fail make them fewer.
        """
        kept = self._coming.get(gang.id)
        if kept is None or kept.gang is not gang.spec:
            return False
        on_its_way = gang.state in (State.RESERVED, State.BINDING)
        return on_its_way and len(kept.places) == gang.in_progress() + gang.bound_count()

    def _keep(
        self, kept: dict[GangId, RunningGang], gang: GangId, made: RunningGang | None
    ) -> None:
        if made is not None and made.places:
            kept[gang] = self._estimated(made)
        else:
            kept.pop(gang, None)

    def _estimated(self, made: RunningGang) -> RunningGang:
        made, tree = self._at_home(made), self.ledger.usage.tree
        queue = tree.queues.get(made.gang.queue)
        # One that runs may be declared anew with any class: it counts for no more than it may.
        most = tree.highest(made.gang.queue, made.gang.id.split("/", 1)[0])[0]
        return replace(
            made,
            priority=min(self._priority(made.gang, made.priority, queue), most),
            charge=self._charge_of(made),
            estimate=self.history.estimate(made.gang, queue),
        )

    @staticmethod
    def _priority(gang: Gang, given: int, queue: Queue | None) -> int:
        """Return a gang's priority: its own or its pods', else its queue's default."""
        if gang.priority is None and not given and queue is not None:
            return queue.default_priority or 0
        return given

    def _at_home(self, made: RunningGang) -> RunningGang:
        """Return a running gang in the queue that is charged for it."""
        home = self.ledger.usage.tree.home(made.gang.queue)
        return (
            made if home == made.gang.queue else replace(made, gang=replace(made.gang, queue=home))
        )

    def leaving(self) -> tuple[RunningGang, ...]:
        """Return what was told to leave and still takes room."""
        parts = (self.gangs[gang].leaving() for gang in self._leavers if gang in self.gangs)
        return tuple(
            replace(self._at_home(part), charge=self._charge_of(part))
            for part in parts
            if part is not None
        )

    def _charge_of(self, running: RunningGang) -> Amounts:
        seats = ((place.node, place.needs) for place in running.places)
        return charge_on_nodes(self.cluster, self.ledger.kinds, seats)

    def pod(self, uid: PodUid) -> f.PodSeen | None:
        """Return the latest fact about a pod."""
        return self._pods.get(uid)

    def pods(self) -> tuple[f.PodSeen, ...]:
        """Return the latest fact about every pod, for checkers."""
        return tuple(self._pods.values())

    def _member(self, uid: PodUid) -> tuple[GangState, MemberState] | None:
        pod = self._pods.get(uid)
        gang = self.gangs.get(pod.gang) if pod is not None and pod.gang else None
        if pod is None or gang is None:
            return None
        member = gang.members.get(pod.name)
        return (gang, member) if member is not None and member.pod == uid else None


def _failed(gang: GangId, error: Exception) -> f.PlanFailed:
    return f.PlanFailed(gang, f"{type(error).__name__}: {error}")
