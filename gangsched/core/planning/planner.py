"""Planning: which gang is next, and where it goes. A pure function of a snapshot; it may be slow.

Every answer of a policy is verified here before it becomes part of the plan.
"""

from dataclasses import dataclass, replace

import numpy as np

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GPU, PodRequirements
from gangsched.core.model.refusal import Refusal
from gangsched.core.planning.cycle import Cycle, Refused
from gangsched.core.planning.queue_order import QueueOrderIterator
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.quota.charges import charge_of
from gangsched.core.snapshot import BackfillReservation, Snapshot, SolverBudget, Trial

_BESIDE = 500
"""Pending gangs that are planned beside a gang that is tried: the first in order."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A placement and the gang's version it was made for."""

    gang: GangId
    version: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class Plan:
    """What to place, in order, and the refusals: of single gangs, and of equivalence classes.

    `class_refusals` are those of equivalence classes, by key. `backfill_reservations` are those of
    refused gangs. `advice` only adds remedies to refusals that stand: it says nothing of the
    capacity now. `deferred` are refused gangs to plan again at once. For the classes of
    `preemption_infeasible` no running gang can be preempted. `truncated` says that the plan ended
    before every gang had its turn.
    """

    placements: tuple[Planned, ...] = ()
    refusals: tuple[Refused, ...] = ()
    class_refusals: tuple[tuple[tuple[int, int], Refusal], ...] = ()
    advice: bool = False
    backfill_reservations: tuple[BackfillReservation, ...] = ()
    deferred: frozenset[GangId] = frozenset()
    preemption_infeasible: frozenset[tuple[int, int]] = frozenset()
    truncated: bool = False
    snapshot_number: int = 0


def make_plan(snapshot: Snapshot, policies: Policies, now_s: float) -> Plan:
    """Plan every waiting gang of the snapshot, in turn; see `planning/cycle.py`.

    Each placement is charged before the next gang is looked at.

    Raises:
        PolicyError: a policy broke its contract for a gang.
        StoppedError: the watcher of the snapshot's progress ended it.

    """
    cycle = Cycle(snapshot, policies, now_s, verify)
    with snapshot.trial() as trial:
        cycle.run(trial)
    return Plan(
        tuple(Planned(waiting.gang.id, waiting.version, at) for waiting, at in cycle.started),
        tuple(cycle.refused),
        tuple(cycle.class_refusals.items()),
        backfill_reservations=cycle.reservations,
        deferred=cycle.deferred,
        preemption_infeasible=cycle.preemption_infeasible,
        truncated=cycle.truncated,
        snapshot_number=snapshot.number,
    )


def starts_next_cycle(
    waiting: PendingGang, snapshot: Snapshot, policies: Policies, now_s: float
) -> bool:
    """Return whether a gang, changed in some way, starts in the next cycle without preemption.

    All pending gangs are planned with it, in their order; counting decides the places.

    Raises:
        StoppedError: the watcher of the snapshot's progress ended it.

    """
    gang = waiting.gang.id
    usage = snapshot.usage.copy()
    turns = QueueOrderIterator(
        snapshot.pending, snapshot.equivalence_classes, usage, policies, now_s, charge_of
    )
    others = [one for one in turns if one.gang.id != gang]
    reserved = {one.gang for one in snapshot.backfill_reservations}
    beside = (*others[:_BESIDE], *(one for one in others[_BESIDE:] if one.gang.id in reserved))
    tried = replace(
        snapshot,
        cluster=snapshot.cluster.copy(),
        pending=(*beside, waiting),
        equivalence_classes=(),
        pods_max=None,
        solver_budget=SolverBudget(0.0),
    )
    try:
        plan = make_plan(tried, policies, now_s)
    except PolicyError:
        return False
    placed = (one.placement for one in plan.placements if one.gang == gang)
    return any(not placement.evicts for placement in placed)


def verify(waiting: PendingGang, placement: Placement, snapshot: Snapshot, trial: Trial) -> None:
    """Charge the placement to the trial.

    Raises:
        PolicyError: it names a stranger, too few members, or a node that cannot take them.

    """
    cluster = snapshot.cluster
    members = {member.name: member for member in waiting.members}
    placed = dict(placement.nodes)
    if len(placed) != len(placement.nodes) or not placed.keys() <= members.keys():
        raise PolicyError(waiting.gang.id, "a member was placed twice, or is none of its own")
    roles: dict[str, int] = {}
    for name in placed:
        roles[members[name].role] = roles.get(members[name].role, 0) + 1
    short = [role for role, least in waiting.role_members_min if roles.get(role, 0) < least]
    if len(placed) < waiting.members_min or short:
        raise PolicyError(waiting.gang.id, f"{len(placed)} placed, fewer than its minimum")
    with cluster.with_allocatable(
        {cut.node: (cut.held, cut.gained) for cut in placement.repartitions}
    ):
        _charge(waiting, placement, cluster, trial)
    for cut in placement.repartitions:
        trial.add_pods(cluster.rows[cut.node], PodRequirements(cut.held))


def _charge(waiting: PendingGang, placement: Placement, cluster: Cluster, trial: Trial) -> None:
    members = {member.name: member for member in waiting.members}
    devices = dict(placement.devices)
    groups: dict[PodRequirements, dict[int, int]] = {}
    for name, node in placement.nodes:
        row = cluster.rows.get(node)
        if row is None:
            raise PolicyError(waiting.gang.id, f"placed on {node}, which does not exist")
        needs = members[name].needs
        if needs.share is not None:  # shares fit where they were chosen, one by one
            trial.add_pods(row, needs, 1, waiting.gang.id, devices.get(name, ()))
            _check_shares(waiting, cluster, row, needs)
            continue
        counts = groups.setdefault(needs, {})
        counts[row] = counts.get(row, 0) + 1
    for needs, counts in groups.items():
        free = cluster.capacity(needs)
        for row, times in counts.items():
            if free[row] < times:
                barred = not cluster.eligible(needs)[row]
                why = "does not admit it" if barred else "would be over-committed"
                raise PolicyError(waiting.gang.id, f"{cluster.names[row]} {why}")
            trial.add_pods(row, needs, times, waiting.gang.id)


def _check_shares(waiting: PendingGang, cluster: Cluster, row: int, needs: PodRequirements) -> None:
    name = cluster.names[row]
    if not cluster.eligible(needs)[row]:
        raise PolicyError(waiting.gang.id, f"{name} does not admit it")
    asked = (cluster.request_vector(needs) > 0) | (np.array(cluster.resources) == GPU)
    if cluster.unknown_requests(needs):
        raise PolicyError(waiting.gang.id, f"{name} has not what it asks for")
    over = bool(np.any((cluster.used[row] > cluster.allocatable[row]) & asked))
    if over or cluster.shared.overfull(row):
        raise PolicyError(waiting.gang.id, f"{name} would be over-committed")
