"""The `gangsched` command, its subcommands that act, and the errors that end it."""

import asyncio
import logging
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangsched import __version__
from gangsched.cli import ask as cli_ask
from gangsched.cli import history as cli_history
from gangsched.cli import user_jobs
from gangsched.cli.local import local
from gangsched.cli.options import Config, Context, Home, Kubeconfig, Namespace, Output, Snapshot
from gangsched.cli.output.printing import console, print_answer
from gangsched.cli.submit import SUBMIT_SETTINGS, submit_job
from gangsched.config import ConfigError, load_config
from gangsched.imports import collecting_nothing
from gangsched.installed import entry_points
from gangsched.kube.client.access import Access
from gangsched.kube.client.errors import KubeError, LeadershipLostError
from gangsched.local.gobuild import BuildError
from gangsched.local.plane import PlaneError

if TYPE_CHECKING:
    from gangsched.cli.storage_migration import MigratedKind

_SIMULATOR = frozenset({"jinja2", "matplotlib", "optuna", "pyarrow", "scipy"})
"""The extra `simulator`; other commands that need a package of it say so themselves."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(local, name="local")
app.command(name="submit", context_settings=SUBMIT_SETTINGS)(submit_job)
for _name, _command in (
    *cli_ask.COMMANDS.items(),
    *user_jobs.COMMANDS.items(),
    *cli_history.COMMANDS.items(),
):
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
        list[str] | None, typer.Option(help="another schedulerName to serve, such as volcano")
    ] = None,
    operators: Annotated[bool, typer.Option(help="run the job controllers too")] = True,
    history: Annotated[
        Path | None, typer.Option(help="a file with a record of each gang that ended")
    ] = None,
    leader_elect: Annotated[
        bool | None, typer.Option("--leader-elect", help="stand by while another process leads")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False,
) -> None:
    """Schedule the gangs of a cluster until stopped."""
    with collecting_nothing():
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
        history={"path": history} if history is not None else None,
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
    """Check a cluster: version, kinds, permissions, labels, clocks; exit code 1 on a failure."""
    from gangsched.cli.doctor import Finding, run_checks, show  # noqa: PLC0415 -- others stay quick
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415

    async def check() -> list[Finding]:
        async with KubeClient(Access(kubeconfig, context)) as client:
            return await run_checks(client, home)

    findings = asyncio.run(check())
    rows = [finding.data() for finding in findings]
    print_answer(rows, output, lambda: show(findings, console()))
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)


@app.command(name="migrate-storage")
def migrate_storage(
    output: Output = "table", kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """After an upgrade, store all objects of gangsched.io in the current storage version."""
    from gangsched.cli.storage_migration import migrate  # noqa: PLC0415
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415 -- others stay quick

    async def write() -> "list[MigratedKind]":
        kinds = []
        async with KubeClient(Access(kubeconfig, context)) as client:
            async for kind in migrate(client):
                kinds.append(kind)
                if output == "table":
                    typer.echo(str(kind))
        return kinds

    print_answer([kind.data() for kind in asyncio.run(write())], output, lambda: None)


@app.command(name="support-bundle")
def support_bundle(
    out: Annotated[Path, typer.Argument(help="the new .tar.gz file")],
    *,
    hide_names: Annotated[bool, typer.Option(help="replace all names by digests")] = False,
    home: Home = "gangsched-system",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write what support needs to one file, without secrets, environments and commands."""
    from gangsched.cli.cluster.view import capture_facts  # noqa: PLC0415
    from gangsched.cli.support_bundle import write  # noqa: PLC0415 -- keeps other commands quick
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.recording.anonymize import Pseudonyms  # noqa: PLC0415

    if out.exists():
        raise ConfigError(f"{out} exists; name a new file")
    access = Access(kubeconfig, context)
    pseudonyms = Pseudonyms() if hide_names else None
    if pseudonyms is not None:
        settings = load_config(config)
        cluster = asyncio.run(capture_facts(access, settings, load_policies(settings)))
        pseudonyms.learn(cluster.facts)

    async def collect() -> int:
        async with KubeClient(access) as client:
            return await write(client, out, pseudonyms, home)

    typer.echo(f"{out}: {asyncio.run(collect())} files")


