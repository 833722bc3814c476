"""The life of a gang: its states, and what moves it from one to the next.

The states::

                every member known     plan accepted        every member at the barrier
     GATHERING -------------------> PENDING ----------> RESERVED ---------------> BINDING
         ^                          ^     ^                |                         |
         | a waiting member leaves  |     |   a member refused, gone, late, or       | minimum
         +--------------------------+     |   its node gone                          | bound
                                          |                v                         v
                                          +------------ BROKEN <------------------ PLACED
                                      every bind in flight        below its minimum for longer
                                      answered, every bound       than its timeout
                                      member gone

A gang stopped for another (`_stop`) is broken too, but nobody is to blame: it does not back off and
keeps its turn.
"""

from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang_views import GangState, MemberState, Stage, State
from gangsched.core.engine.gangs.incomplete import missing
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.lifecycle.start_deadlines import Patience
from gangsched.core.model.ids import NodeName, PodUid
from gangsched.core.model.placement import Eviction
from gangsched.core.model.refusal import Reason, Refusal, plural


class Machine(Patience):
    """Moves gangs through their states; the engine tells it what happened."""

    _holding: CapacityWait

    def _refresh(self, gang: GangState, now_s: float) -> None:
        """Bring a gang's state in line with what is known of its members."""
        if gang.state is State.BROKEN:
            self._settle_broken(gang, now_s)
        if gang.state in (State.GATHERING, State.PENDING):
            self._gather(gang, now_s)
        if gang.state in (State.RESERVED, State.BINDING, State.PLACED):
            self._advance(gang, now_s)
        if gang.state in (State.GATHERING, State.PENDING, State.PLACED):
            self._watch_minimum(gang, now_s)
        if gang.state is State.PLACED:
            self._watch_work(gang, now_s)
        if gang.plannable():
            self._backlog.want(gang.id)
        else:
            self._backlog.pause(gang.id)
        self._timers.watch(gang.id)

    def _gather(self, gang: GangState, now_s: float) -> None:
        settled = gang.bound_count() + gang.ended_count()
        if gang.spec is not None and (gang.spec.started or settled >= gang.enough()) and settled:
            self._placed(gang, now_s, met=True)
            return
        why = missing(gang)
        if why is not None:
            if gang.state is State.PENDING:
                gang.enter(State.GATHERING)
                gang.bump()
            if any(not (one.ended or one.terminating) for one in gang.members.values()):
                self._refuse(gang, why)
        elif gang.state is State.GATHERING:
            gang.enter(State.PENDING)
            gang.since_s = gang.since_s if gang.since_s is not None else now_s
            gang.bump()
            self._backlog.refusals.unsay(gang.id)
            if gang.given_up:
                self._refuse(gang, Refusal(gang.id, Reason.GIVEN_UP, f"{gang.given_up}."))

    def _advance(self, gang: GangState, now_s: float) -> None:
        """Move reserved members towards the barrier, and all of them through it together."""
        if gang.held_back:
            return
        reserved = [m for m in gang.members.values() if m.stage is not None]
        for member in reserved:
            if member.stage is Stage.RESERVED:
                self._prepare(gang, member)
        if gang.state is State.PLACED:
            ready = [m for m in reserved if m.stage is Stage.PREPARED]
        elif all(m.to_come or m.stage in (Stage.PREPARED, Stage.BINDING) for m in reserved):
            ready = [m for m in reserved if m.stage is Stage.PREPARED]
            if gang.under_way() and gang.state is State.RESERVED:
                gang.enter(State.BINDING)
        else:
            ready = []
        for member in ready:
            gang.move(member, Stage.BINDING)
            self._orders.append(self._bind(gang, member))
        placed = gang.bound_count() + gang.ended_count()
        done = gang.under_way() == 0
        if gang.state in (State.RESERVED, State.BINDING) and done and placed >= gang.enough():
            self._placed(gang, now_s)
        elif gang.state in (State.RESERVED, State.BINDING) and done:
            self._break(gang, "fewer members than its minimum were bound", now_s)
        whole = done and not gang.to_come()
        if gang.state is State.PLACED and whole and gang.below_since_s is None:
            if gang.deadline_s is not None:
                self._report_whole(gang)
            gang.deadline_s = None  # its late members have all arrived

    def _bind(self, gang: GangState, member: MemberState) -> o.Bind:
        node, minimum = _node(member), gang.starts_with()
        return o.Bind(gang.id, _uid(member), member.name, node, member.devices, minimum)

    def _prepare(self, gang: GangState, member: MemberState) -> None:
        if member.pod is None or member.held_by:
            return  # not created yet, or not to be scheduled yet
        gang.move(member, Stage.PREPARING)
        if not gang.waits_for_pods():
            self._all_came(gang)
        gated = self._pods[member.pod].gated
        self._orders.append(o.Prepare(gang.id, member.pod, member.name, _node(member), gated))

    def _placed(self, gang: GangState, now_s: float, *, met: bool = False) -> None:
        gang.enter(State.PLACED)
        gang.ran_with = gang.enough()
        self._admit(gang)
        gang.no_shows = 0
        gang.placed_s = now_s
        if not met:
            self.history.starts.started(gang.id, now_s)
        gang.learnt = met and not gang.bound_count()  # an earlier process saw it end
        limit_s = self._limit_s(gang)
        if limit_s is not None:
            gang.end_by_s = gang.running().started_s + limit_s
            self._timers.watch(gang.id)
        gang.attempts = 0
        gang.avoid.clear()
        gang.most_per_node = gang.most_until_s = None
        gang.deadline_s = self._keep_until_s(gang, now_s)
        gang.bump()
        self._backlog.refusals.unsay(gang.id)
        self._report_placed(gang, met=met)
        self._doubted.pop(gang.id, None)  # it is told once it runs
        self._believe(gang)

    def _watch_minimum(self, gang: GangState, now_s: float) -> None:
        """A gang that runs below its minimum gets its timeout to be whole again."""
        bound = gang.bound_count()
        if gang.state is State.PLACED and gang.spec is not None and gang.spec.late:
            # Late pods that came belong to what runs: from now on it does not do without them.
            came = min(bound + gang.ended_count(), gang.spec.min_member)
            gang.ran_with = max(gang.ran_with or 0, came)
        whole = bound + gang.ended_count() >= gang.minimum()
        if whole or bound == 0:
            if gang.below_since_s is not None:
                gang.below_since_s = gang.refill_by_s = None
                gang.deadline_s = self._keep_until_s(gang, now_s)
                gang.no_shows = 0
                if whole and gang.state is State.PLACED and gang.placed_s != now_s:
                    self._report_whole(gang)
            if whole or gang.state is not State.PLACED:
                return
            self._withdraw_empty(gang)
            if gang.in_progress() == 0:
                gang.enter(State.GATHERING)  # nobody is left: the gang starts over
                gang.start_over()
                self._believe(gang)
                self._gather(gang, now_s)
            return
        if gang.below_since_s is None:
            gang.below_since_s = now_s
            gang.deadline_s = now_s + gang.timeout_s(self.limits)
            self._report(
                gang,
                "BelowMinimum",
                f"{bound} of at least {gang.minimum()} members run; the gang is stopped and "
                f"queued again unless it is whole within {gang.timeout_s(self.limits):g} s.",
            )

    def _watch_work(self, gang: GangState, now_s: float) -> None:
        """A gang that is placed becomes ready in time, and teaches how long it ran."""
        if self.finished(gang):
            self._learn(gang)
            gang.ready_by_s = gang.end_by_s = None
            return
        spec = gang.spec
        if spec is None or spec.ready_timeout_s is None or not gang.unready():
            if gang.ready_by_s is not None:
                gang.ready_by_s, gang.unready_tries = None, 0
        elif gang.ready_by_s is None:
            gang.ready_by_s = now_s + spec.ready_timeout_s

    def _overdue(self, gang: GangState, now_s: float) -> None:
        """Stop a gang that is not ready in time, or runs for longer than it may."""
        if gang.ready_by_s is not None and now_s >= gang.ready_by_s:
            gang.ready_by_s = None
            lacking = plural(gang.unready(), "pod")
            gang.unready_tries += 1
            if gang.unready_tries >= self.limits.ready_tries:
                gang.given_up = (
                    f"it did not become ready in {gang.unready_tries} tries; change its spec or "
                    f"create it anew to have it tried again"
                )
            self._break(gang, f"{lacking} did not become ready in time", now_s)
        elif gang.end_by_s is not None and now_s >= gang.end_by_s:
            gang.end_by_s = None
            gang.given_up = f"it ran for the {self._limit_s(gang) or 0:g} s it may"
            self._break(gang, gang.given_up, now_s)

    def _due(self, gang: GangState, now_s: float) -> None:
        """Act on a gang whose time has come."""
        if gang.not_before_s is not None and now_s >= gang.not_before_s:
            gang.not_before_s = None
        if any(until_s <= now_s for until_s in gang.avoid.values()):
            gang.avoid = {node: until_s for node, until_s in gang.avoid.items() if until_s > now_s}
            gang.bump()
        if gang.most_until_s is not None and now_s >= gang.most_until_s:
            gang.most_per_node = gang.most_until_s = None
            gang.bump()
        if gang.state is State.PLACED:
            self._overdue(gang, now_s)
        if gang.refill_by_s is not None and now_s >= gang.refill_by_s:
            gang.refill_by_s = None
            self._withdraw_late(gang, now_s)
        if gang.deadline_s is not None and now_s >= gang.deadline_s:
            gang.deadline_s = None
            if gang.held_back:
                self._break(gang, "the room it was promised did not come in time", now_s)
            elif gang.state is State.RESERVED:
                late = [m.name for m in gang.members.values() if m.stage and m.stage.before_barrier]
                named = ", ".join(late[:3]) + (" and others" if len(late) > 3 else "")
                waited_s = self._patience_s(gang)
                gang.no_shows += gang.waits_for_pods()
                self._break(
                    gang,
                    f"{plural(len(late), 'member')} did not come to the barrier within "
                    f"{waited_s:g} s: {named}",
                    now_s,
                )
            elif gang.below_since_s is not None:
                self._break(gang, "it stayed below its minimum for longer than its timeout", now_s)
            elif gang.state is State.PLACED:
                self._withdraw_late(gang, now_s)
        self._refresh(gang, now_s)

    def _withdraw_late(self, gang: GangState, now_s: float) -> None:
        """Give up on late members of a running gang that did not come to the barrier."""
        no_show = gang.waits_for_pods()
        for member in gang.members.values():
            if member.stage is not None and member.stage is not Stage.BINDING:
                member.kept = False
                self._withdraw(gang, member, "the pod did not come to the barrier in time")
                gang.bump()
        if no_show:
            gang.no_shows += 1
            self._back_off(gang, now_s + self._wait_s(gang))

    def _withdraw_empty(self, gang: GangState) -> None:
        """Give up lost places that were kept for a running gang and have no pods yet."""
        if gang.state is not State.PLACED:
            return
        for member in gang.members.values():
            if member.stage is not None and member.pod is None:
                self._withdraw(gang, member, "nobody is left of the gang")
                gang.bump()

    def _stop(self, gang: GangState, eviction: Eviction, by: GangState, now_s: float) -> None:
        """Stop a gang for another, or take its surplus members back; it keeps its turn."""
        reason = self._preempted(gang, eviction, by)
        if not eviction.pods:
            gang.attained_s += max(now_s - gang.running().started_s, 0.0)
            self._break(gang, reason, now_s, word="Preempted")
            return
        gang.bump()
        for name in eviction.pods:
            self._evict(gang, gang.members[name], reason, preempted=True)
        self._report(gang, "Shrunk", f"{plural(len(eviction.pods), 'surplus pod')} {reason}.")

    def _break(self, gang: GangState, reason: str, now_s: float, *, word: str = "Broken") -> None:
        """Stop a gang as a whole; its room is freed member by member, as the world answers."""
        preempted = word != "Broken"
        gang.enter(State.BROKEN)
        gang.broken_reason = reason
        gang.proof = ""
        gang.attempts += not preempted
        gang.bump()
        gang.end_run()
        again = "" if gang.given_up else " and will be planned again"
        self._report(gang, word, f"{reason}. The gang is stopped{again}.")
        self._orders.append(o.Release(gang.id))
        self._holding.drop(gang)
        pinned = gang.pinned()
        for member in gang.members.values():
            in_flight = member.stage is Stage.BINDING
            if member.stage is not None and not in_flight:
                self._withdraw(gang, member, reason)
            # A pod created pinned to a node cannot be planned again: it has to be made anew.
            if member.pod and not member.ended and (member.bound or (pinned and not in_flight)):
                self._evict(gang, member, reason, preempted=preempted)
        self._settle_broken(gang, now_s)

    def _evict(
        self, gang: GangState, member: MemberState, reason: str, *, preempted: bool = False
    ) -> None:
        if member.pod is None or member.evicted:
            return
        member.evicted = True
        member.stopped = member.pod
        self._leavers[gang.id] = None
        self._orders.append(o.Evict(gang.id, member.pod, member.name, reason, preempted))

    def _withdraw(self, gang: GangState, member: MemberState, reason: str) -> None:
        stage = member.stage
        self._settle_member(gang, member)
        self._backlog.room_grew = True
        if member.pod is not None and stage in (Stage.PREPARING, Stage.PREPARED):
            self._orders.append(o.RejectPod(gang.id, member.pod, member.name, reason))

    def _settle_broken(self, gang: GangState, now_s: float) -> None:
        pinned = gang.pinned()
        for member in gang.members.values():
            late = member.bound or (pinned and member.stage is None)
            if late and member.pod and not member.ended and not member.evicted:
                self._evict(gang, member, gang.broken_reason)
        if any(
            member.stage is Stage.BINDING
            or (member.pod and not member.ended and (member.bound or pinned))
            for member in gang.members.values()
        ):
            return
        gang.enter(State.GATHERING)
        gang.start_over()
        self._believe(gang)
        self._leavers.pop(gang.id, None)
        if gang.given_up:
            self._gather(gang, now_s)
            self._refuse(gang, Refusal(gang.id, Reason.GIVEN_UP, f"{gang.given_up}."))
            return
        if not gang.attempts:  # stopped for another: it stays in line
            self._gather(gang, now_s)
            return
        wait_s = self._wait_s(gang)
        self._back_off(gang, now_s + wait_s)
        self._gather(gang, now_s)
        if gang.state is State.PENDING:
            message = f"{gang.broken_reason}; trying again in {wait_s:g} s."
            self._refuse(gang, Refusal(gang.id, Reason.BACKING_OFF, message))

    def _settle_member(self, gang: GangState, member: MemberState) -> None:
        self._discharge((gang.id, member.name))
        gang.move(member, None)
        member.node = None


def _node(member: MemberState) -> NodeName:
    assert member.node is not None, "a staged member has a node"  # noqa: S101
    return member.node


def _uid(member: MemberState) -> PodUid:
    assert member.pod is not None, "a member at the barrier has a pod"  # noqa: S101
    return member.pod
