"""The answers of `gangsched explain`, `queue`, `when` and `what-if`.

Each answer runs the production planner and forecast on a view of the cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.cli.cluster.changes import (
    add_nodes,
    book_nodes,
    change_priority,
    change_quota,
    extend_pool,
    new_queue_notes,
    queue_notes,
)
from gangsched.cli.cluster.lookup import JobLookup, gang_named, suggestion, undeclared_gang
from gangsched.cli.cluster.view import ClusterView
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.engine.engine import State
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.incomplete import incomplete_reason
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import quota_label
from gangsched.core.model.refusal import Refusal, plural
from gangsched.core.model.runtime import Estimate, EstimateSource
from gangsched.core.planning.forecast import Prediction, in_queue_order
from gangsched.core.planning.planner import make_plan
from gangsched.core.quota.queue_tree import number
from gangsched.core.snapshot import BackfillReservation
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

_WOULD_START = "enough capacity is free for the gang now."


# -- explain ------------------------------------------------------------------------------------


def explain(view: ClusterView, name: str, read_job: JobLookup = lambda _: None) -> Data:
    """Return the state of a gang; of a pending one also why, what would help and when it starts.

    `name` is that of the gang or of its job. `read_job` reads the state of a job that has no gang.
    The answer has a `reason` only if the gang waits.

    Raises:
        ConfigError: there is no such gang, or there are several.

    """
    gang = gang_named(view.engine.view, name)
    state = view.engine.view.gangs[gang] if gang is not None else None
    if gang is None or state is None:
        job = read_job(name)
        if job is None:
            hint = suggestion(view.engine.view, name)
            raise ConfigError(f"gang or job {name!r} does not exist (give NAMESPACE/NAME){hint}")
        return job
    if state.spec is None:
        return undeclared_gang(state, read_job(name))
    answer: Data = {
        "gang": gang,
        "state": state.state.value,
        "queue": state.spec.queue,
        "priority": state.priority(),
        "pods": {"min": state.minimum(), "bound": state.members.bound_count()},
    }
    if view.engine.view.is_finished(state):
        answer["state"] = "Finished"
        answer["message"] = f"{plural(state.members.ended_count(), 'pod')} of the gang ended well."
        return answer
    if state.state is State.PLACED:
        running = running_view(state)
        answer["nodes"] = sorted({str(place.node) for place in running.places})
        answer["since"] = rfc3339(running.started_s)
        answer["expectedEnd"] = _predecessor_data(gang, view)["expectedEnd"]
        return answer
    refusal, reservation = _explain_pending(view, GangId(gang))
    if refusal is not None:
        answer["reason"] = refusal.reason.value
        answer["message"] = f"{refusal.message} {view.strays(GangId(gang))}".strip()
        answer["wouldHelp"] = [remedy.message for remedy in refusal.remedies]
    else:
        answer["reason"] = "WouldStart"
        answer["message"] = _WOULD_START
    if state.is_plannable() or state.held_for:
        answer["start"] = _start_data(view.predictions().get(GangId(gang)), reservation, view)
    return answer


def expected_end(estimate: Estimate, started_s: float, now_s: float) -> Data:
    """Return the median end of a running gang, and the range of eight of ten sampled ends."""
    ran_s, levels = now_s - started_s, {"at": 0.5, "earliest": 0.1, "latest": 0.9}
    return {
        **{key: rfc3339(now_s + estimate.drawn_left_s(ran_s, at)) for key, at in levels.items()},
        "basis": estimate.source.value,
        "byEarlierJobs": estimate.source is EstimateSource.LEARNED or estimate.middle_s is not None,
    }


def _explain_pending(
    view: ClusterView, gang: GangId
) -> tuple[Refusal | None, BackfillReservation | None]:
    """Return the refusal of a gang with its remedies, and the gang's backfill reservation."""
    state = view.engine.view.gangs[gang]
    if not state.is_plannable():
        return view.engine.view.refusals.get(gang) or incomplete_reason(state), None
    snapshot = view.engine.view.snapshot_all(view.now_s)
    plan = make_plan(snapshot, view.policies, view.now_s)
    reservation = next((item for item in plan.backfill_reservations if item.gang == gang), None)
    for pending, refusal in plan.refusals:
        if pending.gang.id == gang:
            fresh = view.engine.view.snapshot_all(view.now_s)
            advisor = Advisor(view.policies, view.now_s, view.budget, view.protected)
            return advisor.advise(pending, refusal, fresh)[0], reservation
    return None, reservation


