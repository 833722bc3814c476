"""Commands of the simulator; `gangsched` finds them by entry point."""

import math
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from gangsched.cli.options import Output
from gangsched.cli.output.printing import console as terminal
from gangsched.cli.output.printing import new_table, print_answer, print_table
from gangsched.config import ConfigError

if TYPE_CHECKING:
    from simulator.experiments.tune import Tuned
    from simulator.report.page import ReportRuns
    from simulator.scenarios.scenario import Scenario


def simulate(
    scenario: Annotated[Path, typer.Argument(help="YAML file; see docs/simulator.md")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE, such as policies.order=shortest")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=A,B,...: a variant for each value, such as order=fifo,batch"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="number of seeds, from 0")] = None,
    out: Annotated[Path | None, typer.Option(help="default: build/simulations/NAME")] = None,
    processes: Annotated[int, typer.Option(min=0, help="0: one for each core")] = 0,
    ray: Annotated[str, typer.Option(help="address of a Ray cluster for the runs")] = "",
    kwok: Annotated[
        float | None,
        typer.Option(min=1, help="also run on a real control plane, faster by this factor"),
    ] = None,
    journal: Annotated[
        bool,
        typer.Option("--journal", help="also write each run's journal, for gangsched web"),
    ] = False,
    output: Output = "table",
) -> None:
    """Run a scenario in virtual time and write its tables and a report."""
    from simulator.experiments.notices import notices  # noqa: PLC0415 -- heavy
    from simulator.experiments.sweep import tasks, variants, work  # noqa: PLC0415
    from simulator.experiments.task import JOURNAL  # noqa: PLC0415
    from simulator.invariants.placement_checks import ViolationError  # noqa: PLC0415
    from simulator.report import page  # noqa: PLC0415
    from simulator.traces import TraceError  # noqa: PLC0415

    console = terminal()
    try:
        compared_variants = variants(scenario, tuple(changes or ()), tuple(compare or ()))
        folder = out or Path("build/simulations") / compared_variants[0].scenario.name
        chosen_seeds = range(seeds) if seeds else None
        runs_to_do = tasks(compared_variants, chosen_seeds, folder, journal=journal)
        for sentence in notices(compared_variants, 0 if seeds else None):
            Console(stderr=True).print(f"warning: {sentence}", soft_wrap=True, markup=False)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(
                f"{len(runs_to_do)} runs of {compared_variants[0].scenario.name}", total=None
            )
            progress.update(bar, total=len(runs_to_do))
            for _ in work(runs_to_do, processes or os.cpu_count() or 1, ray):
                progress.advance(bar)
    except TraceError as error:
        raise ConfigError(str(error)) from error
    except ViolationError as error:
        console.print(f"an invariant is violated: {error}", soft_wrap=True, style="red")
        raise typer.Exit(1) from error
    runs = page.read(runs_to_do)
    report = folder / "report.html"
    report.write_text(page.render(runs))
    result: dict[str, Any] = {"variants": _means(runs), "report": str(report)}
    if output == "table":  # before the run on KWOK, which takes minutes
        _show(console, result["variants"])
        if placed := page.placed_by(compared_variants[0].scenario):
            console.print(placed, soft_wrap=True, highlight=False)
        console.print(f"report: {report}", soft_wrap=True)
        if journal:
            show = runs_to_do[0].folder / JOURNAL
            console.print(f"to see the run: gangsched web {show}", soft_wrap=True)
    if kwok is not None:
        result["rehearsal"] = _rehearse(console, compared_variants[0].scenario, kwok, folder)
    print_answer(result, output, lambda: _show_rehearsal(console, result.get("rehearsal")))


