"""How answers look in a terminal of 80 columns; `--output json|yaml` prints them as they are."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from gangsched.config import ConfigError

Data = dict[str, Any]


def check_output(output: str) -> None:
    """Raise a ConfigError for an output that there is not."""
    if output not in ("table", "json", "yaml"):
        raise ConfigError(f"--output: {output!r} is not allowed; use table, json or yaml")


def as_data(found: Any, output: str) -> bool:
    """Print an answer as data where that was asked; return whether it was."""
    if output == "json":
        typer.echo(json.dumps(found, indent=2))
    elif output == "yaml":
        typer.echo(yaml.safe_dump(found, sort_keys=False).rstrip())
    return output != "table"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        right = column in ("POS", "PRIO", "GPUS", "USED", "NOMINAL", "LOAN", "WAIT", "RUN", "SHARE")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def show_gang(found: Data, console: Console, now_s: float) -> None:
    """Print what `explain` found."""
    if "queue" not in found:  # the job's own word
        kind = f"{found['kind']} " if "kind" in found else ""
        console.print(f"{kind}[bold]{found['gang']}[/bold]: {found['state']}")
        console.print(f"  {found['message']}", soft_wrap=True, markup=False)
        return
    pods = found["pods"]
    bound = f", {pods['bound']} of at least {pods['min']} pods bound"
    finished = found["state"] == "Finished"
    console.print(
        f"[bold]{found['gang']}[/bold]: {found['state']}, queue {found['queue']}, "
        f"priority {found['priority']}{'' if finished else bound}"
    )
    if finished:
        console.print(f"  {found['message']}")
        return
    if "nodes" in found:
        end = found["expectedEnd"]
        console.print(f"  runs on {_some(found['nodes'])} since {found['since']}")
        span = f"{_at(end['earliest'], now_s)} to {_at(end['latest'], now_s)}"
        console.print(f"  expected to end {_at(end['at'], now_s)} ({_basis(end['basis'])}),")
        console.print(f"  in eight of ten forecasts from {span}")
        return
    lines = [("why", found["message"])]
    lines += [("helps", message) for message in found.get("wouldHelp", [])]
    lines += _start(found.get("start"), found["reason"], now_s)
    _say(console, lines)


def _say(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print sentences beside what they are about."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=8)
    table.add_column(overflow="fold")
    for about, said in lines:
        table.add_row(f"  {about}", said)
    console.print(table)


_NEVER = frozenset({"LargerThanQuota", "LargerThanCluster", "NoNodeQualifies", "Misconfigured"})
"""Reasons that time alone does not change."""


def _start(start: Data | None, reason: str, now_s: float) -> list[tuple[str, str]]:
    if start is None:
        return []
    position = f"position {start['position']} in its queue"
    if start["expected"] is None:
        never = (
            "not before something changes" if reason in _NEVER else "beyond the forecast's reach"
        )
        return [("start", f"{never}; {position}")]
    span = f"{_at(start['earliest'], now_s)} to {_at(start['latest'], now_s)}"
    said = f"{_at(start['expected'], now_s)} ({span}), {position}; {_basis(start['basis'])}"
    return [("start", said), *_relies(start.get("after"), now_s)]


def _relies(after: Data | None, now_s: float) -> list[tuple[str, str]]:
    """Say whose end a start relies on, and why it may be another moment than is expected of it."""
    if after is None:
        return []
    if "expectedEnd" not in after:
        return [("relies", f"on gang {after['gang']} ending, which waits itself")]
    end = after["expectedEnd"]
    by = ", by earlier jobs" if end["byEarlierJobs"] else ""
    said = f"on gang {after['gang']} ending about {_at(end['at'], now_s)}"
    return [("relies", f"{said}; it may end from {_at(end['earliest'], now_s)} on{by}")]


def show_queues(rows: Iterable[Data], console: Console) -> None:
    """Print all queues."""
    table = _table("QUEUE", "RESOURCE", "NOMINAL", "USED", "LOAN", "WAIT", "RUN", "SHARE")
    for row in rows:
        name = "  " * row.get("depth", 0) + row["queue"]
        counts = (str(row["pending"]), str(row["admitted"]), f"{row.get('share', 0):.2f}")
        if row.get("problem"):
            table.add_row(name, row["problem"], "", "", "", *counts)
            continue
        quotas = row.get("quotas") or [{"resource": "", "nominal": "", "used": "", "borrowed": ""}]
        for at, quota in enumerate(quotas):
            cells = (quota["resource"], quota["nominal"] or "-", quota["used"], quota["borrowed"])
            table.add_row("" if at else name, *cells, *(("", "", "") if at else counts))
    console.print(table)


def show_queue(rows: list[Data], name: str, console: Console, now_s: float) -> None:
    """Print who waits in a queue."""
    if not rows:
        console.print(f"nobody waits in queue {name}")
        return
    table = _table("POS", "GANG", "PRIO", "GPUS", "WAITS", "STARTS", "REASON")
    for row in rows:
        start = row["start"]
        expected = _in(start["expected"], now_s) if start and start["expected"] else "?"
        table.add_row(
            str(row["position"]),
            row["gang"],
            str(row["priority"]),
            str(row["gpus"]),
            _long(now_s - _seconds(row["since"])),
            expected,
            row["reason"],
        )
    console.print(table)


def show_when(found: Data, console: Console, now_s: float) -> None:
    """Print when a job would start."""
    if "exists" in found:
        console.print(f"it exists already ({found['exists']}); this is of a further one like it")
    console.print(f"[bold]{found['gang']}[/bold] if it were submitted now:")
    lines = [("now", found["message"])]
    lines += [("helps", message) for message in found["wouldHelp"]]
    lines += _start(found["start"], found["reason"], now_s)
    if found["delays"]:
        lines.append(("delays", _some(found["delays"])))
    _say(console, lines)


def show_what_if(rows: list[Data], console: Console, now_s: float) -> None:
    """Print when gangs start with and without the changes."""
    if not rows:
        console.print("nobody waits, so nothing would change")
        return
    table = _table("GANG", "QUEUE", "STARTS", "THEN", "GAINS")
    for row in rows:
        gained = row["gained_s"]
        then = _in(row["then"], now_s) if row["then"] else "?"
        gain = "" if gained is None else ("-" if gained < 0 else "") + _long(abs(gained))
        now = _in(row["now"], now_s) if row["now"] else "?"
        table.add_row(row["gang"], row["queue"], now, then, gain)
    console.print(table)
    known = [row["gained_s"] for row in rows if row["gained_s"] is not None]
    if known:
        console.print(f"mean gain {_long(max(sum(known) / len(known), 0))} over {len(known)} gangs")


def show_differences(rows: list[Data], console: Console) -> None:
    """Print what was decided, and what would be now."""
    if not rows:
        return
    table = _table("TIME", "GANG", "THEN", "NOW")
    for row in rows:
        when = datetime.fromtimestamp(row["at_s"], UTC).strftime("%m-%d %H:%M:%S")
        table.add_row(when, row["gang"], row["then"] or "waits", row["now"] or "waits")
    console.print(table)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _basis(basis: str) -> str:
    return {
        "declared": "its run time is declared",
        "learnt": "its run time is learnt from its predecessors",
        "queue": "its run time is the queue's default",
        "assumed": "its run time is assumed to be an hour",
    }[basis]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _at(text: str, now_s: float) -> str:
    when = datetime.fromisoformat(text).astimezone()
    today = datetime.fromtimestamp(now_s, UTC).astimezone().date()
    return when.strftime("%H:%M:%S" if when.date() == today else "%Y-%m-%d %H:%M")


def _in(text: str, now_s: float) -> str:
    left_s = _seconds(text) - now_s
    return "soon" if left_s <= 1 else f"in {_long(left_s)}"


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f}s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}m"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f}h"
    return f"{seconds / 86_400:.1f}d"
