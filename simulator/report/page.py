"""Reads what runs have written, and renders the page."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined
from scipy import stats

from gangsched import __version__
from gangsched.config import PolicyConfig
from simulator.experiments.notices import named
from simulator.experiments.task import Task
from simulator.report import figures
from simulator.scenarios.scenario import Scenario

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, as it lies in its folder."""

    variant: str
    seed: int
    figures: Figures
    folder: Path
    document: dict[str, Any]
    scenario: Scenario

    def jobs(self) -> pa.Table:
        """Return a row for each job."""
        return pq.read_table(self.folder / "jobs.parquet")

    def samples(self) -> pa.Table:
        """Return a row for each moment."""
        return pq.read_table(self.folder / "samples.parquet")

    def details(self) -> dict[str, Any]:
        """Return what pictures and stories need."""
        found: dict[str, Any] = json.loads((self.folder / "details.json").read_text())
        return found


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of a report, variants in the order in which they were asked for."""

    outcomes: tuple[Outcome, ...]

    def by_variant(self) -> dict[str, list[Outcome]]:
        """Return the runs of each variant, by seed."""
        found: dict[str, list[Outcome]] = {}
        for one in self.outcomes:
            found.setdefault(one.variant, []).append(one)
        return {name: sorted(some, key=lambda one: one.seed) for name, some in found.items()}


def read(tasks: list[Task]) -> Runs:
    """Read the outcome of each task."""
    found = []
    for task in tasks:
        document = json.loads((task.folder / "run.json").read_text())
        found.append(
            Outcome(
                task.variant.label,
                task.seed,
                document["figures"],
                task.folder,
                document,
                task.variant.scenario,
            )
        )
    return Runs(tuple(found))


# -- the table --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of the table; `better` is -1 where less is better, 0 where that is not said."""

    key: str
    title: str
    better: int
    unit: str = ""

    def shown(self, value: float) -> str:
        """Write a value."""
        if self.unit == "s":
            return short(value)
        if self.unit == "%":
            return f"{100 * value:.1f} %"
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


COLUMNS = (
    Column("can_never_run", "jobs that can never run", -1),
    Column("still_waiting", "jobs that still wait", -1),
    Column("wait_mean_s", "wait, mean", -1, "s"),
    Column("wait_p50_s", "wait, median", -1, "s"),
    Column("wait_p95_s", "wait, p95", -1, "s"),
    Column("jct_mean_s", "completion, mean", -1, "s"),
    Column("slowdown_mean", "slowdown, mean", -1),
    Column("gpu_busy", "GPUs busy", 1, "%"),
    Column("in_pieces", "GPUs in pieces", -1, "%"),
    Column("jain", "Jain over queues", 1),
    Column("preempted", "preemptions", 0),
    Column("stopped", "stops, by preemption and by failures", 0),
    Column("lost_gpu_h", "GPU-hours lost", -1),
    Column("makespan_s", "makespan", -1, "s"),
)

QUEUE_COLUMNS = (
    Column("jobs", "jobs", 0),
    Column("never_started", "never started", -1),
    Column("wait_p50_s", "wait, median", -1, "s"),
    Column("wait_p95_s", "wait, p95", -1, "s"),
    Column("slowdown_mean", "slowdown, mean", -1),
    Column("used_gpu_h", "GPU-hours used", 0),
    Column("guarantee_gpus", "guarantee, GPUs", 0),
    Column("guarantee_used", "of it used", 0, "%"),
    Column("borrowed_gpu_h", "GPU-hours borrowed", 0),
    Column("lent_gpu_h", "GPU-hours lent", 0),
    Column("stopped", "stops", -1),
    Column("lost_gpu_h", "GPU-hours lost", -1),
)

_OF_STARTED = frozenset({"wait_mean_s", "wait_p50_s", "wait_p95_s", "jct_mean_s", "slowdown_mean"})
"""Figures of gangs that started: they look better where gangs that would wait never start."""


def short(value_s: float) -> str:
    """Write a time so that two numbers tell it."""
    sign, value_s = ("-" if value_s < 0 else ""), abs(value_s)
    if value_s < 100:
        return f"{sign}{value_s:.1f} s"
    minutes, hours, days = value_s / 60, value_s / 3600, value_s / 86_400
    if minutes < 100:
        return f"{sign}{minutes:.1f} min"
    return f"{sign}{hours:.1f} h" if hours < 72 else f"{sign}{days:.1f} d"


