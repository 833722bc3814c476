"""`gangsched defrag`: which gangs of a live cluster to move; nothing is changed."""

import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from gangsched.cli.cluster.view import read_scheduler
from gangsched.cli.output.printing import new_table, print_sentence, print_table
from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Reason
from gangsched.core.planning.planner import make_plan, starts_next_cycle
from gangsched.core.policy import Policies
from gangsched.core.preemption.defragmentation import Budget, Defragmentation, Defragmenter
from gangsched.core.snapshot import Snapshot
from gangsched.kube.background import disruption_budgets
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient

_LABELS_MAX = 3
_LACKS_CAPACITY = frozenset({Reason.NOT_ENOUGH_FREE, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED})
_LACKS_QUOTA = frozenset({Reason.QUOTA_IN_USE, Reason.LARGER_THAN_QUOTA, Reason.MAY_NOT_BORROW})


@dataclass(frozen=True, slots=True)
class DefragRequest:
    """What to free capacity for: a pending gang (`namespace/name`), or a whole topology domain."""

    gang: str = ""
    level: str = ""
    topology: str = ""


async def plan_moves(
    access: Access, config: SchedulerConfig, policies: Policies, request: DefragRequest
) -> Defragmentation | None:
    """Read the cluster once and plan the moves.

    Raises:
        ConfigError: the gang is not pending or does not lack capacity, or the level does not exist.

    """
    async with KubeClient(access) as client:
        scheduler = await read_scheduler(client, config, policies)
        protected = await disruption_budgets.protected(client, scheduler.engine.view)
    engine = scheduler.engine
    budget = Budget(config.defragment_gpu_s, config.defragment_gangs)
    now_s = time.time()
    snapshot = engine.view.snapshot_all(now_s)

    def would_start(pending: PendingGang, snapshot: Snapshot, at_s: float | None) -> bool:
        return starts_next_cycle(pending, snapshot, policies, now_s if at_s is None else at_s)

    defragmenter = Defragmenter(snapshot, policies.placer, now_s, budget, protected, would_start)
    if request.gang:
        state = engine.view.gangs.get(GangId(request.gang))
        if state is None or not state.is_plannable():
            pending = (
                ", ".join(g.id for g in engine.view.gangs.values() if g.is_plannable()) or "none"
            )
            raise ConfigError(
                f"--gang: {request.gang!r} is not pending; these gangs are: {pending}"
            )
        without_moves = _check_free_capacity(engine, policies, request)
        return without_moves or defragmenter.find_moves(engine.view.pending(state.id))
    return defragmenter.free_domain(request.topology, _level(engine, request))


def _check_free_capacity(
    engine: SchedulingEngine, policies: Policies, request: DefragRequest
) -> Defragmentation | None:
    """Return an empty set of moves if the gang starts without moves, or None if it needs some.

    Raises:
        ConfigError: free capacity is not what the gang lacks.

    """
    now_s = time.time()
    plan = make_plan(engine.view.snapshot_all(now_s), policies, now_s)
    for planned in plan.placements:
        if planned.gang == request.gang:
            return Defragmentation((), placement=planned.placement)
    refusals = {pending.gang.id: refusal for pending, refusal in plan.refusals}
    refusal = refusals.get(GangId(request.gang))
    if refusal is None or refusal.reason in _LACKS_CAPACITY:
        return None
    quota = "the gang lacks quota, so " if refusal.reason in _LACKS_QUOTA else ""
    raise ConfigError(
        f"--gang: {quota}moving other gangs does not help {request.gang}: {refusal.message}"
    )


def _level(engine: SchedulingEngine, request: DefragRequest) -> int:
    tree = engine.view.cluster.tree(request.topology)
    if tree is None and not engine.view.cluster.trees:
        nodes = (node for node in engine.view.cluster.nodes if node is not None)
        labels = {key for node in nodes for key in node.labels if request.level in key}
        similar = ", ".join(sorted(labels)[:_LABELS_MAX])
        have = f"; nodes have the label {similar}" if similar else ""
        raise ConfigError(
            f"--level: no Topology declares the level {request.level}{have}. Apply a Topology "
            f"that names such labels of the nodes (manifests/topologies has examples)"
        )
    if tree is None:
        existing = ", ".join(engine.view.cluster.trees) or "none"
        raise ConfigError(f"--topology: {request.topology!r} does not exist; there are: {existing}")
    level = tree.topology.index(request.level)
    if level is None or level >= len(tree.codes):
        levels = ", ".join(declared.name for declared in tree.topology.levels)
        raise ConfigError(f"--level: {request.level!r} cannot be freed; the levels are: {levels}")
    return level


def moves_data(plan: Defragmentation | None) -> dict[str, Any]:
    """Return the moves for --output json."""
    if plan is None:
        return {"possible": False, "moves": []}
    return {
        "possible": True,
        "domain": plan.domain,
        "lostGpuHours": round(plan.lost_gpu_s / 3600, 3),
        "moves": [
            {
                "gang": move.gang,
                "from": list(move.source),
                "to": list(move.target),
                "lostGpuHours": round(move.lost_gpu_s / 3600, 3),
            }
            for move in plan.moves
        ],
    }


def show_moves(plan: Defragmentation | None, request: DefragRequest, console: Console) -> None:
    """Print the moves as a table of 80 columns."""
    if plan is None:
        aim = f"enough for gang {request.gang}" if request.gang else f"a whole {request.level}"
        print_sentence(
            console,
            f"no moves within the budget free {aim}: a gang moves only if it is movable, ran for "
            f"its minimum time, and fits elsewhere",
        )
        return
    if not plan.moves:
        free = f"{request.level} {plan.domain} is free already"
        ready = f"enough is free for {request.gang} now"
        print_sentence(console, f"{free if plan.domain else ready}; no gang has to move")
        return
    table = new_table("GANG", "FROM", "TO", "LOSES")
    for move in plan.moves:
        loses = f"{move.lost_gpu_s / 3600:.3g} GPU-h"
        table.add_row(move.gang, ", ".join(move.source), ", ".join(move.target), loses)
    print_table(table, console)
    result = f"{request.level} {plan.domain} is free" if plan.domain else f"{request.gang} starts"
    print_sentence(
        console, f"then {result}; {plan.lost_gpu_s / 3600:.3g} GPU-hours of work are lost in all"
    )
