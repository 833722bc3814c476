"""The quotas of a namespace, and what they leave for pods that do not exist yet.

The API server counts a pod when it is created. Capacity that is reserved for pods before they exist
is counted here. Otherwise, it would be reserved for pods that the API server never admits.
"""

from collections.abc import Iterable, Mapping

from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.pods import PODS, PodRequirements, Requests
from gangsched.core.model.refusal import Reason, Refusal, format_amount
from gangsched.core.snapshot import QueueRules


def total_requests(pods: Iterable[PodRequirements]) -> Requests:
    """Return the sum of the requests of pods, and their number."""
    counts: dict[PodRequirements, int] = {}
    for needs in pods:
        counts[needs] = counts.get(needs, 0) + 1
    total: dict[str, int] = {}
    for needs, times in counts.items():
        total[PODS] = total.get(PODS, 0) + times
        for name, quantity in needs.requests:
            if name != PODS:
                total[name] = total.get(name, 0) + quantity * times
    return tuple(sorted(total.items()))


def add_to(total: dict[str, int], more: Requests) -> None:
    """Add amounts to a sum."""
    for name, quantity in more:
        total[name] = total.get(name, 0) + quantity


def namespace_quota_refusal(
    waiting: PendingGang, rules: QueueRules, unborn: Mapping[str, int]
) -> Refusal | None:
    """Return which quota of its namespace has too little left for a gang's pods, or None.

    `unborn` is what other gangs of that namespace have reserved for pods that do not exist yet.
    """
    namespace = waiting.gang.id.partition("/")[0]
    for name, left in sorted(rules.namespaces.get(namespace, {}).items()):
        for resource, wanted in waiting.unborn:
            if resource not in left:
                continue
            others = unborn.get(resource, 0)
            if wanted + others <= left[resource]:
                continue
            also = f", and {format_amount(resource, others)} of it is for gangs that start before"
            message = (
                f"ResourceQuota {name} of namespace {namespace} has "
                f"{format_amount(resource, max(left[resource], 0))} left{also if others else ''}; "
                f"the gang's pods, which do not exist yet, need {format_amount(resource, wanted)}."
            )
            return Refusal(waiting.gang.id, Reason.NAMESPACE_QUOTA, message)
    return None
