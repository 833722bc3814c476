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
    from simulator.report.page import Runs
    from simulator.scenarios.scenario import Scenario


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
    output: Output = "table",
) -> None:
    """Run a scenario in virtual time and write its tables and a report."""
    from simulator.experiments.notices import notices  # noqa: PLC0415 -- heavy
    from simulator.experiments.sweep import tasks, variants, work  # noqa: PLC0415
    from simulator.invariants.placement_checks import ViolationError  # noqa: PLC0415
    from simulator.report import page  # noqa: PLC0415
    from simulator.traces import TraceError  # noqa: PLC0415

    console = terminal()
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
    report = folder / "report.html"
    report.write_text(page.render(runs))
    told: dict[str, Any] = {"variants": _means(runs), "report": str(report)}
    if output == "table":  # a rehearsal takes minutes more
        _show(console, told["variants"])
        if placed := page.placed_by(found[0].scenario):
            console.print(placed, soft_wrap=True, highlight=False)
        console.print(f"report: {report}", soft_wrap=True)
    if kwok is not None:
        told["rehearsal"] = _rehearse(console, found[0].scenario, kwok, folder)
    print_answer(told, output, lambda: _show_rehearsal(console, told.get("rehearsal")))


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
    output: Output = "table",
) -> None:
    """Look for better settings on a trace's first weeks; report the gain on its last."""
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
    print_answer(found.data(), output, lambda: _show_gain(console, found))


def _show_gain(console: Console, found: "Tuned") -> None:
    """Print a search's objective on each window, the best settings, and what they gain."""
    columns = ("WINDOW", f"{found.objective} NOW", "BEST", "NEVER STARTED NOW", "BEST")
    table = new_table(*columns, right=columns[1:])
    for one in found.gains:
        day = f"day {one.begin_s / 86_400:.1f}"
        held = f"{day}, held out" if one.held_out else day
        never = (str(one.never_before), str(one.never_after))
        table.add_row(held, f"{one.before:.4g}", f"{one.after:.4g}", *never)
    print_table(table, console)
    gain, half = found.gain(held_out=True)
    words = ", ".join(f"{name}={value}" for name, value in found.best.items())
    console.print(f"best of {found.trials} trials: {words}", soft_wrap=True)
    interval = "" if math.isnan(half) else f" (+-{100 * half:.1f})"
    console.print(
        f"gain on what was held out: {100 * gain:.1f} %{interval}; on what it learnt from: "
        f"{100 * found.gain(held_out=False)[0]:.1f} %"
    )


def _rehearse(
    console: Console, scenario: "Scenario", faster: float, folder: Path
) -> dict[str, Any]:
    """Run a scenario on KWOK, and return how alike the two worlds are and why they differ."""
    from gangsched.recording.replay import Replayed, replay  # noqa: PLC0415 -- heavy
    from simulator.experiments.run import policies_of, run  # noqa: PLC0415
    from simulator.kwok.rehearsal import agreement, rehearse, start_delay_s  # noqa: PLC0415

    seed, journal = scenario.seeds[0], folder / "kwok-journal.jsonl"
    with console.status("starting a control plane") as status:
        real, late_s = rehearse(scenario, seed, faster, journal, status.update)
    virtual = run(scenario, seed)
    found = agreement(virtual.outcomes, real.outcomes, 2 * faster)
    done = Replayed()
    return {
        "faster": faster,
        "meanWait_s": list(found.wait_s),
        "lastEnd_s": list(found.makespan_s),
        "jobsPerHour": [
            len(one.outcomes) * 3600 / max(found.makespan_s[at], 1)
            for at, one in enumerate((virtual, real))
        ],
        "sameOrder": found.order,
        "startDelay_s": start_delay_s(real, faster),
        "creationDelay_s": late_s,
        "placementsThatDiffer": sum(1 for _ in replay(journal, policies_of(scenario), done)),
        "placements": done.placed,
        "furthestWaits_s": {job: [ours, theirs] for job, ours, theirs in found.furthest[:3]},
    }


def _show_rehearsal(console: Console, told: dict[str, Any] | None) -> None:
    """Print the two worlds side by side, and what lies between them."""
    from simulator.report.page import short  # noqa: PLC0415 -- heavy

    if told is None:
        return
    columns = ("", "VIRTUAL TIME", f"KWOK, {told['faster']:g} TIMES FASTER")
    table = new_table(*columns, right=columns[1:])
    table.add_row("mean wait", *map(short, told["meanWait_s"]))
    table.add_row("last end", *map(short, told["lastEnd_s"]))
    table.add_row("jobs an hour", *(f"{rate:.1f}" for rate in told["jobsPerHour"]))
    print_table(table, console)
    delay_s = told["startDelay_s"]
    console.print(
        f"{100 * told['sameOrder']:.1f} % of the pairs of jobs start in the same order. A start "
        f"takes {delay_s:.2f} s of calls, which count {short(delay_s * told['faster'])} here; the "
        f"longest delay of a job's creation was {told['creationDelay_s']:.2f} s. Decided again on "
        f"what happened on KWOK: {told['placementsThatDiffer']} of {told['placements']} "
        f"placements differ."
    )
    if told["furthestWaits_s"] and told["sameOrder"] < 1:
        furthest = told["furthestWaits_s"].items()
        named = ", ".join(f"{job} {short(a)}/{short(b)}" for job, (a, b) in furthest)
        console.print(f"Waits furthest apart: {named}.")


def _means(runs: "Runs") -> list[dict[str, Any]]:
    """Return the figures of each variant, means over its seeds."""
    found = []
    for label, outcomes in runs.by_variant().items():
        rows = [one.figures for one in outcomes]
        means = {key: statistics.fmean(row[key] for row in rows) for key in rows[0]}
        found.append({"variant": label, "seeds": len(rows), "figures": means})
    return found


def _show(console: Console, variants: list[dict[str, Any]]) -> None:
    """Print a row for each variant."""
    from simulator.report.page import short  # noqa: PLC0415 -- heavy

    columns = (
        "VARIANT", "WAIT\nMEAN", "WAIT\nMEDIAN", "WAIT\nP95", "SLOW-\nDOWN", "GPUS\nBUSY",
        "PRE-\nEMPTED", "NEVER\nSTARTED",
    )  # fmt: skip
    table = new_table(*columns, right=columns[1:])
    for one in variants:
        mean = one["figures"]
        table.add_row(
            one["variant"],
            short(mean["wait_mean_s"]),
            short(mean["wait_p50_s"]),
            short(mean["wait_p95_s"]),
            f"{mean['slowdown_mean']:.1f}",
            f"{100 * mean['gpu_busy']:.1f} %",
            f"{mean['preempted']:.0f}",
            f"{mean['never_started']:{'.10g' if one['seeds'] == 1 else '.1f'}}",
        )
    print_table(table, console)
    for one in variants:
        mean = one["figures"]
        if mean["never_started"]:
            console.print(
                f"{one['variant']}: {mean['can_never_run']:.3g} jobs could never run, "
                f"{mean['still_waiting']:.3g} still waited when the simulation ended",
                soft_wrap=True,
                markup=False,
                highlight=False,
            )
