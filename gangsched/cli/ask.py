"""Commands that answer a question and change nothing: explain, queue, when, what-if, and others."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gangsched.cli.options import (
    Config,
    Context,
    Kubeconfig,
    Namespace,
    Output,
    Policies,
    policies,
)
from gangsched.cli.output.printing import console, print_answer
from gangsched.cli.source import ClusterSource, with_source
from gangsched.config import ConfigError, load_config
from gangsched.kube.client.access import Access


def explain(
    source: ClusterSource,
    gang: Annotated[str, typer.Argument(help="NAME, or NAMESPACE/NAME")],
    namespace: Namespace = None,
    output: Output = "table",
) -> None:
    """Explain why a gang waits, what would help and when it starts; exit code 3 if it waits."""
    from gangsched.cli import queries  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.cluster.view import job_lookup  # noqa: PLC0415
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    name = source.full_name(gang, namespace)
    view = source.view()
    if source.snapshot is None:
        data = queries.explain(view, name, job_lookup(source.access, load_config(source.config)))
    else:
        data = queries.explain(view, name)
    print_answer(data, output, lambda: tables.show_gang(data, console()))
    if "reason" in data:
        raise typer.Exit(3)


def queue(
    source: ClusterSource,
    name: Annotated[str | None, typer.Argument(help="the queue to list")] = None,
    output: Output = "table",
) -> None:
    """Show all queues, or the pending gangs of one in their order, with expected starts."""
    from gangsched.cli import queries  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.cluster.changes import queue_notes  # noqa: PLC0415
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    view = source.view()
    if name is None:
        rows = queries.queues(view)
        print_answer(rows, output, lambda: tables.show_queues(rows, console()))
        return
    rows = queries.pending_gangs_of(view, name)
    notes = queue_notes(view.engine, name)
    print_answer(rows, output, lambda: tables.show_queue(rows, name, console(), view.now_s, notes))


def when(
    source: ClusterSource,
    file: Path,
    namespace: Namespace = None,
    output: Output = "table",
) -> None:
    """Predict when a job in a file (PyTorchJob, PodGroup, ...) starts; exit code 3 if not now."""
    from gangsched.cli import queries  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    inside = source.namespace(namespace)
    data = queries.predict_start(source.view(), file, inside)
    print_answer(data, output, lambda: tables.show_when(data, console()))
    if data["reason"] != "WouldStart":
        raise typer.Exit(3)


def what_if(
    source: ClusterSource,
    quota: Annotated[list[str] | None, typer.Option(help="QUEUE:RESOURCE=AMOUNT")] = None,
    nodes: Annotated[
        list[str] | None, typer.Option(help="COUNT:NODE, so many copies of a node")
    ] = None,
    policy: Policies = None,
    priority: Annotated[list[str] | None, typer.Option(help="NAMESPACE/NAME=NUMBER")] = None,
    book: Annotated[
        list[str] | None, typer.Option(help="COUNT:IN:FOR, nodes set aside, in and for hours")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="POOL=COUNT, more nodes that a pool may make")
    ] = None,
    output: Output = "table",
) -> None:
    """Compare when pending gangs start with more nodes, another quota, policy or priority."""
    from gangsched.cli import queries  # noqa: PLC0415 -- the solver is heavy
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy

    if not (quota or nodes or policy or priority or book or pool):
        raise ConfigError(
            "nothing to compare: give --quota, --nodes, --policy, --priority, --book or --pool"
        )
    changes = policies(policy)
    view, changed = source.view(), source.view(**changes)
    changed.now_s = view.now_s
    wanted = queries.Changes(quota or [], nodes or [], priority or [], book or [], pool or [])
    rows = queries.what_if(view, changed, wanted)
    for note in changed.notes:
        typer.echo(f"note: {note}", err=True)
    print_answer(rows, output, lambda: tables.show_what_if(rows, console(), view.now_s))


def defrag(
    gang: Annotated[str, typer.Option(help="free capacity for this gang: NAMESPACE/NAME")] = "",
    level: Annotated[str, typer.Option(help="or free a whole domain of this level")] = "",
    topology: Annotated[str, typer.Option(help="default: the default Topology")] = "",
    namespace: Namespace = None,
    output: Output = "table",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show which running gangs to move to free capacity; exit code 1 if no moves would."""
    from gangsched.cli.defrag import DefragRequest, moves_data, plan_moves, show_moves  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415

    if bool(gang) == bool(level):
        raise ConfigError("give either --gang NAMESPACE/NAME or --level LEVEL")
    settings, source = load_config(config), ClusterSource(Access(kubeconfig, context), config)
    request = DefragRequest(source.full_name(gang, namespace) if gang else "", level, topology)
    moves = asyncio.run(plan_moves(source.access, settings, load_policies(settings), request))
    print_answer(moves_data(moves), output, lambda: show_moves(moves, request, console()))
    if moves is None:
        raise typer.Exit(1)


def replay(
    journal: Annotated[Path, typer.Argument(help="the journal of a scheduler (setting `journal`)")],
    policy: Policies = None,
    output: Output = "table",
    config: Config = None,
) -> None:
    """Repeat the decisions on recorded facts; exit code 3 if a decision differs."""
    from gangsched.cli.output import tables  # noqa: PLC0415 -- the solver is heavy
    from gangsched.plugins import load_policies  # noqa: PLC0415
    from gangsched.recording.replay import Replayed  # noqa: PLC0415
    from gangsched.recording.replay import replay as decide_again  # noqa: PLC0415

    changes = policies(policy)
    counts = Replayed()
    with console().status(f"replaying {journal}"):
        chosen = load_policies(load_config(config, **changes))
        differences = list(decide_again(journal, chosen, counts))
    rows = [difference.data() for difference in differences]
    summary = (
        f"{counts.plans} plans on {counts.facts} facts placed {counts.placed} gangs; "
        f"{len(differences)} decisions differ"
    )
    print_answer(rows, output, lambda: tables.show_differences(rows, summary, console()))
    if differences:
        raise typer.Exit(3)


COMMANDS: dict[str, Callable[..., None]] = {
    "explain": with_source(explain),
    "queue": with_source(queue),
    "when": with_source(when),
    "what-if": with_source(what_if),
    "defrag": defrag,
    "replay": replay,
}
"""The commands by name."""
