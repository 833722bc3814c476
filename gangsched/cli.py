"""The `gangsched` command."""

import asyncio
import json
import logging
import os
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gangsched import __version__
from gangsched.cli_local import local
from gangsched.config import ConfigError, load_config
from gangsched.kube.errors import KubeError, LeadershipLostError
from gangsched.local.gobuild import BuildError
from gangsched.local.plane import PlaneError

if TYPE_CHECKING:
    from gangsched.inquire import View

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.add_typer(local, name="local")

console = Console()


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version")] = False) -> None:
    """Gang scheduler and queueing system for training jobs on Kubernetes."""
    if version:
        console.print(f"gangsched {__version__}")
        raise typer.Exit


@app.command()
def run(
    binding: Annotated[str, typer.Option(help="extender or direct")] = "extender",
    config: Annotated[Path | None, typer.Option(help="YAML file of settings")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="default: as kubectl finds it")] = None,
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
    from gangsched.wiring import run as run_scheduler  # noqa: PLC0415 -- keeps other commands quick

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
            kubeconfig,
            settings,
            "extender" if binding == "extender" else "direct",
            operators=operators,
        )
    )


@app.command()
def defrag(
    gang: Annotated[str, typer.Option(help="make room for this gang: namespace/name")] = "",
    level: Annotated[str, typer.Option(help="or free a whole domain of this level")] = "",
    topology: Annotated[str, typer.Option(help="default: the default one")] = "",
    config: Annotated[Path | None, typer.Option(help="YAML file of settings")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="default: as kubectl finds it")] = None,
    output: Annotated[str, typer.Option(help="table or json")] = "table",
) -> None:
    """Show which running gangs to move to make room; exit code 1 when there are none."""
    from gangsched.advice import Wish, as_data, find, show  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415

    if bool(gang) == bool(level):
        raise ConfigError("give --gang NAMESPACE/NAME or --level LEVEL, one of them")
    if output not in ("table", "json"):
        raise ConfigError(f"--output: {output!r} is not allowed; use table or json")
    settings = load_config(config)
    wish = Wish(gang, level, topology)
    found = asyncio.run(find(kubeconfig, settings, load_policies(settings), wish))
    if output == "json":
        typer.echo(json.dumps(as_data(found), indent=2))
    else:
        show(found, wish, console)
    if found is None:
        raise typer.Exit(1)


Output = Annotated[str, typer.Option("--output", "-o", help="table, json or yaml")]
Config = Annotated[Path | None, typer.Option(help="YAML file of settings")]
Home = Annotated[str, typer.Option("--namespace", "-n", help="where gangsched is installed")]
Kubeconfig = Annotated[Path | None, typer.Option(help="default: as kubectl finds it")]


def _policies(chosen: list[str] | None) -> dict[str, str]:
    """Read KIND=NAME words."""
    changes = {kind: name for kind, _, name in (one.partition("=") for one in chosen or [])}
    wrong = set(changes) - {"order", "placer", "sharing", "backfill", "preemptor"}
    if wrong:
        raise ConfigError(
            f"--policy: {min(wrong)!r} is no kind of policy; use order, placer, sharing, "
            f"backfill or preemptor"
        )
    return changes


Snapshot = Annotated[
    Path | None, typer.Option(help="what `gangsched snapshot` wrote, in place of the cluster")
]


def _view(
    config: Path | None, kubeconfig: Path | None, snapshot: Path | None, **changes: str
) -> "View":
    from gangsched.inquire import View  # noqa: PLC0415 -- the solver is heavy
    from gangsched.journal import recall  # noqa: PLC0415
    from gangsched.live import look  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415

    settings = load_config(config, **changes)
    policies = load_policies(settings)
    if snapshot is not None:
        found = recall(snapshot)
        return View(found.engine, policies, found.now_s)
    seen = asyncio.run(look(kubeconfig, settings, policies))
    return View(
        seen.engine,
        policies,
        time.time(),
        seen.priorities,
        seen.default_priority,
        seen.status.strays.said,
    )


