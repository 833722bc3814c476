"""Whether a gang fits its namespace's ResourceQuotas, asked before any of its pods is created.

The API server counts pod by pod: it would let half a gang in and refuse the rest. The sentence is
in the API server's words, which users and their tools know.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gangsched.core.jobs.model import Json
from gangsched.kube.quantities import DecodeError, quantity

_PODS = ("pods", "count/pods")


def exceeded(quotas: Iterable[Json], roles: Iterable[tuple[int, Json]]) -> str | None:
    """Return which quota so many pods of some specs would exceed, in a sentence, or None.

    Quotas with scopes are left to the API server.
    """
    asked: dict[str, int] = {}
    for count, spec in roles:
        for name, amount in _of_pod(spec).items():
            asked[name] = asked.get(name, 0) + count * amount
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        for name, hard in (spec.get("hard") or {}).items():
            wanted = asked.get(_same(name), 0)
            used = (status.get("used") or {}).get(name, "0")
            left = quantity(_plain(name), hard) - quantity(_plain(name), used)
            if wanted and wanted > left:
                return (
                    f"exceeded quota: {quota['metadata']['name']}, requested by all pods of the "
                    f"job together: {name}={_written(_plain(name), wanted)}, used: {name}={used}, "
                    f"limited: {name}={hard}"
                )
    return None


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
    """Return what one pod counts for; requests that are not given are the limits."""
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
                    continue  # the API server refuses the pod, and says why
                key = f"{kind}.{name}"
                found[key] = found.get(key, 0) + amount
    return found
