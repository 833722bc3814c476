"""What a PodGroup waits for: other gangs, and its turn in a series; and the annotations for it."""

from typing import Any, Literal

from pydantic import Field

from gangsched.api.base import ApiModel
from gangsched.core.model.text import shown, whole

DEPENDENCIES_MAX = 64
RUNNING_MAX = 10_000
_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_CONDITIONS = {
    "afterok": "Succeeded",
    "afterany": "Ended",
    "afternotok": "Failed",
    "after": "Started",
}


class DependencySpec(ApiModel):
    """Another gang that this gang waits for."""

    name: str = Field(
        min_length=1,
        max_length=253,
        pattern=_NAME,
        description="Name of a job or a PodGroup of the same namespace.",
    )
    condition: Literal["Succeeded", "Ended", "Failed", "Started"] = Field(
        "Succeeded",
        description="What has to be true of it: Succeeded, Ended (Succeeded or Failed), Failed or "
        "Started. Default: Succeeded.",
    )


class SeriesSpec(ApiModel):
    """Gangs of which few run at a time."""

    name: str = Field(
        min_length=1,
        max_length=253,
        pattern=_NAME,
        description="Name of the series; gangs of the same namespace with this name belong to it.",
    )
    maxRunning: int = Field(  # noqa: N815
        1, ge=1, le=RUNNING_MAX, description="How many gangs of the series run at a time."
    )


def read_dependencies(value: str, where: str) -> list[dict[str, Any]]:
    """Return spec.dependencies of the annotation gangsched.io/after: `afterok:NAME,after:NAME`.

    Raises:
        ValueError: it has another form; the message is the whole sentence.

    """
    parts = [part.strip() for part in value.split(",", DEPENDENCIES_MAX)]
    if len(parts) > DEPENDENCIES_MAX:
        raise ValueError(f"{where} names more than {DEPENDENCIES_MAX} gangs")
    found = []
    for part in parts:
        condition, colon, name = part.partition(":")
        if condition not in _CONDITIONS or not colon or not name:
            raise ValueError(
                f"{where} has {shown(part)}; it must be {', '.join(_CONDITIONS)}, each with :NAME"
            )
        found.append({"name": name, "condition": _CONDITIONS[condition]})
    return found


def read_series(value: str, where: str) -> dict[str, Any]:
    """Return spec.series of the annotation gangsched.io/series: `NAME:MAXRUNNING`.

    Raises:
        ValueError: it has another form; the message is the whole sentence.

    """
    name, _, most = value.rpartition(":")
    number = whole(most, RUNNING_MAX)
    if not name or not number:
        raise ValueError(
            f"{where} is {shown(value)}; it must be NAME:MAXRUNNING, with a number from 1 to "
            f"{RUNNING_MAX}"
        )
    return {"name": name, "maxRunning": number}
