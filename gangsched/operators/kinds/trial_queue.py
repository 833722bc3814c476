"""Gives Trials the queue of their Experiment, and their pods the name of the scheduler."""

from typing import Any

from gangsched.api import dialects, names
from gangsched.jobs.common.model import Json

_PLAIN_KIND = "Job"
"""The kind of job with a pod template that no controller of gangsched completes."""


def in_queue_of(owner: Json, document: Json) -> Json:
    """Return an owner's document, in the owner's queue unless it names a queue itself."""
    metadata = document.get("metadata") or {}
    if dialects.queue_of(metadata.get("labels") or {}, metadata.get("annotations") or {}):
        return document
    marks = {
        field: (metadata.get(field) or {}) | _queue(owner["metadata"].get(field) or {})
        for field in ("labels", "annotations")
    }
    return document | {"metadata": metadata | {key: value for key, value in marks.items() if value}}


def _queue(given: dict[str, str]) -> dict[str, str]:
    return {key: given[key] for key in names.QUEUE_LABELS if given.get(key)}


def scheduled(document: Json, scheduler: str) -> Json:
    """Return a trial's job; its pods name the scheduler unless the template names one.

    Other kinds name the scheduler by their own controller.
    """
    spec: Any = document.get("spec")
    template: Any = spec.get("template") if isinstance(spec, dict) else None
    pod: Any = template.get("spec") if isinstance(template, dict) else None
    if document["kind"] != _PLAIN_KIND or not scheduler or not isinstance(pod, dict):
        return document
    pod = pod | {"schedulerName": pod.get("schedulerName") or scheduler}
    return document | {"spec": spec | {"template": template | {"spec": pod}}}
