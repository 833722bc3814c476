"""Which requests for nodes to create and which to delete, as a function of the present state."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gangsched.autoscaling_config import ProvisioningConfig
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import GpuTypes
from gangsched.core.planning.admission import charge_if_allowed
from gangsched.core.quota.usage import Usage
from gangsched.kube.provisioning.demand import GangDemand
from gangsched.kube.provisioning.request import NodeRequest

_RETRY_MAX_S = 3600.0


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
            (full and not _runs(request)) or not charge_if_allowed(want.pending, usage, kinds)
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