def _start_data(
    prediction: Prediction | None, reservation: BackfillReservation | None, view: ClusterView
) -> Data | None:
    """Return a predicted start; `after` is the gang that has to end before."""
    if prediction is None:
        return None
    start_s, after = prediction.start_s, prediction.after
    data: Data = {
        "position": prediction.position,
        "expected": rfc3339(start_s) if start_s is not None else None,
        "basis": prediction.source.value,
        **({"after": _predecessor_data(after, view)} if after is not None else {}),
    }
    if start_s is not None:
        data["earliest"] = rfc3339(prediction.low_s or start_s)
        data["latest"] = rfc3339(prediction.high_s or start_s)
    if reservation is not None:
        data["reserved"] = rfc3339(reservation.start_s)
    return data


def _predecessor_data(gang: GangId, view: ClusterView) -> Data:
    """Return a gang that has to end before another starts; if it runs, with its expected end."""
    state = view.engine.view.gangs.get(gang)
    if state is None or state.spec is None or state.state is not State.PLACED:
        return {"gang": gang}
    queue = view.engine.view.ledger.usage.tree.queues.get(state.spec.queue)
    estimate = view.engine.history.estimate(state.spec, queue)
    end = expected_end(estimate, running_view(state).started_s, view.now_s)
    return {"gang": gang, "expectedEnd": end}


# -- queues -------------------------------------------------------------------------------------


