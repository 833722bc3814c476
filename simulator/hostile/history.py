"""A history: the steps of a hostile tenant, and their effects.

Histories are plain JSON, so that a failed one can be stored and repeated. A step is one of

    {"do": "create", "kind": "PodGroup", "seed": 1, "scale": 2}     an object drawn by a seed
    {"do": "create", "documents": [...], "larger": {"cpu": "1"}}    objects as written, and what
                                                                    their pods really request
    {"do": "create", "documents": [...], "pods": false}             groups that get no pods
    {"do": "edit", "at": 3, "seed": 1, "scale": 0}                  a new version of an object
    {"do": "edit", "name": "g", "spec": {...}, "metadata": {...}}   fields of a named object
    {"do": "delete", "at": 3}
    {"do": "plan"}, {"do": "serve"}, {"do": "restart"}, {"do": "think"}
"""

from typing import Any

from gangsched.operators.evaluation.pool import Evaluators
from simulator.hostile import verdict
from simulator.hostile.objects import NAMESPACE, made, retouched
from simulator.hostile.tenant_cluster import TenantCluster
from simulator.hostile.victim import CYCLES_MAX, Victim, end

Step = dict[str, Any]
History = dict[str, Any]


async def run(history: History, evaluators: Evaluators) -> dict[str, Any]:
    """Run a history; return its violations and costs."""
    with _cluster(history, evaluators) as cluster:
        victim, objects = Victim(cluster), 0
        for number, step in enumerate(history["steps"]):
            objects += await _do(cluster, victim, step, f"h{number}")
            await cluster.look()
            cluster.violations += verdict.impossible(cluster.scheduler.engine.view)
            if cluster.violations:
                break
        else:
            victim.serve()
            end(cluster, victim)
    return {
        "violations": cluster.violations[:5],
        "objects": objects,
        "bytes": cluster.bytes_max,
        "cycles": victim.cycles_max,
    }


def _cluster(history: History, evaluators: Evaluators) -> TenantCluster:
    admission = bool(history.get("admission", True))
    return TenantCluster(evaluators, borrowing=bool(history.get("borrowing")), admission=admission)


async def _do(cluster: TenantCluster, victim: Victim, step: Step, name: str) -> int:
    uids = cluster.mine()
    match step["do"]:
        case "create":
            documents = step.get("documents")
            if documents is None:
                documents = made(step["kind"], name, step["seed"], step["scale"])
            for document in documents:
                metadata = {"namespace": NAMESPACE, **document["metadata"]}
                without_pods = not step.get("pods", True)
                cluster.create(
                    {**document, "metadata": metadata},
                    step.get("larger"),
                    without_pods=without_pods,
                )
            return len(documents)
        case "edit" if "name" in step:
            for uid in uids:
                before = cluster.document(uid)
                if before["metadata"]["name"] == step["name"]:
                    changed = {
                        key: {**before.get(key, {}), **step.get(key, {})}
                        for key in ("metadata", "spec", "status")
                    }
                    cluster.edit(uid, {**before, **changed})
            return 1
        case "edit" if uids:
            uid = uids[step["at"] % len(uids)]
            cluster.edit(uid, retouched(cluster.document(uid), step["seed"], step["scale"]))
            return 1
        case "delete" if uids:
            if "name" in step:
                uids = [u for u in uids if cluster.document(u)["metadata"]["name"] == step["name"]]
            cluster.delete(uids[step.get("at", 0) % len(uids)])
        case "plan":
            cluster.plan()
        case "serve":
            victim.serve(step.get("cycles", CYCLES_MAX))
        case "restart":
            cluster.restart()
        case "think":
            await cluster.think()
    return 0
