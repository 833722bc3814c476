"""Which gangs PodDisruptionBudgets protect from being moved."""

import json
from typing import Any
from urllib.parse import quote

from gangsched.core.engine import Engine
from gangsched.core.model import GangId, PodUid
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import KubeError

_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


async def protected(client: KubeClient, engine: Engine) -> frozenset[GangId]:
    """Return the gangs of which a budget spares fewer pods than they have.

    Where budgets cannot be read every running gang counts as protected.
    """
    found: set[GangId] = set()
    try:
        budgets = json.loads(await client.get(_BUDGETS))["items"]
        for budget in budgets:
            found |= await _protected_by(client, engine, budget)
    except KubeError:
        return frozenset(engine.gangs)
    return frozenset(found)


async def _protected_by(client: KubeClient, engine: Engine, budget: dict[str, Any]) -> set[GangId]:
    namespace = budget["metadata"]["namespace"]
    spared = int((budget.get("status") or {}).get("disruptionsAllowed", 0))
    selector = _selector((budget.get("spec") or {}).get("selector") or {})
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
    counts: dict[GangId, int] = {}
    for pod in json.loads(await client.get(path))["items"]:
        known = engine.pod(PodUid(pod["metadata"]["uid"]))
        if known is not None and known.gang is not None and known.node is not None:
            counts[known.gang] = counts.get(known.gang, 0) + 1
    return {gang for gang, count in counts.items() if count > spared}


def _selector(selector: dict[str, Any]) -> str:
    """Write a LabelSelector as the query the API takes."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or []:
        key, values = one["key"], ",".join(one.get("values") or [])
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[one["operator"]]
        )
    return ",".join(parts)
