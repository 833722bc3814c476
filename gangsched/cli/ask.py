"""Commands that answer a question and change nothing: explain, queue, when, what-if, and others."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangsched.cli.options import (
    Config,
    Context,
    Kubeconfig,
    Namespace,
    Output,
    Policies,
    Snapshot,
    policies,
)
from gangsched.cli.output.printing import answer, console
from gangsched.config import ConfigError, load_config
from gangsched.kube.client.access import Access

if TYPE_CHECKING:
    from gangsched.cli.cluster.view import ClusterView


def _view(
    config: Path | None, access: Access, snapshot: Path | None, **changes: str
) -> "ClusterView":
    from gangsched.cli.cluster.view import look, recalled  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415

    settings = load_config(config, **changes)
    chosen = load_policies(settings)
    if snapshot is not None:
        return recalled(snapshot, settings, chosen)
    return asyncio.run(look(access, settings, chosen))


def _namespace(given: str | None, access: Access, snapshot: Path | None) -> str:
    """Return where names are looked up; a snapshot is of no kubeconfig."""
    if given is not None:
        return given
    return access.namespace() if snapshot is None else "default"


def full_name(name: str, namespace: str | None, access: Access, snapshot: Path | None) -> str:
    """Return NAMESPACE/NAME of a name that may stand alone.

    Raises:
        ConfigError: it names a namespace, and `--namespace` another.

    """
    own, slash, _ = name.partition("/")
    if not slash:
        return f"{_namespace(namespace, access, snapshot)}/{name}"
    if namespace not in (None, own):
        raise ConfigError(f"--namespace: {namespace!r} is not the namespace of {name!r}")
    return name


def explain(
    gang: Annotated[str, typer.Argument(help="NAME, or NAMESPACE/NAME")],
    namespace: Namespace = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    snapshot: Snapshot = None,
) -> None:
    """Say why a gang waits, what would help and when it starts; exit code 3 while it waits."""
    from gangsched.cli import queries as inquire  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.cluster.view import own_words  # noqa: PLC0415
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    access = Access(kubeconfig, context)
    name = full_name(gang, namespace, access, snapshot)
    view = _view(config, access, snapshot)
    own = own_words(access, load_config(config)) if snapshot is None else (lambda _: None)
    found = inquire.explain(view, name, own)
    answer(found, output, lambda: tables.show_gang(found, console()))
    if "reason" in found:
        raise typer.Exit(3)


def queue(
    name: Annotated[str | None, typer.Argument(help="list who waits in this queue")] = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    snapshot: Snapshot = None,
) -> None:
    """Show the queues; or who waits in one, in turn, with expected starts."""
    from gangsched.cli import queries as inquire  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.cluster.changes import told  # noqa: PLC0415
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    view = _view(config, Access(kubeconfig, context), snapshot)
    if name is None:
        rows = inquire.queues(view)
        answer(rows, output, lambda: tables.show_queues(rows, console()))
        return
    rows = inquire.queue(view, name)
    notes = told(view.engine, name)
    answer(rows, output, lambda: tables.show_queue(rows, name, console(), view.now_s, notes))


def when(
    file: Path,
    namespace: Namespace = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    snapshot: Snapshot = None,
) -> None:
    """Say when a job (PyTorchJob or PodGroup in a file) would start; exit code 3 if not now."""
    from gangsched.cli import queries as inquire  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    access = Access(kubeconfig, context)
    where = _namespace(namespace, access, snapshot)
    view = _view(config, access, snapshot)
    found = inquire.when(view, file, where)
    answer(found, output, lambda: tables.show_when(found, console()))
    if found["reason"] != "WouldStart":
        raise typer.Exit(3)


def what_if(
    quota: Annotated[list[str] | None, typer.Option(help="QUEUE:RESOURCE=AMOUNT")] = None,
    nodes: Annotated[list[str] | None, typer.Option(help="COUNT:LIKE, more such nodes")] = None,
    policy: Policies = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    snapshot: Snapshot = None,
) -> None:
    """Compare when waiting gangs start with another quota, more nodes or another policy."""
    from gangsched.cli import queries as inquire  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    if not (quota or nodes or policy):
        raise ConfigError("give --quota, --nodes or --policy: what shall be different?")
    changes = policies(policy)
    access = Access(kubeconfig, context)
    view = _view(config, access, snapshot)
    changed = _view(config, access, snapshot, **changes)
    changed.now_s = view.now_s
    rows = inquire.what_if(view, changed, quota or [], nodes or [])
    for note in changed.notes:
        typer.echo(f"note: {note}", err=True)
    answer(rows, output, lambda: tables.show_what_if(rows, console(), view.now_s))


def defrag(
    gang: Annotated[str, typer.Option(help="make room for this gang: namespace/name")] = "",
    level: Annotated[str, typer.Option(help="or free a whole domain of this level")] = "",
    topology: Annotated[str, typer.Option(help="default: the default one")] = "",
    namespace: Namespace = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show which running gangs to move to make room; exit code 1 when there are none."""
    from gangsched.cli.defrag import DefragRequest, as_data, find, show  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415

    if bool(gang) == bool(level):
        raise ConfigError("give --gang NAMESPACE/NAME or --level LEVEL, one of them")
    settings = load_config(config)
    access = Access(kubeconfig, context)
    wish = DefragRequest(full_name(gang, namespace, access, None) if gang else "", level, topology)
    found = asyncio.run(find(access, settings, load_policies(settings), wish))
    answer(as_data(found), output, lambda: show(found, wish, console()))
    if found is None:
        raise typer.Exit(1)


def replay(
    journal: Annotated[Path, typer.Argument(help="what a scheduler wrote (setting `journal`)")],
    policy: Policies = None,
    output: Output = "table",
    config: Config = None,
) -> None:
    """Decide again on recorded facts; exit code 3 where something is decided differently."""
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.recording.replay import Replayed  # noqa: PLC0415
    from gangsched.recording.replay import replay as decide_again  # noqa: PLC0415

    changes = policies(policy)
    done = Replayed()
    with console().status(f"replaying {journal}"):
        found = list(decide_again(journal, load_policies(load_config(config, **changes)), done))
    rows = [one.data() for one in found]
    said = (
        f"{done.plans} plans on {done.facts} facts placed {done.placed} gangs; "
        f"{len(found)} decisions differ"
    )
    answer(rows, output, lambda: tables.show_differences(rows, said, console()))
    if found:
        raise typer.Exit(3)


COMMANDS: dict[str, Callable[..., None]] = {
    "explain": explain,
    "queue": queue,
    "when": when,
    "what-if": what_if,
    "defrag": defrag,
    "replay": replay,
}
"""By their names."""
