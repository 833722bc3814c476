"""The pod templates of the kinds of job that a trial may run."""

from collections.abc import Iterator
from typing import Any

from gangsched.jobs.common.model import Json


def pod_templates(job: Json) -> Iterator[Json]:
    """Yield the specs of a job's pods, to be changed in place; a TrainJob has none of its own."""
    for template in _of_pods(job):
        yield template["spec"]


def label_pods(job: Json, labels: dict[str, str]) -> None:
    """Add labels to the pods of a job, in place; a TrainJob has no pods of its own."""
    for template in _of_pods(job):
        metadata: Any = template.get("metadata") or {}
        known = metadata.get("labels") or {} if isinstance(metadata, dict) else None
        if isinstance(known, dict):  # else the API server says what is wrong
            template["metadata"] = metadata | {"labels": known | labels}


def _of_pods(job: Json) -> Iterator[Json]:
    """Yield the templates of a job's pods that have containers."""
    spec: Any = job.get("spec")
    for template in _templates(job["kind"], spec if isinstance(spec, dict) else {}):
        pod = template.get("spec") if isinstance(template, dict) else None
        if isinstance(pod, dict) and isinstance(pod.get("containers"), list):
            yield template


def containers(pod: Json, primary: str | None) -> list[Json]:
    """Return the containers that train: the primary one, or the first if none is named so."""
    listed = [item for item in pod["containers"] if isinstance(item, dict)]
    return [item for item in listed if item.get("name") == primary] or (
        [] if primary else listed[:1]
    )


def _templates(kind: str, spec: Json) -> Iterator[Any]:
    if kind == "Job":
        yield spec.get("template")
    elif kind == "JobSet":
        for part in _dicts(spec.get("replicatedJobs")):
            yield _within(part, "template", "spec", "template")
    elif kind != "TrainJob":
        for field, roles in spec.items():
            if field.endswith("ReplicaSpecs") and isinstance(roles, dict):
                for role in roles.values():
                    yield _within(role, "template")


def _dicts(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _within(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
