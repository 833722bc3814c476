"""Programs of a control plane that are started again, with all that is stored in it."""

from typing import Any

from gangsched.local.network import answers
from gangsched.local.plane import Plane, PlaneError
from gangsched.local.processes import Program


def restart(plane: Plane, name: str | None = None) -> list[Program]:
    """Start a program again, stopping it before if it runs; without a name all that ended.

    Raises:
        PlaneError: there is no such plane, or a program did not become ready again.
        KeyError: there is no such program.

    """
    info = plane.info()
    names = plane.programs.ended() if name is None else [plane.programs.get(name).name]
    done = []
    for one in names:
        if one == "agent":
            (plane.folder / "agent.ready").unlink(missing_ok=True)
        program = plane.programs.restart(one)
        _wait(plane, program, info)
        done.append(program)
    return done


def _wait(plane: Plane, program: Program, info: dict[str, Any]) -> None:
    def ready() -> bool:
        return _ready(plane, program.name, info)

    try:
        plane.wait(program, ready, f"{program.name} to be ready")
    except TimeoutError as error:
        raise PlaneError(str(error)) from error


def _ready(plane: Plane, name: str, info: dict[str, Any]) -> bool:
    """Tell whether a program that was started again answers, as far as it can be asked."""
    match name:
        case "kube-apiserver":
            keys = plane.folder / "pki"
            return answers(f"{info['server']}/readyz", keys / "ca.crt", keys / "admin")
        case "gangsched":
            return answers(info["metrics"].replace("/metrics", "/healthz"))
        case "agent":
            return (plane.folder / "agent.ready").exists()
        case "prometheus":
            return answers(f"{info['prometheus']}/-/ready")
    return True
