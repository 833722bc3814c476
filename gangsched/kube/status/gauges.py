"""The state of the engine as gauges, computed at each scrape."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gangsched.core.bounds import METRIC_PODS
from gangsched.core.cluster.node_prices import price_of_pods
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.view import EngineView
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.model.queues import QuotaKey
from gangsched.core.policy import PreemptionReason
from gangsched.kube.status.queue_status import pending_and_admitted
from gangsched.metrics import Metrics, QueueFigures

_FINISHED = "Finished"
"""A gang with only ended pods: the engine has it as Placed, but metrics show what runs."""

_GPUS = (GPU, "nvidia.com/mig-")
"""The beginnings of the names of GPUs and their instances."""


def refresh(metrics: Metrics, view: EngineView) -> None:
    """Set all gauges from the state of the engine."""
    counts = dict.fromkeys([*(state.value for state in State), _FINISHED], 0)
    reserved = 0
    for gang in view.gangs.values():
        counts[_FINISHED if view.is_finished(gang) else gang.state.value] += 1
        reserved += gang.members.in_progress()
    for state, count in counts.items():
        metrics.gangs.labels(state).set(count)
    metrics.gangs_refused.clear()
    for reason, count in view.refusal_counts().items():
        metrics.gangs_refused.labels(reason.value).set(count)
    # A counter that begins with 1 shows no increase in Prometheus, so all begin with 0.
    for queue in view.ledger.usage.tree.queues:
        for ground in PreemptionReason:
            metrics.preemptions.labels(queue, ground.value)
        metrics.evicted_gpu_seconds.labels(queue)
        metrics.backfilled.labels(queue)
    metrics.reserved_members.set(reserved)
    metrics.plans_stale.set(view.stale_plans)
    metrics.jobs.refresh()
    metrics.queues.pod_gpus = list(islice(pod_gpus(view), METRIC_PODS.most))
    metrics.queues.figures = queue_figures(view)
    metrics.queues.gpus, metrics.queues.fragmentation = gpus_by_state(view)


def queue_figures(view: EngineView) -> dict[str, QueueFigures]:
    """Return the figures of each queue."""
    usage = view.ledger.usage
    tree = usage.tree
    counts = pending_and_admitted(view)
    prices = prices_by_queue(view)
    by_queue = {}
    for name in tree.queues:
        pending, admitted, _ = counts.get(name, (0, 0, []))
        shown = by_queue[name] = QueueFigures(pending, admitted)
        if name not in tree:
            continue
        shown.share = usage.share(name)
        shown.price = prices.get(name, 0.0)
        time = view.ledger.accounts.get((name, ""))
        shown.decayed = time.historical_gpu_s if time is not None else 0.0
        held = {key for key, amount in usage.subtree_usage.get(name, {}).items() if amount}
        for key in sorted({*held, *tree.quota_keys(name)}):
            nominal = tree.nominal(name, key)
            used = usage.used(name, key)
            shown.used[key] = used / unit(key)
            if nominal is not None:
                shown.nominal[key] = nominal / unit(key)
                shown.borrowed[key] = max(used - nominal, 0) / unit(key)
    return by_queue


def prices_by_queue(view: EngineView) -> dict[str, float]:
    """Return the price for an hour of what gangs use, by queue, without the queues below it."""
    cluster = view.cluster
    priced = [name for name, row in cluster.rows.items()
              if (node := cluster.nodes[row]) is not None and node.price is not None]  # fmt: skip
    gangs = {gang for name in priced for gang in cluster.gangs_by_row.get(cluster.rows[name], ())}
    prices: dict[str, float] = {}
    for gang in gangs:
        state = view.gangs.get(gang)
        if state is not None and state.spec is not None:
            pods = ((member.bound_node, member.needs) for member in state.members.values()
                    if member.bound_node is not None and not member.ended)  # fmt: skip
            price = price_of_pods(pods, cluster) or 0.0
            prices[state.spec.queue] = prices.get(state.spec.queue, 0.0) + price
    return prices


def unit(key: QuotaKey) -> int:
    """Return how many of a quota's internal units are one GPU, core or byte."""
    return MILLI if key[0] in (GPU, "cpu", "gpu-credits") else 1


def gpus_by_state(view: EngineView) -> tuple[dict[str, float], float | None]:
    """Return the GPUs by state, and the share of free GPUs that is on partly used nodes.

    The share is None if no GPU is free.
    """
    cluster = view.cluster
    if GPU not in cluster.resources:
        return {}, None
    column = list(cluster.resources).index(GPU)
    has, used = (table[cluster.live, column] for table in (cluster.allocatable, cluster.used))
    free = np.maximum(has - used, 0)
    counts = {"all": float(has.sum()), "used": float(has.sum() - free.sum())}
    total = int(free.sum())
    return counts, float(free[used > 0].sum() / total) if total else None


def pod_gpus(view: EngineView) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield namespace, gang, pod and queue of each running pod with GPUs, and their number."""
    counts: dict[PodRequirements, int] = {}
    for gang in view.gangs.values():
        namespace, _, gang_name = gang.id.partition("/")
        for member in gang.members.values():
            if member.bound_node is None or member.ended:
                continue
            needs = member.needs
            count = counts.get(needs)
            if count is None:
                count = counts[needs] = _gpus_of(needs)
            if count:
                pod = member.name.partition("/")[2]
                yield (namespace, gang_name, pod, gang.account[0]), count


def _gpus_of(needs: PodRequirements) -> int:
    """Return how many GPUs a pod has: whole ones, instances, and those that it shares."""
    count = sum(amount for name, amount in needs.requests if name.startswith(_GPUS))
    return count + (needs.share.devices if needs.share is not None else 0)
