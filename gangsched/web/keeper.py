"""The present model of the pages, and what is computed for it in threads.

One event loop owns the engine. A model is built there; plans, forecasts and remedies run in
threads, on snapshots. Viewers wait for the next version of the model, and no data is kept for a
viewer that does not read.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Effort, Prediction, forecast, with_observed_ranges
from gangsched.core.planning.planner import Plan, make_plan
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.preemption.defragmentation import Budget
from gangsched.core.progress import Progress
from gangsched.core.snapshot import Snapshot
from gangsched.kube.background.advisor import Advisor
from gangsched.kube.background.deadlines import Deadline, LateError, LostThreadError
from gangsched.web.gang_log import GangLog
from gangsched.web.model import JournalMoment, LogLine, PageModel, PodRow, QueueRow, QueueSample
from gangsched.web.reading import GangRows, ModelHeader, Past, PlannedStarts, page_model, pods_of
from gangsched.web.rights import Redact
from gangsched.web.what_if import (
    MakeChange,
    StartComparison,
    WhatIfAnswer,
    WhatIfChange,
    WhatIfError,
)

log = logging.getLogger(__name__)

_MODEL_PAUSE, _FORECAST_PAUSE = 1, 4
"""Pauses, as multiples of the time that the last model, or the last forecast, took."""
_MODEL_LEAST_S, _FORECAST_LEAST_S = 0.1, 1.0
_TIME_PASSES_S = 10.0
"""How often a live page is made again although nothing happened."""
_PLAN_S, _REMEDIES_S, _GRACE_S = 30.0, 15.0, 30.0
_STARTS_S = 10.0
"""How long a page of a file waits for its starts."""
_REMEDIES_WAITING = 16
_REMEDIES_KEPT = 256
_ANSWERS_WAITING, _ANSWERS_KEPT, _ANSWER_KEPT_S = 4, 16, 60.0
_SAMPLE_S, _SAMPLES_KEPT = 10.0, 360
_numbers = itertools.count()

Samples = dict[str, tuple[QueueSample, ...]]


class ComputingError(Exception):
    """Remedies cannot be computed now."""


@dataclass(slots=True)
class PageSource:
    """What the pages read: an engine, and the functions that only its reader knows."""

    engine: SchedulingEngine
    policies: Policies
    now_s: Callable[[], float]
    subject: str
    live: bool
    queue_rows: Callable[[], tuple[QueueRow, ...]]
    redact: Redact
    effort: Effort
    forecast_deadline_s: float = 300.0
    budget: Budget | None = None
    protected: frozenset[GangId] = frozenset()
    log: GangLog | None = None
    """What happened before; None: nothing is known of it."""

    make_change: MakeChange | None = None
    """Makes the changes of a what-if; None: there is none."""

    moment: JournalMoment | None = None
    earlier_samples: Samples = field(default_factory=dict)


class ModelKeeper:
    """Builds the next model when facts change, and lets viewers wait for it."""

    def __init__(self, source: PageSource) -> None:
        self.source = source
        self.number = next(_numbers)
        """Its number: versions are those of one keeper."""

        self.model: PageModel | None = None
        self._samples = dict(source.earlier_samples)
        self._sampled_s = float("-inf")
        self._planned, self._rows = PlannedStarts(), GangRows()
        self._facts, self._forecasts = asyncio.Event(), asyncio.Event()
        self._next = asyncio.Condition()
        self._version = 0
        self._remedies: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._one_remedy, self._waiting = asyncio.Semaphore(1), 0
        self._one_answer, self._asking = asyncio.Semaphore(1), 0
        self._answers: dict[WhatIfChange, WhatIfAnswer] = {}

    def changed(self) -> None:
        """Record that the engine observed a fact."""
        self._facts.set()
        self._forecasts.set()

    async def run(self) -> None:
        """Keep the model up to date until cancelled."""
        self.changed()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._model_loop())
            group.create_task(self._forecast_loop())
            if self.source.live:
                group.create_task(self._time_loop())

    async def after(self, version: int) -> PageModel:
        """Return a model that is newer than a version, as soon as there is one."""
        async with self._next:
            await self._next.wait_for(
                lambda: self.model is not None and self.model.version > version
            )
        assert self.model is not None, "the condition says so"  # noqa: S101
        return self.model

    async def with_starts(self) -> PageModel:
        """Return the model with starts, or the present one if they take too long.

        A page of the past is not updated, so it would never show them.
        """
        model = self.model or await self.after(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STARTS_S):
                while model.starts_at_s is None and not model.forecast_problem:
                    model = await self.after(model.version)
        return model

    def pods(self, gang: str) -> tuple[PodRow, ...]:
        """Return the pods of a gang."""
        return pods_of(self.source.engine.view, gang)

    def story(self, gang: str) -> tuple[LogLine, ...]:
        """Return what happened to a gang, the last first."""
        log = self.source.log
        return () if log is None else log.story(gang, self.source.now_s())

    async def what_if(self, change: WhatIfChange) -> WhatIfAnswer:
        """Return which starts a change would change; an answer is kept for a while.

        Raises:
            WhatIfError: the change is malformed, or too much is asked now.

        """
        source = self.source
        if source.make_change is None:
            raise WhatIfError("This server compares nothing.")
        if self._asking >= _ANSWERS_WAITING:
            raise WhatIfError("Too many changes are compared now; try again.")
        self._asking += 1
        try:
            async with self._one_answer:
                known = self._answers.get(change)
                now_s = source.now_s()
                if known is not None and now_s - known.at_s <= _ANSWER_KEPT_S:
                    return known
                compared = StartComparison(
                    source.engine,
                    source.policies,
                    source.make_change,
                    source.effort,
                    source.forecast_deadline_s,
                )
                answer = await compared.answer(change, now_s)
        finally:
            self._asking -= 1
        self._answers.pop(change, None)
        self._answers[change] = answer
        while len(self._answers) > _ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]
        return answer

    # -- loops --------------------------------------------------------------------------------

    async def _model_loop(self) -> None:
        while True:
            await self._facts.wait()
            self._facts.clear()
            began_s = time.monotonic()
            self._version += 1
            source = self.source
            now_s, queues = source.now_s(), source.queue_rows()
            header = ModelHeader(self._version, source.subject, source.live, source.moment)
            self.model = page_model(
                source.engine,
                now_s,
                header,
                self._planned,
                queues,
                self._rows,
                self._past(queues, now_s),
            )
            async with self._next:
                self._next.notify_all()
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(_MODEL_LEAST_S, took_s * _MODEL_PAUSE))

    def _past(self, queues: tuple[QueueRow, ...], now_s: float) -> Past:
        log = self.source.log
        if self.source.live and now_s - self._sampled_s >= _SAMPLE_S:
            self._sampled_s = now_s
            self._samples = with_samples(self._samples, queues, now_s)
        if log is None:
            return Past((), self._samples)
        if self.source.live:
            log.settle()
        return Past(log.runs_until(now_s), self._samples)

    async def _forecast_loop(self) -> None:
        while True:
            await self._forecasts.wait()
            self._forecasts.clear()
            began_s = time.monotonic()
            try:
                await self._forecast()
            except (LateError, PolicyError) as error:
                self._fail(str(error))
            except LostThreadError as error:
                self._fail(f"{error}; start gangsched web again")
                return
            except Exception:  # the other views do not need it
                log.exception("the forecast failed")
                self._fail("it failed; the log of gangsched web has the error")
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(_FORECAST_LEAST_S, took_s * _FORECAST_PAUSE))

    async def _time_loop(self) -> None:
        while True:
            await asyncio.sleep(_TIME_PASSES_S)
            self.changed()

    def _fail(self, problem: str) -> None:
        self._planned = PlannedStarts(
            self._planned.at_s,
            self._planned.refusals,
            self._planned.reservations,
            self._planned.predictions,
            problem,
            self._planned.starts_at_s,
        )
        self._facts.set()

    # -- in threads ---------------------------------------------------------------------------

    async def _forecast(self) -> None:
        source, now_s = self.source, self.source.now_s()
        snapshot, ahead = (source.engine.view.snapshot_all(now_s) for _ in range(2))
        work = partial(make_plan, snapshot, source.policies, now_s)
        plan: Plan = await Deadline("the plan", _PLAN_S, _GRACE_S, each_gang=True).run(
            work, snapshot.progress
        )
        refusals = {pending.gang.id: refusal for pending, refusal in plan.refusals}
        reservations = {item.gang: item for item in plan.backfill_reservations}
        before, starts_at_s = self._planned.predictions, self._planned.starts_at_s
        self._planned = PlannedStarts(now_s, refusals, reservations, before, "", starts_at_s)
        if source.live and source.log is not None:
            source.log.refused(refusals, now_s)
        self._facts.set()
        deadline = Deadline("the forecast", source.forecast_deadline_s, _GRACE_S)
        predictions = await deadline.run(partial(self._predictions, ahead, now_s), ahead.progress)
        self._planned = PlannedStarts(now_s, refusals, reservations, predictions, "", now_s)
        self._facts.set()

    def _predictions(self, snapshot: Snapshot, now_s: float) -> dict[GangId, Prediction]:
        source = self.source
        drawn = forecast(snapshot, source.policies, now_s, source.effort)
        accuracy = source.engine.history.starts.punctuality(now_s)
        return with_observed_ranges(drawn, accuracy, now_s)

    async def remedies(self, gang: str) -> tuple[str, ...]:
        """Return what would let a refused gang start now; an answer is kept for a forecast.

        Raises:
            ComputingError: too many remedies are computed already, or these take too long.

        """
        refusal = self._planned.refusals.get(GangId(gang))
        at_s = self._planned.at_s
        if refusal is None or at_s is None:
            return ()
        kept = self._remedies.get(gang)
        if kept is not None and kept[0] == at_s:
            return kept[1]
        if self._waiting >= _REMEDIES_WAITING:
            raise ComputingError("too many remedies are computed now; try again")
        self._waiting += 1
        try:
            async with self._one_remedy:
                messages = await self._advise(gang)
        except LateError as error:
            raise ComputingError("the remedies take too long to compute") from error
        except (LostThreadError, PolicyError) as error:
            raise ComputingError("the remedies cannot be computed") from error
        finally:
            self._waiting -= 1
        self._remedies.pop(gang, None)
        while len(self._remedies) >= _REMEDIES_KEPT:
            del self._remedies[next(iter(self._remedies))]
        self._remedies[gang] = at_s, messages
        return messages

    async def _advise(self, gang: str) -> tuple[str, ...]:
        source, now_s = self.source, self.source.now_s()
        refusal = self._planned.refusals.get(GangId(gang))
        state = source.engine.view.gangs.get(GangId(gang))
        if refusal is None or state is None or not state.is_plannable():
            return ()
        pending = source.engine.view.pending(GangId(gang))
        snapshot = source.engine.view.snapshot_all(now_s)
        advisor = Advisor(source.policies, now_s, source.budget, source.protected)
        progress: Progress = snapshot.progress
        advised, _ = await Deadline("remedies", _REMEDIES_S, _GRACE_S).run(
            partial(advisor.advise, pending, refusal, snapshot), progress
        )
        return tuple(remedy.message for remedy in advised.remedies)


def with_samples(before: Samples, queues: tuple[QueueRow, ...], at_s: float) -> Samples:
    """Return the samples of each queue with one more; queues that are gone have none."""
    return {
        row.name: (
            *before.get(row.name, ())[1 - _SAMPLES_KEPT :],
            QueueSample(at_s, row.share or 0.0, row.pending),
        )
        for row in queues
    }