@app.command()
def snapshot(
    out: Annotated[Path, typer.Argument(help="the new file; .gz compresses it")],
    *,
    hide_names: Annotated[bool, typer.Option(help="replace all names by digests")] = False,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write the nodes, queues, gangs, pods and learnt run times of a cluster to one file."""
    from gangsched.cli.cluster.view import capture_facts  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.recording.anonymize import Pseudonyms  # noqa: PLC0415
    from gangsched.recording.journal import write_facts  # noqa: PLC0415 -- the solver is heavy

    if out.exists():
        raise ConfigError(f"{out} exists; name a new file")
    access = Access(kubeconfig, context)
    settings = load_config(config)
    cluster = asyncio.run(capture_facts(access, settings, load_policies(settings)))
    write_facts(out, cluster, Pseudonyms() if hide_names else None)
    engine = cluster.engine
    typer.echo(
        f"{out}: {len(engine.view.cluster.rows)} nodes, {len(engine.view.queues)} queues, "
        f"{len(engine.view.gangs)} gangs"
    )


@app.command(name="trial-metrics")
def trial_metrics(
    namespace: Namespace = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of 127.0.0.1")] = 6789,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Answer get_trial_metrics of Katib's client for a namespace, until stopped."""
    try:
        from gangsched.cli.trial_metrics import TrialMetricsServer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        missing = "grpcio is missing: pip install 'gangsched[katib]'"
        raise ConfigError(f"trial-metrics: {missing}") from error
    from gangsched.kube.client.client import KubeClient  # noqa: PLC0415 -- others stay quick

    access = Access(kubeconfig, context)
    name = namespace or access.namespace()

    def ready(bound: int) -> None:
        typer.echo(f"Serving the metrics of Trials in namespace {name} on 127.0.0.1:{bound}.")

    async def serve() -> None:
        async with KubeClient(access) as client:
            await TrialMetricsServer(client, name).serve(port, ready)

    try:
        asyncio.run(serve())
    except OSError as error:
        raise ConfigError(f"--port: {error}") from error


@app.command()
def web(
    snapshot: Annotated[
        Path | None, typer.Argument(help="a file of `gangsched snapshot`; default: the cluster")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of 127.0.0.1; 0 takes a free port")
    ] = 8042,
    code: Annotated[
        bool, typer.Option(help="print a code that logs in with the rights of the kubeconfig")
    ] = True,
    visibility: Annotated[
        str | None,
        typer.Option(help="ADDRESS:PORT: also serve Kueue's API of pending workloads there"),
    ] = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve pages of the cluster, its queues and gangs on this machine, until stopped."""
    if snapshot is not None and visibility is not None:
        raise ConfigError("--visibility: a file has no aggregated API; leave the file out")
    access = Access(kubeconfig, context)
    _serve_pages(snapshot, access, config, port, with_code=code, visibility=visibility)


@app.command()
def mcp(
    snapshot: Snapshot = None,
    history: Annotated[
        Path | None, typer.Option(help="a file of the setting `history`, for the tool history")
    ] = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Answer agents by the Model Context Protocol on standard streams; it reads only."""
    from gangsched.cli.source import ClusterSource  # noqa: PLC0415 -- others stay quick

    try:
        from gangsched.cli.agents import agent_server  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError as error:
        raise ConfigError("mcp: the package is missing: pip install 'gangsched[mcp]'") from error
    source = ClusterSource(Access(kubeconfig, context), config, snapshot)
    agent_server(source, history).run("stdio")


def _serve_pages(
    snapshot: Path | None,
    access: Access,
    config: Path | None,
    port: int,
    *,
    with_code: bool,
    visibility: str | None = None,
) -> None:
    """Serve the pages.

    Raises:
        ConfigError: the package of the templates is not installed.

    """
    try:
        from gangsched.cli.web import show_pages  # noqa: PLC0415 -- the solver is heavy
    except ModuleNotFoundError as error:
        raise ConfigError("web: jinja2 is missing: pip install 'gangsched[web]'") from error
    show_pages(snapshot, access, config, port, with_code=with_code, visibility=visibility)


@app.command()
def demo(
    binding: Annotated[str, typer.Option(help="extender or direct")] = "extender",
    guide: Annotated[
        int | None,
        typer.Option(help="run the examples of a public guide instead", min=1, max=4),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="serve the pages of the cluster afterwards")
    ] = False,
) -> None:
    """Run three gangs on a new local control plane and check what they do."""
    from gangsched.cli import guides  # noqa: PLC0415 -- keeps other commands quick
    from gangsched.cli.demo import run as run_demo  # noqa: PLC0415 -- the same

    if binding not in ("extender", "direct"):
        raise ConfigError(f"--binding: {binding!r} is not allowed; use extender or direct")
    way: Literal["extender", "direct"] = "extender" if binding == "extender" else "direct"
    if guide is not None and stay:
        raise ConfigError("--stay: the examples of a guide end with their control plane")
    if guide is not None:
        ended_well = guides.run(console(), guide, way)
    else:
        ended_well = run_demo(console(), way, _serve_demo if stay else None)
    if not ended_well:
        raise typer.Exit(1)


def _serve_demo(kubeconfig: Path) -> None:
    """Serve the pages of the demo's control plane on a free port."""
    _serve_pages(None, Access(kubeconfig), None, 0, with_code=True)


@cache
def add_plugin_commands() -> None:
    """Add the commands of other packages, once for each process."""
    for point in entry_points(group="gangsched.commands"):
        app.command(name=point.name)(point.load())


def main() -> None:
    """Run the command; an error that the user can correct is one sentence and exit code 2."""
    add_plugin_commands()
    try:
        app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SIMULATOR:
            raise
        typer.echo(f"error: {error}; install it with pip install 'gangsched[simulator]'", err=True)
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
