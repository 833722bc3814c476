"""The `gangsched` command."""

import asyncio
import logging
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangsched import __version__
from gangsched.cli import ask as cli_ask
from gangsched.cli.local import local
from gangsched.cli.options import Config, Context, Home, Kubeconfig, Output
from gangsched.cli.output.printing import answer, console
from gangsched.config import ConfigError, load_config
from gangsched.kube.client.access import Access
from gangsched.kube.client.errors import KubeError, LeadershipLostError
from gangsched.local.gobuild import BuildError
from gangsched.local.plane import PlaneError

if TYPE_CHECKING:
    from gangsched.cli.storage_migration import Moved

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(local, name="local")
for _name, _command in cli_ask.COMMANDS.items():
    app.command(name=_name)(_command)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version")] = False) -> None:
    """Gang scheduler and queueing system for training jobs on Kubernetes."""
    if version:
        typer.echo(f"gangsched {__version__}")
        raise typer.Exit


@app.command()
def run(
    binding: Annotated[str, typer.Option(help="extender or direct")] = "extender",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    extender_port: Annotated[int | None, typer.Option()] = None,
    metrics_port: Annotated[int | None, typer.Option()] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="a further schedulerName that is ours, such as volcano")
    ] = None,
    operators: Annotated[bool, typer.Option(help="run the job controllers too")] = True,
    leader_elect: Annotated[
        bool | None, typer.Option("--leader-elect", help="stand by while another process leads")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False,
) -> None:
    """Schedule gangs on a cluster until stopped."""
    from gangsched.app import run as run_scheduler  # noqa: PLC0415 -- keeps other commands quick

    if binding not in ("extender", "direct"):
        raise ConfigError(f"--binding: {binding!r} is not allowed; use extender or direct")
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    settings = load_config(
        config,
        extender_port=extender_port,
        metrics_port=metrics_port,
        leader_elect=leader_elect,
        scheduler_aliases=alias or None,
    )
    asyncio.run(
        run_scheduler(
            Access(kubeconfig, context),
            settings,
            "extender" if binding == "extender" else "direct",
            operators=operators,
        )
    )


@app.command()
def doctor(
    home: Home = "gangsched-system",
    output: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Check a cluster: versions, kinds, rights, labels, clocks; exit code 1 on a failure."""
    from gangsched.cli.doctor import Finding, examine, show  # noqa: PLC0415 -- others stay quick
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415

    async def ask() -> list[Finding]:
        async with KubeClient(Access(kubeconfig, context)) as client:
            return await examine(client, home)

    found = asyncio.run(ask())
    answer([one.data() for one in found], output, lambda: show(found, console()))
    if any(one.level == "fail" for one in found):
        raise typer.Exit(1)


@app.command(name="migrate-storage")
def migrate_storage(
    output: Output = "table", kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """After an upgrade: store what there is of our kinds in the version that is stored now."""
    from gangsched.cli.storage_migration import migrate  # noqa: PLC0415
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415 -- others stay quick

    async def write() -> "list[Moved]":
        done = []
        async with KubeClient(Access(kubeconfig, context)) as client:
            async for one in migrate(client):
                done.append(one)
                if output == "table":
                    typer.echo(str(one))
        return done

    done = asyncio.run(write())
    answer([one.data() for one in done], output, lambda: None)


@app.command(name="support-bundle")
def support_bundle(
    out: Annotated[Path, typer.Argument(help="a new .tar.gz")],
    *,
    hide_names: Annotated[bool, typer.Option(help="put digests in place of all names")] = False,
    home: Home = "gangsched-system",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write what helps to find a fault to one file, without secrets, environments and commands."""
    from gangsched.cli.cluster.view import take  # noqa: PLC0415
    from gangsched.cli.support_bundle import write  # noqa: PLC0415 -- keeps other commands quick
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.recording.anonymize import Pseudonyms  # noqa: PLC0415

    if out.exists():
        raise ConfigError(f"{out} exists; a bundle goes to a new file")
    access = Access(kubeconfig, context)
    hide = Pseudonyms() if hide_names else None
    if hide is not None:
        settings = load_config(config)
        hide.learn(asyncio.run(take(access, settings, load_policies(settings))).facts)

    async def collect() -> int:
        async with KubeClient(access) as client:
            return await write(client, out, hide, home)

    typer.echo(f"{out}: {asyncio.run(collect())} files")


@app.command()
def snapshot(
    out: Annotated[Path, typer.Argument(help="a new file; .gz compresses it")],
    *,
    hide_names: Annotated[bool, typer.Option(help="put digests in place of all names")] = False,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write nodes, queues, gangs, pods and learnt run times of a live cluster to one file."""
    from gangsched.cli.cluster.view import take  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.recording.anonymize import Pseudonyms  # noqa: PLC0415
    from gangsched.recording.journal import write_facts  # noqa: PLC0415 -- the solver is heavy

    if out.exists():
        raise ConfigError(f"{out} exists; a snapshot goes to a new file")
    access = Access(kubeconfig, context)
    settings = load_config(config)
    found = asyncio.run(take(access, settings, load_policies(settings)))
    write_facts(out, found, Pseudonyms() if hide_names else None)
    engine = found.engine
    typer.echo(
        f"{out}: {len(engine.cluster.rows)} nodes, {len(engine.queues)} queues, "
        f"{len(engine.gangs)} gangs"
    )


@app.command()
def demo(
    binding: Annotated[str, typer.Option(help="extender or direct")] = "extender",
) -> None:
    """Run three gangs on a fresh local control plane and watch them."""
    from gangsched.cli.demo import run as run_demo  # noqa: PLC0415 -- keeps other commands quick

    if binding not in ("extender", "direct"):
        raise ConfigError(f"--binding: {binding!r} is not allowed; use extender or direct")
    if not run_demo(console(), "extender" if binding == "extender" else "direct"):
        raise typer.Exit(1)


def add_found() -> None:
    """Add the commands that other packages bring."""
    for point in entry_points(group="gangsched.commands"):
        app.command(name=point.name)(point.load())


def main() -> None:
    """Run the command; errors that a user can mend are one sentence, exit code 2."""
    add_found()
    try:
        app()
    except ModuleNotFoundError as error:
        typer.echo(f"error: {error}; pip install 'gangsched[simulator]' brings it", err=True)
        sys.exit(2)
    except (ConfigError, PlaneError, BuildError, KubeError, KeyError) as error:
        message = error.args[0] if error.args else str(error)
        typer.echo(f"error: {message}", err=True)
        sys.exit(2)
    except LeadershipLostError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        os._exit(130)
