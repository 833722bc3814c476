"""How answers look in a terminal of 80 columns; `--output json|yaml` prints them as they are."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gangsched.cli.output.legends import (
    LEGEND_OF_QUEUES,
    LEGEND_OF_STARTS,
    changed,
    explain,
    nominal,
)
from gangsched.cli.output.printing import moment, new_table, put, say
from gangsched.core.model.refusal import plural

Data = dict[str, Any]


def show_gang(found: Data, console: Console) -> None:
    """Print what `explain` found."""
    if "queue" not in found:  # the job's own word
        kind = f"{found['kind']} " if "kind" in found else ""
        name = f"{kind}{found['gang']}"
        say(console, f"{name}: {found['state']}", name)
        _say(console, [("", found["message"])])
        return
    pods = found["pods"]
    bound = f", {pods['bound']} of at least {pods['min']} pods bound"
    finished = found["state"] == "Finished"
    say(
        console,
        f"{found['gang']}: {found['state']}, queue {found['queue']}, "
        f"priority {found['priority']}{'' if finished else bound}",
        found["gang"],
    )
    if finished:
        _say(console, [("", found["message"])])
        return
    if "nodes" in found:
        end = found["expectedEnd"]
        span = f"{moment(end['earliest'])} to {moment(end['latest'])}"
        ends = (
            f"expected to end {moment(end['at'])} ({_basis(end['basis'])}), in eight of ten "
            f"forecasts from {span}"
        )
        runs = f"runs on {_some(found['nodes'])} since {moment(found['since'])}"
        _say(console, [("", runs), ("", ends)])
        return
    lines = [("why", found["message"])]
    lines += [("helps", message) for message in found.get("wouldHelp", [])]
    lines += _start(found.get("start"), found["reason"])
    _say(console, lines)


def _say(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print sentences beside what they are about, or indented where that is empty."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    lines = list(lines)
    grid.add_column(width=8 if any(about for about, _ in lines) else 0)
    grid.add_column(overflow="fold")
    for about, said in lines:
        grid.add_row(f"  {about}", Text(said))
    console.print(grid)


_NEVER = frozenset({"LargerThanQuota", "LargerThanCluster", "NoNodeQualifies", "Misconfigured"})
"""Reasons that time alone does not change."""


def _start(start: Data | None, reason: str) -> list[tuple[str, str]]:
    if start is None:
        return []
    position = f"position {start['position']} in its queue"
    if start["expected"] is None:
        never = (
            "not before something changes" if reason in _NEVER else "beyond the forecast's reach"
        )
        return [("start", f"{never}; {position}")]
    span = f"{moment(start['earliest'])} to {moment(start['latest'])}"
    said = f"{moment(start['expected'])} ({span}), {position}; {_basis(start['basis'])}"
    if "reserved" in start:
        said += f"; its room is kept from {moment(start['reserved'])} on"
    return [("start", said), *_relies(start.get("after"))]


def _relies(after: Data | None) -> list[tuple[str, str]]:
    """Say whose end a start relies on, and why it may be another moment than is expected of it."""
    if after is None:
        return []
    if "expectedEnd" not in after:
        return [("relies", f"on gang {after['gang']} ending, which waits itself")]
    end = after["expectedEnd"]
    by = ", by earlier jobs" if end["byEarlierJobs"] else ""
    said = f"on gang {after['gang']} ending about {moment(end['at'])}"
    return [("relies", f"{said}; it may end from {moment(end['earliest'])} on{by}")]


def show_queues(rows: Iterable[Data], console: Console) -> None:
    """Print all queues, what is to be known of some, and in a terminal what the columns are."""
    notes: list[tuple[str, str]] = []
    table = new_table("QUEUE", "RESOURCE", "NOMINAL", "USED", "LOAN", "WAIT", "RUN", "SHARE")
    for row in rows:
        name = "  " * row.get("depth", 0) + row["queue"]
        notes += [(row["queue"], sentence) for sentence in row.get("told", ())]
        counts = (str(row["pending"]), str(row["admitted"]), f"{row.get('share', 0):.2f}")
        if row.get("problem"):
            notes.append((row["queue"], row["problem"]))
            table.add_row(name, "cannot be used", "", "", "", *counts)
            continue
        quotas = row.get("quotas") or [{"resource": "", "nominal": "", "used": "", "borrowed": ""}]
        for at, quota in enumerate(quotas):
            cells = (quota["resource"], nominal(quota), quota["used"], quota["borrowed"])
            table.add_row("" if at else name, *cells, *(("", "", "") if at else counts))
    put(table, console)
    explain(console, notes, LEGEND_OF_QUEUES)


def show_queue(
    rows: list[Data], name: str, console: Console, now_s: float, told: Iterable[str] = ()
) -> None:
    """Print what is to be known of a queue, and who waits in it."""
    explain(console, [(name, sentence) for sentence in told])
    if not rows:
        console.print(f"nobody waits in queue {name}")
        return
    table = new_table("POS", "GANG", "PRIO", "GPUS", "WAITS", "STARTS", "REASON")
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
    put(table, console)


def show_when(found: Data, console: Console) -> None:
    """Print when a job would start."""
    if "exists" in found:
        say(console, f"it exists already ({found['exists']}); this is of a further one like it")
    say(console, f"{found['gang']} if it were submitted now:", found["gang"])
    lines = [("now", found["message"])]
    lines += [("helps", message) for message in found["wouldHelp"]]
    lines += _start(found["start"], found["reason"])
    if found["delays"]:
        lines.append(("delays", _some(found["delays"])))
    _say(console, lines)


def show_what_if(rows: list[Data], console: Console, now_s: float) -> None:
    """Print when gangs start with and without the changes."""
    if not rows:
        console.print("nobody waits, so nothing would change")
        return
    table = new_table("GANG", "QUEUE", "STARTS", "THEN", "GAINS")
    for row in rows:
        gained = row["gained_s"]
        then = _in(row["then"], now_s) if row["then"] else "?"
        gain = changed(row)
        if gained is not None:
            gain = ("-" if gained < 0 else "") + _long(abs(gained))
        now = _in(row["now"], now_s) if row["now"] else "?"
        table.add_row(row["gang"], row["queue"], now, then, gain)
    put(table, console)
    if any(row["now"] is None or row["then"] is None for row in rows):
        console.print(LEGEND_OF_STARTS)
    known = [row["gained_s"] for row in rows if row["gained_s"] is not None]
    if known:
        mean = sum(known) / len(known)
        sign = "-" if mean < 0 else ""
        console.print(f"mean gain {sign}{_long(abs(mean))} over {plural(len(known), 'gang')}")


def show_differences(rows: list[Data], said: str, console: Console) -> None:
    """Print what was decided, and what would be now; and a sentence about the whole."""
    table = new_table("TIME", "GANG", "THEN", "NOW")
    for row in rows:
        then, now = (escape(row[key]) or "waits" for key in ("then", "now"))
        table.add_row(moment(row["at"]), row["gang"], then, now)
    if rows:
        put(table, console)
    say(console, said)


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
