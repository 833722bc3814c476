"""Variables and volumes that a job adds to the containers of its pods."""

from typing import Any

from gangsched.jobs.common.model import Json


def merge_variables(variables: list[Json], more: list[Json]) -> None:
    """Add variables; a variable of a known name replaces the old one in its place."""
    positions: dict[str, int] = {}
    for at, old in enumerate(variables):
        positions.setdefault(old["name"], at)
    for new in more:
        at = positions.setdefault(new["name"], len(variables))
        variables[at : at + 1] = [new]


def put_variables(container: Json, values: dict[str, Any]) -> None:
    """Add variables to a container; a value that is no text is the source of the value."""
    merge_variables(
        container.setdefault("env", []),
        [
            {"name": name, "value": value}
            if isinstance(value, str)
            else {"name": name, "valueFrom": value}
            for name, value in values.items()
        ],
    )


def mount(pod: Json, container: Json, volume: Json, path: str, *, read_only: bool = False) -> None:
    """Add a volume to a pod and mount it into one container."""
    volumes = pod.setdefault("volumes", [])
    if not any(known["name"] == volume["name"] for known in volumes):
        volumes.append(volume)
    at: Json = {"name": volume["name"], "mountPath": path}
    at |= {"readOnly": True} if read_only else {}
    mounts = container.setdefault("volumeMounts", [])
    if at not in mounts:
        mounts.append(at)
