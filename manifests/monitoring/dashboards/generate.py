"""Writes the Grafana dashboards: `python manifests/monitoring/dashboards/generate.py FOLDER`.

A dashboard is rows of panels, a panel is a title, a unit and its queries. What is drawn how is
decided here once, so that a new panel is one line.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RATE = "$__rate_interval"
QUEUE = 'queue=~"$queue"'
NO_KIND = 'label_replace(vector(0), "kind", "none", "", "")'
GPUS = f'{QUEUE},resource="nvidia.com/gpu",kind=""'


@dataclass(frozen=True, slots=True)
class Show:
    """One panel: `queries` maps legends to PromQL; `unit` is Grafana's name of it.

    `kind` is `lines`, `stack`, `number` or `table`; `says` explains it under the (i).
    """

    title: str
    queries: dict[str, str]
    says: str
    unit: str = "short"
    kind: str = "lines"


def quantiles(metric: str, by: str = "") -> dict[str, str]:
    """Return the median and the 95th percentile of a histogram, per label or for all."""
    chosen = f"{{{QUEUE}}}" if by else ""
    groups = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    return {
        f"{legend}{name}": (
            f"histogram_quantile({level}, "
            f"sum by ({groups}) (rate({metric}_bucket{chosen}[{RATE}])))"
        )
        for name, level in (("p50", 0.5), ("p95", 0.95))
    }


def by(labels: str, metric: str) -> str:
    """Return the increase of a counter of the chosen queues, by labels."""
    return f"sum by ({labels}) (increase({metric}{{{QUEUE}}}[{RATE}]))"


QUEUES: dict[str, list[Show]] = {
    "Now": [
        Show(
            "Waiting",
            {"": 'sum(gangsched_gangs{state=~"Gathering|Pending"})'},
            "Gangs that have no room yet.",
            kind="number",
        ),
        Show(
            "Running",
            {"": 'gangsched_gangs{state="Placed"}'},
            "Gangs whose members are bound, and whose work is not done.",
            kind="number",
        ),
        Show(
            "GPUs in use",
            {"": 'sum(gangsched_gpus{state="used"}) / sum(gangsched_gpus{state="all"})'},
            "Whole and shared GPUs that pods hold, of all on healthy nodes.",
            "percentunit",
            "number",
        ),
        Show(
            "Fragmentation",
            {"": "gangsched_gpu_fragmentation_ratio"},
            "Free GPUs on nodes that are partly used, of all free GPUs.",
            "percentunit",
            "number",
        ),
        Show(
            "Preemption loops",
            {"": "gangsched_preemption_loops_total"},
            "Gangs that stopped each other in turn. Must stay at zero.",
            kind="number",
        ),
        Show(
            "Quota drift",
            {"": "sum(gangsched_quota_drift_total) or vector(0)"},
            "Differences healed between what was charged and what ran. Must stay at zero.",
            kind="number",
        ),
    ],
    "Waiting": [
        Show(
            "Waiting gangs by queue",
            {"{{queue}}": f"gangsched_queue_pending{{{QUEUE}}}"},
            "A queue counts the queues below it too.",
        ),
        Show(
            "Waiting gangs by reason",
            {"{{reason}}": "gangsched_gangs_refused"},
            "Why the gangs that wait do not start.",
            kind="stack",
        ),
        Show(
            "Time to start",
            quantiles("gangsched_queue_wait_seconds", "queue"),
            "From a gang's creation until it was bound whole.",
            "s",
        ),
        Show(
            "Error of the first predicted start",
            quantiles("gangsched_predicted_start_error_seconds", "queue"),
            "Real start against the first start time the gang was told.",
            "s",
        ),
    ],
    "Quota and shares": [
        Show(
            "GPUs: used and guaranteed",
            {
                "{{queue}} used": f"gangsched_queue_used{{{GPUS}}}",
                "{{queue}} nominal": f"gangsched_queue_nominal{{{GPUS}}}",
            },
            "A queue above its nominal quota runs on loans.",
        ),
        Show(
            "GPUs borrowed",
            {"{{queue}}": f"gangsched_queue_borrowed{{{GPUS}}}"},
            "What a queue holds beyond its nominal quota; its cohort may take it back.",
            kind="stack",
        ),
        Show(
            "Dominant share over weight",
            {"{{queue}}": f"gangsched_queue_share{{{QUEUE}}}"},
            "Queues with equal demand come to equal lines.",
            "percentunit",
        ),
        Show(
            "GPU time that still counts",
            {"{{queue}}": f"gangsched_queue_decayed{{{QUEUE}}}"},
            "Past GPU-seconds at their present weight, for the sharing policy `fair`.",
            "s",
        ),
        Show(
            "Price of what gangs use",
            {"{{queue}}": f"gangsched_queue_price{{{QUEUE}}}"},
            "$ for an hour, of nodes with prices. Gangs pay for their share of a node.",
            "currencyUSD",
            kind="stack",
        ),
        Show(
            "Quota of every resource",
            {
                "used": f"gangsched_queue_used{{{QUEUE}}}",
                "nominal": f"gangsched_queue_nominal{{{QUEUE}}}",
                "borrowed": f"gangsched_queue_borrowed{{{QUEUE}}}",
            },
            "One row for each queue, resource and kind of GPU.",
            kind="table",
        ),
    ],
    "Preemption and backfill": [
        Show(
            "Gangs stopped for others",
            {
                "{{queue}} {{reason}}": (
                    f"sum by (queue, reason) "
                    f"(increase(gangsched_preemptions_total{{{QUEUE}}}[{RATE}]))"
                )
            },
            "By the queue they ran in, and the ground on which they were stopped.",
            kind="stack",
        ),
        Show(
            "GPU time lost to preemption",
            {"{{queue}}": f"rate(gangsched_evicted_gpu_seconds_total{{{QUEUE}}}[{RATE}])"},
            "GPU-seconds since the last checkpoint, lost in each second.",
        ),
        Show(
            "Backfilled",
            {"{{queue}}": f"increase(gangsched_backfilled_total{{{QUEUE}}}[{RATE}])"},
            "Gangs that started while room was kept for one before them.",
            kind="stack",
        ),
        Show(
            "Admitted gangs by queue",
            {"{{queue}}": f"gangsched_queue_admitted{{{QUEUE}}}"},
            "A queue counts the queues below it too.",
        ),
    ],
    "Jobs": [
        Show(
            "Jobs by state",
            {"{{state}}": f"sum by (state) (gangsched_jobs{{{QUEUE}}})"},
            "Jobs of all kinds that have not ended. A waiting job has a pending gang. A starting "
            "job has its nodes, and none of its pods is ready.",
            kind="stack",
        ),
        Show(
            "Jobs that ended",
            {"{{kind}} {{outcome}}": by("kind, outcome", "gangsched_jobs_ended_total")},
            "By kind and outcome.",
            kind="stack",
        ),
        Show(
            "Time from creation to start",
            quantiles("gangsched_job_start_seconds", "queue"),
            "From the creation of a job, or its last resumption, until it ran.",
            "s",
        ),
        Show(
            "Time from creation to end",
            quantiles("gangsched_job_end_seconds", "queue"),
            "From the creation of a job, or its last resumption, until it succeeded or failed.",
            "s",
        ),
        Show(
            "Restarts, preemptions, deletions",
            {
                "{{kind}} restarted": by("kind", "gangsched_jobs_restarted_total"),
                "{{kind}} preempted": by("kind", "gangsched_jobs_preempted_total"),
                "{{kind}} deleted": by("kind", "gangsched_jobs_deleted_total"),
            },
            "Deletions are those of jobs that had not ended.",
        ),
        Show(
            "Longest time in a state",
            {
                "{{kind}} {{state}}": (
                    f"max by (kind, state) "
                    f'(gangsched_jobs_oldest_seconds{{{QUEUE},state!~"Running|Suspended"}})'
                )
            },
            "Of the job that has waited, started or restarted for the longest time.",
            "s",
        ),
        Show(
            "Experiments and trials",
            {
                "experiments {{state}}": f"sum by (state) (gangsched_experiments{{{QUEUE}}})",
                "trials {{state}}": f"sum by (state) (gangsched_trials{{{QUEUE}}})",
            },
            "Experiments and trials that have not ended. The job of a trial counts as a job too.",
        ),
        Show(
            "Trials that ended",
            {"{{outcome}}": by("outcome", "gangsched_trials_ended_total")},
            "By outcome.",
            kind="stack",
        ),
    ],
    "GPU use (needs NVIDIA's DCGM exporter)": [
        Show(
            "GPU utilization",
            {"{{queue}}": f"avg by (queue) (gangsched:gpu_util:ratio{{{QUEUE}}})"},
            "Of the GPUs that pods of the queue hold.",
            "percentunit",
        ),
        Show(
            "Idle GPUs by queue",
            {"{{queue}}": f"gangsched:queue_gpus_idle:count{{{QUEUE}}}"},
            "GPUs that pods of the queue hold, with a utilization below 5 %.",
            kind="stack",
        ),
        Show(
            "Gangs with idle GPUs",
            {
                "{{gang_namespace}}/{{gang}}": (
                    f"count by (gang_namespace, gang) "
                    f"(avg_over_time(gangsched:gpu_util:ratio{{{QUEUE}}}[{RATE}]) < 0.05)"
                )
            },
            "Number of their GPUs with a mean utilization below 5 %.",
        ),
    ],
}

SCHEDULER: dict[str, list[Show]] = {
    "Decisions": [
        Show("Gangs by state", {"{{state}}": "gangsched_gangs"}, "As the engine sees them."),
        Show("Planning cycle", quantiles("gangsched_plan_seconds"), "Time of one.", "s"),
        Show(
            "Forecast of start times", quantiles("gangsched_forecast_seconds"), "Time of one.", "s"
        ),
        Show(
            "Gangs placed and broken",
            {
                "placed": f"rate(gangsched_gangs_placed_total[{RATE}])",
                "broken": f"rate(gangsched_gangs_broken_total[{RATE}])",
            },
            "Bound whole, or stopped as a whole, per second.",
            "ops",
        ),
        Show(
            "Placements dropped by the second check",
            {"stale": "gangsched_plans_stale"},
            "The cluster changed while the plan was made; they are planned again.",
        ),
        Show(
            "Reserved members not yet bound",
            {"members": "gangsched_reserved_members"},
            "Stays low unless bindings are slow or pods do not come.",
        ),
    ],
    "The Kubernetes API": [
        Show(
            "Bindings",
            {"{{result}}": f"rate(gangsched_binds_total[{RATE}])"},
            "Per second, by result.",
            "ops",
            "stack",
        ),
        Show("One binding", quantiles("gangsched_bind_seconds"), "Until the API answered.", "s"),
        Show(
            "Writes",
            {"writes": f"rate(gangsched_api_writes[{RATE}])"},
            "All writes to the Kubernetes API, per second.",
            "ops",
        ),
        Show(
            "Watches resumed",
            {"{{kind}}": "gangsched_watch_restarts"},
            "Times a watch was resumed or listed again since the start.",
        ),
        Show(
            "Pods deleted",
            {"evicted": f"rate(gangsched_evictions_total[{RATE}])"},
            "Because their gang broke or gave way, per second.",
            "ops",
        ),
        Show(
            "Malformed objects",
            {"{{kind}}": f"gangsched_malformed_objects_total or {NO_KIND}"},
            "Objects that were skipped; their Events say why.",
        ),
    ],
}

BOARDS = {
    "gangsched-queues": ("gangsched / Queues", QUEUES),
    "gangsched-scheduler": ("gangsched / Scheduler", SCHEDULER),
}


def board(uid: str) -> str:
    """Return one dashboard as Grafana's JSON."""
    title, rows = BOARDS[uid]
    made = (
        build.Dashboard(title)
        .uid(uid)
        .tags(["gangsched"])
        .editable()
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            build.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    if any(
        QUEUE in query for row in rows.values() for one in row for query in one.queries.values()
    ):
        made = made.with_variable(_chosen_queues())
    for name, row in rows.items():
        made = made.with_row(build.Row(name))
        for one in row:
            made = made.with_panel(_panel(one))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _chosen_queues() -> build.QueryVariable:
    return (
        build.QueryVariable("queue")
        .label("Queue")
        .datasource(SOURCE)
        .query("label_values(gangsched_queue_pending, queue)")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _panel(one: Show) -> timeseries.Panel | stat.Panel | table.Panel:
    kinds = {"number": _number, "table": _table}
    made = kinds.get(one.kind, _lines)(one)
    made = made.title(one.title).description(one.says).datasource(SOURCE).unit(one.unit)
    for query in _queries(one):
        made = made.with_target(query)
    return made


def _queries(one: Show) -> Iterator[Dataquery]:
    for ref, (legend, query) in zip("ABCDEF", one.queries.items(), strict=False):
        made = Dataquery().ref_id(ref).expr(query).legend_format(legend or "__auto")
        if one.kind == "table":
            made = made.instant().format(PromQueryFormat.TABLE)
        yield made


def _lines(one: Show) -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    made = (
        timeseries.Panel()
        .span(12)
        .height(8)
        .line_width(1)
        .fill_opacity(10)
        .min(0)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if one.kind == "stack":
        made = made.fill_opacity(40).stacking(common.StackingConfig().mode("normal"))
    return made


def _number(_: Show) -> stat.Panel:
    return stat.Panel().span(4).height(4).color_mode(BigValueColorMode.VALUE)


def _table(_: Show) -> table.Panel:
    """Join the queries by queue, resource and kind: one row each."""
    merge = DataTransformerConfig(id_val="merge", options={})
    tidy = DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {"Time": True, "__name__": True, "instance": True, "job": True},
            "renameByName": {"Value #A": "used", "Value #B": "nominal", "Value #C": "borrowed"},
        },
    )
    return table.Panel().span(24).height(10).with_transformation(merge).with_transformation(tidy)


def main() -> None:
    """Write every dashboard into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for uid in BOARDS:
        (folder / f"{uid}.json").write_text(board(uid))


if __name__ == "__main__":
    main()
