"""`gangsched local`: a whole control plane on this machine."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gangsched.cli.options import Output
from gangsched.cli.output.printing import answer, new_table, put
from gangsched.cli.output.printing import console as terminal
from gangsched.config import ConfigError
from gangsched.local.nodes import load_nodes
from gangsched.local.plane import Options, Plane, chosen, environment, instances, there_are
from gangsched.local.progress import shown
from gangsched.local.restart import restart as start_again

local = typer.Typer(no_args_is_help=True, help="A whole control plane on this machine.")

console = terminal()
Name = Annotated[str, typer.Option("--name", help="Which local control plane.")]
Which = Annotated[
    str | None, typer.Option("--name", help="Which local control plane; default: the only one.")
]


@local.command()
def build(
    *,
    monitoring: Annotated[bool, typer.Option(help="Prometheus and promtool too")] = False,
    helm: Annotated[bool, typer.Option(help="helm too")] = False,
    images: Annotated[bool, typer.Option(help="umoci too, which packs images")] = False,
) -> None:
    """Build the programs of the control plane, if they are not in the user's cache yet."""
    from gangsched.local import components  # noqa: PLC0415 -- keeps other commands quick

    wanted: list[Sequence[components.Component]] = [components.CONTROL_PLANE]
    wanted += [components.HELM] if helm else []
    wanted += [components.MONITORING] if monitoring else []
    wanted += [components.IMAGES] if images else []
    with shown(console, "looking for the programs") as progress:
        for some in wanted:
            components.ensure(progress, some)


@local.command()
def up(
    name: Name = "default",
    nodes: Annotated[Path | None, typer.Option(help="YAML file of nodes")] = None,
    binding: Annotated[str, typer.Option(help="extender, direct or off")] = "extender",
    isolation: Annotated[str, typer.Option(help="of pods: auto, root, user or none")] = "auto",
    *,
    monitoring: Annotated[bool, typer.Option(help="with a Prometheus")] = False,
) -> None:
    """Start a control plane; the first time builds it from source (minutes)."""
    if binding not in ("extender", "direct", "off"):
        raise ConfigError(f"--binding: {binding!r} is not allowed; use extender, direct or off")
    if isolation not in ("auto", "root", "user", "none"):
        raise ConfigError(f"--isolation: {isolation!r} is not allowed; use auto, root, user, none")
    plane = Plane(name)
    node_file = load_nodes(nodes)
    options = Options(binding, isolation, monitoring=monitoring, topology=True)  # type: ignore[arg-type]
    with shown(console, "starting") as progress:
        plane.up(node_file, options, progress)
    info = plane.info()
    console.print(f"Kubernetes {info['kubernetes']} at {info['server']}, binding {binding}")
    console.print(f"  export KUBECONFIG={plane.kubeconfig}", soft_wrap=True)
    console.print(f"  alias kubectl={info['kubectl']}", soft_wrap=True)
    if "prometheus" in info:
        console.print(f"  Prometheus: {info['prometheus']}", soft_wrap=True)


@local.command()
def down(name: Name = "default") -> None:
    """Stop a control plane and remove all it left."""
    stopped = Plane(name).down()
    idle = f"{name!r} was not running{there_are()}"
    console.print(f"stopped {stopped} processes" if stopped else idle, markup=False)


@local.command()
def restart(
    program: Annotated[str | None, typer.Argument(help="default: all that ended")] = None,
    name: Which = None,
) -> None:
    """Start a program of a control plane again; what is stored in it stays."""
    plane = chosen(name)
    done = start_again(plane, program)
    for one in done:
        console.print(f"{one.name} runs again, as process {one.pid}")
    if not done:
        console.print(f"all programs of local control plane {plane.name!r} run; name one of them")


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
    answer(rows, output, lambda: _show_programs(rows, some=bool(planes)))
    if any(row["state"] == "ended" for row in rows):
        raise typer.Exit(1)


def _show_programs(rows: list[dict[str, Any]], *, some: bool) -> None:
    if not some:
        console.print("no local control plane; start one with: gangsched local up")
        return
    table = new_table("NAME", "PROGRAM", "PID", "STATE")
    for row in rows:
        table.add_row(row["plane"], row["program"], str(row["pid"]), row["state"])
    put(table, console)
    for name in sorted({row["plane"] for row in rows if row["state"] == "ended"}):
        console.print(f"start again what ended: gangsched local restart --name {name}")


@local.command()
def kubeconfig(name: Which = None) -> None:
    """Print the path of the administrator's kubeconfig."""
    typer.echo(chosen(name).kubeconfig)


@local.command()
def logs(program: str, name: Which = None, lines: Annotated[int, typer.Option("-n")] = 50) -> None:
    """Print the end of a process's log."""
    plane = chosen(name)
    plane.programs.get(program)
    typer.echo(plane.programs.tail(program, lines))


@local.command()
def load(
    layout: Annotated[Path, typer.Argument(help="folder of an OCI layout")],
    image: Annotated[
        str, typer.Argument(help="NAME:TAG as pods write it, with a tag of the layout")
    ],
    name: Which = None,
) -> None:
    """Let process nodes run pods of an image on its own root."""
    from gangsched.local.loading import load as unpack  # noqa: PLC0415 -- the agent's are many

    plane = chosen(name)
    with shown(console, f"looking for {image}") as progress:
        unpack(plane, layout, image, progress)
    console.print(f"pods of {image} run on it in local control plane {plane.name!r}")


@local.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kubectl(context: typer.Context, name: Which = None) -> None:
    """Run the instance's own kubectl: gangsched local kubectl -- get pods."""
    plane = chosen(name)
    command = [plane.info()["kubectl"], *context.args]
    raise typer.Exit(subprocess.run(command, env=environment(plane), check=False).returncode)
