"""Reads the files of runs, and renders the report."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined

from gangsched import __version__
from gangsched.config import PolicyConfig
from simulator.experiments.confidence import half_interval
from simulator.experiments.notices import list_names
from simulator.experiments.task import Task
from simulator.report import figures
from simulator.scenarios.scenario import Scenario

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run, read from its folder."""

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
        """Return a row for each sample."""
        return pq.read_table(self.folder / "samples.parquet")

    def details(self) -> dict[str, Any]:
        """Return the data of figures and stories."""
        details: dict[str, Any] = json.loads((self.folder / "details.json").read_text())
        return details


@dataclass(frozen=True, slots=True)
class ReportRuns:
    """All runs of a report, with variants in the order of the command."""

    outcomes: tuple[StoredRun, ...]

    def by_variant(self) -> dict[str, list[StoredRun]]:
        """Return the runs of each variant, by seed."""
        variants: dict[str, list[StoredRun]] = {}
        for outcome in self.outcomes:
            variants.setdefault(outcome.variant, []).append(outcome)
        return {
            name: sorted(outcomes, key=lambda outcome: outcome.seed)
            for name, outcomes in variants.items()
        }


def read(tasks: list[Task]) -> ReportRuns:
    """Read the outcome of each task."""
    outcomes = []
    for task in tasks:
        document = json.loads((task.folder / "run.json").read_text())
        outcomes.append(
            StoredRun(
                task.variant.label,
                task.seed,
                document["figures"],
                task.folder,
                document,
                task.variant.scenario,
            )
        )
    return ReportRuns(tuple(outcomes))


# -- the table --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of the table; `better` is 1 or -1 if more or less is better, 0 if neither."""

    key: str
    title: str
    better: int
    unit: str = ""

    def shown(self, value: float) -> str:
        """Return a value as text."""
        if self.unit == "s":
            return format_duration(value)
        if self.unit == "%":
            return f"{100 * value:.1f} %"
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


COLUMNS = (
    Column("can_never_run", "jobs that can never run", -1),
    Column("still_waiting", "jobs still pending", -1),
    Column("wait_mean_s", "wait, mean", -1, "s"),
    Column("wait_p50_s", "wait, median", -1, "s"),
    Column("wait_p95_s", "wait, p95", -1, "s"),
    Column("jct_mean_s", "completion, mean", -1, "s"),
    Column("slowdown_mean", "slowdown, mean", -1),
    Column("gpu_busy", "GPUs busy", 1, "%"),
    Column("in_pieces", "fragmented GPUs", -1, "%"),
    Column("jain", "Jain over queues", 1),
    Column("preempted", "preemptions", 0),
    Column("stopped", "interruptions (preemptions, failures)", 0),
    Column("lost_gpu_h", "GPU-hours lost", -1),
    Column("makespan_s", "makespan", -1, "s"),
)

POOL_FIGURES = (
    Column("cost", "cost of bought nodes, $", -1),
    Column("bought_node_h", "node-hours bought", -1),
    Column("wasted_node_h", "node-hours that no gang used", -1),
)
"""Columns of scenarios with pools."""

POOL_COLUMNS = (
    Column("price", "price, $/h", 0),
    Column("nodes_limit", "nodes at most", 0),
    Column("nodes_max", "nodes at the same time", 0),
    Column("nodes_bought", "nodes bought", 0),
    Column("bought_node_h", "node-hours", 0),
    Column("wasted_node_h", "node-hours that no gang used", -1),
    Column("cost", "cost, $", -1),
    Column("purchase_failures", "failed purchases", -1),
    Column("reclaimed_nodes", "nodes taken back", -1),
)

QUEUE_COLUMNS = (
    Column("jobs", "jobs", 0),
    Column("never_started", "never started", -1),
    Column("wait_p50_s", "wait, median", -1, "s"),
    Column("wait_p95_s", "wait, p95", -1, "s"),
    Column("slowdown_mean", "slowdown, mean", -1),
    Column("used_gpu_h", "GPU-hours used", 0),
    Column("guarantee_gpus", "nominal quota, GPUs", 0),
    Column("guarantee_used", "nominal quota used", 0, "%"),
    Column("borrowed_gpu_h", "GPU-hours borrowed", 0),
    Column("lent_gpu_h", "GPU-hours lent", 0),
    Column("stopped", "interruptions", -1),
    Column("lost_gpu_h", "GPU-hours lost", -1),
)

_OF_STARTED = frozenset({"wait_mean_s", "wait_p50_s", "wait_p95_s", "jct_mean_s", "slowdown_mean"})
"""Figures of gangs that started: they look better if gangs with long waits never start."""


def format_duration(value_s: float) -> str:
    """Return a length of time as text, in the unit that fits it."""
    sign, value_s = ("-" if value_s < 0 else ""), abs(value_s)
    if value_s < 100:
        return f"{sign}{value_s:.1f} s"
    minutes, hours, days = value_s / 60, value_s / 3600, value_s / 86_400
    if minutes < 100:
        return f"{sign}{minutes:.1f} min"
    return f"{sign}{hours:.1f} h" if hours < 72 else f"{sign}{days:.1f} d"


def moment(value_s: float) -> str:
    """Return a time or length of time as text to the minute; below an hour, to the second."""
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
    """Return a notice if the placer is the simulator's default, which differs from a cluster's."""
    usual = PolicyConfig().placer
    if "placer" in scenario.policies.model_fields_set or scenario.policies.placer == usual:
        return ""
    placer = scenario.policies.placer
    return f"placer: {placer}; a cluster's default is {usual} (--set policies.placer={usual})"


