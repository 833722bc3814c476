"""The gang of a name, and the state of a job that has no gang.

A job that is held back, invalid, suspended or over has no gang; its conditions have the reason.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import msgspec

from gangsched.config import ConfigError
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.incomplete import incomplete_reason
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import plural
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.kube.client.paths import object_path

Data = dict[str, Any]

JobLookup = Callable[[str], Data | None]
"""Returns the state of the job of a name by its own conditions."""

_NAMED_MAX = 3
_COMPARED_MAX = 10_000

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


def gang_named(view: EngineView, name: str) -> GangId | None:
    """Return the gang of a name: the gang's own, or the job's or group's that declares it.

    Raises:
        ConfigError: several gangs have the name.

    """
    gangs = view.gangs
    if GangId(name) in gangs and gangs[GangId(name)].spec is not None:
        return GangId(name)
    namespace, _, own = name.partition("/")
    of_jobs = [
        gang
        for gang, state in gangs.items()
        if gang.startswith(f"{namespace}/") and gang.endswith(f":{own}") and state.members
    ]
    if len(of_jobs) > 1:
        listed = ", ".join(sorted(of_jobs)[:_NAMED_MAX])
        raise ConfigError(f"{len(of_jobs)} gangs are called {name!r}; give one of {listed}")
    return of_jobs[0] if of_jobs else GangId(name) if GangId(name) in gangs else None


def suggestion(view: EngineView, name: str) -> str:
    """Suggest gangs: of the same name in other namespaces, else of a similar name in this one."""
    namespace, _, own = name.partition("/")
    gangs = sorted(str(gang) for gang in view.gangs if gang != name)
    candidates = [gang for gang in gangs if gang.endswith((f"/{own}", f":{own}"))][:_NAMED_MAX]
    here = [gang for gang in gangs if gang.startswith(f"{namespace}/")][:_COMPARED_MAX]
    candidates = candidates or get_close_matches(name, here, _NAMED_MAX)
    return f"; did you mean {', '.join(candidates)}?" if candidates else ""


def similar_nodes(view: EngineView, like: str) -> str:
    """Say how many nodes exist, and name those with the most similar names."""
    nodes = sorted(str(name) for name in view.cluster.rows)
    if not nodes:
        return "there are no nodes"
    named = get_close_matches(like, nodes[:_COMPARED_MAX], _NAMED_MAX) or nodes[:_NAMED_MAX]
    such_as = "such as " if len(nodes) > len(named) else ""
    return f"the cluster has {plural(len(nodes), 'node')}, {such_as}{', '.join(named)}"


def undeclared_gang(state: GangState, own: Data | None) -> Data:
    """Return the state of a gang that has pods, and no object that declares it."""
    why = incomplete_reason(state)
    data: Data = {
        "gang": state.id,
        "state": state.state.value,
        "pods": {"there": len(state.members), "bound": state.members.bound_count()},
        "reason": why.reason.value if why is not None else "Undeclared",
        "message": why.message if why is not None else "no object declares the gang.",
    }
    if own is not None and "reason" in own:  # the object exists, and cannot be decoded
        data |= {key: own[key] for key in ("kind", "reason", "message")}
    return data


# -- the state of a job, by its conditions ------------------------------------------------------


async def read_job(
    client: KubeClient, gang: str, left_alone: Mapping[str, str] = MappingProxyType({})
) -> Data | None:
    """Return the state of the job of a name by its conditions, or None if there is no such job.

    `left_alone` has the kinds that gangsched does not run, each with the reason as a clause.
    """
    namespace, _, name = gang.partition("/")
    for api_version, kind in _KINDS:
        path = f"/apis/{api_version}/namespaces/{namespace}/{kind.lower()}s"
        try:
            body = msgspec.json.decode(await client.get(object_path(path, name)))
        except (NotFound, Forbidden):
            continue
        data = {"gang": gang, "kind": kind} | job_state(kind, body)
        if data.get("reason") == "Created" and kind in left_alone:
            data["reason"] = "LeftAlone"
            data["message"] = f"gangsched does not run {kind}s: {left_alone[kind]}."
        return data
    return None


def job_state(kind: str, body: Data) -> Data:
    """Return the state of an object, its message, and a reason if it waits."""
    status = body.get("status") or {}
    if kind in _ONE_BY_ONE:
        return {
            "state": "OneByOne",
            "message": f"the pods of a {kind} start one by one; give the name of a pod.",
        }
    conditions = [item for item in status.get("conditions") or [] if isinstance(item, dict)]
    true = {item.get("type"): item for item in conditions if item.get("status") == "True"}
    waits = next((item for item in conditions if _is_waiting(item)), None)
    for end in (*_ENDED, "Failed"):
        if end in true:
            return {"state": _ENDED.get(end, end), "message": _message(true[end])}
    if "Suspended" in true:
        return _waiting_state("Suspended", true["Suspended"], f"the {kind} is suspended.")
    if waits is not None:
        return _waiting_state("Waiting", waits, "")
    if status.get("message"):  # a PodGroup's
        return _waiting_state(str(status.get("phase") or "Pending"), status, "")
    undeclared = f"no gang of the {kind} is declared yet, and no controller reports why."
    return _waiting_state("Created", {}, undeclared)


def _is_waiting(condition: Data) -> bool:
    if condition.get("type") == "Scheduled":
        return condition.get("status") == "False"
    held = str(condition.get("reason") or "").endswith("Waiting")
    return condition.get("type") == "Created" and held


def _waiting_state(state: str, condition: Data, otherwise: str) -> Data:
    reason = str(condition.get("reason") or state)
    return {"state": state, "reason": reason, "message": _message(condition) or otherwise}


def _message(condition: Data) -> str:
    return str(condition.get("message") or condition.get("reason") or "")
