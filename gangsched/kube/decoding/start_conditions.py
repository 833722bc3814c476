"""Dependencies and series of specs and annotations, as values of the core."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gangsched.api.names import AFTER_ANNOTATION, SERIES_ANNOTATION
from gangsched.api.podgroup import PodGroupSpec
from gangsched.core.model.dependencies import Dependency, DependencyCondition, Series
from gangsched.kube.decoding.constraints import merged
from gangsched.kube.decoding.quantities import DecodeError


def dependencies(spec: PodGroupSpec, own_name: str = "") -> tuple[Dependency, ...]:
    """Return the dependencies of a gang.

    Raises:
        DecodeError: the gang depends on itself.

    """
    if any(one.name == own_name for one in spec.dependencies):
        raise DecodeError(
            f"spec.dependencies: {own_name} depends on itself; name another job or PodGroup"
        )
    found = (Dependency(one.name, DependencyCondition(one.condition)) for one in spec.dependencies)
    return tuple(dict.fromkeys(found))


def series(spec: PodGroupSpec) -> Series | None:
    """Return the series of a gang, None without one."""
    return None if spec.series is None else Series(spec.series.name, spec.series.maxRunning)


def annotated(
    annotations: Mapping[str, str], subject: str
) -> tuple[tuple[Dependency, ...], Series | None]:
    """Return what the annotations of a pod say of its gang.

    Raises:
        DecodeError: an annotation is malformed.

    """
    keys = {AFTER_ANNOTATION, SERIES_ANNOTATION}.intersection(annotations)
    if not keys:
        return (), None
    fields: dict[str, Any] = merged({}, {key: annotations[key] for key in keys}, subject)
    try:
        spec = PodGroupSpec.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise DecodeError(f"{subject}: {', '.join(sorted(keys))}: {problem}") from error
    return dependencies(spec), series(spec)
