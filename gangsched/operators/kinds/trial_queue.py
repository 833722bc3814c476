"""Trials go where their Experiment goes: through its queue, and by our scheduler."""

from typing import Any

from gangsched.api import dialects, names
from gangsched.jobs.common.model import Json

_MADE_PLAIN = "Job"
"""The kind of a trial's job whose pods name no scheduler unless their template does."""


def in_queue_of(owner: Json, document: Json) -> Json:
    """Return an owner's document, in the owner's queue unless it names a queue itself."""
    metadata = document.get("metadata") or {}
    if dialects.queue_of(metadata.get("labels") or {}, metadata.get("annotations") or {}):
        return document
    marks = {
        field: (metadata.get(field) or {}) | _queue(owner["metadata"].get(field) or {})
        for field in ("labels", "annotations")
    }
    return document | {"metadata": metadata | {key: one for key, one in marks.items() if one}}


def _queue(given: dict[str, str]) -> dict[str, str]:
    return {key: given[key] for key in names.QUEUE_LABELS if given.get(key)}


def scheduled(document: Json, scheduler: str) -> Json:
    """Return a trial's job; its pods name our scheduler unless the template names one.

    Kinds that we run ourselves are ours anyway.
    """
    spec: Any = document.get("spec")
    template: Any = spec.get("template") if isinstance(spec, dict) else None
    pod: Any = template.get("spec") if isinstance(template, dict) else None
    if document["kind"] != _MADE_PLAIN or not scheduler or not isinstance(pod, dict):
        return document
    pod = pod | {"schedulerName": pod.get("schedulerName") or scheduler}
    return document | {"spec": spec | {"template": template | {"spec": pod}}}
