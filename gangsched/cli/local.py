"""`gangsched local`: a complete control plane on this machine."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gangsched.cli.options import Output
from gangsched.cli.output.printing import console as terminal
from gangsched.cli.output.printing import new_table, print_answer, print_table
from gangsched.config import ConfigError
from gangsched.local.agent.devices import device_pool
from gangsched.local.gpus import MachineGpus, machine_gpus
from gangsched.local.nodes import OF_MACHINE, load_nodes, read_nodes
from gangsched.local.plane import (
    Plane,
    PlaneOptions,
    chosen,
    client_environment,
    instances,
    there_are,
)
from gangsched.local.progress import show_progress
from gangsched.local.restart import restart as start_again

local = typer.Typer(no_args_is_help=True, help="A complete control plane on this machine.")

console = terminal()
Name = Annotated[str, typer.Option("--name", help="name of the control plane")]
Existing = Annotated[
    str | None, typer.Option("--name", help="name of a control plane; default: the only one")
]


@local.command()
def build(
    *,
    monitoring: Annotated[bool, typer.Option(help="Prometheus and promtool too")] = False,
    helm: Annotated[bool, typer.Option(help="helm too")] = False,
    images: Annotated[bool, typer.Option(help="umoci too, to pack images")] = False,
    tracking: Annotated[bool, typer.Option(help="MLflow too")] = False,
) -> None:
    """Build the programs of the control plane, unless the user's cache has them."""
    from gangsched.local import components  # noqa: PLC0415 -- keeps other commands quick
    from gangsched.local.tracking.mlflow_server import mlflow_programs  # noqa: PLC0415

    wanted: list[Sequence[components.Component]] = [components.CONTROL_PLANE]
    wanted += [components.HELM] if helm else []
    wanted += [components.MONITORING] if monitoring else []
    wanted += [components.IMAGES] if images else []
    with show_progress(console, "looking for the programs") as progress:
        for group in wanted:
            components.ensure(progress, group)
        if tracking:
            mlflow_programs(progress)


@local.command()
def up(
    name: Name = "default",
    nodes: Annotated[Path | None, typer.Option(help="YAML file with nodes")] = None,
    binding: Annotated[str, typer.Option(help="extender, direct or off")] = "extender",
    isolation: Annotated[str, typer.Option(help="of pods: auto, root, user or none")] = "auto",
    *,
    gpus: Annotated[
        bool, typer.Option("--gpus", help="one node with the GPUs of this machine")
    ] = False,
    monitoring: Annotated[bool, typer.Option(help="with a Prometheus")] = False,
    tracking: Annotated[bool, typer.Option(help="with an MLflow server")] = False,
) -> None:
    """Start a control plane; the first start builds it from source (minutes)."""
    if binding not in ("extender", "direct", "off"):
        raise ConfigError(f"--binding: {binding!r} is not allowed; use extender, direct or off")
    if isolation not in ("auto", "root", "user", "none"):
        raise ConfigError(f"--isolation: {isolation!r} is not allowed; use auto, root, user, none")
    plane = Plane(name)
    if gpus and nodes is not None:
        raise ConfigError("--gpus is not allowed with --nodes; write `gpus: machine` in the file")
    machine = machine_gpus()
    node_file = read_nodes(OF_MACHINE, "--gpus", machine) if gpus else load_nodes(nodes, machine)
    more = {"monitoring": monitoring, "tracking": tracking}
    options = PlaneOptions(binding, isolation, topology=True, **more)  # type: ignore[arg-type]
    with show_progress(console, "starting") as progress:
        plane.up(node_file, options, progress)
    info = plane.info()
    console.print(f"Kubernetes {info['kubernetes']} at {info['server']}, binding {binding}")
    console.print(f"  export KUBECONFIG={plane.kubeconfig}", soft_wrap=True)
    console.print(f"  alias kubectl={info['kubectl']}", soft_wrap=True)
    _show_gpus(machine, device_pool(node_file, machine).nodes())
    if "prometheus" in info:
        console.print(f"  Prometheus: {info['prometheus']}", soft_wrap=True)
    if "mlflow" in info:
        console.print(f"  MLflow: {info['mlflow']}", soft_wrap=True)


