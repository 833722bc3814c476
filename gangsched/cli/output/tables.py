"""Answers of commands as tables for a terminal of 80 columns."""

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
    change_in_words,
    nominal,
    print_notes,
)
from gangsched.cli.output.printing import format_time, new_table, print_sentence, print_table
from gangsched.core.model.refusal import plural

Data = dict[str, Any]


def show_gang(answer: Data, console: Console) -> None:
    """Print the answer of `explain`."""
    if "queue" not in answer:  # the state of a job, by its conditions
        kind = f"{answer['kind']} " if "kind" in answer else ""
        name = f"{kind}{answer['gang']}"
        print_sentence(console, f"{name}: {answer['state']}", name)
        _print_lines(console, [("", answer["message"])])
        return
    pods = answer["pods"]
    bound = f", {pods['bound']} of at least {pods['min']} pods bound"
    finished = answer["state"] == "Finished"
    print_sentence(
        console,
        f"{answer['gang']}: {answer['state']}, queue {answer['queue']}, "
        f"priority {answer['priority']}{'' if finished else bound}",
        answer["gang"],
    )
    if finished:
        _print_lines(console, [("", answer["message"])])
        return
    if "nodes" in answer:
        end = answer["expectedEnd"]
        span = f"{format_time(end['earliest'])} to {format_time(end['latest'])}"
        ends = (
            f"expected to end {format_time(end['at'])} ({_basis(end['basis'])}), in eight of ten "
            f"forecasts from {span}"
        )
        runs = f"runs on {_first_names(answer['nodes'])} since {format_time(answer['since'])}"
        _print_lines(console, [("", runs), ("", ends)])
        return
    lines = [("why", answer["message"])]
    lines += [("helps", message) for message in answer.get("wouldHelp", [])]
    lines += _start_lines(answer.get("start"), answer["reason"])
    _print_lines(console, lines)


def _print_lines(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print sentences beside their headings; a sentence without a heading is indented."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    lines = list(lines)
    grid.add_column(width=8 if any(heading for heading, _ in lines) else 0)
    grid.add_column(overflow="fold")
    for heading, sentence in lines:
        grid.add_row(f"  {heading}", Text(sentence))
    console.print(grid)


_NEVER = frozenset({"LargerThanQuota", "LargerThanCluster", "NoNodeQualifies", "Misconfigured"})
"""Reasons that stay until the gang, the queue or the cluster is changed."""


def _start_lines(start: Data | None, reason: str) -> list[tuple[str, str]]:
    if start is None:
        return []
    position = f"position {start['position']} in its queue"
    if start["expected"] is None:
        later = "only after a change" if reason in _NEVER else "later than the forecast reaches"
        return [("start", f"{later}; {position}")]
    span = f"{format_time(start['earliest'])} to {format_time(start['latest'])}"
    sentence = f"{format_time(start['expected'])} ({span}), {position}; {_basis(start['basis'])}"
    if "reserved" in start:
        sentence += f"; its nodes are reserved from {format_time(start['reserved'])}"
    return [("start", sentence), *_dependency_lines(start.get("after"))]


def _dependency_lines(after: Data | None) -> list[tuple[str, str]]:
    """Return the gang that has to end before a start, and when it may end."""
    if after is None:
        return []
    if "expectedEnd" not in after:
        return [("relies", f"on the end of gang {after['gang']}, which is pending itself")]
    end = after["expectedEnd"]
    basis = " (by earlier jobs)" if end["byEarlierJobs"] else ""
    expected = f"on the end of gang {after['gang']}, about {format_time(end['at'])}"
    earliest = format_time(end["earliest"])
    return [("relies", f"{expected}, perhaps as early as {earliest}{basis}")]


def show_queues(rows: Iterable[Data], console: Console) -> None:
    """Print all queues, notes on them, and in a terminal the legend."""
    notes: list[tuple[str, str]] = []
    table = new_table("QUEUE", "RESOURCE", "NOMINAL", "USED", "BORROWED", "WAIT", "RUN", "SHARE")
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
    print_table(table, console)
    print_notes(console, notes, LEGEND_OF_QUEUES)


def show_queue(
    rows: list[Data], name: str, console: Console, now_s: float, notes: Iterable[str] = ()
) -> None:
    """Print notes on a queue, and its pending gangs."""
    print_notes(console, [(name, sentence) for sentence in notes])
    if not rows:
        console.print(f"no gang is pending in queue {name}")
        return
    table = new_table("POS", "GANG", "PRIO", "GPUS", "WAITS", "STARTS", "REASON")
    for row in rows:
        start = row["start"]
        expected = _time_until(start["expected"], now_s) if start and start["expected"] else "?"
        table.add_row(
            str(row["position"]),
            row["gang"],
            str(row["priority"]),
            str(row["gpus"]),
            _duration(now_s - _seconds(row["since"])),
            expected,
            row["reason"],
        )
    print_table(table, console)


def show_when(answer: Data, console: Console) -> None:
    """Print when a job would start."""
    if "exists" in answer:
        exists = f"the gang exists already ({answer['exists']}); the answer is for another like it"
        print_sentence(console, exists)
    print_sentence(console, f"{answer['gang']} if it were submitted now:", answer["gang"])
    lines = [("now", answer["message"])]
    lines += [("helps", message) for message in answer["wouldHelp"]]
    lines += _start_lines(answer["start"], answer["reason"])
    if answer["delays"]:
        lines.append(("delays", _first_names(answer["delays"])))
    _print_lines(console, lines)


def show_what_if(rows: list[Data], console: Console, now_s: float) -> None:
    """Print when gangs start with and without the changes."""
    if not rows:
        console.print("no gang is pending, so nothing would change")
        return
    table = new_table("GANG", "QUEUE", "STARTS", "THEN", "GAINS")
    for row in rows:
        gained = row["gained_s"]
        then = _time_until(row["then"], now_s) if row["then"] else "?"
        gain = change_in_words(row)
        if gained is not None:
            gain = ("-" if gained < 0 else "") + _duration(abs(gained))
        now = _time_until(row["now"], now_s) if row["now"] else "?"
        table.add_row(row["gang"], row["queue"], now, then, gain)
    print_table(table, console)
    if any(row["now"] is None or row["then"] is None for row in rows):
        console.print(LEGEND_OF_STARTS)
    gains = [row["gained_s"] for row in rows if row["gained_s"] is not None]
    if gains:
        mean = sum(gains) / len(gains)
        sign = "-" if mean < 0 else ""
        console.print(f"mean gain {sign}{_duration(abs(mean))} over {plural(len(gains), 'gang')}")


def show_differences(rows: list[Data], summary: str, console: Console) -> None:
    """Print the recorded decisions and those of the replay, and a summary."""
    table = new_table("TIME", "GANG", "THEN", "NOW")
    for row in rows:
        then, now = (escape(row[key]) or "waits" for key in ("then", "now"))
        table.add_row(format_time(row["at"]), row["gang"], then, now)
    if rows:
        print_table(table, console)
    print_sentence(console, summary)


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _basis(basis: str) -> str:
    return {
        "declared": "its run time is declared",
        "learnt": "its run time is learnt from earlier jobs",
        "queue": "its run time is the queue's default",
        "assumed": "its run time is assumed to be an hour",
    }[basis]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _time_until(text: str, now_s: float) -> str:
    left_s = _seconds(text) - now_s
    return "soon" if left_s <= 1 else f"in {_duration(left_s)}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f}s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}m"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f}h"
    return f"{seconds / 86_400:.1f}d"
