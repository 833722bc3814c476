"""Preempts running gangs, and records the work that they lose."""

from collections.abc import Collection

from gangsched.core import orders as o
from gangsched.core.engine.admission.drained_gangs import Drained
from gangsched.core.engine.admission.preemption_history import PreemptionHistory
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.run import AnnouncedStop
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.stop_notices import StopNotices, is_answered
from gangsched.core.engine.lifecycle.transition import Cause
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.timing.run_times import RunTimes
from gangsched.core.model.ids import GangId, PodName
from gangsched.core.model.placement import Eviction
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.core.model.refusal import plural
from gangsched.core.policy import PreemptionReason
from gangsched.core.snapshot import RunningGang


class Preemptions:
    """Preempts gangs; it owns nothing."""

    def __init__(
        self,
        table: GangTable,
        declarations: Declarations,
        history: PreemptionHistory,
        run_times: RunTimes,
        members: MemberSteps,
        stops: StopNotices,
        lifecycle: Lifecycle,
        outbox: Outbox,
    ) -> None:
        self._table = table
        self._declarations = declarations
        self._history = history
        self._run_times = run_times
        self._members = members
        self._stops = stops
        self._lifecycle = lifecycle
        self._outbox = outbox

    def preempt(self, gang: GangState, eviction: Eviction, by: GangState, now_s: float) -> None:
        """Preempt a gang, or its surplus members, for another gang; it keeps its turn.

        A gang that saves its work first is ended later, by `settle_stops`.
        """
        notice = AnnouncedStop(by.id, eviction.reason)
        if not eviction.pods and self._stops.announce(gang, notice, now_s):
            return
        reason = self._record(gang, eviction, by, now_s)
        if not eviction.pods:
            self._end(gang, reason, now_s)
            return
        gang.mark_changed()
        for name in eviction.pods:
            self._members.evict(gang, gang.members[name], reason, preempted=True)
        taken = plural(len(eviction.pods), "surplus pod")
        self._outbox.report(gang, o.ReportReason.SHRUNK, f"{taken} {reason}.")

    def drain(self, drained: Drained, now_s: float) -> None:
        """End a gang for an administrator; it keeps its turn. One that saves first ends later."""
        gang, notice = drained.gang, AnnouncedStop(drained.of, drained.cause)
        if self._stops.announce(gang, notice, now_s, by_s=drained.by_s):
            return
        if drained.cause is not o.DrainReason.NODE:
            self._drain(gang, drained.cause, drained.of, drained.reason, now_s)

    def keep_drained(self, drained: Collection[GangId], now_s: float) -> None:
        """Withdraw the stops of administrators from gangs that do not have to leave any more."""
        for gang, notice in self._stops.gangs():
            notice.restored = False
            if notice.drain is not None and gang.id not in drained:
                self._stops.withdraw(gang, "what it was to be stopped for has changed")
                self._lifecycle.settle(gang, now_s)

    def settle_stops(self, now_s: float) -> None:
        """End the gangs that saved their work or had their time; let others run on."""
        for gang, notice in self._stops.gangs():
            if gang.state is not State.PLACED or not gang.members.bound_count():
                self._stops.close(gang, "no pod of the gang runs")
            elif not self._stops.is_needed(gang, notice):
                self._stops.withdraw(gang, "its nodes are not needed any more")
                self._lifecycle.settle(gang, now_s)
            elif (
                is_answered(gang, notice)
                or now_s >= notice.by_s
                or gang.run.below_minimum_since_s is not None
            ):
                self._stop(gang, notice, now_s)
            else:
                self._stops.announce_to_pods(gang, notice)

    def _stop(self, gang: GangState, notice: AnnouncedStop, now_s: float) -> None:
        """End a gang after its announced stop."""
        self._stops.close(gang, "the gang is stopped")
        if notice.drain is not None:
            self._drain(gang, notice.drain, notice.of, self._stops.sentence(notice), now_s)
        else:
            eviction = Eviction(gang.id, (), notice.cause)
            waiting = self._table.gangs[GangId(notice.of)]
            self._end(gang, self._record(gang, eviction, waiting, now_s), now_s)
        self._lifecycle.settle(gang, now_s)

    def _drain(
        self, gang: GangState, cause: o.DrainReason, of: str, reason: str, now_s: float
    ) -> None:
        lost_gpu_s = _lost_gpu_s(running_view(gang), (), now_s)
        self._outbox.emit(o.Drain(gang.id, cause, of, lost_gpu_s))
        self._end(gang, reason, now_s)

    def _end(self, gang: GangState, reason: str, now_s: float) -> None:
        """End a gang that did not fail; the time that it ran counts as attained service."""
        gang.attained_service_s += max(now_s - running_view(gang).started_s, 0.0)
        self._lifecycle.tear_down(gang, Cause.PREEMPTED, reason, now_s)

    def _record(self, victim: GangState, eviction: Eviction, by: GangState, now_s: float) -> str:
        """Record a preemption; return the sentence for the owner of the victim."""
        lost_gpu_s = _lost_gpu_s(running_view(victim), eviction.pods, now_s)
        loop = self._history.record(victim.id, by.id, now_s)
        self._outbox.emit(
            o.Preempt(victim.id, by.id, eviction.pods, eviction.reason, lost_gpu_s, loop)
        )
        queue = by.spec.queue if by.spec is not None else DEFAULT_QUEUE
        more = ""
        if eviction.reason == PreemptionReason.OVERRUN and victim.spec is not None:
            self._run_times.record(victim, now_s)
            expected_s = victim.spec.expected_runtime_s or 0
            more = (
                f"; the preempted gang had overtaken that gang, and has run for more than the "
                f"expected {expected_s:g} s"
            )
        if victim.id in self._declarations.protected:
            more += ", despite a PodDisruptionBudget: preempting other gangs is not enough"
        lost = f"; {lost_gpu_s / 3600:.3g} GPU-hours since its last checkpoint are lost"
        lost = lost if lost_gpu_s >= 1 else ""
        return f"preempted by gang {by.id} in queue {queue}{more}{lost}"


def _lost_gpu_s(running: RunningGang, pods: Collection[PodName], now_s: float) -> float:
    """Return the GPU-seconds of work that a gang loses; none for its surplus pods."""
    if pods:
        return 0.0
    gpus = sum(dict(place.needs.requests).get(GPU, 0) for place in running.places)
    return max(now_s - running.last_checkpoint_s, 0.0) * gpus
