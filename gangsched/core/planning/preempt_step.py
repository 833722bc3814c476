"""Stopping others for a gang that does not fit, within the rules of the queues."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.fill import is_feasible
from gangsched.core.planning.context import PlanningContext, at_least
from gangsched.core.policy import Candidate, PreemptionRequest
from gangsched.core.quota.charges import charge_of, charge_on_nodes, kinds_to_try, of_kind
from gangsched.core.snapshot import RunningGang, Trial


def find_preemption(outlook: PlanningContext, waiting: PendingGang) -> Placement | Refusal | None:
    """Find whom to stop; a refusal says that those who leave already are enough."""
    preemptor = outlook.policies.preemptor
    if preemptor is None or waiting.surplus:
        return None
    for kind in kinds_to_try(waiting, outlook.usage):
        found = _of_kind(outlook, waiting, kind)
        if found is not None:
            return found
    return None


def _of_kind(
    outlook: PlanningContext, waiting: PendingGang, kind: str
) -> Placement | Refusal | None:
    snapshot, usage = outlook.afterwards()
    charge = outlook.snapshot.rules.kinds.counted(charge_of(waiting), kind)
    least = of_kind(at_least(waiting), kind)
    admitted = outlook.leaving and usage.fits(waiting.gang.queue, charge)
    if admitted and is_feasible(least, snapshot):
        named = ", ".join(one.gang.id for one in outlook.leaving[:3])
        message = f"room comes free as gangs leave that were stopped: {named}."
        return Refusal(waiting.gang.id, Reason.NO_ROOM, message)
    if not waiting.preempts or waiting.alike in outlook.snapshot.unhelped:
        return None
    if outlook.postponed:  # there is a next cycle anyway
        outlook.postponed.add(waiting.gang.id)
        return None
    found = outlook.candidates(waiting, charge)
    first = next(found, None)
    if first is None:
        return None
    placer, now_s = outlook.policies.placer, outlook.now_s
    groups = _by_protection((first, *found), outlook.snapshot.rules.protected)
    if not outlook.examines(sum(len(group) for group in groups)):
        outlook.postponed.add(waiting.gang.id)
        return None
    placed = None
    for group in groups:
        if placed is None:
            request = PreemptionRequest(least, snapshot, usage, charge, group, placer, now_s)
            placed = _chosen(outlook, request)
    alone = any(one == waiting.gang.id for one, _ in outlook.snapshot.rules.stopped)
    if placed is None and waiting.shape and not alone:
        outlook.unhelped.add(waiting.alike)
    return placed


def _by_protection(
    found: tuple[Candidate, ...], protected: frozenset[GangId]
) -> tuple[tuple[Candidate, ...], ...]:
    """Return whom to choose from first, and then: those whom no disruption budget protects, all."""
    others = tuple(one for one in found if one.running.gang.id not in protected)
    return (others, found) if others and len(others) < len(found) else (found,)


def _chosen(outlook: PlanningContext, request: PreemptionRequest) -> Placement | None:
    """Ask the preemptor; what would delay those who have room kept is not done."""
    preemptor = outlook.policies.preemptor
    assert preemptor is not None, "asked by stop_others"  # noqa: S101
    placed = preemptor.choose(request)
    if placed is None:
        return None
    gone = [outlook.stay_of(one.gang) for one in placed.evicts if not one.pods]
    if outlook.horizon.delayed(outlook.stay(request.waiting, placed.nodes), gone):
        return None
    return placed


@contextmanager
def without_victims(outlook: PlanningContext, placed: Placement, trial: Trial) -> Iterator[None]:
    """Look at the cluster as it will be once those have left whom a placement stops.

    Afterwards they take their room and quota again: what they free belongs to the gang they are
    stopped for, and what is left of it to nobody before they are gone.
    """
    gone: list[RunningGang] = []
    for eviction in placed.evicts:
        one = outlook.running[eviction.gang]
        places = tuple(p for p in one.places if not eviction.pods or p.name in eviction.pods)
        cluster, kinds = outlook.snapshot.cluster, outlook.snapshot.rules.kinds
        charge = charge_on_nodes(cluster, kinds, ((place.node, place.needs) for place in places))
        gone.append(replace(one, places=places, charge=charge, spare=(), leaving=True))
    leaving = [*outlook.leaving, *gone] if gone else []
    with trial.released([(one.gang.id, place) for one in leaving for place in one.places]):
        yield
    outlook.stopped(gone)