def columns_of(runs: ReportRuns) -> tuple[Column, ...]:
    """Return the figures of the table; those of pools only where every variant has pools."""
    with_pools = all("cost" in outcome.figures for outcome in runs.outcomes)
    return (*COLUMNS, *POOL_FIGURES) if with_pools else COLUMNS


def variant_rows(runs: ReportRuns) -> list[dict[str, Any]]:
    """Return a row for each variant: means, and differences from the first, paired by seed."""
    grouped = runs.by_variant()
    first = next(iter(grouped.values()))
    rows = []
    for name, outcomes in grouped.items():
        cells = []
        fewer = _never(outcomes) > _never(first)
        for column in columns_of(runs):
            values = [outcome.figures[column.key] for outcome in outcomes]
            cell = {"mean": column.shown(statistics.fmean(values)), "range": "", "class": ""}
            pairs = [
                outcome.figures[column.key] - first_outcome.figures[column.key]
                for outcome in outcomes
                for first_outcome in first
                if outcome.seed == first_outcome.seed
            ]
            if outcomes is not first and len(pairs) > 1:
                cell |= _difference(column, pairs)
                if fewer and column.key in _OF_STARTED and cell["class"] == "better":
                    cell |= {"class": "", "range": f"{cell['range']}, of fewer jobs"}
            cells.append(cell)
        rows.append({"name": name, "cells": cells, "seeds": len(outcomes)})
    return rows


def _never(outcomes: list[StoredRun]) -> float:
    return statistics.fmean(outcome.figures["never_started"] for outcome in outcomes)


def by_queue(runs: ReportRuns) -> list[dict[str, Any]]:
    """Return a row for each queue and variant with means over the seeds, in the queues' order."""
    return _by_name(runs, "queues", "queue", QUEUE_COLUMNS)


def by_pool(runs: ReportRuns) -> list[dict[str, Any]]:
    """Return a row for each pool and variant with means over the seeds."""
    return _by_name(runs, "pools", "pool", POOL_COLUMNS)


def _by_name(
    runs: ReportRuns, part: str, key: str, columns: tuple[Column, ...]
) -> list[dict[str, Any]]:
    rows_of: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, outcomes in runs.by_variant().items():
        for outcome in outcomes:
            for row in outcome.document[part]:
                rows_of.setdefault(row[key], {}).setdefault(name, []).append(row)
    rows = []
    for named, variants in rows_of.items():
        for number, (name, rows_of_variant) in enumerate(variants.items()):
            cells = []
            for column in columns:
                values = [row[column.key] for row in rows_of_variant if row[column.key] is not None]
                cells.append(column.shown(statistics.fmean(values)) if values else "none")
            first = {key: "" if number else named, "depth": rows_of_variant[0].get("depth", 0)}
            rows.append(first | {"variant": name, "cells": cells})
    return rows


def _difference(column: Column, pairs: list[float]) -> dict[str, str]:
    """Return a mean difference with its 95 % interval (Student's t, paired by seed)."""
    mean, half = statistics.fmean(pairs), half_interval(pairs)
    significant = abs(mean) > half
    is_better = column.better * mean > 0
    kind = ("better" if is_better else "worse") if significant and column.better and mean else ""
    sign = "+" if mean >= 0 else ""
    return {"range": f"{sign}{column.shown(mean)} ± {column.shown(half)}", "class": kind}


# -- the page -----------------------------------------------------------------------------------


def render(runs: ReportRuns) -> str:
    """Return the report as HTML."""
    heads = {name: outcomes[0] for name, outcomes in runs.by_variant().items()}
    jobs = {name: outcome.jobs() for name, outcome in heads.items()}
    samples = {name: outcome.samples() for name, outcome in heads.items()}
    first = next(iter(heads.values()))
    shown = []
    for name, outcome in heads.items():
        details = outcome.details()
        shown.append(
            {
                "name": name,
                "worst": details["worst"],
                "not_started": [
                    row | {"named": list_names(row["names"], row["jobs"])}
                    for row in outcome.document["not_started"]
                ],
                "waiting": figures.waiting(details),
                "lanes": figures.lanes(details),
                "heat": figures.heat(details),
                "nodes_bought": figures.nodes_bought(details),
            }
        )
    environment = Environment(
        loader=PackageLoader("simulator.report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"short": format_duration, "moment": moment}
    return environment.get_template("page.html.j2").render(
        version=__version__,
        scenario=first.document["scenario"],
        figures=first.figures,
        first_seed=first.seed,
        left_out=first.document["left_out"],
        columns=columns_of(runs),
        rows=variant_rows(runs),
        queue_columns=QUEUE_COLUMNS,
        queue_rows=by_queue(runs),
        pool_columns=POOL_COLUMNS,
        pool_rows=by_pool(runs),
        placed_by=placed_by(next(iter(runs.outcomes)).scenario),
        variants=shown,
        used=figures.over_time(samples, ("used", "gpus"), "% of GPUs used"),
        pieces=figures.over_time(samples, ("in_pieces", "gpus"), "% of GPUs free, in pieces"),
        wait_by_size=figures.by_size(jobs, "wait_s", 95, "wait, p95"),
        slowdown_by_size=figures.by_size(jobs, "slowdown", 95, "slowdown, p95"),
        waits=figures.waits(jobs),
        fairness=figures.fairness(jobs),
    )
