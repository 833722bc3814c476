"""`gangsched explain`, `queue`, `when` and `what-if`: questions to the live cluster.

Each reads the cluster once and runs the production planner and forecast on that view.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched.api import names
from gangsched.api.timestamps import stamp
from gangsched.cli.cluster.changes import add_nodes, change_quota, noted, told
from gangsched.cli.cluster.lookup import OwnWords, called, near, without_spec
from gangsched.cli.cluster.view import ClusterView
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.engine.engine import State
from gangsched.core.engine.gangs.gang_views import GangState
from gangsched.core.engine.gangs.incomplete import missing
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import label
from gangsched.core.model.refusal import Refusal, plural
from gangsched.core.model.runtime import Estimate, Source
from gangsched.core.planning.forecast import Prediction, in_turn
from gangsched.core.planning.planner import make_plan
from gangsched.core.quota.queue_tree import number
from gangsched.core.snapshot import Asked, BackfillReservation
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Observed
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.kube.background.advisor import Advisor
from gangsched.kube.decoding import podgroups
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.status.queue_status import pending_and_admitted
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.training_job import parse

Data = dict[str, Any]


# -- explain ------------------------------------------------------------------------------------


def explain(view: ClusterView, name: str, own: OwnWords = lambda _: None) -> Data:
    """Say where a gang stands: why it waits, what would help, when it will start.

    It is asked for by the name its user gave to the job, or by its own; `own` says what the job
    itself says where no gang is known. Only of those that wait there is a `reason`.

    Raises:
        ConfigError: there is no such gang, or there are several.

    """
    gang = called(view.engine, name)
    state = view.engine.gangs[gang] if gang is not None else None
    if gang is None or state is None:
        found = own(name)
        if found is None:
            hint = near(view.engine, name)
            raise ConfigError(f"gang or job {name!r} does not exist (give NAMESPACE/NAME){hint}")
        return found
    if state.spec is None:
        return without_spec(state, own(name))
    found = {
        "gang": gang,
        "state": state.state.value,
        "queue": state.spec.queue,
        "priority": state.priority(),
        "pods": {"min": state.minimum(), "bound": state.bound_count()},
    }
    if view.engine.finished(state):
        found["state"] = "Finished"
        found["message"] = f"{plural(state.ended_count(), 'pod')} of the gang ended well."
        return found
    if state.state is State.PLACED:
        running = state.running()
        found["nodes"] = sorted({str(place.node) for place in running.places})
        found["since"] = stamp(running.started_s)
        found["expectedEnd"] = _after(gang, view)["expectedEnd"]
        return found
    refusal, kept = _refusal(view, GangId(gang))
    if refusal is not None:
        found["reason"] = refusal.reason.value
        found["message"] = f"{refusal.message} {view.strays(GangId(gang))}".strip()
        found["wouldHelp"] = [one.message for one in refusal.remedies]
    else:
        found["reason"] = "WouldStart"
        found["message"] = "there is room for it now."
    if state.plannable():
        found["start"] = _start(view.predictions().get(GangId(gang)), kept, view)
    return found


def expected_end(estimate: Estimate, started_s: float, now_s: float) -> Data:
    """Return when a running gang ends, and where most of the ends lie that forecasts draw."""
    ran_s, levels = now_s - started_s, {"at": 0.5, "earliest": 0.1, "latest": 0.9}
    return {
        **{end: stamp(now_s + estimate.drawn_left_s(ran_s, at)) for end, at in levels.items()},
        "basis": estimate.source.value,
        "byEarlierJobs": estimate.source is Source.LEARNED or estimate.middle_s is not None,
    }


def _refusal(view: ClusterView, gang: GangId) -> tuple[Refusal | None, BackfillReservation | None]:
    """Return why a gang waits, with what would help, and the room that is kept for it."""
    state = view.engine.gangs[gang]
    if not state.plannable():
        return view.engine.refusals.get(gang) or missing(state), None
    snapshot = view.engine.snapshot(view.now_s, who=Asked.ALL)
    plan = make_plan(snapshot, view.policies, view.now_s)
    kept = next((one for one in plan.reserved if one.gang == gang), None)
    for waiting, refusal in plan.refusals:
        if waiting.gang.id == gang:
            fresh = view.engine.snapshot(view.now_s, who=Asked.ALL)
            advisor = Advisor(view.policies, view.now_s, view.budget, view.protected)
            return advisor.advise(waiting, refusal, fresh)[0], kept
    return None, kept


def _start(
    one: Prediction | None, kept: BackfillReservation | None, view: ClusterView
) -> Data | None:
    """Return a start as it is told; `after` is the gang whose end it relies on."""
    if one is None:
        return None
    found: Data = {
        "position": one.position,
        "expected": stamp(one.start_s) if one.start_s is not None else None,
        "basis": one.source.value,
        **({"after": _after(one.after, view)} if one.after is not None else {}),
    }
    if one.start_s is not None:
        found["earliest"] = stamp(one.low_s or one.start_s)
        found["latest"] = stamp(one.high_s or one.start_s)
    if kept is not None:
        found["reserved"] = stamp(kept.start_s)
    return found


def _after(gang: GangId, view: ClusterView) -> Data:
    """Return a gang that others wait for; of one that runs, when it ends."""
    state = view.engine.gangs.get(gang)
    if state is None or state.spec is None or state.state is not State.PLACED:
        return {"gang": gang}
    queue = view.engine.ledger.usage.tree.queues.get(state.spec.queue)
    estimate = view.engine.history.estimate(state.spec, queue)
    end = expected_end(estimate, state.running().started_s, view.now_s)
    return {"gang": gang, "expectedEnd": end}


# -- queues -------------------------------------------------------------------------------------


def queues(view: ClusterView) -> list[Data]:
    """Return every queue with what it is guaranteed, holds and lends."""
    engine = view.engine
    usage = engine.ledger.usage
    usage.capacity = engine.capacity()
    counts = pending_and_admitted(engine)
    found = []
    for name in engine.ledger.usage.tree.top_down():
        pending, admitted, _ = counts.get(name, (0, 0, []))
        row: Data = {"queue": name, "pending": pending, "admitted": admitted}
        if name in usage.tree:
            row["depth"] = len(usage.tree.path(name)) - 1
            row["share"] = round(usage.share(name), 3)
            held = {key for key, amount in usage.subtree_usage.get(name, {}).items() if amount}
            keys = sorted({*usage.tree.quota_keys(name), *(k for k in held if k[0] == GPU)})
            row["quotas"] = [
                {
                    "resource": label(key),
                    "nominal": None
                    if (n := usage.tree.nominal(name, key)) is None
                    else number(key, n),
                    "written": number(key, quota.nominal)
                    if (quota := usage.tree.quota(name, key)) is not None
                    else None,
                    "used": number(key, usage.used(name, key)),
                    "borrowed": number(
                        key, max(usage.used(name, key) - n, 0) if n is not None else 0
                    ),
                }
                for key in keys
            ]
            row["told"] = told(engine, name)
        else:
            row["problem"] = usage.tree.problems.get(name, "")
        found.append(row)
    return found


def queue(view: ClusterView, name: str) -> list[Data]:
    """Return who waits in a queue and those below it, in turn.

    Raises:
        ConfigError: there is no such queue.

    """
    tree = view.engine.ledger.usage.tree
    if name not in tree.queues:
        known = ", ".join(sorted(tree.queues))
        raise ConfigError(f"queue {name!r} does not exist; the queues are: {known}")
    snapshot = view.engine.snapshot(view.now_s, who=Asked.ALL)
    predictions = view.predictions()
    plan = make_plan(view.engine.snapshot(view.now_s, who=Asked.ALL), view.policies, view.now_s)
    refusals = {waiting.gang.id: refusal for waiting, refusal in plan.refusals}
    reserved = {one.gang: one for one in plan.reserved}
    found: list[Data] = []
    for waiting in in_turn(snapshot, view.policies, view.now_s):
        own = waiting.gang.queue
        if own != name and not (own in tree and name in tree.path(own)):
            continue
        refusal = refusals.get(waiting.gang.id)
        found.append(
            {
                "position": len(found) + 1,
                "gang": waiting.gang.id,
                "queue": own,
                "priority": waiting.priority,
                "gpus": sum(dict(m.needs.requests).get(GPU, 0) for m in waiting.members),
                "since": stamp(waiting.since_s),
                "start": _start(
                    predictions.get(waiting.gang.id), reserved.get(waiting.gang.id), view
                ),
                "reason": refusal.reason.value if refusal is not None else "WouldStart",
            }
        )
    return found


# -- when ---------------------------------------------------------------------------------------


def when(view: ClusterView, path: Path, namespace: str) -> Data:
    """Say when a job that is not submitted would start; of one that is, a further one.

    Raises:
        ConfigError: the file holds no job or group that is understood.

    """
    gang, exists = _gang(view, path, namespace)
    state = view.engine.gangs.get(gang)
    before = view.predictions() if state is None else {}
    if state is None or state.spec is None:
        raise ConfigError(f"{path}: it gives no gang that can be planned")
    refusal, kept = _refusal(view, gang)
    predictions = view.predictions()
    delayed = [
        one.gang
        for one in predictions.values()
        if (old := before.get(one.gang)) is not None and (old.start_s or 0) < (one.start_s or 0)
    ]
    return {
        "gang": gang,
        **({"exists": exists.state.value} if exists is not None else {}),
        "start": _start(predictions.get(gang), kept, view),
        "reason": refusal.reason.value if refusal is not None else "WouldStart",
        "message": refusal.message if refusal is not None else "there is room for it now.",
        "wouldHelp": [one.message for one in refusal.remedies] if refusal is not None else [],
        "delays": delayed,
    }


def _gang(view: ClusterView, path: Path, namespace: str) -> tuple[GangId, GangState | None]:
    """Take the gang of a file into the view, as if it had just been created.

    Where there is a gang of its name, that is returned too, and the new one has a name beside it.
    """
    try:
        documents = [one for one in yaml.safe_load_all(path.read_text()) if one]
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for document in documents:
        if not isinstance(document, dict):
            continue
        metadata = document.setdefault("metadata", {})
        metadata.setdefault("namespace", namespace)
        metadata.setdefault("name", "not-submitted")
        metadata["uid"] = "not-submitted"
        metadata["creationTimestamp"] = stamp(view.now_s)
        job = document.get("kind") in FRAMEWORKS
        asked = _group_of(document, path, view.now_s) if job else document
        if asked.get("kind") != "PodGroup":
            continue
        try:
            raw = msgspec.json.encode(asked)
            found, _, _ = podgroups.pod_group(
                decode_group(raw), view.priorities, view.default_priority
            )
        except DecodeError as error:
            raise ConfigError(f"{path}: {error}") from error
        known = [one for one, state in view.engine.gangs.items() if state.spec is not None]
        exists = view.engine.gangs[found.id] if found.id in known else None
        while found.id in known:
            found = replace(found, id=GangId(f"{found.id}-further"))
        view.engine.observe(f.GangSeen(found), view.now_s)
        return found.id, exists
    raise ConfigError(f"{path}: it holds no training job and no PodGroup with templates")


def _group_of(job: Data, path: Path, now_s: float) -> Data:
    try:
        parsed = parse(job, "gangsched", job["kind"])
    except InvalidJobError as error:
        raise ConfigError(f"{path}: {error}") from error
    group = reconcile(parsed, Observed(), Clock(now_s, stamp(now_s))).put_group
    if group is None:
        raise ConfigError(f"{path}: the job is suspended, or asks for no gang")
    group["metadata"] |= {key: job["metadata"][key] for key in ("namespace", "uid")}
    group["metadata"]["creationTimestamp"] = job["metadata"]["creationTimestamp"]
    given = job["metadata"].get("annotations") or {}
    group["metadata"]["annotations"] = {
        key: value for key, value in given.items() if key == names.USER_ANNOTATION
    }
    return group


# -- what if ------------------------------------------------------------------------------------


def what_if(
    view: ClusterView, changed: ClusterView, quotas: Iterable[str], nodes: Iterable[str]
) -> list[Data]:
    """Compare when waiting gangs start with and without changes; both views are of one cluster.

    What is to be known of the changes are the notes of the changed view.

    Raises:
        ConfigError: a change is not understood.

    """
    before = view.predictions()
    for text in quotas:
        change_quota(changed.engine, text, changed.now_s)
    for text in nodes:
        add_nodes(changed.engine, text, changed.now_s)
    changed.notes = noted(view.engine, changed.engine)
    after = changed.predictions()
    rows = []
    for gang, one in before.items():
        other = after.get(gang)
        rows.append(
            {
                "gang": gang,
                "queue": (view.engine.gangs[gang].spec or changed.engine.gangs[gang].spec).queue,  # type: ignore[union-attr]
                "now": stamp(one.start_s) if one.start_s is not None else None,
                "then": stamp(other.start_s) if other is not None and other.start_s else None,
                "gained_s": round(one.start_s - other.start_s)
                if other is not None and one.start_s is not None and other.start_s is not None
                else None,
            }
        )
    return rows
