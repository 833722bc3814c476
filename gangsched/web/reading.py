"""Builds the model of the pages from an engine, and from a plan and a forecast made before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gangsched.core.cluster.node_allocations import NodeAllocation
from gangsched.core.cluster.topology_tree import TopologyTree
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.incomplete import incomplete_reason
from gangsched.core.engine.gangs.member import MemberState, State
from gangsched.core.engine.gangs.running_views import running_view
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.engine.view import EngineView
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import MIG_PREFIX, gpus_of_pod
from gangsched.core.model.refusal import Refusal
from gangsched.core.model.runtime import Estimate
from gangsched.core.planning.forecast import Prediction
from gangsched.core.snapshot import BackfillReservation
from gangsched.web.model import (
    Domain,
    GangRow,
    JournalMoment,
    MigCount,
    NodeTile,
    PageModel,
    PodRow,
    QueueRow,
    QueueSample,
    RunSpan,
    Segment,
    Span,
    StartRow,
    WindowRow,
)

PODS_SHOWN, WINDOWS_SHOWN = 500, 100
_ROWS_KEPT_S = 5.0
"""Expected ends move with the time, and little in a few seconds."""
_FAILING = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_OTHER = ("", "")


@dataclass(frozen=True, slots=True)
class PlannedStarts:
    """What a plan and a forecast say about the pending gangs, and when they were made."""

    at_s: float | None = None
    refusals: Mapping[GangId, Refusal] = field(default_factory=dict)
    reservations: Mapping[GangId, BackfillReservation] = field(default_factory=dict)
    predictions: Mapping[GangId, Prediction] = field(default_factory=dict)
    problem: str = ""
    starts_at_s: float | None = None
    """When the predictions were made; None before the first."""


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """What a model says about itself."""

    version: int
    subject: str
    live: bool
    moment: JournalMoment | None = None


class Past(NamedTuple):
    """What is known of the past: the runs that ended, and samples of each queue."""

    runs: tuple[RunSpan, ...] = ()
    samples: dict[str, tuple[QueueSample, ...]] = {}  # noqa: RUF012 -- never changed


class GangRows:
    """The rows of all gangs; a row is made again if its gang, the plan or the time changed."""

    def __init__(self) -> None:
        self._rows: dict[GangId, tuple[int, State, GangRow | None]] = {}
        self._planned, self._made_s = PlannedStarts(), float("-inf")

    def update(
        self, engine: SchedulingEngine, planned: PlannedStarts, now_s: float
    ) -> dict[str, GangRow]:
        """Return the present rows."""
        before = self._rows
        if planned is not self._planned or now_s - self._made_s >= _ROWS_KEPT_S:
            before, self._planned, self._made_s = {}, planned, now_s
        self._rows, rows = {}, {}
        for gang, state in engine.view.gangs.items():
            known = before.get(gang)
            if known is None or known[:2] != (state.version, state.state):
                row = _gang_row(engine, state, planned, now_s)
                known = state.version, state.state, row
            self._rows[gang] = known
            if known[2] is not None:
                rows[str(gang)] = known[2]
        return rows


def page_model(
    engine: SchedulingEngine,
    now_s: float,
    header: ModelHeader,
    planned: PlannedStarts,
    queues: Iterable[QueueRow],
    rows: GangRows | None = None,
    past: Past | None = None,
) -> PageModel:
    """Return the model of the present state of an engine; `rows` are kept from the last one."""
    view = engine.view
    tree = view.cluster.tree()
    gangs = (rows or GangRows()).update(engine, planned, now_s)
    return PageModel(
        version=header.version,
        now_s=now_s,
        subject=header.subject,
        live=header.live,
        levels=tuple(level.name for level in tree.topology.levels) if tree is not None else (),
        nodes=_nodes(view, tree, planned, now_s),
        queues=tuple(queues),
        gangs=gangs,
        forecast_at_s=planned.at_s,
        starts_at_s=planned.starts_at_s,
        forecast_problem=planned.problem,
        runs=past.runs if past is not None else (),
        windows=_windows(view, now_s),
        samples=past.samples if past is not None else {},
        moment=header.moment,
        pools=tuple(sorted(pool.name for pool in view.node_supply.pools)),
    )


def _windows(view: EngineView, now_s: float) -> tuple[WindowRow, ...]:
    """Return the present and next windows of advance reservations, and announced stops of nodes."""
    rows = []
    for booking in view.bookings.values():
        window = booking.window(now_s)
        if window is not None:
            for_gangs = booking.queues or booking.namespaces
            what = "advance reservation" if for_gangs else "maintenance"
            rows.append(WindowRow(booking.name, what, *window, booking.count or len(booking.nodes)))
    stops: dict[float, int] = {}
    for node in view.cluster.nodes:
        if node is not None and node.stop_by_s is not None:
            stops[node.stop_by_s] = stops.get(node.stop_by_s, 0) + 1
    rows += [WindowRow("nodes stop", "stop", at_s, None, n) for at_s, n in sorted(stops.items())]
    return tuple(sorted(rows, key=lambda row: (row.start_s, row.name))[:WINDOWS_SHOWN])


# -- gangs --------------------------------------------------------------------------------------


def _gang_row(
    engine: SchedulingEngine, state: GangState, planned: PlannedStarts, now_s: float
) -> GangRow | None:
    spec = state.spec
    members = state.members
    if spec is None and not members:
        return None
    placed = state.state is State.PLACED and spec is not None
    finished = engine.view.is_over(state)
    row = GangRow(
        id=str(state.id),
        queue=spec.queue if spec is not None else state.account[0],
        user=spec.user if spec is not None else "",
        state="Finished" if finished else state.state.value,
        priority=state.priority(),
        pods_min=state.minimum(),
        pods_bound=members.bound_count(),
        pods=len(members),
        gpus=sum(gpus_of_pod(member.needs) for member in members.values()),
        queued_since_s=state.queued_since_s,
    )
    if finished:
        return row
    if placed and spec is not None:
        started_s = running_view(state).started_s
        return _changed(row, started_s=started_s, end=_expected_end(engine, spec, started_s, now_s))
    gang = state.id
    refusal = planned.refusals.get(gang)
    if refusal is None or not state.is_plannable():
        refusal = engine.view.refusals.get(gang) or incomplete_reason(state) or refusal
    return _changed(
        row,
        start=_start_row(engine, spec, planned, gang),
        reason=refusal.reason.value if refusal is not None else "",
        message=refusal.message if refusal is not None else "",
    )


def _changed(row: GangRow, **values: object) -> GangRow:
    """Return a row with other values; this is several times quicker than `replace`."""
    for name, value in values.items():
        object.__setattr__(row, name, value)  # no other code has the row yet
    return row


def _expected_end(engine: SchedulingEngine, spec: Gang, started_s: float, now_s: float) -> Span:
    estimate = _estimate(engine, spec)
    ran_s = max(now_s - started_s, 0.0)
    low_s, median_s, high_s = (now_s + estimate.drawn_left_s(ran_s, at) for at in (0.1, 0.5, 0.9))
    return Span(low_s, median_s, high_s)


def _estimate(engine: SchedulingEngine, spec: Gang) -> Estimate:
    queue = engine.view.ledger.usage.tree.queues.get(spec.queue)
    return engine.history.estimate(spec, queue)


def _start_row(
    engine: SchedulingEngine, spec: Gang | None, planned: PlannedStarts, gang: GangId
) -> StartRow | None:
    prediction = planned.predictions.get(gang)
    if prediction is None:
        return None
    span = None
    if prediction.start_s is not None:
        start_s = prediction.start_s
        span = Span(prediction.low_s or start_s, start_s, prediction.high_s or start_s)
    reservation = planned.reservations.get(gang)
    return StartRow(
        prediction.position,
        prediction.source.value,
        span,
        str(prediction.after or ""),
        reservation.start_s if reservation is not None else None,
        _estimate(engine, spec).drawn_s(0.5) if spec is not None else 0.0,
    )


def pods_of(view: EngineView, gang: str) -> tuple[PodRow, ...]:
    """Return the pods of a gang in the order of their ranks, at most `PODS_SHOWN`."""
    state = view.gangs.get(GangId(gang))
    if state is None:
        return ()
    members = list(state.members.values())
    if state.spec is not None:
        ranks = state.members.ranks(state.spec)
        members.sort(key=lambda member: ranks.get(member.name, 0))
    return tuple(
        PodRow(
            str(member.name),
            member.role,
            str(member.bound_node or member.assigned_node or ""),
            _pod_state(member),
        )
        for member in members[:PODS_SHOWN]
    )


def _pod_state(member: MemberState) -> str:
    if member.ended:
        return "failed" if member.failed else "ended"
    if member.bound_node is not None:
        return "terminating" if member.terminating else "running"
    if member.stage is not None:
        return str(member.stage.value)
    return "pending" if member.pod is not None else "not created"


# -- nodes --------------------------------------------------------------------------------------


def _nodes(
    view: EngineView, tree: TopologyTree | None, planned: PlannedStarts, now_s: float
) -> tuple[NodeTile, ...]:
    by_node: dict[NodeName, list[NodeAllocation]] = {}
    for allocation in view.cluster.allocations().values():
        by_node.setdefault(allocation.node, []).append(allocation)
    reserved: dict[str, dict[str, None]] = {}
    for gang, reservation in {**view.backfill_reservations, **planned.reservations}.items():
        for _, there in reservation.nodes:
            reserved.setdefault(str(there), {})[str(gang)] = None
    set_aside: dict[str, list[str]] = {}
    for booking in view.bookings.values():
        window = booking.window(now_s)
        if window is not None and window[0] <= now_s:
            for there in booking.nodes:
                set_aside.setdefault(str(there), []).append(booking.name)
    queues = {gang: state.account[0] for gang, state in view.gangs.items()}
    tiles = []
    for number, name in enumerate(sorted(view.cluster.rows), 1):
        row = view.cluster.rows[name]
        node = view.cluster.nodes[row]
        if node is None:
            continue
        gpus = max(len(node.layouts), dict(node.allocatable).get(GPU, 0))
        tiles.append(
            NodeTile(
                name=str(name),
                number=number,
                domain=_domain(tree, row),
                gpus=gpus or (1 if _mig_totals(node) else 0),
                gpu_model=node.gpu_model,
                cordoned=node.unschedulable,
                failing=any(taint.key in _FAILING for taint in node.taints),
                stop_by_s=node.stop_by_s,
                segments=_segments(by_node.get(name, []), node, gpus, queues),
                mig=_mig_counts(by_node.get(name, []), node),
                reserved_for=tuple(reserved.get(str(name), ())),
                set_aside=tuple(set_aside.get(str(name), ())),
            )
        )
    return tuple(tiles)


def _domain(tree: TopologyTree | None, row: int) -> Domain:
    """Return the path of the finest domain that is known of a row."""
    if tree is None:
        return ()
    for level in range(len(tree.codes) - 1, -1, -1):
        code = int(tree.codes[level][row])
        if code >= 0:
            return tree.paths[level][code]
    return ()


def _segments(
    allocations: list[NodeAllocation], node: Node, gpus: int, queues: Mapping[GangId, str]
) -> tuple[Segment, ...]:
    units: dict[tuple[str, str], float] = {}
    cores = dict(node.allocatable).get("cpu", 0) or 1
    by_gpu = gpus > 0 or _mig_totals(node)
    for allocation in allocations:
        holder = allocation.holder
        key = (str(holder), queues.get(holder, "")) if holder is not None else _OTHER
        if by_gpu:
            amount = gpus_of_pod(allocation.needs)
        else:
            amount = dict(allocation.needs.requests).get("cpu", 0) / cores
        if amount:
            units[key] = units.get(key, 0.0) + amount
    return tuple(Segment(*key, amount) for key, amount in sorted(units.items()))


def _mig_totals(node: Node) -> dict[str, int]:
    return {
        resource.removeprefix(MIG_PREFIX): amount
        for resource, amount in node.allocatable
        if resource.startswith(MIG_PREFIX)
    }


def _mig_counts(allocations: list[NodeAllocation], node: Node) -> tuple[MigCount, ...]:
    totals = _mig_totals(node)
    if not totals:
        return ()
    used = dict.fromkeys(totals, 0)
    for allocation in allocations:
        for resource, amount in allocation.needs.requests:
            profile = resource.removeprefix(MIG_PREFIX)
            if resource.startswith(MIG_PREFIX) and profile in used:
                used[profile] += amount
    return tuple(MigCount(p, total, used[p]) for p, total in sorted(totals.items()))
