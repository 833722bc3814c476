"""Stops that are announced to gangs, which may save their work before.

A gang with `checkpoint_grace_s` is not stopped at once. The stop is announced to it with a
deadline, and it stays PLACED and charged. It is stopped once it reports a checkpoint, loses a
member that it needs, or the deadline has passed. If the capacity is no longer needed, the stop is
withdrawn and the gang runs on.
"""

from collections.abc import Iterator
from math import floor

from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.run import AnnouncedStop
from gangsched.core.engine.lifecycle.capacity_wait import CapacityWait
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.settings import Settings
from gangsched.core.engine.timing.timers import Timers
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.model.ids import GangId, PodName, PodUid
from gangsched.core.model.queues import DEFAULT_QUEUE


class StopNotices:
    """Announces and withdraws stops; it owns which gangs have a notice."""

    def __init__(
        self,
        settings: Settings,
        table: GangTable,
        capacity: CapacityWait,
        running: RunningSet,
        timers: Timers,
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._table = table
        self._capacity = capacity
        self._running = running
        self._timers = timers
        self._outbox = outbox
        self._gangs: dict[GangId, None] = {}
        """Gangs that have a notice; a gang that was torn down may still be here."""
        self._marked: dict[GangId, None] = {}
        """Gangs of which a pod shows a stop, while the gang has no notice."""

    # -- questions ----------------------------------------------------------------------------

    def is_any(self) -> bool:
        """Return whether any gang has a notice."""
        return bool(self._gangs)

    def gangs(self) -> Iterator[tuple[GangState, AnnouncedStop]]:
        """Yield every gang that has a notice; the caller may end it meanwhile."""
        for gang_id in list(self._gangs):
            gang = self._table.gangs.get(gang_id)
            notice = gang.run.stop if gang is not None else None
            if gang is None or notice is None:
                self._forget(gang_id)
            else:
                yield gang, notice

    def wait_s(self, of: GangId, now_s: float) -> float:
        """Return how long a gang may wait until all gangs that are stopped for it have answered."""
        waits = (notice.by_s - now_s for _, notice in self.gangs() if notice.of == of)
        return max(waits, default=0.0)

    def is_needed(self, gang: GangState, notice: AnnouncedStop) -> bool:
        """Return whether a gang still waits for what this gang uses.

        Another gang may have been planned on the same capacity: then it is the one that waits.
        """
        if notice.drain is not None or notice.restored:
            return True
        waiting = self._table.gangs.get(GangId(notice.of))
        if waiting is not None and waiting.reservation.waits_for_capacity:
            return True
        nodes = {member.bound_node for member in gang.members.values() if member.runs}
        other = self._capacity.first_short(nodes)
        if other is not None:
            notice.of = other
        return other is not None

    # -- what changes them --------------------------------------------------------------------

    def announce(
        self, gang: GangState, notice: AnnouncedStop, now_s: float, *, by_s: float | None = None
    ) -> bool:
        """Announce a stop, with a deadline of at most `by_s`; return whether the gang asks for it.

        A gang that a stop is announced to keeps the first deadline.
        """
        if gang.run.stop is not None:
            return True
        grace_s = self._settings.limits.allowed_grace_s(gang.spec)
        if grace_s is None or (by_s is not None and by_s <= now_s):
            return False
        notice.since_s, notice.by_s = now_s, now_s + grace_s
        if by_s is not None:
            notice.by_s = min(notice.by_s, by_s)
        self._put(gang, notice)
        message = f"{self.sentence(notice)}; it may save its work within {notice.by_s - now_s:g} s."
        self._outbox.report(gang, o.ReportReason.STOP_ANNOUNCED, message)
        self.announce_to_pods(gang, notice)
        return True

    def restore(self, gang: GangState, notice: AnnouncedStop) -> None:
        """Restore a notice of an earlier process; whether it is needed is known at the next tick.

        The stop is announced on its pods again: the earlier process may have ended too early.
        """
        notice.restored = True
        self._put(gang, notice)

    def announce_to_pods(self, gang: GangState, notice: AnnouncedStop) -> None:
        """Announce a stop on the pods of a gang that do not have the announcement yet."""
        if notice.version == gang.version:
            return
        notice.version = gang.version
        pods = tuple(one for one in _bound_pods(gang) if one[0] not in notice.announced)
        if not pods:
            return
        notice.announced.update(uid for uid, _ in pods)
        sentence = self.sentence(notice)
        self._outbox.emit(o.AnnounceStop(gang.id, pods, notice.since_s, notice.by_s, sentence))

    def withdraw(self, gang: GangState, reason: str) -> None:
        """Withdraw the announced stop of a gang: it runs on."""
        self._end(gang)
        self._outbox.emit(o.WithdrawStop(gang.id, _bound_pods(gang), reason))
        self._outbox.report(gang, o.ReportReason.STOP_WITHDRAWN, f"{reason}; the gang runs on.")

    def close(self, gang: GangState, reason: str) -> None:
        """End the notice of a gang that is stopped now, or has done its work."""
        self._end(gang)
        self._outbox.emit(o.WithdrawStop(gang.id, (), reason))

    def pod_seen(self, gang: GangState, stop_by_s: float | None) -> None:
        """Record that a pod shows a stop; perhaps an earlier process announced it."""
        if stop_by_s is not None and gang.run.stop is None:
            self._marked[gang.id] = None

    def withdraw_unknown(self) -> None:
        """Take back stops that pods show and this engine does not know of."""
        marked, self._marked = self._marked, {}
        for gang_id in marked:
            gang = self._table.gangs.get(gang_id)
            if gang is None or gang.run.stop is not None or gang.state is State.BROKEN:
                continue
            pods = tuple(
                (member.pod, member.name)
                for member in gang.members.values()
                if member.pod and member.runs and member.stop_by_s and not member.evicted
            )
            if pods:
                self._outbox.emit(o.WithdrawStop(gang_id, pods, "the stop is not known any more"))
                for _, name in pods:
                    gang.members[name].stop_by_s = None

    def _put(self, gang: GangState, notice: AnnouncedStop) -> None:
        gang.run.stop = notice
        gang.mark_changed()
        self._gangs[gang.id] = None
        self._running.mark_evicted(gang.id)
        self._timers.watch(gang.id)

    def _end(self, gang: GangState) -> None:
        gang.run.stop = None
        gang.mark_changed()
        self._forget(gang.id)
        self._running.pod_left(gang)

    def _forget(self, gang_id: GangId) -> None:
        del self._gangs[gang_id]

    def sentence(self, notice: AnnouncedStop) -> str:
        """Return why a gang is to be stopped, for its owner."""
        match notice.drain:
            case o.DrainReason.QUEUE:
                return f"queue {notice.of} is drained"
            case o.DrainReason.RESERVATION:
                return f"its nodes belong to advance reservation {notice.of}"
            case o.DrainReason.NODE:
                return f"node {notice.of} is about to stop"
        waiting = self._table.gangs.get(GangId(notice.of))
        spec = waiting.spec if waiting is not None else None
        queue = spec.queue if spec is not None else DEFAULT_QUEUE
        return f"to be preempted by gang {notice.of} in queue {queue}"


def is_answered(gang: GangState, notice: AnnouncedStop) -> bool:
    """Return whether a gang saved its work since its stop was announced.

    Times may be whole seconds.
    """
    saved_s = gang.last_saved_s()
    return saved_s is not None and saved_s >= floor(notice.since_s)


def _bound_pods(gang: GangState) -> tuple[tuple[PodUid, PodName], ...]:
    return tuple(
        (member.pod, member.name)
        for member in gang.members.values()
        if member.pod is not None and member.runs and not member.evicted
    )