@app.command()
def explain(
    gang: Annotated[str, typer.Argument(help="NAMESPACE/NAME, or NAME with -n")],
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    snapshot: Snapshot = None,
) -> None:
    """Say why a gang waits, what would help and when it starts; exit code 3 while it waits."""
    from gangsched import inquire, tables  # noqa: PLC0415 -- the solver is heavy
    from gangsched.live import own_words  # noqa: PLC0415

    tables.check_output(output)
    view = _view(config, kubeconfig, snapshot)
    own = own_words(kubeconfig) if snapshot is None else (lambda _: None)
    found = inquire.explain(view, gang if "/" in gang else f"{namespace}/{gang}", own)
    if not tables.as_data(found, output):
        tables.show_gang(found, console, view.now_s)
    if "reason" in found:
        raise typer.Exit(3)


@app.command()
def queue(
    name: Annotated[str | None, typer.Argument(help="list who waits in this queue")] = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    snapshot: Snapshot = None,
) -> None:
    """Show the queues; or who waits in one, in turn, with expected starts."""
    from gangsched import inquire, tables  # noqa: PLC0415 -- the solver is heavy

    tables.check_output(output)
    view = _view(config, kubeconfig, snapshot)
    if name is None:
        rows = inquire.queues(view)
        if not tables.as_data(rows, output):
            tables.show_queues(rows, console)
        return
    rows = inquire.queue(view, name)
    if not tables.as_data(rows, output):
        tables.show_queue(rows, name, console, view.now_s)


@app.command()
def when(
    file: Path,
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    snapshot: Snapshot = None,
) -> None:
    """Say when a job (PyTorchJob or PodGroup in a file) would start; exit code 3 if not now."""
    from gangsched import inquire, tables  # noqa: PLC0415 -- the solver is heavy

    tables.check_output(output)
    view = _view(config, kubeconfig, snapshot)
    found = inquire.when(view, file, namespace)
    if not tables.as_data(found, output):
        tables.show_when(found, console, view.now_s)
    if found["reason"] != "WouldStart":
        raise typer.Exit(3)


@app.command(name="what-if")
def what_if(
    quota: Annotated[list[str] | None, typer.Option(help="QUEUE:RESOURCE=AMOUNT")] = None,
    nodes: Annotated[list[str] | None, typer.Option(help="COUNT:LIKE, more such nodes")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="KIND=NAME: order, placer, sharing, backfill")
    ] = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    snapshot: Snapshot = None,
) -> None:
    """Compare when waiting gangs start with another quota, more nodes or another policy."""
    from gangsched import inquire, tables  # noqa: PLC0415 -- the solver is heavy

    tables.check_output(output)
    if not (quota or nodes or policy):
        raise ConfigError("give --quota, --nodes or --policy: what shall be different?")
    changes = _policies(policy)
    view = _view(config, kubeconfig, snapshot)
    changed = _view(config, kubeconfig, snapshot, **changes)
    changed.now_s = view.now_s
    rows = inquire.what_if(view, changed, quota or [], nodes or [])
    if not tables.as_data(rows, output):
        tables.show_what_if(rows, console, view.now_s)


@app.command()
def doctor(home: Home = "gangsched-system", kubeconfig: Kubeconfig = None) -> None:
    """Check a cluster: versions, kinds, rights, labels, clocks; exit code 1 on a failure."""
    from gangsched.doctor import Finding, examine, show  # noqa: PLC0415 -- others stay quick
    from gangsched.kube.client import KubeClient  # noqa: PLC0415

    async def ask() -> list[Finding]:
        async with KubeClient(kubeconfig) as client:
            return await examine(client, home)

    found = asyncio.run(ask())
    show(found, console)
    if any(one.level == "fail" for one in found):
        raise typer.Exit(1)


@app.command(name="migrate-storage")
def migrate_storage(kubeconfig: Kubeconfig = None) -> None:
    """After an upgrade: store what there is of our kinds in the version that is stored now."""
    from gangsched.kube.client import KubeClient  # noqa: PLC0415 -- others stay quick
    from gangsched.storage import migrate  # noqa: PLC0415

    async def write() -> int:
        async with KubeClient(kubeconfig) as client:
            return await migrate(client, console.print)

    asyncio.run(write())


