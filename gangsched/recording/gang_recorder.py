"""Makes the records of gangs that end, from the facts and orders of one engine.

The recorder reads the engine and changes nothing. It has one entry for each gang that the engine
has, so it is bounded as the engine is. A gang that ended and runs again, because its job makes new
pods, gets a new record in place of the former.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.node_prices import node_with_price, price_of_pods
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import gpu_type_of, gpus_of_pod
from gangsched.recording.gang_record import GangOutcome, GangRecord

SAMPLE_S = 5.0
"""How often it is looked why gangs wait: a reason that held for a shorter time may be missed."""
_NODES = 4096


class RecordSink(Protocol):
    """Takes records, and returns at once."""

    unended: Mapping[tuple[str, str, float], GangRecord]
    """What an earlier process knew of gangs that had not ended."""

    def write(self, record: GangRecord) -> None:
        """Take the record of a gang that ended."""

    def write_unended(self, record: GangRecord) -> None:
        """Take what a later process has to know of a gang that has not ended."""


@dataclass(slots=True)
class _Usage:
    """What a running gang uses since a moment."""

    since_s: float
    bound: int
    gpus: dict[str, float]
    nodes: tuple[str, ...]
    price: float | None = None
    """What it costs for an hour; None if no price is known."""


@dataclass(slots=True)
class _OpenRecord:
    """What is known of a gang that has not ended."""

    created_s: float
    submitted_s: float
    started_s: float | None = None
    ran_s: float = 0.0
    gpu_s: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, float] = field(default_factory=dict)
    runs: int = 0
    preemptions: int = 0
    lost_gpu_s: float = 0.0
    cost: float | None = None
    usage: _Usage | None = None
    nodes: tuple[str, ...] = ()
    pods: int = 0
    gpus_per_pod: float = 0.0
    end_by_s: float | None = None
    outcome: GangOutcome | None = None
    """How it ended, or how the last run did."""
    pod_succeeded: bool = False
    pod_failed: bool = False
    queue: str = ""
    user: str = ""
    priority: int = 0
    expected_runtime_s: float | None = None
    changed_s: float | None = None
    """When an earlier process wrote it, if none of its runs was seen since."""


class GangRecorder:
    """Follows an engine. `before` takes each fact before the engine does.

    `prices` are of one GPU for an hour, by GPU type, on nodes without a price of their own.
    """

    def __init__(
        self, view: EngineView, sink: RecordSink, prices: Mapping[str, float] | None = None
    ) -> None:
        self._prices = prices or {}
        self._view, self._sink, self._unended = view, sink, dict(sink.unended)
        self._open: dict[GangId, _OpenRecord] = {}
        self._over: dict[GangId, _OpenRecord | None] = {}
        """Gangs that ended and that the engine still has; None: an earlier process recorded it."""
        self._touched: dict[GangId, float] = {}
        self._sampled_s = 0.0

    # -- what happens -------------------------------------------------------------------------

    def before(self, fact: f.Fact, at_s: float) -> None:
        """Take a fact that the engine is about to observe."""
        self._settle()
        match fact:
            case f.GangSeen(spec):
                self._touched[spec.id] = at_s
            case f.GangGone(gang):
                self._touched[gang] = at_s
            case f.PodSeen() if fact.gang is not None:
                self._touched[fact.gang] = at_s
                known = self._open.get(fact.gang)
                if known is not None and fact.ended:
                    known.pod_failed = known.pod_failed or fact.failed
                    known.pod_succeeded = known.pod_succeeded or not fact.failed
            case f.PodGone(uid):
                pod = self._view.pod(uid)
                if pod is not None and pod.gang is not None:
                    self._touched[pod.gang] = at_s
            case f.PreemptionRestored(gang):
                known = self._open.get(gang)
                if known is not None and not known.preemptions:
                    known.preemptions = 1
            case _:
                pass

    def order(self, order: o.Order) -> None:
        """Take an order that is carried out."""
        self._settle()
        match order:
            case o.Preempt(gang, pods=(), lost_gpu_s=lost_gpu_s) | o.Drain(
                gang, lost_gpu_s=lost_gpu_s
            ):
                known = self._open.get(gang)
                if known is not None:
                    known.preemptions += 1
                    known.lost_gpu_s += lost_gpu_s
                    known.outcome = GangOutcome.PREEMPTED
            case _:
                pass

    def tick(self, now_s: float) -> None:
        """Take the present time: what the last facts changed, and why gangs wait."""
        self._settle()
        passed_s = now_s - self._sampled_s
        if passed_s < SAMPLE_S:
            return
        first, self._sampled_s = not self._sampled_s, now_s
        if first:  # every object was read
            self._end_vanished(now_s)
            return
        for gang, refusal in self._view.refusals.items():
            known = self._open.get(gang)
            if known is not None and known.started_s is None:
                reasons = known.reasons
                held_s = min(passed_s, max(now_s - known.submitted_s, 0.0))
                reasons[refusal.reason] = reasons.get(refusal.reason, 0.0) + held_s

    def _end_vanished(self, now_s: float) -> None:
        """Record the gangs that were deleted while no scheduler ran; how is not known."""
        for namespace, name, created_s in tuple(self._unended):
            gang = GangId(f"{namespace}/{name}")
            known = self._restored(gang, created_s)
            if known is not None and gang not in self._open:
                known = _with_unseen_run(known)
                self._stop_run(known, now_s)
                self._end(gang, known, GangOutcome.CANCELLED, now_s)

    # -- how gangs change ---------------------------------------------------------------------

    def _settle(self) -> None:
        for gang, at_s in self._touched.items():
            self._compare(gang, self._view.gangs.get(gang), at_s)
        self._touched.clear()

    def _compare(self, gang: GangId, state: GangState | None, at_s: float) -> None:
        """Compare a gang with what is known of it."""
        if state is None or (state.spec is None and not state.members):
            self._over.pop(gang, None)
            known = self._open.pop(gang, None)
            if known is not None:
                self._stop_run(known, at_s)
                self._end(gang, known, _outcome_of_deleted(known), at_s)
            return
        created_s = _created_s(state)
        known = self._open.get(gang)
        if self._view.is_over(state) or (known is not None and _has_failed(known, state)):
            if gang in self._over:
                return
            known = self._open.pop(gang, None) or self._restored(gang, created_s)
            if known is not None and known.changed_s is not None and not known.usage:
                known = _with_unseen_run(known)
            if known is not None and known.runs:
                self._stop_run(known, at_s)
                failed = known.pod_failed or any(m.failed for m in state.members.values())
                self._end(
                    gang, known, GangOutcome.FAILED if failed else GangOutcome.COMPLETED, at_s
                )
                self._over[gang] = known
            else:  # an earlier process recorded it
                self._over[gang] = None
            return
        if gang in self._over:
            ended = self._over[gang]
            same = ended is None or ended.created_s == created_s
            if same and not state.members.in_progress() and state.state is not State.PLACED:
                return  # its pods are cleaned up
            del self._over[gang]
            if ended is not None and same:  # its job starts again
                known = self._open[gang] = ended
        if known is not None and known.created_s != created_s and known.started_s is not None:
            self._stop_run(known, at_s)  # another gang of the same name
            self._end(gang, known, _outcome_of_deleted(known), at_s)
            known = None
        if known is None:
            known = self._restored(gang, created_s) or _OpenRecord(created_s, created_s or at_s)
            self._open[gang] = known
        self._describe(known, state)
        if state.state is State.PLACED:
            self._run(gang, known, state, at_s)
        elif known.usage is not None:
            self._stop_run(known, at_s)
            self._sink.write_unended(_record(gang, known, GangOutcome.CANCELLED, at_s))

    def _restored(self, gang: GangId, created_s: float) -> _OpenRecord | None:
        """Return what an earlier process knew of a gang."""
        namespace, _, name = gang.partition("/")
        stored = self._unended.pop((namespace, name, created_s), None)
        if stored is None:
            return None
        return _OpenRecord(
            created_s,
            stored.submitted_s,
            stored.started_s,
            stored.ran_s,
            dict(stored.gpu_s),
            dict(stored.reasons),
            stored.runs,
            stored.preemptions,
            stored.lost_gpu_s,
            stored.cost,
            queue=stored.queue,
            user=stored.user,
            priority=stored.priority,
            pods=stored.pods,
            gpus_per_pod=stored.gpus_per_pod,
            nodes=stored.nodes,
            expected_runtime_s=stored.expected_runtime_s,
            changed_s=stored.ended_s,
        )

    def _describe(self, known: _OpenRecord, state: GangState) -> None:
        spec = state.spec
        created_s = _created_s(state)
        if created_s:
            known.created_s = known.submitted_s = created_s
        known.priority = state.pod_defaults.priority
        if spec is None:
            return
        known.queue, known.user = spec.queue, spec.user
        known.expected_runtime_s = spec.expected_runtime_s
        if spec.priority is not None:
            known.priority = spec.priority
        if not known.runs:
            known.pods = spec.min_member
            known.gpus_per_pod = max(
                (gpus_of_pod(member.needs) for member in state.members.values()), default=0.0
            )

    def _run(self, gang: GangId, known: _OpenRecord, state: GangState, at_s: float) -> None:
        """Count what a running gang uses; its members are looked through only if they changed."""
        bound, since_s = state.members.bound_count(), at_s
        known.end_by_s = state.run.end_by_s
        if known.usage is None:
            since_s = max(running_view(state).started_s, known.submitted_s)
            if known.started_s is None:
                known.started_s = since_s
            known.pods, known.nodes, known.outcome = 0, (), None
            known.pod_failed = known.pod_succeeded = False
        elif bound == known.usage.bound:
            return
        else:
            _count(known, known.usage, at_s)
        begins, known.usage = known.usage is None, self._usage(state, since_s)
        if bound > known.pods:  # pods that end do not make the gang smaller
            known.pods, known.nodes = bound, known.usage.nodes
        known.changed_s = None
        if begins:  # a later process adds the run, which goes on
            self._sink.write_unended(_record(gang, known, GangOutcome.CANCELLED, since_s))
            known.runs += 1

    def _usage(self, state: GangState, since_s: float) -> _Usage:
        gpus: dict[str, float] = {}
        nodes: dict[str, None] = {}
        price = 0.0
        cluster = self._view.cluster
        for member in state.members.values():
            if member.bound_node is None or member.ended:
                continue
            nodes[str(member.bound_node)] = None
            amount = gpus_of_pod(member.needs)
            if amount:
                row = cluster.rows.get(member.bound_node)
                model = cluster.gpu_model(row) if row is not None else ""
                gpus[model] = gpus.get(model, 0.0) + amount
                if node_with_price(member.bound_node, cluster) is None:
                    price += amount * self._prices.get(gpu_type_of(model, self._prices), 0.0)
        of_nodes = price_of_pods(
            ((one.bound_node, one.needs) for one in state.members.values()
             if one.bound_node is not None and not one.ended),
            cluster,
        )  # fmt: skip
        known = bool(self._prices) or of_nodes is not None
        return _Usage(
            since_s,
            state.members.bound_count(),
            gpus,
            tuple(sorted(nodes)[:_NODES]),
            price + (of_nodes or 0.0) if known else None,
        )

    def _stop_run(self, known: _OpenRecord, at_s: float) -> None:
        if known.usage is None:
            return
        _count(known, known.usage, at_s)
        known.usage = None
        if known.end_by_s is not None and at_s >= known.end_by_s:
            known.outcome = GangOutcome.TIMEOUT

    def _end(self, gang: GangId, known: _OpenRecord, outcome: GangOutcome, at_s: float) -> None:
        record = _record(gang, known, outcome, at_s)
        if self._prices and record.cost is None:  # it never ran
            record = msgspec.structs.replace(record, cost=0.0)
        self._sink.write(record)


def _count(known: _OpenRecord, usage: _Usage, at_s: float) -> None:
    """Add what was used since the last change."""
    passed_s = max(at_s - usage.since_s, 0.0)
    known.ran_s += passed_s
    if usage.price is not None:
        known.cost = (known.cost or 0.0) + usage.price * passed_s / 3600
    for model, gpus in usage.gpus.items():
        known.gpu_s[model] = known.gpu_s.get(model, 0.0) + gpus * passed_s


def _with_unseen_run(known: _OpenRecord) -> _OpenRecord:
    """Return what is known of a gang that ran when an earlier process ended: it ran until now."""
    assert known.changed_s is not None, "an earlier process wrote it"  # noqa: S101
    gpus = {"": known.pods * known.gpus_per_pod}
    usage = _Usage(known.changed_s, known.pods, gpus, known.nodes)
    return replace(known, runs=known.runs + 1, usage=usage)


def _has_failed(known: _OpenRecord, state: GangState) -> bool:
    """Return whether pods failed, and none runs or is about to."""
    members = state.members
    if not known.pod_failed or members.bound_count() or members.in_progress():
        return False
    return all(member.ended or member.failed for member in members.values() if member.pod)


def _outcome_of_deleted(known: _OpenRecord) -> GangOutcome:
    """Return how a gang ended that was deleted; a job may delete its pods once it has ended."""
    if known.outcome is not None:
        return known.outcome
    if known.started_s is None:
        return GangOutcome.CANCELLED
    if known.pod_failed:
        return GangOutcome.FAILED
    return GangOutcome.COMPLETED if known.pod_succeeded else GangOutcome.CANCELLED


def _created_s(state: GangState) -> float:
    spec = state.spec
    if spec is not None and spec.created_s:
        return spec.created_s
    return state.queued_since_s or 0.0


def _record(gang: GangId, known: _OpenRecord, outcome: GangOutcome, at_s: float) -> GangRecord:
    namespace, _, name = gang.partition("/")
    return GangRecord(
        namespace,
        name,
        known.created_s,
        known.queue,
        known.user,
        outcome,
        known.submitted_s,
        max(at_s, known.submitted_s),
        started_s=known.started_s,
        ran_s=known.ran_s,
        pods=known.pods,
        gpus_per_pod=known.gpus_per_pod,
        priority=known.priority,
        gpu_s={model: gpu_s for model, gpu_s in known.gpu_s.items() if gpu_s},
        reasons={str(reason): held_s for reason, held_s in known.reasons.items()},
        nodes=known.nodes,
        runs=known.runs,
        preemptions=known.preemptions,
        lost_gpu_s=known.lost_gpu_s,
        expected_runtime_s=known.expected_runtime_s,
        cost=known.cost,
    )
