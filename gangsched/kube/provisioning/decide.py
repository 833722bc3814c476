"""Which requests for nodes to create and which to delete, as a function of the present state."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gangsched.config import ProvisioningConfig
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import GpuTypes
from gangsched.core.planning.admission import may_not_borrow, quota_refusal
from gangsched.core.quota.charges import charge_of, gpu_types_to_try
from gangsched.core.quota.usage import Usage
from gangsched.kube.provisioning.request import NodeRequest

_RETRY_MAX_S = 3600.0


@dataclass(frozen=True, slots=True)
class GangDemand:
    """A gang that may have a request, by the base of its name.

    Once the gang has nodes, `base` and `pending` are None: a request is kept until its pods run. A
    gang that does not `lack` nodes keeps its request, and gets no new one.
    """

    gang: GangId
    base: str | None = None
    pending: PendingGang | None = None
    lacks: bool = False


@dataclass(slots=True)
class Decision:
    """Requests to create, as gangs with the number of the attempt, and requests to delete."""

    create: list[tuple[GangDemand, int]] = field(default_factory=list)
    delete: list[NodeRequest] = field(default_factory=list)
    live: dict[GangId, NodeRequest] = field(default_factory=dict)
    """The requests that stay and that the autoscaler works on, or has fulfilled."""


def decide_requests(
    wants: Sequence[GangDemand],
    requests: Iterable[NodeRequest],
    usage: Usage,
    kinds: GpuTypes,
    config: ProvisioningConfig,
    now_s: float,
) -> Decision:
    """Return what to change. `wants` are in the order in which gangs get nodes.

    A request exists only for a gang with quota beside all gangs before it. Gangs with a request
    come first, so that an attempt that runs is not given up for a later gang.
    """
    decision = Decision()
    latest = _latest(wants, requests, decision)
    usage = usage.copy()
    live: Counter[str] = Counter()
    for want in sorted(wants, key=lambda want: not _runs(latest.get(want.gang))):
        request = latest.get(want.gang)
        attempt = _next_attempt(request, config, now_s) if want.lacks else None
        if not _runs(request) and attempt is None:
            continue  # a request that is over stays: it says how often was tried, and when
        namespace = want.gang.partition("/")[0]
        full = live[namespace] >= config.namespace_max or live.total() >= config.requests_max
        if want.pending is not None and (
            (full and not _runs(request)) or not _charged(want.pending, usage, kinds)
        ):
            if request is not None and _runs(request):
                decision.delete.append(request)
            continue
        live[namespace] += 1
        if request is not None and _runs(request):
            decision.live[want.gang] = request
        elif attempt is not None:
            decision.create.append((want, attempt))
    return decision


def _latest(
    wants: Sequence[GangDemand], requests: Iterable[NodeRequest], decision: Decision
) -> dict[GangId, NodeRequest]:
    """Return the last attempt of each gang; all other requests are to be deleted."""
    bases = {want.gang: want.base for want in wants}
    latest: dict[GangId, NodeRequest] = {}
    for request in sorted(requests, key=lambda request: request.attempt):
        if request.gang not in bases or bases[request.gang] not in (None, request.base):
            decision.delete.append(request)
            continue
        earlier = latest.get(request.gang)
        if earlier is not None:
            decision.delete.append(earlier)
        latest[request.gang] = request
    return latest


def _runs(request: NodeRequest | None) -> bool:
    return request is not None and not request.phase.over


def _next_attempt(
    request: NodeRequest | None, config: ProvisioningConfig, now_s: float
) -> int | None:
    """Return the number of the attempt to make now, or None."""
    if request is None:
        return 1
    if not request.phase.over or request.attempt >= config.attempts:
        return None
    pause_s = min(config.retry_s * 2.0 ** min(request.attempt - 1, 20), _RETRY_MAX_S)
    return request.attempt + 1 if now_s >= request.since_s + pause_s else None


def _charged(pending: PendingGang, usage: Usage, kinds: GpuTypes) -> bool:
    """Charge a gang to its queue; return False if the queue has no quota left for it."""
    for kind in gpu_types_to_try(pending, usage):
        charge = kinds.with_gpu_types(charge_of(pending), kind)
        refusal = may_not_borrow(pending, usage, charge) or quota_refusal(pending, usage, charge)
        if refusal is None:
            usage.charge(pending.gang.queue, charge, firm=not pending.gang.preemptible)
            return True
    return False
