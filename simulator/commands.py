"""Commands of the simulator; `gangsched` finds them by entry point."""

import math
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from gangsched.config import ConfigError

if TYPE_CHECKING:
    from simulator.report.page import Runs
    from simulator.scenario import Scenario


def simulate(
    scenario: Annotated[Path, typer.Argument(help="YAML file; see docs/simulator.md")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE, such as policies.order=shortest")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=A,B,...: one variant each, such as order=fifo,batch"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="this many, from 0 on")] = None,
    out: Annotated[Path | None, typer.Option(help="default: build/simulations/NAME")] = None,
    processes: Annotated[int, typer.Option(min=0, help="0: one for each core")] = 0,
    ray: Annotated[str, typer.Option(help="address of a Ray cluster to run on")] = "",
    kwok: Annotated[
        float | None,
        typer.Option(min=1, help="on a real control plane too, so many times faster than time"),
    ] = None,
) -> None:
    """Run a scenario in virtual time and write its tables and a report."""
    from simulator.checkers import ViolationError  # noqa: PLC0415
    from simulator.notices import notices  # noqa: PLC0415 -- heavy
    from simulator.report import page  # noqa: PLC0415
    from simulator.sweep import tasks, variants, work  # noqa: PLC0415
    from simulator.traces import TraceError  # noqa: PLC0415

    console = Console()
    try:
        found = variants(scenario, tuple(changes or ()), tuple(compare or ()))
        folder = out or Path("build/simulations") / found[0].scenario.name
        listed = tasks(found, range(seeds) if seeds else None, folder)
        for sentence in notices(found, 0 if seeds else None):
            Console(stderr=True).print(f"warning: {sentence}", soft_wrap=True, markup=False)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(f"{len(listed)} runs of {found[0].scenario.name}", total=None)
            progress.update(bar, total=len(listed))
            for _ in work(listed, processes or os.cpu_count() or 1, ray):
                progress.advance(bar)
    except TraceError as error:
        raise ConfigError(str(error)) from error
    except ViolationError as error:
        console.print(f"an invariant does not hold: {error}", soft_wrap=True, style="red")
        raise typer.Exit(1) from error
    runs = page.read(listed)
    _show(console, runs)
    placed = page.placed_by(found[0].scenario)
    if placed:
        console.print(placed, soft_wrap=True, highlight=False)
    report = folder / "report.html"
    report.write_text(page.render(runs))
    console.print(f"report: {report}", soft_wrap=True)
    if kwok is not None:
        _rehearse(console, found[0].scenario, kwok, folder)


def tune(
    scenario: Annotated[Path, typer.Argument(help="YAML file; see docs/simulator.md")],
    parameter: Annotated[
        list[str], typer.Option(help="FIELD=A,B,C or FIELD=LOW:HIGH[:log]; repeat it")
    ],
    objective: Annotated[str, typer.Option(help="what to better")] = "wait_mean_s",
    changes: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE")] = None,
    trials: Annotated[int, typer.Option(min=1, help="settings to try")] = 30,
    out: Annotated[Path | None, typer.Option(help="default: build/tune/NAME")] = None,
    processes: Annotated[int, typer.Option(min=0, help="0: one for each core")] = 0,
) -> None:
    """Look for better settings on a trace's first weeks; report the gain on its last."""
    from simulator.scenario import load  # noqa: PLC0415 -- heavy
    from simulator.traces import TraceError  # noqa: PLC0415
    from simulator.tune import Search  # noqa: PLC0415
    from simulator.tune import parameter as read  # noqa: PLC0415

    console = Console()
    cores = processes or os.cpu_count() or 1
    try:
        name = load(scenario, tuple(changes or ())).name
        search = Search(
            scenario,
            changes or (),
            [read(one) for one in parameter],
            objective,
            out or Path("build/tune") / name,
            processes=cores,
        )
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("trials", total=trials)
            for best in search.run(trials):
                progress.update(bar, advance=1, description=f"trials; best {best:.4g}")
        found = search.result()
    except TraceError as error:
        raise ConfigError(str(error)) from error
    table = Table(box=None)
    for column in ("WINDOW", f"{objective} NOW", "BEST", "NEVER STARTED NOW", "BEST"):
        table.add_column(column, justify="left" if column == "WINDOW" else "right")
    for one in found.gains:
        day = f"day {one.begin_s / 86_400:.1f}"
        held = f"{day}, held out" if one.held_out else day
        never = (str(one.never_before), str(one.never_after))
        table.add_row(held, f"{one.before:.4g}", f"{one.after:.4g}", *never)
    console.print(table)
    gain, half = found.gain(held_out=True)
    words = ", ".join(f"{name}={value}" for name, value in found.best.items())
    console.print(f"best of {found.trials} trials: {words}", soft_wrap=True)
    interval = "" if math.isnan(half) else f" (+-{100 * half:.1f})"
    console.print(
        f"gain on what was held out: {100 * gain:.1f} %{interval}; on what it learnt from: "
        f"{100 * found.gain(held_out=False)[0]:.1f} %"
    )


