"""Background tasks: advice, forecasts, statuses. If a task fails, gangs start without it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Refusal, plural
from gangsched.core.planning.forecast import (
    Effort,
    Prediction,
    forecast,
    ranges,
    with_observed_ranges,
)
from gangsched.core.planning.planner import Plan
from gangsched.core.policy import Policies
from gangsched.kube.background.advisor import LiveAdvisor
from gangsched.kube.background.deadlines import Deadline, LateError
from gangsched.kube.background.disruption_budgets import stoppable_protected
from gangsched.kube.background.object_deadlines import ObjectDeadlines
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import EngineError
from gangsched.kube.status.expected_starts import ExpectedStarts
from gangsched.kube.status.podgroup_status import PodGroupStatusWriter
from gangsched.kube.status.queue_status import QueueStatusWriter
from gangsched.kube.status.topology_status import TopologyStatusWriter
from gangsched.metrics import Metrics

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]

_ADVISED_AT_ONCE = 8
"""Refused gangs in one round of advice; each costs as much as tens of plans."""

_AGAIN_S = 5.0
_BUDGETS_S = 10.0
_BUDGETS_NAMED = 10
_LOOK_S = 0.1
_KNOWN_S = 30.0
"""Seconds that queue statuses wait for the first plan and forecast, which may both fail."""


class PlanSink(Protocol):
    """Takes the results of background tasks."""

    def observe(self, fact: f.Fact) -> None:
        """Give a fact to the engine, and carry out the orders that follow."""

    def accept(self, plan: Plan) -> None:
        """Carry out a plan."""


@dataclass(frozen=True, slots=True)
class StatusWriters:
    """The writers of statuses, which run while this process leads."""

    gangs: PodGroupStatusWriter
    queues: QueueStatusWriter
    topologies: TopologyStatusWriter


class BackgroundTasks:
    """Background tasks of one scheduler: advice, forecasts and statuses of its gangs.

    `stored` has further tasks by name, which run while this process leads.
    """

    def __init__(
        self,
        sink: PlanSink,
        engine: SchedulingEngine,
        policies: Policies,
        thinking: ObjectDeadlines,
        statuses: StatusWriters,
        expected: ExpectedStarts,
        stored: Mapping[str, Work],
        client: KubeClient,
        config: SchedulerConfig,
        metrics: Metrics,
        now_s: Callable[[], float],
    ) -> None:
        self.predictions: dict[GangId, Prediction] = {}
        self._sink, self._engine, self._policies = sink, engine, policies
        self._thinking, self._statuses, self._stored = thinking, statuses, stored
        self._metrics, self._expected, self._now_s = metrics, expected, now_s
        self._client = client
        self._config = config
        self._predicting = Deadline("forecast", config.forecast_deadline_s, config.plan_deadline_s)
        self._advising = Deadline("advice", config.advice_deadline_s, config.plan_deadline_s)
        self._predicted = asyncio.Event()
        self._too_hard: dict[GangId, int] = {}
        """Gangs, by their versions, with advice that took too long: it is not tried again."""

    def tasks(self) -> Mapping[str, Work]:
        """Return the tasks that run while this process leads, by name."""
        topologies = self._statuses.topologies
        return {
            "advice": self._advice_loop,
            "disruption budgets": self._budgets_loop,
            "predictions": self._forecast_loop,
            **self._stored,
            "the status of queues": self._queue_status_loop,
            "the status of topologies": partial(topologies.run, self._engine.view.cluster),
        }

    async def supervise(self, name: str, work: Work) -> None:
        """Run a task that never ends, and restart it 5 s after an error.

        Raises:
            EngineError: the state of the engine may be wrong from now on.

        """
        while True:
            try:
                await work()
            except EngineError:
                raise
            except Exception:
                log.exception("%s failed", name)
                self._metrics.failures.labels(name).inc()
            await asyncio.sleep(_AGAIN_S)

    async def _queue_status_loop(self) -> None:
        """Write statuses of queues, but not before the first plan and forecast know their heads."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_S):
                await self._predicted.wait()
                while True:
                    await asyncio.sleep(_LOOK_S)
                    if not self._engine.has_pending_work():
                        break
        await self._statuses.queues.run(self._engine.view, lambda: self.predictions)

    async def _forecast_loop(self) -> None:
        """Forecast the starts of pending gangs periodically, within a limited effort."""
        effort = Effort(self._config.forecast_runs, self._config.forecast_cycles)
        while True:
            snapshot = self._thinking.snapshot_all()
            took_s = 0.0
            predictions: dict[GangId, Prediction] = {}
            if snapshot.pending or snapshot.dependents:
                started_s = time.monotonic()
                now_s = self._now_s()
                work = partial(forecast, snapshot, self._policies, now_s, effort)
                with suppress(LateError):  # then there is no prediction
                    drawn = await self._thinking.run_in_time(self._predicting, work, snapshot)
                    predictions = self._stretched(drawn, now_s)
                took_s = time.monotonic() - started_s
                self._metrics.forecast_seconds.observe(took_s)
                self._statuses.gangs.predict(predictions, self._engine.view.backfill_reservations)
            self._keep_predictions(predictions)
            await asyncio.sleep(self._rest_s(self._config.forecast_interval_s, took_s))

    def _stretched(
        self, drawn: Mapping[GangId, Prediction], now_s: float
    ) -> dict[GangId, Prediction]:
        """Return the predictions to report, and record them for a comparison with the real starts.

        A gang that started meanwhile gets no prediction, because nothing would remove it.
        """
        engine = self._engine
        drawn = {
            gang: prediction
            for gang, prediction in drawn.items()
            if (now := engine.view.gangs.get(gang)) is not None
            and (now.is_plannable() or now.held_for)
        }
        starts = engine.history.starts
        reported = with_observed_ranges(drawn, starts.punctuality(now_s), now_s)
        starts.record_predictions(ranges(drawn), now_s, engine.view.gangs)
        return reported

    def _keep_predictions(self, predictions: dict[GangId, Prediction]) -> None:
        self.predictions = predictions
        self._predicted.set()
        self._expected.learn(predictions, self._engine.view.gangs)

    async def _advice_loop(self) -> None:
        """Search periodically for remedies for refused gangs."""
        advisor = LiveAdvisor(self._client, self._config, self._policies)
        took_s = 0.0
        while True:
            await asyncio.sleep(self._rest_s(self._config.advice_interval_s, took_s))
            took_s, begun_s = 0.0, time.monotonic()
            due = self._engine.take_advice_requests(_ADVISED_AT_ONCE, self._now_s())
            due = tuple(
                request
                for request in due
                if self._too_hard.get(request[0].gang.id) != request[0].version
            )
            if not due:
                continue
            await advisor.refresh(self._engine, self._now_s())
            for waiting, refusal in due:
                if not await self._advise(advisor, waiting, refusal):
                    break  # the snapshot may be damaged
            took_s = time.monotonic() - begun_s

    async def _advise(self, advisor: LiveAdvisor, waiting: PendingGang, refusal: Refusal) -> bool:
        """Advise one gang; return whether the advice ended in time."""
        started_s = time.monotonic()
        snapshot = advisor.on(waiting)
        work = partial(advisor.plan_advice, waiting, refusal, snapshot)
        try:
            plan = await self._thinking.run_in_time(self._advising, work, snapshot)
        except LateError:
            known = self._engine.view.gangs
            self._too_hard = {g: at for g, at in self._too_hard.items() if g in known}
            self._too_hard[waiting.gang.id] = waiting.version
            return False
        self._metrics.advice_seconds.observe(time.monotonic() - started_s)
        self._sink.accept(plan)
        return True

    async def _budgets_loop(self) -> None:
        """Read the gangs that disruption budgets protect periodically."""
        turn = 0
        while True:
            begun_s = time.monotonic()
            protected = await stoppable_protected(self._client, self._engine.view, turn)
            if protected != self._engine.view.protected:
                self._sink.observe(f.BudgetsSeen(tuple(sorted(protected))))
                some = ", ".join(sorted(protected)[:_BUDGETS_NAMED]) or "no gang"
                log.info("disruption budgets protect %s: %s", plural(len(protected), "gang"), some)
            turn += 1
            await asyncio.sleep(self._rest_s(_BUDGETS_S, time.monotonic() - begun_s))

    def _rest_s(self, least_s: float, took_s: float) -> float:
        """Return the seconds to pause after background work, which shares the interpreter.

        With 500 pending gangs on 1,000 nodes, forecasts without pauses delayed binding.
        """
        return max(least_s, took_s * (1 / self._config.background_cpu_share - 1))
