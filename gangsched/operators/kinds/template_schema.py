"""The schema of templates, as far as the controllers read them before an API server checks them.

CRDs store templates without validation. Fields that are only passed on are not checked.
"""

from typing import Any

import msgspec

from gangsched.jobs.common.model import Json
from gangsched.kube.client.json_depth import DEPTH_MAX, too_deep

Words = dict[str, str]
Items = list[dict[str, Any]]


class _Named(msgspec.Struct, rename="camel"):
    name: str


class _Source(msgspec.Struct, rename="camel"):
    name: str = ""
    optional: bool | None = None


class _Origin(msgspec.Struct, rename="camel"):
    config_map_key_ref: _Source | None = None


class _Variable(msgspec.Struct, rename="camel"):
    name: str
    value: str | None = None
    value_from: _Origin | None = None


class _From(msgspec.Struct, rename="camel"):
    config_map_ref: _Source | None = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: int
    name: str | None = None
    host_port: int | None = None
    protocol: str | None = None


class _Resources(msgspec.Struct, rename="camel"):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    env_from: list[_From] | None = None
    ports: list[_Port] | None = None
    resources: _Resources | None = None
    volume_mounts: list[_Named] | None = None


class _Projection(msgspec.Struct, rename="camel"):
    config_map: _Source | None = None


class _Projected(msgspec.Struct, rename="camel"):
    sources: list[_Projection] | None = None


class _Volume(msgspec.Struct, rename="camel"):
    name: str
    config_map: _Source | None = None
    projected: _Projected | None = None


class _Selector(msgspec.Struct, rename="camel"):
    node_selector_terms: Items | None = None


class _NodeAffinity(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Selector | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    affinity: _Affinity | None = None
    tolerations: Items | None = None
    scheduling_gates: list[_Named] | None = None
    node_selector: Words | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    priority_class_name: str | None = None
    restart_policy: str | None = None
    host_network: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    labels: Words | None = None
    annotations: Words | None = None


class PodTemplate(msgspec.Struct, rename="camel"):
    """The fields of a pod template that are checked."""

    spec: _Spec | None = None
    metadata: _Metadata | None = None


class _JobSpec(msgspec.Struct, rename="camel"):
    template: PodTemplate | None = None
    completions: int | None = None
    parallelism: int | None = None


class JobTemplate(msgspec.Struct, rename="camel"):
    """The fields of the template of a Job of batch/v1 that are checked."""

    metadata: _Metadata | None = None
    spec: _JobSpec | None = None


class ClaimTemplate(msgspec.Struct, rename="camel"):
    """The fields of the template of a PersistentVolumeClaim that are checked."""

    metadata: _Named
    spec: dict[str, Any]


def template_error(template: Json, shape: type[msgspec.Struct] = PodTemplate) -> str:
    """Return the first field of a template with a wrong shape, with its problem, or nothing."""
    if too_deep(template):
        return f"template: nested deeper than {DEPTH_MAX} levels"
    try:
        msgspec.convert(template, shape)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).replace("`", "").partition(" - at ")
        return f"{where.removeprefix('$.') or 'template'}: {problem[:1].lower()}{problem[1:]}"
    return ""


def without_nulls(value: Any) -> Any:
    """Return JSON without what is null, which an API server takes for absent.

    `metadata:` with nothing after it is null.
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