def tune(
    scenario: Annotated[Path, typer.Argument(help="YAML file; see docs/simulator.md")],
    parameter: Annotated[
        list[str], typer.Option(help="FIELD=A,B,C or FIELD=LOW:HIGH[:log]; may be repeated")
    ],
    objective: Annotated[str, typer.Option(help="figure to improve")] = "wait_mean_s",
    changes: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE")] = None,
    trials: Annotated[int, typer.Option(min=1, help="settings to try")] = 30,
    out: Annotated[Path | None, typer.Option(help="default: build/tune/NAME")] = None,
    processes: Annotated[int, typer.Option(min=0, help="0: one for each core")] = 0,
    output: Output = "table",
) -> None:
    """Search for better settings on a trace's first weeks; report the gain on its last weeks."""
    from simulator.experiments.tune import Search  # noqa: PLC0415
    from simulator.experiments.tune import parameter as read  # noqa: PLC0415
    from simulator.scenarios.scenario import load  # noqa: PLC0415 -- heavy
    from simulator.traces import TraceError  # noqa: PLC0415

    console = terminal()
    cores = processes or os.cpu_count() or 1
    try:
        name = load(scenario, tuple(changes or ())).name
        search = Search(
            scenario,
            changes or (),
            [read(text) for text in parameter],
            objective,
            out or Path("build/tune") / name,
            processes=cores,
        )
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("trials", total=trials)
            for best in search.run(trials):
                progress.update(bar, advance=1, description=f"trials; best {best:.4g}")
        tuned = search.result()
    except TraceError as error:
        raise ConfigError(str(error)) from error
    print_answer(tuned.data(), output, lambda: _show_gain(console, tuned))


def _show_gain(console: Console, tuned: "Tuned") -> None:
    """Print the objective on each window, the best settings, and their gain."""
    columns = ("WINDOW", f"{tuned.objective} NOW", "BEST", "NEVER STARTED NOW", "BEST")
    table = new_table(*columns, right=columns[1:])
    for gain in tuned.gains:
        day = f"day {gain.begin_s / 86_400:.1f}"
        window = f"{day}, held out" if gain.held_out else day
        never = (str(gain.never_before), str(gain.never_after))
        table.add_row(window, f"{gain.before:.4g}", f"{gain.after:.4g}", *never)
    print_table(table, console)
    mean_gain, half_interval = tuned.gain(held_out=True)
    settings = ", ".join(f"{name}={value}" for name, value in tuned.best.items())
    console.print(f"best of {tuned.trials} trials: {settings}", soft_wrap=True)
    interval = "" if math.isnan(half_interval) else f" (+-{100 * half_interval:.1f})"
    console.print(
        f"gain on held-out windows: {100 * mean_gain:.1f} %{interval}; on training windows: "
        f"{100 * tuned.gain(held_out=False)[0]:.1f} %"
    )


def _rehearse(
    console: Console, scenario: "Scenario", speedup: float, folder: Path
) -> dict[str, Any]:
    """Run a scenario on KWOK; return how it compares with the run in virtual time."""
    from gangsched.recording.replay import Replayed, replay  # noqa: PLC0415 -- heavy
    from simulator.experiments.run import policies_of, run  # noqa: PLC0415
    from simulator.kwok.rehearsal import agreement, run_on_kwok, start_delay_s  # noqa: PLC0415

    seed, journal = scenario.seeds[0], folder / "kwok-journal.jsonl"
    with console.status("starting a control plane") as status:
        real, late_s = run_on_kwok(scenario, seed, speedup, journal, status.update)
    virtual = run(scenario, seed)
    agreed = agreement(virtual.outcomes, real.outcomes, 2 * speedup)
    replayed = Replayed()
    return {
        "faster": speedup,
        "meanWait_s": list(agreed.wait_s),
        "lastEnd_s": list(agreed.makespan_s),
        "jobsPerHour": [
            len(outcome.outcomes) * 3600 / max(agreed.makespan_s[at], 1)
            for at, outcome in enumerate((virtual, real))
        ],
        "sameOrder": agreed.order,
        "startDelay_s": start_delay_s(real, speedup),
        "creationDelay_s": late_s,
        "placementsThatDiffer": sum(1 for _ in replay(journal, policies_of(scenario), replayed)),
        "placements": replayed.placed,
        "furthestWaits_s": {job: [ours, theirs] for job, ours, theirs in agreed.furthest[:3]},
    }


