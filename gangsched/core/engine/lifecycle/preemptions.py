"""Preempts running gangs, and records the work that they lose."""

from collections.abc import Collection

from gangsched.core import orders as o
from gangsched.core.engine.admission.drained_gangs import Drained
from gangsched.core.engine.admission.preemption_history import PreemptionHistory
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.lifecycle.lifecycle import Lifecycle
from gangsched.core.engine.lifecycle.member_steps import MemberSteps
from gangsched.core.engine.lifecycle.transition import Cause
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.timing.run_times import RunTimes
from gangsched.core.model.ids import PodName
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
        declarations: Declarations,
        history: PreemptionHistory,
        run_times: RunTimes,
        members: MemberSteps,
        lifecycle: Lifecycle,
        outbox: Outbox,
    ) -> None:
        self._declarations = declarations
        self._history = history
        self._run_times = run_times
        self._members = members
        self._lifecycle = lifecycle
        self._outbox = outbox

    def preempt(self, gang: GangState, eviction: Eviction, by: GangState, now_s: float) -> None:
        """Preempt a gang, or its surplus members, for another gang; it keeps its turn."""
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
        """End a gang for an administrator; it keeps its turn."""
        gang = drained.gang
        lost_gpu_s = _lost_gpu_s(running_view(gang), (), now_s)
        self._outbox.emit(o.Drain(gang.id, drained.cause, drained.of, lost_gpu_s))
        self._end(gang, drained.reason, now_s)

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