@app.command(name="support-bundle")
def support_bundle(
    out: Annotated[Path, typer.Argument(help="a new .tar.gz")],
    *,
    hide_names: Annotated[bool, typer.Option(help="put digests in place of all names")] = False,
    home: Home = "gangsched-system",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write what helps to find a fault to one file, without secrets, environments and commands."""
    from gangsched.bundle import write  # noqa: PLC0415 -- keeps other commands quick
    from gangsched.kube.client import KubeClient  # noqa: PLC0415
    from gangsched.live import take  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.pseudonyms import Pseudonyms  # noqa: PLC0415

    if out.exists():
        raise ConfigError(f"{out} exists; a bundle goes to a new file")
    hide = Pseudonyms() if hide_names else None
    if hide is not None:
        settings = load_config(config)
        hide.learn(asyncio.run(take(kubeconfig, settings, load_policies(settings))).facts)

    async def collect() -> int:
        async with KubeClient(kubeconfig) as client:
            return await write(client, out, hide, home)

    console.print(f"{out}: {asyncio.run(collect())} files", soft_wrap=True)


@app.command()
def snapshot(
    out: Annotated[Path, typer.Argument(help="a new file; .gz compresses it")],
    *,
    hide_names: Annotated[bool, typer.Option(help="put digests in place of all names")] = False,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write nodes, queues, gangs, pods and learnt run times of a live cluster to one file."""
    from gangsched.journal import write_facts  # noqa: PLC0415 -- the solver is heavy
    from gangsched.live import take  # noqa: PLC0415
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.pseudonyms import Pseudonyms  # noqa: PLC0415

    if out.exists():
        raise ConfigError(f"{out} exists; a snapshot goes to a new file")
    settings = load_config(config)
    found = asyncio.run(take(kubeconfig, settings, load_policies(settings)))
    write_facts(out, found, Pseudonyms() if hide_names else None)
    engine = found.engine
    console.print(
        f"{out}: {len(engine.cluster.rows)} nodes, {len(engine.queues)} queues, "
        f"{len(engine.gangs)} gangs",
        soft_wrap=True,
    )


@app.command()
def replay(
    journal: Annotated[Path, typer.Argument(help="what a scheduler wrote (setting `journal`)")],
    policy: Annotated[
        list[str] | None, typer.Option(help="KIND=NAME: order, placer, sharing, backfill")
    ] = None,
    output: Output = "table",
    config: Config = None,
) -> None:
    """Decide again on recorded facts; exit code 3 where something is decided differently."""
    from gangsched import tables  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.replay import Replayed  # noqa: PLC0415
    from gangsched.replay import replay as decide_again  # noqa: PLC0415

    tables.check_output(output)
    changes = _policies(policy)
    done = Replayed()
    with console.status(f"replaying {journal}"):
        found = list(decide_again(journal, load_policies(load_config(config, **changes)), done))
    rows = [one.data() for one in found]
    if not tables.as_data(rows, output):
        tables.show_differences(rows, console)
        console.print(
            f"{done.plans} plans on {done.facts} facts placed {done.placed} gangs; "
            f"{len(found)} decisions differ"
        )
    if found:
        raise typer.Exit(3)


@app.command()
def demo(
    binding: Annotated[str, typer.Option(help="extender or direct")] = "extender",
) -> None:
    """Run three gangs on a fresh local control plane and watch them."""
    from gangsched.demo import run as run_demo  # noqa: PLC0415 -- keeps other commands quick

    if binding not in ("extender", "direct"):
        raise ConfigError(f"--binding: {binding!r} is not allowed; use extender or direct")
    if not run_demo(console, "extender" if binding == "extender" else "direct"):
        raise typer.Exit(1)


def main() -> None:
    """Run the command; errors that a user can mend are one sentence, exit code 2."""
    for point in entry_points(group="gangsched.commands"):
        app.command(name=point.name)(point.load())
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
