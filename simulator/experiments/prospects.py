"""Which jobs can never run, as the scheduler's own planner finds on the empty cluster."""

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
from gangsched.core.snapshot import Asked
from simulator.jobs import Job

_SHAPES = 2000
"""So many different jobs are looked at; of more, nothing is said before a run."""


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Why a job can never run: the vocabulary of refusals, and the sentence its user is told."""

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
    """Return the jobs that no empty cluster takes; `others` are pods that never leave.

    Jobs that ask for the same are looked at once.
    """
    alike: dict[object, list[Job]] = {}
    for job in jobs:
        asks = (job.queue, job.pods, job.least(), job.priority, job.preemptible, job.namespace)
        alike.setdefault((asks, job.constraints, job.pieces()), []).append(job)
    if not alike or len(alike) > _SHAPES:
        return {}
    engine = Engine(Limits())
    facts: Sequence[f.Fact] = (
        *(f.NodeSeen(node) for node in nodes),
        *(f.QueueSeen(queue) for queue in queues),
        *(f.TopologySeen(topology) for topology in topologies),
        *others,
        *(f.GangSeen(some[0].gang()) for some in alike.values()),
    )
    for fact in facts:
        engine.observe(fact, 0.0)
    view = engine.snapshot(who=Asked.ALL)
    empty = replace(view, waiting=())
    same = {some[0].id: some for some in alike.values()}
    found: dict[GangId, Hopeless] = {}
    for waiting in view.waiting:
        plan = make_plan(
            replace(empty, lines=(EquivalenceClassView((waiting,), 0.0),)), policies, 0.0
        )
        refusals = (*(one.refusal for one in plan.refusals), *(one for _, one in plan.lines))
        refusal = next((one for one in refusals if one.proved), None)
        if refusal is not None:
            why = Hopeless(refusal.reason, refusal.message)
            found |= dict.fromkeys((job.id for job in same[waiting.gang.id]), why)
    return found