def _show_rehearsal(console: Console, result: dict[str, Any] | None) -> None:
    """Print the two runs side by side, and how they differ."""
    from simulator.report.page import format_duration  # noqa: PLC0415 -- heavy

    if result is None:
        return
    columns = ("", "VIRTUAL TIME", f"KWOK, {result['faster']:g} TIMES FASTER")
    table = new_table(*columns, right=columns[1:])
    table.add_row("mean wait", *map(format_duration, result["meanWait_s"]))
    table.add_row("last end", *map(format_duration, result["lastEnd_s"]))
    table.add_row("jobs an hour", *(f"{rate:.1f}" for rate in result["jobsPerHour"]))
    print_table(table, console)
    delay_s = result["startDelay_s"]
    console.print(
        f"{100 * result['sameOrder']:.1f} % of the pairs of jobs start in the same order. The API "
        f"calls of a start take {delay_s:.2f} s, which count "
        f"{format_duration(delay_s * result['faster'])} here. The longest delay of a job's "
        f"creation was {result['creationDelay_s']:.2f} s. In a "
        f"replay of the KWOK run, {result['placementsThatDiffer']} of {result['placements']} "
        f"placements differ."
    )
    if result["furthestWaits_s"] and result["sameOrder"] < 1:
        furthest = result["furthestWaits_s"].items()
        named = ", ".join(
            f"{job} {format_duration(a)}/{format_duration(b)}" for job, (a, b) in furthest
        )
        console.print(f"Largest differences between waits: {named}.")


def _means(runs: "ReportRuns") -> list[dict[str, Any]]:
    """Return the figures of each variant as means over its seeds."""
    means_of = []
    for label, outcomes in runs.by_variant().items():
        rows = [outcome.figures for outcome in outcomes]
        means = {key: statistics.fmean(row[key] for row in rows) for key in rows[0]}
        means_of.append({"variant": label, "seeds": len(rows), "figures": means})
    return means_of


def _show(console: Console, variants: list[dict[str, Any]]) -> None:
    """Print a row for each variant."""
    from simulator.report.page import format_duration  # noqa: PLC0415 -- heavy

    columns: tuple[str, ...] = (
        "VARIANT", "WAIT\nMEAN", "WAIT\nMEDIAN", "WAIT\nP95", "SLOW-\nDOWN", "GPUS\nBUSY",
        "PRE-\nEMPTED", "NEVER\nSTARTED",
    )  # fmt: skip
    bought = "cost" in variants[0]["figures"]
    if bought:
        columns = (*columns, "COST\n$", "WASTED\nNODE-H")
    table = new_table(*columns, right=columns[1:])
    for variant in variants:
        mean = variant["figures"]
        of_pools = (f"{mean['cost']:,.0f}", f"{mean['wasted_node_h']:.1f}") if bought else ()
        table.add_row(
            variant["variant"],
            format_duration(mean["wait_mean_s"]),
            format_duration(mean["wait_p50_s"]),
            format_duration(mean["wait_p95_s"]),
            f"{mean['slowdown_mean']:.1f}",
            f"{100 * mean['gpu_busy']:.1f} %",
            f"{mean['preempted']:.0f}",
            f"{mean['never_started']:{'.10g' if variant['seeds'] == 1 else '.1f'}}",
            *of_pools,
        )
    print_table(table, console)
    for variant in variants:
        mean = variant["figures"]
        if mean["never_started"]:
            console.print(
                f"{variant['variant']}: {mean['can_never_run']:.3g} jobs could never run, "
                f"{mean['still_waiting']:.3g} were still pending when the simulation ended",
                soft_wrap=True,
                markup=False,
                highlight=False,
            )
