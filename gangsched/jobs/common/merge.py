"""Strategic merge of parts of pod templates: mappings by key, some lists by what names an item.

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
        found = dict(base)
        for key, value in patch.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = merge(base.get(key), value, key)
        return found
    if isinstance(base, list) and isinstance(patch, list):
        if field in _KEYS:
            return _by_key(base, patch, _KEYS[field])
        if field in _APPENDED:
            return base + missing_items(base, patch)
    return copy.deepcopy(patch)


def missing_items(known: list[Any], more: list[Any]) -> list[Any]:
    """Return the items of a list that another does not have."""
    there = {json.dumps(one, sort_keys=True) for one in known}
    return [one for one in more if json.dumps(one, sort_keys=True) not in there]


def _by_key(base: list[Json], patch: list[Json], key: str) -> list[Json]:
    given = {one.get(key): one for one in patch}
    known = {one.get(key) for one in base}
    kept = [merge(one, given[one.get(key)]) if one.get(key) in given else one for one in base]
    return kept + [copy.deepcopy(one) for one in patch if one.get(key) not in known]