def _show_gpus(machine: MachineGpus, nodes: list[str]) -> None:
    """Say which nodes have GPUs of this machine, if it has any."""
    for name in nodes:
        console.print(f"  node {name} has GPUs of this machine", markup=False)
    if machine.devices and not nodes:
        console.print(
            "  No node has a GPU of this machine: the nodes declare more than it has, or none. "
            "To use them: gangsched local up --gpus",
            soft_wrap=True,
        )


@local.command()
def down(name: Name = "default") -> None:
    """Stop a control plane and remove its files."""
    stopped = Plane(name).down()
    idle = f"{name!r} was not running{there_are()}"
    console.print(f"stopped {stopped} processes" if stopped else idle, markup=False)


@local.command()
def restart(
    program: Annotated[str | None, typer.Argument(help="default: all that have ended")] = None,
    name: Existing = None,
) -> None:
    """Start a program of a control plane again; stored objects stay."""
    plane = chosen(name)
    started = start_again(plane, program)
    for process in started:
        console.print(f"{process.name} runs again, as process {process.pid}")
    if not started:
        console.print(
            f"all programs of local control plane {plane.name!r} run; name one to restart it"
        )


@local.command()
def status(
    name: Annotated[str | None, typer.Option("--name")] = None, output: Output = "table"
) -> None:
    """Show the control planes of this machine and their processes."""
    planes = instances() if name is None else [chosen(name)]
    rows = [
        {
            "plane": plane.name,
            "program": program.name,
            "pid": program.pid,
            "state": "runs" if program.alive() else "ended",
        }
        for plane in planes
        for program in plane.programs.all()
    ]
    print_answer(rows, output, lambda: _show_programs(rows, has_planes=bool(planes)))
    if any(row["state"] == "ended" for row in rows):
        raise typer.Exit(1)


def _show_programs(rows: list[dict[str, Any]], *, has_planes: bool) -> None:
    if not has_planes:
        console.print("no local control plane; start one with: gangsched local up")
        return
    table = new_table("NAME", "PROGRAM", "PID", "STATE")
    for row in rows:
        table.add_row(row["plane"], row["program"], str(row["pid"]), row["state"])
    print_table(table, console)
    for name in sorted({row["plane"] for row in rows if row["state"] == "ended"}):
        console.print(f"to start ended programs again: gangsched local restart --name {name}")


@local.command()
def kubeconfig(name: Existing = None) -> None:
    """Print the path of the administrator's kubeconfig."""
    typer.echo(chosen(name).kubeconfig)


@local.command(name="mlflow-python")
def mlflow_python() -> None:
    """Print the path of a Python with MLflow's client, for pods of process nodes."""
    from gangsched.local.tracking.mlflow_server import mlflow_programs  # noqa: PLC0415 -- keeps other commands quick

    with show_progress(console, "looking for MLflow") as progress:
        programs = mlflow_programs(progress)
    typer.echo(programs / "python")


@local.command()
def logs(
    program: str, name: Existing = None, lines: Annotated[int, typer.Option("-n")] = 50
) -> None:
    """Print the end of a process's log."""
    plane = chosen(name)
    plane.programs.get(program)
    typer.echo(plane.programs.tail(program, lines))


@local.command()
def load(
    layout: Annotated[Path, typer.Argument(help="folder of an OCI layout")],
    image: Annotated[str, typer.Argument(help="NAME:TAG as in pods, with a tag of the layout")],
    name: Existing = None,
) -> None:
    """Let process nodes run the pods of an image with the image's root file system."""
    from gangsched.local.loading import load as unpack  # noqa: PLC0415 -- the agent's are many

    plane = chosen(name)
    with show_progress(console, f"looking for {image}") as progress:
        unpack(plane, layout, image, progress)
    console.print(f"local control plane {plane.name!r} can run pods of {image}")


@local.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kubectl(context: typer.Context, name: Existing = None) -> None:
    """Run the control plane's own kubectl: gangsched local kubectl -- get pods."""
    plane = chosen(name)
    command = [plane.info()["kubectl"], *context.args]
    raise typer.Exit(subprocess.run(command, env=client_environment(plane), check=False).returncode)
