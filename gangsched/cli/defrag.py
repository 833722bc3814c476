"""`gangsched defrag`: which gangs to move, asked of the live cluster; nothing is changed."""

import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from gangsched.cli.cluster.view import read
from gangsched.cli.output.printing import new_table, put, say
from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core.engine.engine import Engine
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import Reason
from gangsched.core.planning.planner import make_plan, starts
from gangsched.core.policy import Policies
from gangsched.core.preemption.defragmentation import Budget, Defragmentation, Defragmenter
from gangsched.core.snapshot import Asked, Snapshot
from gangsched.kube.background import disruption_budgets
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient

_LABELS_TOLD = 3
_FOR_ROOM = frozenset({Reason.NO_ROOM, Reason.TOPOLOGY, Reason.BEHIND, Reason.BOOKED})
_FOR_QUOTA = frozenset({Reason.OVER_QUOTA, Reason.BEYOND_QUOTA, Reason.MAY_NOT_BORROW})


@dataclass(frozen=True, slots=True)
class DefragRequest:
    """What to make room for: a waiting gang (`namespace/name`), or a whole domain of a level."""

    gang: str = ""
    level: str = ""
    topology: str = ""


async def find(
    access: Access, config: SchedulerConfig, policies: Policies, wish: DefragRequest
) -> Defragmentation | None:
    """Read the cluster once and plan the moves.

    Raises:
        ConfigError: the gang does not wait, or not for room; or the level does not exist.

    """
    async with KubeClient(access) as client:
        scheduler = await read(client, config, policies)
        protected = await disruption_budgets.protected(client, scheduler.engine)
    engine = scheduler.engine
    budget = Budget(config.defragment_gpu_s, config.defragment_gangs)
    now_s = time.time()
    snapshot = engine.snapshot(now_s, who=Asked.ALL)

    def would(waiting: PendingGang, on: Snapshot, at_s: float | None) -> bool:
        return starts(waiting, on, policies, now_s if at_s is None else at_s)

    mover = Defragmenter(snapshot, policies.placer, now_s, budget, protected, would)
    if wish.gang:
        state = engine.gangs.get(GangId(wish.gang))
        if state is None or not state.plannable():
            waiting = ", ".join(g.id for g in engine.gangs.values() if g.plannable()) or "none"
            raise ConfigError(f"--gang: {wish.gang!r} does not wait; waiting are: {waiting}")
        settled = _settled(engine, policies, wish)
        return settled or mover.make_room(engine.pending(state.id))
    return mover.free_domain(wish.topology, _level(engine, wish))


def _settled(engine: Engine, policies: Policies, wish: DefragRequest) -> Defragmentation | None:
    """Return that nothing has to move, where the gang would start as it is.

    Raises:
        ConfigError: it is no room that the gang lacks.

    """
    now_s = time.time()
    plan = make_plan(engine.snapshot(now_s, who=Asked.ALL), policies, now_s)
    for planned in plan.placements:
        if planned.gang == wish.gang:
            return Defragmentation((), placement=planned.placement)
    found = (refusal for waiting, refusal in plan.refusals if waiting.gang.id == wish.gang)
    refusal = next(found, None)
    if refusal is None or refusal.reason in _FOR_ROOM:
        return None
    quota = "its queue has no quota for it: " if refusal.reason in _FOR_QUOTA else ""
    raise ConfigError(
        f"--gang: {quota}moving other gangs does not help {wish.gang}: {refusal.message}"
    )


def _level(engine: Engine, wish: DefragRequest) -> int:
    tree = engine.cluster.tree(wish.topology)
    if tree is None and not engine.cluster.trees:
        nodes = (node for node in engine.cluster.nodes if node is not None)
        labels = {key for node in nodes for key in node.labels if wish.level in key}
        named = ", ".join(sorted(labels)[:_LABELS_TOLD])
        have = f"; nodes have the label {named}" if named else ""
        raise ConfigError(
            f"--level: there is no Topology, so nobody knows what a {wish.level} is{have}. Apply "
            f"a Topology that names such labels of the nodes (manifests/topologies has examples)"
        )
    if tree is None:
        known = ", ".join(engine.cluster.trees) or "none"
        raise ConfigError(f"--topology: {wish.topology!r} does not exist; there are: {known}")
    level = tree.topology.index(wish.level)
    if level is None or level >= len(tree.codes):
        levels = ", ".join(one.name for one in tree.topology.levels)
        raise ConfigError(f"--level: {wish.level!r} is no level to free; there are: {levels}")
    return level


def as_data(found: Defragmentation | None) -> dict[str, Any]:
    """Return the moves for --output json."""
    if found is None:
        return {"possible": False, "moves": []}
    return {
        "possible": True,
        "domain": found.domain,
        "lostGpuHours": round(found.lost_gpu_s / 3600, 3),
        "moves": [
            {
                "gang": move.gang,
                "from": list(move.source),
                "to": list(move.target),
                "lostGpuHours": round(move.lost_gpu_s / 3600, 3),
            }
            for move in found.moves
        ],
    }


def show(found: Defragmentation | None, wish: DefragRequest, console: Console) -> None:
    """Print the moves as a table of 80 columns."""
    if found is None:
        what = f"gang {wish.gang}" if wish.gang else f"a whole {wish.level}"
        say(
            console,
            f"no moves within the budget make room for {what}: gangs move only when they are "
            f"movable, ran for their minimum time, and fit elsewhere",
        )
        return
    if not found.moves:
        free = f"{wish.level} {found.domain} is free already"
        ready = f"there is room for {wish.gang} now"
        say(console, f"{free if found.domain else ready}; no gang has to move")
        return
    table = new_table("GANG", "FROM", "TO", "LOSES")
    for move in found.moves:
        loses = f"{move.lost_gpu_s / 3600:.3g} GPU-h"
        table.add_row(move.gang, ", ".join(move.source), ", ".join(move.target), loses)
    put(table, console)
    whom = f"{wish.level} {found.domain} is free" if found.domain else f"{wish.gang} starts"
    say(console, f"then {whom}; {found.lost_gpu_s / 3600:.3g} GPU-hours of work are lost in all")
