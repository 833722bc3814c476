"""Predicts when pending gangs start: the planner runs forward over expected run times.

Each run draws a run time for every gang from its estimate (see `quota/runtime_history.py`); the
first run takes the medians. Placements are counted and not proved. No run knows gangs that are
created later; their effect is learned from how earlier forecasts came true
(`quota/start_accuracy.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from zlib import crc32

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Eviction, Placement
from gangsched.core.model.runtime import RUNTIME_DEFAULT_S, Estimate, EstimateSource
from gangsched.core.placement.known_purchases import KnownPurchases
from gangsched.core.planning.node_arrivals import SEARCHES_MAX, NodeArrivals
from gangsched.core.planning.planner import make_plan
from gangsched.core.planning.queue_order import QueueOrderIterator
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.preemption.defragmentation import as_pending
from gangsched.core.quota.charges import charge_of
from gangsched.core.quota.start_accuracy import StartAccuracy
from gangsched.core.snapshot import (
    BackfillReservation,
    DependentGang,
    RunningGang,
    Snapshot,
    SolverBudget,
)
from gangsched.core.what_if import WhatIf, places_of


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to compute: runs with drawn run times, planning cycles in each, and gangs."""

    runs: int = 7
    cycles: int = 100
    gangs: int = 500


@dataclass(frozen=True, slots=True)
class Prediction:
    """When a gang is expected to start: median and range over the runs; None: not within reach.

    `position` counts from 1 in its queue. `source` is the source of its own run time. `after` is
    the gang that has to end before this gang starts.
    """

    gang: GangId
    position: int
    start_s: float | None
    low_s: float | None
    high_s: float | None
    source: EstimateSource
    after: GangId | None = None


def in_queue_order(snapshot: Snapshot, policies: Policies, now_s: float) -> list[PendingGang]:
    """Return the pending gangs in the order in which they are planned."""
    usage = snapshot.usage.copy()
    turns = QueueOrderIterator(
        snapshot.pending, snapshot.equivalence_classes, usage, policies, now_s, charge_of
    )
    return list(turns)