def queues(view: ClusterView) -> list[Data]:
    """Return every queue with its nominal quota, usage and borrowed quota."""
    engine = view.engine
    usage = engine.view.ledger.usage
    counts = pending_and_admitted(engine.view)
    rows = []
    for name in engine.view.ledger.usage.tree.top_down():
        pending, admitted, _ = counts.get(name, (0, 0, []))
        row: Data = {"queue": name, "pending": pending, "admitted": admitted}
        if name in usage.tree:
            row["depth"] = len(usage.tree.path(name)) - 1
            row["share"] = round(usage.share(name), 3)
            used = {key for key, amount in usage.subtree_usage.get(name, {}).items() if amount}
            keys = sorted({*usage.tree.quota_keys(name), *(key for key in used if key[0] == GPU)})
            row["quotas"] = [
                {
                    "resource": quota_label(key),
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
            row["told"] = queue_notes(engine, name)
        else:
            row["problem"] = usage.tree.problems.get(name, "")
        rows.append(row)
    return rows


def pending_gangs_of(view: ClusterView, name: str) -> list[Data]:
    """Return the pending gangs of a queue and of the queues below it, in their order.

    Raises:
        ConfigError: there is no such queue.

    """
    tree = view.engine.view.ledger.usage.tree
    if name not in tree.queues:
        existing = ", ".join(sorted(tree.queues))
        raise ConfigError(f"queue {name!r} does not exist; the queues are: {existing}")
    snapshot = view.engine.view.snapshot_all(view.now_s)
    predictions = view.predictions()
    plan = make_plan(view.engine.view.snapshot_all(view.now_s), view.policies, view.now_s)
    refusals = {pending.gang.id: refusal for pending, refusal in plan.refusals}
    reservations = {reservation.gang: reservation for reservation in plan.backfill_reservations}
    rows: list[Data] = []
    for pending in in_queue_order(snapshot, view.policies, view.now_s):
        gang, own = pending.gang.id, pending.gang.queue
        if own != name and not (own in tree and name in tree.path(own)):
            continue
        refusal = refusals.get(gang)
        rows.append(
            {
                "position": len(rows) + 1,
                "gang": gang,
                "queue": own,
                "priority": pending.priority,
                "gpus": sum(dict(m.needs.requests).get(GPU, 0) for m in pending.members),
                "since": rfc3339(pending.queued_since_s),
                "start": _start_data(predictions.get(gang), reservations.get(gang), view),
                "reason": refusal.reason.value if refusal is not None else "WouldStart",
            }
        )
    return rows


# -- when ---------------------------------------------------------------------------------------


def predict_start(view: ClusterView, path: Path, namespace: str) -> Data:
    """Return when the job in a file would start; if it exists already, when a second one would.

    Raises:
        ConfigError: the file has no valid training job or PodGroup.

    """
    gang, exists = _add_gang(view, path, namespace)
    state = view.engine.view.gangs.get(gang)
    before = view.predictions() if state is None else {}
    if state is None or state.spec is None:
        raise ConfigError(f"{path}: the file has no gang that can be planned")
    refusal, reservation = _explain_pending(view, gang)
    predictions = view.predictions()
    delayed = [
        after.gang
        for after in predictions.values()
        if (old := before.get(after.gang)) is not None and (old.start_s or 0) < (after.start_s or 0)
    ]
    remedies = refusal.remedies if refusal is not None else ()
    return {
        "gang": gang,
        **({"exists": exists.state.value} if exists is not None else {}),
        "start": _start_data(predictions.get(gang), reservation, view),
        "reason": refusal.reason.value if refusal is not None else "WouldStart",
        "message": refusal.message if refusal is not None else _WOULD_START,
        "wouldHelp": [remedy.message for remedy in remedies],
        "delays": delayed,
    }


def _add_gang(view: ClusterView, path: Path, namespace: str) -> tuple[GangId, GangState | None]:
    """Add the gang of a file to the view, as if it had just been created; return its name.

    If a gang of that name exists, it is returned too, and the added gang has another name.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for document in documents:
        if not isinstance(document, dict):
            continue
        metadata = document.setdefault("metadata", {})
        metadata.setdefault("namespace", namespace)
        metadata.setdefault("name", "not-submitted")
        metadata["uid"] = "not-submitted"
        metadata["creationTimestamp"] = rfc3339(view.now_s)
        is_job = document.get("kind") in FRAMEWORKS
        group = _pod_group_of(document, path, view.now_s) if is_job else document
        if group.get("kind") != "PodGroup":
            continue
        try:
            raw = msgspec.json.encode(group)
            gang, _, _ = podgroups.pod_group(
                decode_group(raw), view.priorities, view.default_priority
            )
        except DecodeError as error:
            raise ConfigError(f"{path}: {error}") from error
        declared = [
            name for name, state in view.engine.view.gangs.items() if state.spec is not None
        ]
        exists = view.engine.view.gangs[gang.id] if gang.id in declared else None
        while gang.id in declared:
            gang = replace(gang, id=GangId(f"{gang.id}-further"))
        view.engine.observe(f.GangSeen(gang), view.now_s)
        return gang.id, exists
    raise ConfigError(f"{path}: the file has no training job and no PodGroup with templates")


def _pod_group_of(job: Data, path: Path, now_s: float) -> Data:
    try:
        parsed = parse(job, "gangsched", job["kind"])
    except InvalidJobError as error:
        raise ConfigError(f"{path}: {error}") from error
    group = reconcile(parsed, Observed(), Clock(now_s, rfc3339(now_s))).put_group
    if group is None:
        raise ConfigError(f"{path}: the job is suspended, or needs no gang")
    group["metadata"] |= {key: job["metadata"][key] for key in ("namespace", "uid")}
    group["metadata"]["creationTimestamp"] = job["metadata"]["creationTimestamp"]
    annotations = job["metadata"].get("annotations") or {}
    group["metadata"]["annotations"] = {
        key: value for key, value in annotations.items() if key == names.USER_ANNOTATION
    }
    return group


# -- what if ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to compare, as `cluster/changes.py` reads them."""

    quotas: Iterable[str] = ()
    nodes: Iterable[str] = ()
    priorities: Iterable[str] = ()
    bookings: Iterable[str] = ()
    pools: Iterable[str] = ()

    def make(self, engine: SchedulingEngine, now_s: float) -> None:
        """Make the changes in an engine.

        Raises:
            ConfigError: a change is malformed.

        """
        for apply, texts in (
            (change_quota, self.quotas),
            (add_nodes, self.nodes),
            (change_priority, self.priorities),
            (book_nodes, self.bookings),
            (extend_pool, self.pools),
        ):
            for text in texts:
                apply(engine, text, now_s)


def what_if(view: ClusterView, changed: ClusterView, changes: Changes) -> list[Data]:
    """Compare when pending gangs start with and without changes, given two equal views.

    The changes are made in `changed`, which also gets the notes on their effects.

    Raises:
        ConfigError: a change is malformed.

    """
    before = view.predictions()
    changes.make(changed.engine, changed.now_s)
    changed.notes = new_queue_notes(view.engine, changed.engine)
    after = changed.predictions()
    rows = []
    for gang, old in before.items():
        new = after.get(gang)
        rows.append(
            {
                "gang": gang,
                "queue": (
                    view.engine.view.gangs[gang].spec or changed.engine.view.gangs[gang].spec
                ).queue,  # type: ignore[union-attr]
                "now": rfc3339(old.start_s) if old.start_s is not None else None,
                "then": rfc3339(new.start_s) if new is not None and new.start_s else None,
                "gained_s": round(old.start_s - new.start_s)
                if new is not None and old.start_s is not None and new.start_s is not None
                else None,
            }
        )
    return rows
