"""A history: what a hostile tenant does, step by step, and what became of everybody.

Histories are plain JSON, so that one that went wrong can be said again. A step is one of

    {"do": "create", "kind": "PodGroup", "seed": 1, "scale": 2}     an object drawn by a seed
    {"do": "create", "documents": [...], "larger": {"cpu": "1"}}    objects as they are written,
                                                                    and what their pods really ask
    {"do": "create", "documents": [...], "pods": false}             groups whose pods never come
    {"do": "edit", "at": 3, "seed": 1, "scale": 0}                  the object at a position, anew
    {"do": "edit", "name": "g", "spec": {...}, "metadata": {...}}   fields of an object by its name
    {"do": "delete", "at": 3}
    {"do": "plan"}, {"do": "serve"}, {"do": "restart"}, {"do": "think"}
"""

from typing import Any

from gangsched.operators.evaluation.pool import Evaluators
from simulator.hostile import verdict
from simulator.hostile.objects import NAMESPACE, made, retouched
from simulator.hostile.victim import CYCLES_MAX, Victim, end
from simulator.hostile.world import World

Step = dict[str, Any]
History = dict[str, Any]


async def run(history: History, evaluators: Evaluators) -> dict[str, Any]:
    """Live through a history; return the violations, and what it took."""
    with _world(history, evaluators) as world:
        victim, objects = Victim(world), 0
        for number, step in enumerate(history["steps"]):
            objects += await _do(world, victim, step, f"h{number}")
            await world.look()
            world.violations += verdict.impossible(world.scheduler.engine)
            if world.violations:
                break
        else:
            victim.serve()
            end(world, victim)
    return {
        "violations": world.violations[:5],
        "objects": objects,
        "bytes": world.bytes_max,
        "cycles": victim.cycles_max,
    }


def _world(history: History, evaluators: Evaluators) -> World:
    admission = bool(history.get("admission", True))
    return World(evaluators, loans=bool(history.get("loans")), admission=admission)


async def _do(world: World, victim: Victim, step: Step, name: str) -> int:
    mine = world.mine()
    match step["do"]:
        case "create":
            documents = step.get("documents")
            if documents is None:
                documents = made(step["kind"], name, step["seed"], step["scale"])
            for one in documents:
                metadata = {"namespace": NAMESPACE, **one["metadata"]}
                without = not step.get("pods", True)
                world.create(
                    {**one, "metadata": metadata}, step.get("larger"), without_pods=without
                )
            return len(documents)
        case "edit" if "name" in step:
            for uid in mine:
                known = world.document(uid)
                if known["metadata"]["name"] == step["name"]:
                    changed = {
                        key: {**known.get(key, {}), **step.get(key, {})}
                        for key in ("metadata", "spec", "status")
                    }
                    world.edit(uid, {**known, **changed})
            return 1
        case "edit" if mine:
            uid = mine[step["at"] % len(mine)]
            world.edit(uid, retouched(world.document(uid), step["seed"], step["scale"]))
            return 1
        case "delete" if mine:
            if "name" in step:
                mine = [u for u in mine if world.document(u)["metadata"]["name"] == step["name"]]
            world.delete(mine[step.get("at", 0) % len(mine)])
        case "plan":
            world.plan()
        case "serve":
            victim.serve(step.get("cycles", CYCLES_MAX))
        case "restart":
            world.restart()
        case "think":
            await world.think()
    return 0
