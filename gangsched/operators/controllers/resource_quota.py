"""Checks whether a gang fits its namespace's ResourceQuotas, before any pod is created.

The API server counts pod by pod: it would admit half a gang and refuse the rest. The sentence has
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


def exceeded(
    quotas: Iterable[Json], roles: Iterable[tuple[int, Json]], held: Amounts = NOTHING
) -> str | None:
    """Return which quota so many pods of some specs would exceed, in a sentence, or None.

    Quotas with scopes are left to the API server. `held` is what the namespace has of resources
    that it does not count.
    """
    asked = together(roles)
    for quota in quotas:
        status = quota.get("status") or {}
        for name, hard in _lines(quota):
            wanted = asked.get(_same(name), 0)
            used = (status.get("used") or {}).get(name, "0")
            if _uncounted(name):
                used = str(held.get(_same(name), 0))
            left = quantity(_plain(name), hard) - quantity(_plain(name), used)
            if wanted and wanted > left:
                return (
                    f"exceeded quota: {quota['metadata']['name']}, requested by all pods of the "
                    f"job together: {name}={_written(_plain(name), wanted)}, used: {name}={used}, "
                    f"limited: {name}={hard}"
                )
    return None


def uncounted(quotas: Iterable[Json]) -> bool:
    """Return whether a quota names a device that the API server counts by another name alone.

    It counts `requests.nvidia.com/gpu`; it ignores `nvidia.com/gpu`, which guides recommend.
    """
    return any(_uncounted(name) for quota in quotas for name, _ in _lines(quota))


def held(pods: Iterable[Json], groups: Iterable[Json]) -> dict[str, int]:
    """Return what a namespace's pods hold, plus the pods that its gangs are yet to create."""
    planned = {
        group["metadata"]["name"]: _planned(group)
        for group in groups
        if not group["metadata"].get("deletionTimestamp")
    }
    there: dict[str, dict[str, int]] = {}
    for pod in pods:
        name = (pod["metadata"].get("labels") or {}).get(POD_GROUP_LABEL, "")
        _add(there.setdefault(name, {}), _of_pod(pod["spec"]), 1)
    total: dict[str, int] = {}
    for group in planned.keys() | there.keys():
        one, other = planned.get(group, {}), there.get(group, {})
        both = one.keys() | other.keys()
        _add(total, {name: max(one.get(name, 0), other.get(name, 0)) for name in both}, 1)
    return total


def _planned(group: Json) -> dict[str, int]:
    """Return what a group's roles count for; templates of another shape count for nothing."""
    roles = (group.get("spec") or {}).get("roles") or []
    try:
        return together((int(role["count"]), role["template"]["spec"]) for role in roles)
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def together(roles: Iterable[tuple[int, Json]]) -> dict[str, int]:
    """Return the total of all pods, given as counts and specs."""
    total: dict[str, int] = {}
    for count, spec in roles:
        _add(total, _of_pod(spec), count)
    return total


def _add(total: dict[str, int], more: Amounts, times: int) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + times * amount


def _lines(quota: Json) -> Iterable[tuple[str, Any]]:
    """Return what a quota bounds, and by how much."""
    spec = quota.get("spec") or {}
    scoped = spec.get("scopes") or spec.get("scopeSelector")
    return () if scoped else tuple((spec.get("hard") or {}).items())


def _uncounted(name: str) -> bool:
    return "/" in name and not name.startswith(("requests.", "limits.", "count/"))


def _same(name: str) -> str:
    """Return the one name under which a quota's several spellings are counted."""
    if name in _PODS:
        return "pods"
    return name if name.startswith(("requests.", "limits.")) else f"requests.{name}"


def _plain(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")


def _written(resource: str, amount: int) -> str:
    """Write an amount as a quantity of the API."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    gibi, rest = divmod(amount, 2**30)
    return f"{gibi}Gi" if gibi and not rest else str(amount)


def _of_pod(spec: Json) -> Mapping[str, int]:
    """Return what one pod counts for; requests default to the limits."""
    found: dict[str, int] = {"pods": 1}
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
                found[key] = found.get(key, 0) + amount
    return found
