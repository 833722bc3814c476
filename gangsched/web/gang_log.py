"""What happened to each gang: sentences for its page, and runs that ended for the timeline.

A log follows one engine by its facts. It is bounded, and keeps what happened last.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice

import msgspec

from gangsched.core import facts as f
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import gpus_of_pod
from gangsched.core.model.refusal import Refusal, plural
from gangsched.web.model import LogLine, RunSpan

_LINES_OF_A_GANG, _GANGS, _LINES = 200, 20_000, 200_000
_RUNS = 10_000
_CHANGES = 20_000
_NODES_NAMED = 4
_GONE, _FINISHED = "Gone", "Finished"


class GangLog:
    """Follows an engine. `before` takes each fact before the engine does."""

    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.runs: deque[RunSpan] = deque(maxlen=_RUNS)
        self._lines: dict[GangId, deque[LogLine]] = {}
        self._count = 0
        self._states: dict[GangId, str] = {}
        self._running: dict[GangId, RunSpan] = {}
        self._stopped: dict[GangId, RunSpan] = {}
        self._reasons: dict[GangId, str] = {}
        self._touched: dict[GangId, float] = {}
        self._changes: deque[float] = deque(maxlen=_CHANGES)

    # -- what happens -------------------------------------------------------------------------

    def before(self, fact: f.Fact, at_s: float) -> None:
        """Take a fact that the engine is about to observe."""
        self.settle()
        match fact:
            case f.GangSeen(spec):
                gang: GangId | None = spec.id
                state = self.view.gangs.get(spec.id)
                known = state.spec if state is not None else None
                if known is not None and (known.queue, known.min_member) != (
                    spec.queue,
                    spec.min_member,
                ):
                    text = (
                        f"now in queue {spec.queue} with at least {plural(spec.min_member, 'pod')}"
                    )
                    self._write(spec.id, at_s, f"The declaration changed: {text}.")
            case f.GangGone(gang):
                pass
            case f.PodSeen():
                gang = fact.gang
                before = self.view.pod(fact.uid)
                if gang is not None and fact.failed and (before is None or not before.failed):
                    self._write(gang, at_s, f"Pod {fact.name} failed on node {fact.node}.")
            case f.PrepareFailed(uid, node, reason) | f.BindFailed(uid, node, reason):
                gang, name = self._pod(uid)
                self._write(gang, at_s, f"Pod {name} cannot use node {node}: {reason}")
            case f.PodGone(uid):
                gang, _ = self._pod(uid)
            case f.PreemptionRestored(gang, by, _):
                self._write(gang, at_s, f"The gang was preempted for {by}.")
            case f.PlanFailed(gang, problem):
                self._write(gang, at_s, f"It cannot be planned: {problem}")
            case _:
                gang = None
        if gang is not None:
            self._touched[gang] = at_s

    def assigned(self, placements: Mapping[GangId, Placement], at_s: float) -> None:
        """Take the placements of a plan."""
        self.settle()
        for gang, placement in placements.items():
            nodes = _nodes(str(node) for _, node in placement.nodes)
            victims = ", ".join(sorted({str(eviction.gang) for eviction in placement.evicts}))
            text = f"The plan assigns {plural(len(placement.nodes), 'pod')} to {nodes}"
            self._write(gang, at_s, f"{text}{f' and preempts {victims}' if victims else ''}.")
            for eviction in placement.evicts:
                text = f"The plan preempts {'some of its pods' if eviction.pods else 'it'} for"
                self._write(eviction.gang, at_s, f"{text} {gang}.")

    def refused(self, refusals: Mapping[GangId, Refusal], at_s: float) -> None:
        """Take why pending gangs wait; a gang with the same reason as before gets no line."""
        self.settle()
        for gang, refusal in refusals.items():
            if self._reasons.get(gang) != refusal.reason:
                self._write(gang, at_s, f"It waits: {refusal.message}")
        self._reasons = {gang: str(refusal.reason) for gang, refusal in refusals.items()}

    def settle(self) -> None:
        """Compare the gangs of the last facts with what they were."""
        for gang, at_s in self._touched.items():
            state = self.view.gangs.get(gang)
            now = _state(self.view, state)
            before = self._states.get(gang)
            if now != before and not (before is None and now == _GONE):
                self._changed(gang, state, (before, now), at_s)
        self._touched.clear()

    def follow(self, view: EngineView) -> None:
        """Follow another engine: the scheduler was started again."""
        self.settle()
        self.view = view

    def _pod(self, uid: object) -> tuple[GangId | None, str]:
        pod = self.view.pod(uid)  # type: ignore[arg-type]
        return (None, "") if pod is None else (pod.gang, str(pod.name))

    def _changed(
        self, gang: GangId, state: GangState | None, change: tuple[str | None, str], at_s: float
    ) -> None:
        before, now = change
        self._changes.append(at_s)
        if now == _GONE:
            self._states.pop(gang, None)
            self._reasons.pop(gang, None)
        else:
            self._states[gang] = now
        run = self._running.pop(gang, None)
        if run is not None:
            over = now in (_FINISHED, _GONE)
            outcome = "ended" if over else "stopped"
            run = msgspec.structs.replace(run, ended_s=at_s, outcome=outcome)
            self.runs.append(run)
            if not over:
                self._stopped[gang] = run
        if now == State.PLACED and state is not None and state.spec is not None:
            started_s = running_view(state).started_s
            stopped = self._stopped.pop(gang, None)
            if stopped is not None and stopped.started_s == started_s:
                self._continue(stopped)
            gpus = sum(gpus_of_pod(member.needs) for member in state.members.values())
            self._running[gang] = RunSpan(
                str(gang), state.spec.queue, gpus, started_s, started_s, ""
            )
        for spans in (self._running, self._stopped):
            while len(spans) > _RUNS:
                del spans[next(iter(spans))]
        if not (now == _GONE and before == _FINISHED):
            self._write(gang, at_s, _sentence(state, before, now))

    def _continue(self, run: RunSpan) -> None:
        """Forget that a run was stopped: the scheduler was, and has found the run again."""
        with suppress(ValueError):  # it may have been dropped
            self.runs.remove(run)

    def _write(self, gang: GangId | None, at_s: float, text: str) -> None:
        if gang is None:
            return
        lines = self._lines.pop(gang, None)
        if lines is None:
            lines = deque(maxlen=_LINES_OF_A_GANG)
        self._count += len(lines) < _LINES_OF_A_GANG
        lines.append(LogLine(at_s, text))
        self._lines[gang] = lines  # the gang that changed last is dropped last
        while self._count > _LINES or len(self._lines) > _GANGS:
            self._count -= len(self._lines.pop(next(iter(self._lines))))

    # -- what happened ------------------------------------------------------------------------

    def story(self, gang: str, until_s: float = float("inf")) -> tuple[LogLine, ...]:
        """Return what happened to a gang until a moment, the last first."""
        lines = self._lines.get(GangId(gang), ())
        return tuple(line for line in reversed(lines) if line.at_s <= until_s)

    def runs_until(self, at_s: float) -> tuple[RunSpan, ...]:
        """Return the runs that had ended by a moment."""
        return tuple(run for run in self.runs if run.ended_s <= at_s)

    def changes_beside(self, at_s: float) -> tuple[float | None, float | None]:
        """Return when a gang changed last before a moment, and when one changes first after it."""
        changes = list(self._changes)
        before, after = bisect_left(changes, at_s), bisect_right(changes, at_s)
        return (
            changes[before - 1] if before else None,
            changes[after] if after < len(changes) else None,
        )


def _state(view: EngineView, state: GangState | None) -> str:
    if state is None or (state.spec is None and not state.members):
        return _GONE
    return _FINISHED if view.is_over(state) else state.state.value


def _sentence(state: GangState | None, before: str | None, now: str) -> str:
    if state is None or now == _GONE:
        return "The gang and its pods were deleted."
    members = state.members
    match now:
        case State.GATHERING:
            return f"{len(members)} of at least {plural(state.minimum(), 'pod')} exist."
        case State.PENDING:
            again = " again" if before in (State.PLACED, State.BROKEN, State.BINDING) else ""
            return f"The gang waits{again} to be placed: {plural(len(members), 'pod')}."
        case State.RESERVED:
            nodes = (str(m.assigned_node) for m in members.values() if m.assigned_node)
            return f"Its pods are assigned to {_nodes(nodes)}."
        case State.BINDING:
            return "Its pods are bound."
        case State.PLACED:
            nodes = (str(m.bound_node) for m in members.values() if m.bound_node)
            return f"{plural(members.bound_count(), 'pod')} run on {_nodes(nodes)}."
        case State.BROKEN:
            return "The gang is broken: its pods are deleted."
        case _:
            failed = sum(member.failed for member in members.values())
            text = f", {failed} of them failed" if failed else ""
            return f"{plural(members.ended_count(), 'pod')} ended{text}."


def _nodes(names: Iterable[str]) -> str:
    """Name nodes with their pods, the first few."""
    counts = Counter(sorted(names))
    named = [f"{name} x{n}" if n > 1 else name for name, n in islice(counts.items(), _NODES_NAMED)]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {more} more nodes" if more else "")
