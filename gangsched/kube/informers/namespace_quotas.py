"""ResourceQuotas: the unused quota of a namespace for pods that do not exist yet.

Two parts are left to the API server: quotas with scopes, because they count only some pods, and
limits, because gangsched reserves capacity for requests.
"""

from typing import Any

from gangsched.core import facts as f
from gangsched.core.model.pods import PODS, Requests
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import quantity
from gangsched.kube.informers.base import NameTracking
from gangsched.kube.informers.context import FactSink
from gangsched.metrics import Metrics

_REQUESTS = "requests."
_PODS = frozenset({PODS, "count/pods"})
_AS_REQUESTS = frozenset({"cpu", "memory", "ephemeral-storage"})


class NamespaceQuotas(NameTracking):
    """The informer of ResourceQuotas."""

    kind = "ResourceQuota"

    def __init__(self, facts: FactSink, metrics: Metrics) -> None:
        super().__init__(metrics)
        self._facts = facts

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        fact = quota(obj)
        self.track(obj, f"{fact.namespace}/{fact.name}")
        self._facts.observe(fact)

    def malformed(self, raw: bytes, message: str) -> None:
        """Ignore a malformed quota; the API server enforces it."""
        metadata = ApiObject(raw).metadata
        self.on_name_released(f"{metadata.namespace}/{metadata.name}")

    def on_name_released(self, name: str) -> None:
        """Observe that no object has the name any more."""
        namespace, _, own = name.partition("/")
        self._facts.observe(f.NamespaceQuotaGone(namespace, own))


def quota(obj: ApiObject) -> f.NamespaceQuotaSeen:
    """Return the fact of a ResourceQuota.

    Raises:
        DecodeError: the ResourceQuota is malformed.

    """
    group = obj.group
    spec, status = group.spec, group.status
    scoped = spec.get("scopes") or spec.get("scopeSelector")
    left = () if scoped else _left(spec.get("hard") or {}, status.get("used") or {})
    return f.NamespaceQuotaSeen(group.metadata.namespace, group.metadata.name, left)


def _left(hard: dict[str, Any], used: dict[str, Any]) -> Requests:
    unused: dict[str, int] = {}
    for name, most in hard.items():
        resource = _resource(name)
        if resource:
            left = quantity(resource, most) - quantity(resource, used.get(name, 0))
            unused[resource] = min(unused.get(resource, left), left)
    return tuple(sorted(unused.items()))


def _resource(name: str) -> str:
    """Return the resource of pods that an entry of a quota counts, or "" for another entry."""
    if name in _PODS:
        return PODS
    if name.startswith(_REQUESTS):
        return name.removeprefix(_REQUESTS)
    return name if name in _AS_REQUESTS else ""
