"""Gangs that wait for other gangs: dependencies, and series with a limit of running gangs.

A gang that waits is not plannable, so it delays no other gang, has no backfill reservation and
uses no quota. What changed is collected while facts are applied, and judged once after each.
"""

from collections.abc import Iterator

from gangsched.core import facts as f
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.pending.ended_gangs import EndedGangs, own_name
from gangsched.core.engine.pending.pending_queue import PendingQueue
from gangsched.core.engine.pending.refusal_reports import RefusalReports
from gangsched.core.model.dependencies import (
    Dependency,
    DependencyCondition,
    Outcome,
    Series,
    is_met,
)
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import DECLARING_PREFIXES, Reason, Refusal

_SETTLE_S = 10.0
"""How long a gang has been gone before it counts as failed: a job that restarts declares it again.
"""
_VISITED_MAX = 1000
_NAMED = 3
_WORDS = {
    DependencyCondition.SUCCEEDED: "to succeed",
    DependencyCondition.ENDED: "to end",
    DependencyCondition.FAILED: "to fail",
    DependencyCondition.STARTED: "to start",
}
_Key = tuple[str, str]


class StartConditions:
    """Decides which pending gangs may be planned."""

    def __init__(self, table: GangTable, pending: PendingQueue, refusals: RefusalReports) -> None:
        self.ended = EndedGangs()
        self._table = table
        self._pending = pending
        self._refusals = refusals
        self._known: dict[GangId, tuple[tuple[Dependency, ...], Series | None]] = {}
        self._dependents: dict[_Key, dict[GangId, None]] = {}
        self._series: dict[_Key, dict[GangId, None]] = {}
        self._due: dict[GangId, None] = {}
        self._due_series: dict[_Key, None] = {}

    # -- what changed -------------------------------------------------------------------------

    def settled(self, gang: GangState) -> None:
        """Record that a gang changed, or its declaration."""
        spec = gang.spec
        if spec is not None and (spec.dependencies or spec.series is not None):
            self._register(gang, spec)
            self._due[gang.id] = None
        elif gang.id in self._known:
            self._forget_declared(gang.id)
            self._due[gang.id] = None
        if self._dependents:
            self._due.update(self._dependents.get(own_name(gang.id), {}))

    def forget(self, gang: GangId) -> None:
        """Record that nothing is left of a gang."""
        if gang in self._known:
            self._forget_declared(gang)
        if self._dependents:
            self._due.update(self._dependents.get(own_name(gang), {}))

    def record_end(self, gang: GangState, outcome: Outcome, now_s: float) -> None:
        """Record how a gang ended, once for each run."""
        if gang.job_ended or gang.outcome is outcome or gang.outcome is Outcome.SUCCEEDED:
            return
        gang.outcome = outcome
        self.ended.record(gang.id, outcome, now_s)

    def restore_end(self, fact: f.EndRestored) -> None:
        """Record the end of a gang that an earlier process observed."""
        self.ended.restore(fact.gang, fact.outcome, fact.at_s)
        self.judge_all()

    def record_job_end(self, fact: f.JobEnded, now_s: float) -> None:
        """Record that a gang's job says how it ended: it does not start its pods again."""
        gang = self._table.gangs.get(fact.gang)
        if gang is None or (gang.job_ended and gang.outcome is fact.outcome):
            return
        gang.outcome, gang.job_ended = fact.outcome, True
        self.ended.record(gang.id, fact.outcome, now_s)
        self._due.update(self._dependents.get(own_name(gang.id), {}))

    def record_deleted(self, gang: GangState, now_s: float) -> None:
        """Record that the declaration of a gang was deleted: a gang that did not succeed failed."""
        if gang.outcome is not Outcome.SUCCEEDED:
            self.ended.record(gang.id, Outcome.FAILED, now_s)
        gang.outcome, gang.job_ended = None, False  # another gang of that name may be declared

    def _register(self, gang: GangState, spec: Gang) -> None:
        wanted = (spec.dependencies, spec.series)
        if self._known.get(gang.id) != wanted:
            self._forget_declared(gang.id)
            self._known[gang.id] = wanted
            gang.dependencies_met = not spec.dependencies
            namespace, _ = own_name(gang.id)
            for dependency in spec.dependencies:
                key = namespace, dependency.name
                self._dependents.setdefault(key, {})[gang.id] = None
            if spec.series is not None:
                self._series.setdefault((namespace, spec.series.name), {})[gang.id] = None
        if spec.series is not None:
            self._due_series[own_name(gang.id)[0], spec.series.name] = None

    def _forget_declared(self, gang: GangId) -> None:
        dependencies, series = self._known.pop(gang, ((), None))
        namespace, _ = own_name(gang)
        for dependency in dependencies:
            _discard(self._dependents, (namespace, dependency.name), gang)
        if series is not None:
            _discard(self._series, (namespace, series.name), gang)
            self._due_series[namespace, series.name] = None

    # -- who may be planned -------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether anything changed that decides who may be planned."""
        return bool(self._due or self._due_series)

    def judge_all(self) -> None:
        """Have every gang judged again: time has passed."""
        self._due.update(dict.fromkeys(self._known))
        self._due_series.update(dict.fromkeys(self._series))

    def judge(self, now_s: float) -> None:
        """Decide again about the gangs for which something changed."""
        due, self._due = self._due, {}
        for gang_id in due:
            gang = self._table.gangs.get(gang_id)
            if gang is None:
                continue
            declared = self._known.get(gang_id)
            refusal = self._waits_for(gang, now_s) if gang.state is State.PENDING else None
            if refusal is not None or declared is None or declared[1] is None:
                self._hold_or_release(gang, refusal, now_s)
            if declared is not None and declared[1] is not None:
                self._due_series[own_name(gang_id)[0], declared[1].name] = None
        series, self._due_series = self._due_series, {}
        for key in series:
            self._judge_series(key, now_s)

    def _judge_series(self, key: _Key, now_s: float) -> None:
        """Let the next gangs of a series be planned, as far as its limit allows."""
        taken, waiting = 0, []
        for gang_id in self._series.get(key, {}):
            gang = self._table.gangs.get(gang_id)
            if gang is None or gang.spec is None:
                continue
            if gang.state is State.PENDING and not gang.holds_nodes():
                if gang.dependencies_met and not gang.retry.failure_message:
                    waiting.append(gang)
            elif gang.holds_nodes() or gang.state in (State.RESERVED, State.BINDING):
                taken += 1
        waiting.sort(key=lambda gang: (-gang.priority(), gang.waits_since_s(), gang.id))
        for gang in waiting:
            series = gang.spec.series if gang.spec is not None else None
            refusal = None
            if series is not None and taken >= series.running_max:
                refusal = Refusal(
                    gang.id,
                    Reason.SERIES_FULL,
                    f"at most {series.running_max} of the series {series.name} run at a time, and "
                    f"others of it run or come first.",
                )
            else:
                taken += 1
            self._hold_or_release(gang, refusal, now_s)

    def _hold_or_release(self, gang: GangState, refusal: Refusal | None, now_s: float) -> None:
        before = gang.held_for
        gang.held_for = refusal.message if refusal is not None else ""
        if gang.held_for == before:
            return
        gang.mark_changed()
        if refusal is not None:
            self._pending.remove(gang.id)
            self._refusals.refuse(gang, refusal, now_s)
            return
        if gang.state is State.PENDING:
            self._refusals.withdraw(gang)
        if gang.is_plannable():
            self._pending.add(gang.id)

    def held(self) -> list[GangState]:
        """Return the pending gangs that wait for other gangs."""
        gangs = (self._table.gangs.get(gang) for gang in self._known)
        return [gang for gang in gangs if gang is not None and gang.held_for and gang.spec]

    def unmet(
        self, gang: GangState, now_s: float
    ) -> tuple[tuple[GangId, ...], tuple[GangId, ...]] | None:
        """Return the gangs that have to end and to start first; None if that may never happen.

        A gang may fail, but no forecast says so.
        """
        ends: list[GangId] = []
        starts: list[GangId] = []
        dependencies = gang.spec.dependencies if gang.spec is not None else ()
        namespace, _ = own_name(gang.id)
        for dependency in () if gang.dependencies_met else dependencies:
            outcome, _, started = self._state_of(namespace, dependency.name, now_s)
            if is_met(dependency.condition, outcome, started=started):
                continue
            live = next(self._live(namespace, dependency.name), None)
            failure = dependency.condition is DependencyCondition.FAILED
            if outcome is not None or failure or live is None:
                return None
            start = dependency.condition is DependencyCondition.STARTED
            (starts if start else ends).append(live.id)
        return tuple(ends), tuple(starts)

    # -- dependencies -------------------------------------------------------------------------

    def _waits_for(self, gang: GangState, now_s: float) -> Refusal | None:
        """Return what a gang waits for, or None once every dependency holds."""
        spec = gang.spec
        if gang.dependencies_met or spec is None:
            return None
        namespace, _ = own_name(gang.id)
        waits: list[str] = []
        missing: list[str] = []
        for dependency in spec.dependencies:
            outcome, exists, started = self._state_of(namespace, dependency.name, now_s)
            if is_met(dependency.condition, outcome, started=started):
                continue
            words = f"{dependency.name} {_WORDS[dependency.condition]}"
            if outcome is not None:
                return Refusal(
                    gang.id,
                    Reason.DEPENDENCY_NEVER_MET,
                    f"the gang waits for {words}, but {dependency.name} has "
                    f"{outcome.value.lower()}; run {dependency.name} again, or change the "
                    f"dependency.",
                )
            waits.append(words)
            if not exists:
                missing.append(dependency.name)
        if not waits:
            gang.dependencies_met = True
            return None
        if cycle := self._cycle(gang.id):
            names = " -> ".join(own_name(other)[1] for other in cycle)
            message = f"gangs wait for each other: {names}; remove one of the dependencies."
            return Refusal(gang.id, Reason.DEPENDENCY_NEVER_MET, message)
        message = f"the gang waits for {_listed(waits)}"
        if missing:
            message += f"; there is no job or PodGroup {_listed(missing)} in its namespace"
        return Refusal(gang.id, Reason.DEPENDENCY, f"{message}.")

    def _state_of(
        self, namespace: str, name: str, now_s: float
    ) -> tuple[Outcome | None, bool, bool]:
        """Return how a job or PodGroup ended, whether it exists, and whether it started."""
        for live in self._live(namespace, name):
            if live.outcome is Outcome.SUCCEEDED or live.job_ended:
                return live.outcome, True, True
            if live.retry.failure_message and not live.holds_nodes():
                return Outcome.FAILED, True, True
            return None, True, live.state is State.PLACED
        ended = self.ended.find(namespace, name, now_s)
        if ended is None:
            return None, False, False
        if ended.outcome is Outcome.FAILED and now_s - ended.at_s < _SETTLE_S:
            return None, True, True
        return ended.outcome, True, True

    def _live(self, namespace: str, name: str) -> Iterator[GangState]:
        """Yield the gangs that jobs and PodGroups of a name declare now."""
        for prefix in ("", *DECLARING_PREFIXES):
            gang_id = f"{namespace}/{prefix}:{name}" if prefix else f"{namespace}/{name}"
            gang = self._table.gangs.get(GangId(gang_id))
            if gang is not None and gang.spec is not None and not gang.undeclared:
                yield gang

    def _cycle(self, start: GangId) -> list[GangId]:
        """Return the gangs of a cycle of dependencies through a gang; empty without one."""
        came_from: dict[GangId, GangId] = {}
        stack, visited = [start], 0
        while stack and visited < _VISITED_MAX:
            gang_id = stack.pop()
            visited += 1
            for dependency in self._known.get(gang_id, ((), None))[0]:
                for other in self._live(own_name(gang_id)[0], dependency.name):
                    if other.id == start:
                        path = [start, gang_id]
                        while path[-1] != start:
                            path.append(came_from[path[-1]])
                        return path[::-1]
                    if other.id not in came_from and not other.dependencies_met:
                        came_from[other.id] = gang_id
                        stack.append(other.id)
        return []


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def _discard(table: dict[_Key, dict[GangId, None]], key: _Key, gang: GangId) -> None:
    there = table.get(key)
    if there is not None:
        there.pop(gang, None)
        if not there:
            del table[key]
