"""Jobs that can never run, found by the scheduler's own planner on the empty cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.model.gangs import EquivalenceClassView
from gangsched.core.model.ids import GangId
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Queue
from gangsched.core.model.topology import Topology
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from simulator.jobs import Job

_CLASSES_MAX = 2000
"""How many different jobs are planned; a workload with more is not checked before a run."""


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Why a job can never run: the reason and message of its refusal."""

    reason: str
    message: str


def hopeless(
    jobs: Iterable[Job],
    nodes: Iterable[Node],
    queues: Iterable[Queue],
    topologies: Iterable[Topology],
    others: Iterable[f.PodSeen],
    policies: Policies,
) -> dict[GangId, Hopeless]:
    """Return the jobs that the empty cluster cannot run; `others` are pods that never end.

    Jobs with equal requests are planned once.
    """
    classes: dict[object, list[Job]] = {}
    for job in jobs:
        request = (job.queue, job.pods, job.least(), job.priority, job.preemptible, job.namespace)
        classes.setdefault((request, job.constraints, job.pieces()), []).append(job)
    if not classes or len(classes) > _CLASSES_MAX:
        return {}
    engine = Engine(Limits())
    facts: Sequence[f.Fact] = (
        *(f.NodeSeen(node) for node in nodes),
        *(f.QueueSeen(queue) for queue in queues),
        *(f.TopologySeen(topology) for topology in topologies),
        *others,
        *(f.GangSeen(equal[0].gang()) for equal in classes.values()),
    )
    for fact in facts:
        engine.observe(fact, 0.0)
    view = engine.view.snapshot_all()
    empty = replace(view, pending=())
    jobs_of = {equal[0].id: equal for equal in classes.values()}
    hopeless_jobs: dict[GangId, Hopeless] = {}
    for waiting in view.pending:
        plan = make_plan(
            replace(empty, equivalence_classes=(EquivalenceClassView((waiting,), 0.0),)),
            policies,
            0.0,
        )
        refusals = (
            *(refused.refusal for refused in plan.refusals),
            *(refusal for _, refusal in plan.class_refusals),
        )
        proved = next((refusal for refusal in refusals if refusal.proved), None)
        if proved is not None:
            why = Hopeless(proved.reason, proved.message)
            hopeless_jobs |= dict.fromkeys((job.id for job in jobs_of[waiting.gang.id]), why)
    return hopeless_jobs
