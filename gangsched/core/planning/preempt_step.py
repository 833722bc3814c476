"""Preempts running gangs for a gang that does not fit, within the rules of the queues."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.fill import is_feasible
from gangsched.core.planning.context import PlanningContext, required_only
from gangsched.core.policy import Candidate, PreemptionRequest
from gangsched.core.quota.charges import charge_of, charge_on_nodes, gpu_types_to_try, with_gpu_type
from gangsched.core.snapshot import RunningGang, Trial


def find_preemption(context: PlanningContext, waiting: PendingGang) -> Placement | Refusal | None:
    """Find gangs to preempt; a refusal says that gangs that already terminate are enough."""
    preemptor = context.policies.preemptor
    if preemptor is None or waiting.is_scale_up:
        return None
    for kind in gpu_types_to_try(waiting, context.usage):
        result = _on_gpu_type(context, waiting, kind)
        if result is not None:
            return result
    return None


def _on_gpu_type(
    context: PlanningContext, waiting: PendingGang, kind: str
) -> Placement | Refusal | None:
    snapshot, usage = context.after_terminations()
    charge = context.snapshot.rules.gpu_types.with_gpu_types(charge_of(waiting), kind)
    least = with_gpu_type(required_only(waiting), kind)
    admitted = context.terminating and usage.fits(waiting.gang.queue, charge)
    if admitted and is_feasible(least, snapshot):
        named = ", ".join(one.gang.id for one in context.terminating[:3])
        message = f"Waiting for preempted gangs to terminate: {named}."
        return Refusal(waiting.gang.id, Reason.NOT_ENOUGH_FREE, message)
    if not waiting.preempts or waiting.equivalence_key in context.snapshot.preemption_infeasible:
        return None
    if context.deferred:  # there is a next cycle anyway
        context.deferred.add(waiting.gang.id)
        return None
    found_candidates = context.candidates(waiting, charge)
    first = next(found_candidates, None)
    if first is None:
        return None
    placer, now_s = context.policies.placer, context.now_s
    groups = _unprotected_first((first, *found_candidates), context.snapshot.rules.protected)
    if not context.spend_search_budget(sum(len(group) for group in groups)):
        context.deferred.add(waiting.gang.id)
        return None
    placed = None
    for group in groups:
        if placed is None:
            request = PreemptionRequest(least, snapshot, usage, charge, group, placer, now_s)
            placed = _choose(context, request)
    alone = any(one == waiting.gang.id for one, _ in context.snapshot.rules.recent_preemptions)
    if placed is None and waiting.request_fingerprint and not alone:
        context.preemption_infeasible.add(waiting.equivalence_key)
    return placed


def _unprotected_first(
    found_candidates: tuple[Candidate, ...], protected: frozenset[GangId]
) -> tuple[tuple[Candidate, ...], ...]:
    """Return the candidates to try first (no disruption budget protects them), and then all."""
    others = tuple(
        candidate for candidate in found_candidates if candidate.running.gang.id not in protected
    )
    return (
        (others, found_candidates)
        if others and len(others) < len(found_candidates)
        else (found_candidates,)
    )


def _choose(context: PlanningContext, request: PreemptionRequest) -> Placement | None:
    """Call the preemptor; drop a placement that would delay a backfill reservation."""
    preemptor = context.policies.preemptor
    assert preemptor is not None, "find_preemption has checked it"  # noqa: S101
    placed = preemptor.choose(request)
    if placed is None:
        return None
    gone = [context.occupancy_of(eviction.gang) for eviction in placed.evicts if not eviction.pods]
    if context.availability.would_delay(context.occupancy(request.waiting, placed.nodes), gone):
        return None
    return placed


@contextmanager
def victims_removed(context: PlanningContext, placed: Placement, trial: Trial) -> Iterator[None]:
    """Show the cluster without the victims of a placement; leaving the block restores them.

    No other gang may use what the victims free before they have ended.
    """
    gone: list[RunningGang] = []
    for eviction in placed.evicts:
        gang = context.running[eviction.gang]
        places = tuple(p for p in gang.places if not eviction.pods or p.name in eviction.pods)
        cluster, kinds = context.snapshot.cluster, context.snapshot.rules.gpu_types
        charge = charge_on_nodes(cluster, kinds, ((place.node, place.needs) for place in places))
        gone.append(replace(gang, places=places, charge=charge, surplus_pods=(), terminating=True))
    leaving = [*context.terminating, *gone] if gone else []
    with trial.released([(gang.gang.id, place) for gang in leaving for place in gang.places]):
        yield
    context.count_preempted(gone)
