"""Computations on snapshots within deadlines, and the quarantine of gangs that exceed them."""

import logging
from collections.abc import Awaitable, Callable

from gangsched.core import facts as f
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.snapshot import Snapshot
from gangsched.kube.background.deadlines import Deadline, Found, LateError, LostThreadError
from gangsched.kube.stored.quarantine import LOST_S, SLOW_S, Quarantine
from gangsched.metrics import Metrics

log = logging.getLogger(__name__)


class ObjectDeadlines:
    """Takes snapshots, and runs work on them within its deadline."""

    def __init__(
        self,
        engine: SchedulingEngine,
        quarantine: Quarantine,
        metrics: Metrics,
        *,
        observe: Callable[[f.Fact], None],
        now_s: Callable[[], float],
        start: Callable[[Awaitable[None]], object] | None,
    ) -> None:
        """Take `start`, which starts a task that saves the quarantine; None saves nothing."""
        self._engine, self._quarantine, self._metrics = engine, quarantine, metrics
        self._observe, self._now_s, self._start = observe, now_s, start

    def begin_cycle(self, pods_max: int | None = None) -> Snapshot:
        """Return a snapshot with the gangs to plan next, without those in quarantine."""
        self.apply_quarantine()
        return self._engine.begin_cycle(self._now_s(), pods_max=pods_max)

    def snapshot_all(self) -> Snapshot:
        """Return a snapshot with every pending gang that is not in quarantine."""
        self.apply_quarantine()
        return self._engine.view.snapshot_all(self._now_s())

    def apply_quarantine(self) -> None:
        """Observe a PlanFailed for each pending gang in quarantine."""
        for failed in self._quarantine.caught(self._engine.view, self._now_s()):
            self._observe(failed)

    async def run_in_time(
        self, deadline: Deadline, work: Callable[[], Found], snapshot: Snapshot
    ) -> Found:
        """Return the result of work on a snapshot, within its deadline.

        Raises:
            LateError: the work took too long.
            LostThreadError: the work cannot be stopped either; its present gang is quarantined.

        """
        late = self._metrics.late.labels(deadline.what)
        suspects: list[str] = []

        def slow(gang_id: GangId | None) -> None:
            waiting = _pending(gang_id, snapshot)
            if waiting is not None:
                suspects.append(self._quarantine.suspect(waiting))
                self._save()

        try:
            return await deadline.run(work, snapshot.progress, slow)
        except LateError as error:
            log.error("%s; it was stopped", error)  # noqa: TRY400 -- where it was says nothing
            late.inc()
            raise
        except LostThreadError as error:
            late.inc()
            self._set_aside(error.gang, snapshot, error.problem, LOST_S)
            raise
        finally:
            for mark in suspects:
                self._quarantine.clear(mark)
            if suspects:
                self._save()

    def _save(self) -> None:
        if self._start is not None:
            self._start(self._quarantine.save())

    def quarantine_slow(self, error: LateError, snapshot: Snapshot) -> None:
        """Quarantine the gang with planning that took too long."""
        self._set_aside(error.gang, snapshot, error.problem, SLOW_S)
        self._save()

    def _set_aside(
        self, gang_id: GangId | None, snapshot: Snapshot, problem: str, for_s: float
    ) -> None:
        """Quarantine the request of a gang, as a snapshot shows it."""
        waiting = _pending(gang_id, snapshot)
        if waiting is not None:
            self._quarantine.add_gang(waiting, problem, for_s, self._now_s())


def _pending(gang_id: GangId | None, snapshot: Snapshot) -> PendingGang | None:
    """Return a pending gang of a snapshot, or None if the gang is not pending there."""
    in_classes = (pending for similar in snapshot.equivalence_classes for pending in similar.gangs)
    pending_gangs = (*snapshot.pending, *in_classes)
    return next((pending for pending in pending_gangs if pending.gang.id == gang_id), None)