def moment(value_s: float) -> str:
    """Write a moment or a length of time to the minute; below an hour, to the second."""
    sign, left = ("-" if value_s <= -0.5 else ""), round(abs(value_s))
    if left < 3600:
        parts = [(left // 60, "min"), (left % 60, "s")]
    else:
        minutes = round(left / 60)
        parts = [
            (minutes // 1440, "d"),
            (minutes // 60 % 24, "h"),
            (minutes % 60, "min"),
        ]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return sign + " ".join(f"{count} {unit}" for count, unit in parts)


def placed_by(scenario: Scenario) -> str:
    """Say where nobody chose the placer, and it is not what a cluster has."""
    usual = PolicyConfig().placer
    if "placer" in scenario.policies.model_fields_set or scenario.policies.placer == usual:
        return ""
    placer = scenario.policies.placer
    return f"placer: {placer}; a cluster's default is {usual} (--set policies.placer={usual})"


def compared(runs: Runs) -> list[dict[str, Any]]:
    """Return a row for each variant: means, and how they differ from the first, paired by seed."""
    grouped = runs.by_variant()
    first = next(iter(grouped.values()))
    rows = []
    for name, some in grouped.items():
        cells = []
        fewer = _never(some) > _never(first)
        for column in COLUMNS:
            values = [one.figures[column.key] for one in some]
            cell = {"mean": column.shown(statistics.fmean(values)), "range": "", "class": ""}
            pairs = [
                one.figures[column.key] - other.figures[column.key]
                for one in some
                for other in first
                if one.seed == other.seed
            ]
            if some is not first and len(pairs) > 1:
                cell |= _difference(column, pairs)
                if fewer and column.key in _OF_STARTED and cell["class"] == "better":
                    cell |= {"class": "", "range": f"{cell['range']}, of fewer jobs"}
            cells.append(cell)
        rows.append({"name": name, "cells": cells, "seeds": len(some)})
    return rows


def _never(some: list[Outcome]) -> float:
    return statistics.fmean(one.figures["never_started"] for one in some)


def by_queue(runs: Runs) -> list[dict[str, Any]]:
    """Return a row for each queue and variant: means over the seeds, queues in their tree."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, some in runs.by_variant().items():
        for one in some:
            for row in one.document["queues"]:
                found.setdefault(row["queue"], {}).setdefault(name, []).append(row)
    rows = []
    for queue, variants in found.items():
        for number, (name, some_rows) in enumerate(variants.items()):
            cells = []
            for column in QUEUE_COLUMNS:
                values = [row[column.key] for row in some_rows if row[column.key] is not None]
                cells.append(column.shown(statistics.fmean(values)) if values else "none")
            first = {"queue": "" if number else queue, "depth": some_rows[0]["depth"]}
            rows.append(first | {"variant": name, "cells": cells})
    return rows


def _difference(column: Column, pairs: list[float]) -> dict[str, str]:
    """Write a mean difference with its 95 % interval (Student's t, paired by seed)."""
    mean, spread = statistics.fmean(pairs), statistics.stdev(pairs)
    half = float(stats.t.ppf(0.975, len(pairs) - 1)) * spread / len(pairs) ** 0.5
    sure = abs(mean) > half
    good = column.better * mean > 0
    kind = ("better" if good else "worse") if sure and column.better and mean else ""
    sign = "+" if mean >= 0 else ""
    return {"range": f"{sign}{column.shown(mean)} ± {column.shown(half)}", "class": kind}


# -- the page -----------------------------------------------------------------------------------


def render(runs: Runs) -> str:
    """Return the whole page."""
    heads = {name: some[0] for name, some in runs.by_variant().items()}
    jobs = {name: one.jobs() for name, one in heads.items()}
    samples = {name: one.samples() for name, one in heads.items()}
    first = next(iter(heads.values()))
    shown = []
    for name, one in heads.items():
        details = one.details()
        shown.append(
            {
                "name": name,
                "worst": details["worst"],
                "not_started": [
                    row | {"named": named(row["names"], row["jobs"])}
                    for row in one.document["not_started"]
                ],
                "waiting": figures.waiting(details),
                "lanes": figures.lanes(details),
                "heat": figures.heat(details),
            }
        )
    environment = Environment(
        loader=PackageLoader("simulator.report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"short": short, "moment": moment}
    return environment.get_template("page.html.j2").render(
        version=__version__,
        scenario=first.document["scenario"],
        figures=first.figures,
        first_seed=first.seed,
        left_out=first.document["left_out"],
        columns=COLUMNS,
        rows=compared(runs),
        queue_columns=QUEUE_COLUMNS,
        queue_rows=by_queue(runs),
        placed_by=placed_by(next(iter(runs.outcomes)).scenario),
        variants=shown,
        used=figures.over_time(samples, ("used", "gpus"), "% of GPUs used"),
        pieces=figures.over_time(samples, ("in_pieces", "gpus"), "% of GPUs free, in pieces"),
        wait_by_size=figures.by_size(jobs, "wait_s", 95, "wait, p95"),
        slowdown_by_size=figures.by_size(jobs, "slowdown", 95, "slowdown, p95"),
        waits=figures.waits(jobs),
        fairness=figures.fairness(jobs),
    )