def _rehearse(console: Console, scenario: "Scenario", faster: float, folder: Path) -> None:
    """Run a scenario on KWOK, and say how alike the two worlds are and why they differ."""
    from gangsched.replay import Replayed, replay  # noqa: PLC0415 -- heavy
    from simulator.kwok import agreement, rehearse, start_delay_s  # noqa: PLC0415
    from simulator.report.page import short  # noqa: PLC0415
    from simulator.run import policies_of, run  # noqa: PLC0415

    seed, journal = scenario.seeds[0], folder / "kwok-journal.jsonl"
    with console.status("starting a control plane") as status:
        real, late_s = rehearse(scenario, seed, faster, journal, status.update)
    delay_s = start_delay_s(real, faster) * faster
    virtual = run(scenario, seed)
    found = agreement(virtual.fates, real.fates, 2 * faster)
    table = Table(box=None)
    for column in ("", "VIRTUAL TIME", f"KWOK, {faster:g} TIMES FASTER"):
        table.add_column(column, justify="right" if column else "left")
    rows = (("mean wait", found.wait_s), ("last end", found.makespan_s))
    for name, (first, second) in rows:
        table.add_row(name, short(first), short(second))
    hours = [
        len(one.fates) * 3600 / max(found.makespan_s[at], 1)
        for at, one in enumerate((virtual, real))
    ]
    table.add_row("jobs an hour", f"{hours[0]:.1f}", f"{hours[1]:.1f}")
    console.print(table)
    done = Replayed()
    differ = sum(1 for _ in replay(journal, policies_of(scenario), done))
    console.print(
        f"{100 * found.order:.1f} % of the pairs of jobs start in the same order. A start takes "
        f"{delay_s / faster:.2f} s of calls, which count {short(delay_s)} here; the longest delay "
        f"of a job's creation was {late_s:.2f} s. Decided again on what happened on KWOK: {differ} "
        f"of {done.placed} placements differ."
    )
    if found.furthest and found.order < 1:
        named = ", ".join(f"{job} {short(a)}/{short(b)}" for job, a, b in found.furthest[:3])
        console.print(f"Waits furthest apart: {named}.")


def _show(console: Console, runs: "Runs") -> None:
    from simulator.report.page import short  # noqa: PLC0415 -- heavy

    table = Table(box=None)
    table.add_column("VARIANT", overflow="fold")
    columns = (
        "WAIT\nMEAN", "WAIT\nMEDIAN", "WAIT\nP95", "SLOW-\nDOWN", "GPUS\nBUSY", "PRE-\nEMPTED",
        "NEVER\nSTARTED",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    lines = []
    for label, outcomes in runs.by_variant().items():
        rows = [one.figures for one in outcomes]
        mean = {key: statistics.fmean(row[key] for row in rows) for key in rows[0]}
        table.add_row(
            Text(label),
            short(mean["wait_mean_s"]),
            short(mean["wait_p50_s"]),
            short(mean["wait_p95_s"]),
            f"{mean['slowdown_mean']:.1f}",
            f"{100 * mean['gpu_busy']:.1f} %",
            f"{mean['preempted']:.0f}",
            f"{mean['never_started']:.10g}" if len(rows) == 1 else f"{mean['never_started']:.1f}",
        )
        if mean["never_started"]:
            lines.append(
                f"{label}: {mean['can_never_run']:.3g} jobs could never run, "
                f"{mean['still_waiting']:.3g} still waited when the simulation ended"
            )
    console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
