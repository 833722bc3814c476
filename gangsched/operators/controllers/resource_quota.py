"""Checks whether a gang fits its namespace's ResourceQuotas, before any pod is created.

The API server counts pod by pod: it would admit half a gang and refuse the rest. The message has
the form of the API server's, which users and their tools recognise.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from gangsched.api.names import POD_GROUP_LABEL
from gangsched.jobs.common.model import Json
from gangsched.kube.decoding.quantities import DecodeError, quantity

Amounts = Mapping[str, int]
NOTHING: Amounts = MappingProxyType({})

_PODS = ("pods", "count/pods")


def exceeded_quota(
    quotas: Iterable[Json], roles: Iterable[tuple[int, Json]], held: Amounts = NOTHING
) -> str | None:
    """Return a message about the quota that the pods would exceed, or None.

    `roles` are pod counts and pod specs. The API server checks quotas with scopes. `held` is the
    usage of resources that the API server does not count.
    """
    requested = total_of_templates(roles)
    for quota in quotas:
        status = quota.get("status") or {}
        for name, hard in _hard_limits(quota):
            wanted = requested.get(_counted_name(name), 0)
            used = (status.get("used") or {}).get(name, "0")
            if _is_uncounted(name):
                used = str(held.get(_counted_name(name), 0))
            left = quantity(_resource_name(name), hard) - quantity(_resource_name(name), used)
            if wanted and wanted > left:
                amount = _quantity_text(_resource_name(name), wanted)
                return (
                    f"exceeded quota: {quota['metadata']['name']}, requested by all pods of the "
                    f"job together: {name}={amount}, used: {name}={used}, limited: {name}={hard}"
                )
    return None


def names_uncounted_device(quotas: Iterable[Json]) -> bool:
    """Return whether a quota names a device that the API server counts by another name alone.

    It counts `requests.nvidia.com/gpu`; it ignores `nvidia.com/gpu`, which guides recommend.
    """
    return any(_is_uncounted(name) for quota in quotas for name, _ in _hard_limits(quota))


def total_usage(pods: Iterable[Json], groups: Iterable[Json]) -> dict[str, int]:
    """Return what a namespace's pods hold, plus the pods that its gangs are yet to create."""
    planned = {
        group["metadata"]["name"]: _group_requests(group)
        for group in groups
        if not group["metadata"].get("deletionTimestamp")
    }
    existing: dict[str, dict[str, int]] = {}
    for pod in pods:
        name = (pod["metadata"].get("labels") or {}).get(POD_GROUP_LABEL, "")
        _add(existing.setdefault(name, {}), _pod_requests(pod["spec"]), 1)
    total: dict[str, int] = {}
    for group in planned.keys() | existing.keys():
        later, now = planned.get(group, {}), existing.get(group, {})
        names = later.keys() | now.keys()
        _add(total, {name: max(later.get(name, 0), now.get(name, 0)) for name in names}, 1)
    return total


def _group_requests(group: Json) -> dict[str, int]:
    """Return the requests of a group's roles; malformed templates count for nothing."""
    roles = (group.get("spec") or {}).get("roles") or []
    try:
        return total_of_templates((int(role["count"]), role["template"]["spec"]) for role in roles)
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def total_of_templates(roles: Iterable[tuple[int, Json]]) -> dict[str, int]:
    """Return the total of all pods, given as counts and specs."""
    total: dict[str, int] = {}
    for count, spec in roles:
        _add(total, _pod_requests(spec), count)
    return total


def _add(total: dict[str, int], more: Amounts, times: int) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + times * amount


def _hard_limits(quota: Json) -> Iterable[tuple[str, Any]]:
    """Return the names and amounts of a quota's hard limits."""
    spec = quota.get("spec") or {}
    scoped = spec.get("scopes") or spec.get("scopeSelector")
    return () if scoped else tuple((spec.get("hard") or {}).items())


def _is_uncounted(name: str) -> bool:
    return "/" in name and not name.startswith(("requests.", "limits.", "count/"))


def _counted_name(name: str) -> str:
    """Return the name under which all spellings of a quota's name are counted."""
    if name in _PODS:
        return "pods"
    return name if name.startswith(("requests.", "limits.")) else f"requests.{name}"


def _resource_name(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")


def _quantity_text(resource: str, amount: int) -> str:
    """Write an amount as a quantity of the API."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    gibi, rest = divmod(amount, 2**30)
    return f"{gibi}Gi" if gibi and not rest else str(amount)


def _pod_requests(spec: Json) -> Mapping[str, int]:
    """Return the amounts that one pod counts for; requests default to the limits."""
    total: dict[str, int] = {"pods": 1}
    for container in spec.get("containers") or []:
        resources: dict[str, Any] = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = limits | (resources.get("requests") or {})
        for kind, amounts in (("requests", requests), ("limits", limits)):
            for name, value in amounts.items():
                try:
                    amount = quantity(name, value)
                except DecodeError:
                    continue  # the API server refuses the pod, with the reason
                key = f"{kind}.{name}"
                total[key] = total.get(key, 0) + amount
    return total
