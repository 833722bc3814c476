"""Which gang is meant by a name, and what a job says of itself where there is no gang of it.

A job that is held back, invalid, suspended or over has no gang, and its conditions say why.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import msgspec

from gangsched.config import ConfigError
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.gangs.gang_views import GangState
from gangsched.core.engine.gangs.incomplete import missing
from gangsched.core.model.ids import GangId
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.kube.client.paths import named

Data = dict[str, Any]

OwnWords = Callable[[str], Data | None]
"""Says what the job of a name says of itself."""

_NEAR = 3
_COMPARED = 10_000

_KINDS = (
    *(("kubeflow.org/v1", kind) for kind in FRAMEWORKS),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("batch/v1", "Job"),
    ("gangsched.io/v1beta1", "PodGroup"),
    ("apps/v1", "Deployment"),
)
_ENDED = {"Succeeded": "Finished", "Complete": "Finished", "Completed": "Finished"}
_ONE_BY_ONE = ("Deployment",)


def called(engine: Engine, name: str) -> GangId | None:
    """Return the gang of a name: its own, or that of a job or peer's group, as its user knows it.

    Raises:
        ConfigError: there are several.

    """
    gangs = engine.gangs
    if GangId(name) in gangs and gangs[GangId(name)].spec is not None:
        return GangId(name)
    namespace, _, own = name.partition("/")
    others = [
        one
        for one, state in gangs.items()
        if one.startswith(f"{namespace}/") and one.endswith(f":{own}") and state.members
    ]
    if len(others) > 1:
        listed = ", ".join(sorted(others)[:_NEAR])
        raise ConfigError(f"there are {len(others)} gangs called {name!r}; ask for one of {listed}")
    return others[0] if others else GangId(name) if GangId(name) in gangs else None


def near(engine: Engine, name: str) -> str:
    """Return what else was meant, perhaps: the same name elsewhere, a similar one here."""
    namespace, _, own = name.partition("/")
    there = sorted(str(one) for one in engine.gangs if one != name)
    found = [one for one in there if one.endswith((f"/{own}", f":{own}"))][:_NEAR]
    here = [one for one in there if one.startswith(f"{namespace}/")][:_COMPARED]
    found = found or get_close_matches(name, here, _NEAR)
    return f"; did you mean {', '.join(found)}?" if found else ""


def some_nodes(engine: Engine, like: str) -> str:
    """Say how many nodes there are, and name some: those whose names are most like a name."""
    there = sorted(str(name) for name in engine.cluster.rows)
    if not there:
        return "there are no nodes"
    found = get_close_matches(like, there[:_COMPARED], _NEAR) or there[:_NEAR]
    words = "such as " if len(there) > len(found) else ""
    return f"of {len(there)} there are {words}{', '.join(found)}"


def without_spec(state: GangState, own: Data | None) -> Data:
    """Say where a gang stands that has pods, and no object that declares it."""
    why = missing(state)
    found: Data = {
        "gang": state.id,
        "state": state.state.value,
        "pods": {"there": len(state.members), "bound": state.bound_count()},
        "reason": why.reason.value if why is not None else "Undeclared",
        "message": why.message if why is not None else "nothing declares it.",
    }
    if own is not None and "reason" in own:  # its object is there, and is not understood
        found |= {key: own[key] for key in ("kind", "reason", "message")}
    return found


# -- its own words ------------------------------------------------------------------------------


async def ask(
    client: KubeClient, gang: str, left: Mapping[str, str] = MappingProxyType({})
) -> Data | None:
    """Return where the job of a name stands by its own word; None if there is none.

    `left` are the kinds that we leave alone, each with a clause that says why.
    """
    namespace, _, name = gang.partition("/")
    for api_version, kind in _KINDS:
        path = f"/apis/{api_version}/namespaces/{namespace}/{kind.lower()}s"
        try:
            body = msgspec.json.decode(await client.get(named(path, name)))
        except (NotFound, Forbidden):
            continue
        found = {"gang": gang, "kind": kind} | standing(kind, body)
        if found.get("reason") == "Created" and kind in left:
            found["reason"] = "LeftAlone"
            found["message"] = f"gangsched does not run {kind}s: {left[kind]}."
        return found
    return None


def standing(kind: str, body: Data) -> Data:
    """Return the state of an object, its sentence, and a reason where it waits."""
    status = body.get("status") or {}
    if kind in _ONE_BY_ONE:
        return {
            "state": "OneByOne",
            "message": f"the pods of a {kind} start one by one; ask for one of them by its name.",
        }
    listed = [one for one in status.get("conditions") or [] if isinstance(one, dict)]
    true = {one.get("type"): one for one in listed if one.get("status") == "True"}
    waits = next((one for one in listed if _waits(one)), None)
    for word in (*_ENDED, "Failed"):
        if word in true:
            return {"state": _ENDED.get(word, word), "message": _sentence(true[word])}
    if "Suspended" in true:
        return _waiting("Suspended", true["Suspended"], "it is suspended.")
    if waits is not None:
        return _waiting("Waiting", waits, "")
    if status.get("message"):  # a PodGroup's
        return _waiting(str(status.get("phase") or "Pending"), status, "")
    return _waiting("Created", {}, "no gang of it is declared yet, and no controller says why.")


def _waits(condition: Data) -> bool:
    if condition.get("type") == "Scheduled":
        return condition.get("status") == "False"
    held = str(condition.get("reason") or "").endswith("Waiting")
    return condition.get("type") == "Created" and held


def _waiting(state: str, said: Data, otherwise: str) -> Data:
    reason = str(said.get("reason") or state)
    return {"state": state, "reason": reason, "message": _sentence(said) or otherwise}


def _sentence(said: Data) -> str:
    return str(said.get("message") or said.get("reason") or "")