def forecast(
    snapshot: Snapshot,
    policies: Policies,
    now_s: float,
    effort: Effort | None = None,
) -> dict[GangId, Prediction]:
    """Predict the start of every pending gang, as far as the effort allows.

    The snapshot has to hold all pending gangs, and stays unchanged.

    Raises:
        StoppedError: the watcher of the snapshot's progress ended it.

    """
    effort = effort or Effort()
    order = in_queue_order(snapshot, policies, now_s)
    near = replace(
        snapshot,
        pending=tuple(order[: effort.gangs]),
        dependents=snapshot.dependents[: effort.gangs],
    )
    order += [dependent.waiting for dependent in snapshot.dependents]
    starts: dict[GangId, list[tuple[float, GangId | None]]] = {}
    purchases = KnownPurchases(SEARCHES_MAX)
    for number in range(effort.runs):
        run = _ForwardRun(near, policies, now_s, number, effort.runs, purchases)
        for gang, start_s in run.run(effort.cycles).items():
            starts.setdefault(gang, []).append((start_s, run.after.get(gang)))
    predictions: dict[GangId, Prediction] = {}
    positions: dict[str, int] = {}
    for waiting in order:
        position = positions[waiting.gang.queue] = positions.get(waiting.gang.queue, 0) + 1
        starts_of_gang = sorted(starts.get(waiting.gang.id, []), key=itemgetter(0))
        drawn = [start_s for start_s, _ in starts_of_gang]
        known = 2 * len(drawn) > effort.runs  # a start that few runs reach is no median
        estimate = waiting.estimate
        predictions[waiting.gang.id] = Prediction(
            waiting.gang.id,
            position,
            drawn[len(drawn) // 2] if known else None,
            drawn[0] if known else None,
            drawn[-1] if known else None,
            estimate.source if estimate is not None else EstimateSource.ASSUMED,
            starts_of_gang[len(drawn) // 2][1] if known else None,
        )
    return predictions


def ranges(predictions: Mapping[GangId, Prediction]) -> Iterator[tuple[GangId, float, float]]:
    """Yield the first and the last start of each gang that has a prediction."""
    for gang, prediction in predictions.items():
        if prediction.low_s is not None and prediction.high_s is not None:
            yield gang, prediction.low_s, prediction.high_s


def with_observed_ranges(
    predictions: Mapping[GangId, Prediction], by: StartAccuracy, now_s: float
) -> dict[GangId, Prediction]:
    """Return the predictions with ranges that are stretched by past accuracy."""
    adjusted = {}
    for gang, prediction in predictions.items():
        low_s, high_s = prediction.low_s, prediction.high_s
        if low_s is not None and high_s is not None:
            low_s, high_s = by.range_s(now_s, low_s, high_s)
        adjusted[gang] = replace(prediction, low_s=low_s, high_s=high_s)
    return adjusted


@dataclass(slots=True)
class _ForwardRun:
    """One run forward, on copies of the snapshot."""

    snapshot: Snapshot
    policies: Policies
    now_s: float
    number: int
    runs: int
    purchases: KnownPurchases
    starts: dict[GangId, float] = field(default_factory=dict)
    after: dict[GangId, GangId] = field(default_factory=dict)
    _ended: list[RunningGang] = field(default_factory=list)
    _what_if: WhatIf = field(init=False)
    _waiting: dict[GangId, PendingGang] = field(init=False)
    _running: dict[GangId, tuple[float, RunningGang]] = field(init=False)
    _reservations: tuple[BackfillReservation, ...] = field(init=False)
    _dependents: dict[GangId, DependentGang] = field(init=False)
    _nodes: NodeArrivals = field(init=False)

    def __post_init__(self) -> None:
        self._reservations = self.snapshot.backfill_reservations
        self._what_if = WhatIf(self.snapshot)
        self._nodes = NodeArrivals(self.snapshot, self.purchases, self.now_s)
        self._dependents = {one.waiting.gang.id: one for one in self.snapshot.dependents}
        self._waiting = {waiting.gang.id: waiting for waiting in self.snapshot.pending}
        self._running = {
            running.gang.id: (self._end_s(running), running) for running in self.snapshot.running
        }
        for running in self.snapshot.starting:  # as a part of its gang, if that runs already
            end_s, known = self._running.get(
                running.gang.id, (self._end_s(running), replace(running, places=()))
            )
            places = (*known.places, *running.places)
            self._running[running.gang.id] = end_s, replace(known, places=places, charge=())
        for running in self.snapshot.terminating:
            self._what_if.release(running)

    def run(self, cycles: int) -> dict[GangId, float]:
        """Plan and advance to the next change in turn; return when each gang started."""
        at_s = self.now_s
        for _ in range(cycles):
            self._release_dependents()
            self._nodes.arrive(self._what_if.cluster, at_s)
            if not (self._waiting or self._dependents):
                break
            self.snapshot.progress.check()
            if self._waiting:
                self._plan(at_s)
            while self._release_dependents():  # what starts lets others start
                self.snapshot.progress.check()
                self._plan(at_s)
            self._nodes.give_back(self._what_if.cluster, self._waiting)
            ends = [end_s for end_s, _ in self._running.values()]
            if (there_s := self._nodes.next_s()) is not None:
                ends.append(there_s)
            ends += [
                w[1] for b in self.snapshot.rules.advance_reservations if (w := b.window(at_s))
            ]
            ends = [end_s for end_s in ends if end_s > at_s]
            if not ends:
                break
            at_s = min(ends)
            self._ended.clear()
            for gang, (end_s, running) in list(self._running.items()):
                if end_s <= at_s:
                    del self._running[gang]
                    self._what_if.release(running)
                    self._ended.append(running)
        return self.starts

    def _release_dependents(self) -> bool:
        """Let gangs be planned once their dependencies hold and their series has a free place."""
        if not self._dependents:
            return False
        taken: Counter[tuple[str, str]] = Counter()
        for gang in (
            *(waiting.gang for waiting in self._waiting.values()),
            *(running.gang for _, running in self._running.values()),
        ):
            if gang.series is not None:
                taken[gang.id.partition("/")[0], gang.series.name] += 1
        released = False
        for gang_id, dependent in list(self._dependents.items()):
            series = dependent.waiting.gang.series
            key = gang_id.partition("/")[0], series.name if series is not None else ""
            if series is not None and taken[key] >= series.running_max:
                continue
            before_end = (self._waiting, self._dependents, self._running)
            if any(gang in there for gang in dependent.ends for there in before_end):
                continue
            before_start = (self._waiting, self._dependents)
            if any(gang in there for gang in dependent.starts for there in before_start):
                continue
            taken[key] += series is not None
            self._waiting[gang_id] = self._dependents.pop(gang_id).waiting
            released = True
        return released

    def _plan(self, at_s: float) -> None:
        while True:
            try:
                plan = make_plan(self._snapshot(), self.policies, at_s)
                break
            except PolicyError as error:  # its plan would fail: its start is unknown
                del self._waiting[error.gang]
        self._reservations = plan.backfill_reservations
        for planned in plan.placements:
            for eviction in planned.placement.evicts:
                self._preempt(eviction, at_s)
            self._start(self._waiting.pop(planned.gang), planned.placement, at_s)
        if self.snapshot.node_supply.pools and plan.refusals:
            self._nodes.buy(plan.refusals, self._snapshot(), at_s)

    def _snapshot(self) -> Snapshot:
        return replace(
            self._what_if.copied(),
            pending=tuple(self._waiting.values()),
            running=tuple(running for _, running in self._running.values()),
            terminating=(),
            starting=(),
            backfill_reservations=self._reservations,
            solver_budget=SolverBudget(0.0),
        )

    def _start(self, waiting: PendingGang, placed: Placement, at_s: float) -> None:
        if waiting.gang.id not in self.starts:
            self.starts[waiting.gang.id] = at_s
            self._note_predecessor(waiting.gang.id, placed)
        running = RunningGang(
            gang=waiting.gang,
            places=places_of(waiting, placed),
            started_s=at_s,
            last_checkpoint_s=at_s,
            constraints=waiting.constraints,
            near_role=waiting.near_role,
            priority=waiting.priority,
            estimate=waiting.estimate,
            queued_since_s=waiting.queued_since_s,
        )
        self._running[waiting.gang.id] = (self._end_s(running, at_s), self._what_if.hold(running))

    def _note_predecessor(self, gang: GangId, placed: Placement) -> None:
        """Record the gang that has to end before this one starts, if possible on the same nodes."""
        nodes = {node for _, node in placed.nodes}
        there = [
            ended for ended in self._ended if any(place.node in nodes for place in ended.places)
        ]
        if there or self._ended:
            self.after[gang] = (there or self._ended)[0].gang.id

    def _preempt(self, eviction: Eviction, at_s: float) -> None:
        end_s, running = self._running.pop(eviction.gang)
        if eviction.pods:
            left = tuple(p for p in running.places if p.name not in eviction.pods)
            gone = tuple(p for p in running.places if p.name in eviction.pods)
            self._running[eviction.gang] = (
                end_s,
                replace(running, places=left, charge=(), surplus_pods=()),
            )
            self._what_if.release(replace(running, places=gone, charge=()))
            return
        self._what_if.release(running)
        again = as_pending(running)
        self._waiting[eviction.gang] = replace(
            again, queued_since_s=running.queued_since_s, priority=running.priority
        )

    def _end_s(self, running: RunningGang, at_s: float | None = None) -> float:
        """Draw when a gang ends; a gang that runs already ends later than now."""
        estimate = running.estimate or Estimate(
            RUNTIME_DEFAULT_S, RUNTIME_DEFAULT_S, RUNTIME_DEFAULT_S, EstimateSource.ASSUMED
        )
        level = self._level(running.gang.id) if self.number else 0.5
        if at_s is not None:
            return at_s + estimate.drawn_s(level)
        return self.now_s + estimate.drawn_left_s(self.now_s - running.started_s, level)

    def _level(self, gang: GangId) -> float:
        """Return the quantile of the run time to draw for a gang, a different one in each run.

        The runs divide all quantiles among themselves, in a different order for each gang (Latin
        hypercube), so that few runs are enough.
        """
        order = [crc32(f"{number} {gang}".encode()) for number in range(1, self.runs)]
        rank = sum(other < order[self.number - 1] for other in order)
        return (rank + 0.5) / len(order)
