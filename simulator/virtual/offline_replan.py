"""The model of published simulators: at every event, all jobs are planned again from scratch.

The model is that of Muri (Zhao et al., SIGCOMM'22, after Tiresias). An event is an arrival or the
next completion. At any event a job may be preempted, at the cost of a fixed overhead; jobs that do
not fit are skipped. The planner and the policies are the scheduler's own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.facts import GangSeen, NodeSeen
from gangsched.core.model.gangs import EquivalenceClassView, Gang, PendingGang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.nodes import Node
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from simulator.jobs import Job

_NONE_S = 1e-9


@dataclass(slots=True)
class JobProgress:
    """A job, the work that is left of it, and its gang with the service that it has attained."""

    job: Job
    waiting: PendingGang
    left_s: float
    ended_s: float | None = None
    runs: bool = False
    interrupted: int = 0


def replan(
    nodes: Iterable[Node],
    jobs: Sequence[Job],
    policies: Policies,
    overhead_s: Callable[[Job], float],
) -> list[JobProgress]:
    """Run jobs to their end; at every event each running job loses `overhead_s` of work."""
    engine = Engine(Limits())
    for node in nodes:
        engine.observe(NodeSeen(node), 0.0)
    for job in jobs:
        role = Role("w", job.pods, job.pods, job.wants())
        gang = Gang(job.id, job.pods, (role,), created_s=job.at_s, expected_runtime_s=job.runtime_s)
        engine.observe(GangSeen(gang), 0.0)
    view = engine.view.snapshot_all()
    pending = {gang.gang.id: gang for gang in view.pending}
    view = replace(view, pending=())
    all_jobs = [JobProgress(job, pending[job.id], job.runtime_s) for job in jobs]
    arrivals = sorted(all_jobs, key=lambda progress: progress.job.at_s)
    active: dict[GangId, JobProgress] = {}
    now_s, at = 0.0, 0
    while at < len(arrivals) or active:
        ends_s = min((now_s + p.left_s for p in active.values() if p.runs), default=float("inf"))
        comes_s = arrivals[at].job.at_s if at < len(arrivals) else float("inf")
        next_s = min(ends_s, comes_s)
        if next_s == float("inf"):
            raise ValueError(f"{len(active)} jobs fit nowhere, {next(iter(active))} among them")
        for progress in [progress for progress in active.values() if progress.runs]:
            if now_s + progress.left_s <= next_s:
                progress.ended_s, progress.left_s = next_s, 0.0
                del active[progress.job.id]
            else:
                progress.left_s -= max(next_s - now_s - overhead_s(progress.job), 0.0)
                progress.left_s = max(progress.left_s, _NONE_S)
                had_s = progress.job.runtime_s - progress.left_s
                progress.waiting = replace(progress.waiting, attained_s=had_s)
        now_s = next_s
        while at < len(arrivals) and arrivals[at].job.at_s <= now_s:
            active[arrivals[at].job.id] = arrivals[at]
            at += 1
        lines = _lines(active.values())
        plan = make_plan(replace(view, equivalence_classes=lines), policies, now_s)
        chosen = {planned.gang for planned in plan.placements}
        for gang_id, progress in active.items():
            progress.interrupted += progress.runs and gang_id not in chosen
            progress.runs = gang_id in chosen
    return all_jobs


def _lines(active: Iterable[JobProgress]) -> tuple[EquivalenceClassView, ...]:
    """Return the jobs by equivalence class."""
    classes: dict[int, list[PendingGang]] = {}
    for progress in active:
        waiting = progress.waiting
        classes.setdefault(waiting.request_fingerprint, []).append(waiting)
    return tuple(EquivalenceClassView(tuple(gangs), 0.0) for gangs in classes.values())
