"""Restarts programs of a control plane; stored objects stay."""

from typing import Any

from gangsched.local.bootstrap import wait_for_policies
from gangsched.local.network import answers
from gangsched.local.plane import Plane, PlaneError
from gangsched.local.processes import Program


def restart(plane: Plane, name: str | None = None) -> list[Program]:
    """Restart a program, also if it runs; without a name, start all programs that have ended.

    Raises:
        PlaneError: there is no such plane, or a program did not become ready again.
        KeyError: there is no such program.

    """
    info = plane.info()
    names = plane.programs.ended() if name is None else [plane.programs.get(name).name]
    started = []
    for program_name in names:
        if program_name == "agent":
            (plane.folder / "agent.ready").unlink(missing_ok=True)
        program = plane.programs.restart(program_name)
        _wait(plane, program, info)
        started.append(program)
    return started


def _wait(plane: Plane, program: Program, info: dict[str, Any]) -> None:
    def ready() -> bool:
        return _ready(plane, program.name, info)

    try:
        plane.wait(program, ready, f"{program.name} to be ready")
        if program.name == "kube-apiserver":
            wait_for_policies(plane.kubeconfig)
    except TimeoutError as error:
        raise PlaneError(str(error)) from error


def _ready(plane: Plane, name: str, info: dict[str, Any]) -> bool:
    """Return whether a restarted program answers; programs without a check count as ready."""
    match name:
        case "kube-apiserver":
            return answers(f"{info['server']}/readyz", plane.folder / "pki" / "ca.crt")
        case "gangsched":
            return answers(info["metrics"].replace("/metrics", "/healthz"))
        case "agent":
            return (plane.folder / "agent.ready").exists()
        case "mlflow":
            return answers(f"{info['mlflow']}/health")
        case "prometheus":
            return answers(f"{info['prometheus']}/-/ready")
    return True
