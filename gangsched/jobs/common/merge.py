"""Strategic merge of pod templates: mappings by key, some lists by the key of their items.

Source: k8s.io/api's patchMergeKey tags. Lists that are not named here are replaced.
"""

import copy
import json
from typing import Any

from gangsched.jobs.common.model import Json

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "replicatedJobs": "name",
}
_APPENDED = frozenset({"tolerations"})


def merge(base: Any, patch: Any, field: str = "") -> Any:
    """Return the base with the patch over it; items keep the base's order, new ones follow."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge(base.get(key), value, key)
        return merged
    if isinstance(base, list) and isinstance(patch, list):
        if field in _KEYS:
            return _by_key(base, patch, _KEYS[field])
        if field in _APPENDED:
            return base + missing_items(base, patch)
    return copy.deepcopy(patch)


def missing_items(known: list[Any], more: list[Any]) -> list[Any]:
    """Return the items of `more` that `known` does not have."""
    texts = {json.dumps(item, sort_keys=True) for item in known}
    return [item for item in more if json.dumps(item, sort_keys=True) not in texts]


def _by_key(base: list[Json], patch: list[Json], key: str) -> list[Json]:
    changes = {item.get(key): item for item in patch}
    known = {item.get(key) for item in base}
    merged = [
        merge(item, changes[item.get(key)]) if item.get(key) in changes else item for item in base
    ]
    return merged + [copy.deepcopy(item) for item in patch if item.get(key) not in known]
