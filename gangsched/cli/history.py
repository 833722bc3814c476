"""`gangsched history`: the gangs that ended, as sacct lists jobs."""

import asyncio
import csv
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import msgspec
import typer

from gangsched.cli.options import Context, Kubeconfig, Namespace
from gangsched.cli.output.printing import console, new_table, print_answer, print_table
from gangsched.cli.source import local_history
from gangsched.config import ConfigError
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import authorization_of, credentials
from gangsched.recording.gang_record import GangOutcome, GangRecord
from gangsched.recording.history_file import HistoryQuery, read_history
from gangsched.userjobs.hostlist import hostlist

_LIMIT_MAX = 10_000
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_AGO = re.compile(r"(?:now-)?(\d{1,9})(s|m|h|d|w)[a-z]*")
_STATES = {outcome.upper(): outcome for outcome in GangOutcome} | {
    "CD": GangOutcome.COMPLETED,
    "F": GangOutcome.FAILED,
    "TO": GangOutcome.TIMEOUT,
    "PR": GangOutcome.PREEMPTED,
    "CA": GangOutcome.CANCELLED,
}
_OUTPUTS = ("table", "json", "yaml", "csv")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its title, its text for tables, and its value for data."""

    title: str
    text: Callable[[GangRecord], str]
    value: Callable[[GangRecord], Any]


def _elapsed(seconds: float) -> str:
    """Return a time as Slurm writes it: `[D-]HH:MM:SS`."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{days}-{clock}" if days else clock


def _moment(at_s: float | None) -> str:
    if at_s is None:
        return "-"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M")


def _hours(gpu_s: float) -> str:
    return f"{gpu_s / 3600:.2f}" if gpu_s else "0"


def _plain(value: Callable[[GangRecord], Any]) -> tuple[Callable[[GangRecord], str], Any]:
    return (lambda record: str(value(record))), value


def _by_model(record: GangRecord) -> str:
    return ",".join(
        f"{model or 'gpu'}={_hours(gpu_s)}" for model, gpu_s in sorted(record.gpu_s.items())
    )


def _reasons(record: GangRecord) -> str:
    longest = sorted(record.reasons.items(), key=lambda item: -item[1])
    return ",".join(f"{reason}={_elapsed(held_s)}" for reason, held_s in longest)


COLUMNS: dict[str, _Column] = {
    "namespace": _Column("NAMESPACE", *_plain(lambda record: record.namespace)),
    "name": _Column("NAME", *_plain(lambda record: record.name)),
    "queue": _Column("QUEUE", *_plain(lambda record: record.queue)),
    "user": _Column("USER", *_plain(lambda record: record.user)),
    "state": _Column("STATE", *_plain(lambda record: str(record.outcome))),
    "submit": _Column("SUBMIT", lambda r: _moment(r.submitted_s), lambda r: r.submitted_s),
    "start": _Column("START", lambda r: _moment(r.started_s), lambda r: r.started_s),
    "end": _Column("END", lambda r: _moment(r.ended_s), lambda r: r.ended_s),
    "wait": _Column("WAIT", lambda r: _elapsed(r.wait_s), lambda r: r.wait_s),
    "elapsed": _Column("ELAPSED", lambda r: _elapsed(r.ran_s), lambda r: r.ran_s),
    "pods": _Column("PODS", *_plain(lambda record: record.pods)),
    "gpus": _Column("GPUS", lambda r: f"{r.gpus:g}", lambda r: r.gpus),
    "gpuhours": _Column(
        "GPU-H", lambda r: _hours(sum(r.gpu_s.values())), lambda r: sum(r.gpu_s.values()) / 3600
    ),
    "gpukinds": _Column("GPU-H BY KIND", _by_model, lambda r: r.gpu_s),
    "nnodes": _Column("NNODES", *_plain(lambda record: len(record.nodes))),
    "nodes": _Column("NODES", lambda r: hostlist(r.nodes) or "-", lambda r: list(r.nodes)),
    "reasons": _Column("WAITED FOR", _reasons, lambda r: r.reasons),
    "runs": _Column("RUNS", *_plain(lambda record: record.runs)),
    "preemptions": _Column("PREEMPTED", *_plain(lambda record: record.preemptions)),
    "lost": _Column("LOST GPU-H", lambda r: _hours(r.lost_gpu_s), lambda r: r.lost_gpu_s / 3600),
    "cost": _Column("COST", lambda r: "-" if r.cost is None else f"{r.cost:.2f}", lambda r: r.cost),
    "priority": _Column("PRIO", *_plain(lambda record: record.priority)),
}
_RIGHT = {"WAIT", "ELAPSED", "PODS", "GPUS", "GPU-H", "NNODES", "RUNS", "PREEMPTED", "COST", "PRIO"}
_DEFAULT = ("name", "queue", "user", "state", "end", "wait", "elapsed", "gpuhours")
_GROUPS: dict[str, Callable[[GangRecord], str]] = {
    "queue": lambda record: record.queue,
    "user": lambda record: record.user,
    "namespace": lambda record: record.namespace,
    "day": lambda record: _moment(record.ended_s)[:10],
    "state": lambda record: str(record.outcome),
}


def history(
    *,
    since: Annotated[
        str, typer.Option("--since", "-S", help="ended since: 2026-11-27T08:00 (UTC), or 12h, 7d")
    ] = "7d",
    until: Annotated[str, typer.Option("--until", "-E", help="ended before")] = "",
    user: Annotated[str, typer.Option("--user", "-u", help="of this user")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="of this queue")] = "",
    states: Annotated[
        str, typer.Option("--states", "-s", help="CD, F, CA, TO, PR or whole words, with commas")
    ] = "",
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="names, with commas")] = "",
    columns: Annotated[
        str, typer.Option("--format", help=f"columns, with commas: {', '.join(COLUMNS)}")
    ] = "",
    by: Annotated[str, typer.Option(help=f"sums by {', '.join(_GROUPS)}")] = "",
    limit: Annotated[int, typer.Option(min=1, max=_LIMIT_MAX, help="the last so many")] = 1000,
    file: Annotated[Path | None, typer.Option(help="the file of the setting `history`")] = None,
    leader: Annotated[
        str, typer.Option(help="the address of the leader's metrics port, in place of a file")
    ] = "",
    ca: Annotated[Path | None, typer.Option(help="certificate of the leader's authority")] = None,
    namespace: Namespace = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="of all namespaces")
    ] = False,
    output: Annotated[str, typer.Option("--output", "-o", help=", ".join(_OUTPUTS))] = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List gangs that ended: waits with reasons, run times, GPU hours, nodes (as sacct does)."""
    if output not in _OUTPUTS:
        raise ConfigError(f"--output: {output!r} is not allowed; use {', '.join(_OUTPUTS)}")
    if by and by not in _GROUPS:
        raise ConfigError(f"--by: {by!r} is not allowed; use {', '.join(_GROUPS)}")
    shown = _columns(columns, everywhere=all_namespaces)
    access, now_s = Access(kubeconfig, context), time.time()
    query = HistoryQuery(
        _time_s("--since", since, now_s),
        _time_s("--until", until, now_s) if until else float("inf"),
        None if all_namespaces else (namespace or access.namespace(),),
        queue,
        user,
        _outcomes(states),
        tuple(name.strip() for name in jobs.split(",") if name.strip()),
        limit,
    )
    if leader:
        records = asyncio.run(_ask(leader, ca, access, query))
    else:
        records = list(read_history(file or local_history(access), query))
    if by:
        _print_sums(records, by, output)
    else:
        _print_records(records, shown, output)


async def _ask(
    leader: str, ca: Path | None, access: Access, query: HistoryQuery
) -> list[GangRecord]:
    """Ask the leader, with the token of the kubeconfig.

    Raises:
        ConfigError: there is no token, or the leader does not answer.

    """
    authorization = authorization_of(credentials(access))
    if authorization is None:
        raise ConfigError("--leader: the kubeconfig has no token of an account")
    asked = {"since": query.since_s, "until": query.until_s, "limit": query.limit}
    named = {
        "namespaces": ",".join(query.namespaces or ()),
        "queue": query.queue,
        "user": query.user,
        "outcomes": ",".join(query.outcomes),
        "names": ",".join(query.names),
    }
    params = {key: str(value) for key, value in {**asked, **named}.items() if value != ""}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session,
            session.get(
                f"{leader.rstrip('/')}/history",
                params=params,
                ssl=_trust(ca),
                headers={"Authorization": authorization},
            ) as answer,
        ):
            body = await answer.read()
            if answer.status != 200:
                text = body[:500].decode(errors="replace").strip()
                raise ConfigError(f"--leader: {text} (status {answer.status})")
            return msgspec.json.decode(body, type=list[GangRecord])
    except (aiohttp.ClientError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"--leader: {leader}: {error}") from error


def _trust(ca: Path | None) -> ssl.SSLContext | bool:
    """Return what the leader's certificate is checked by; a forwarded port has another name."""
    if ca is None:
        return True
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        raise ConfigError(f"--ca: {ca}: {error}") from error
    context.check_hostname = False
    return context


def _time_s(option: str, text: str, now_s: float) -> float:
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now_s - int(ago[1]) * _UNITS_S[ago[2]]
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        sentence = f"{option}: {text!r} must be a time such as 2026-11-27T08:00, or 12h or 7d"
        raise ConfigError(sentence) from error


def _outcomes(text: str) -> tuple[str, ...]:
    wanted = [part.strip().upper() for part in text.split(",") if part.strip()]
    wrong = [part for part in wanted if part not in _STATES]
    if wrong:
        raise ConfigError(f"--states: {wrong[0]!r} is not allowed; use {', '.join(_STATES)}")
    return tuple(dict.fromkeys(str(_STATES[part]) for part in wanted))


def _columns(text: str, *, everywhere: bool) -> tuple[str, ...]:
    if not text:
        return ("namespace", *_DEFAULT) if everywhere else _DEFAULT
    names = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    wrong = [name for name in names if name not in COLUMNS]
    if wrong:
        raise ConfigError(f"--format: {wrong[0]!r} is no column; there are {', '.join(COLUMNS)}")
    return names


def _print_records(records: list[GangRecord], names: tuple[str, ...], output: str) -> None:
    shown = [COLUMNS[name] for name in names]
    if output == "csv":
        rows = ([column.value(record) for column in shown] for record in reversed(records))
        _print_csv(names, rows)
        return

    def show() -> None:
        table = new_table(*(column.title for column in shown), right=_RIGHT)
        for record in reversed(records):
            table.add_row(*(column.text(record) for column in shown))
        print_table(table, console())

    data = [
        {name: column.value(record) for name, column in COLUMNS.items()}
        for record in reversed(records)
    ]
    print_answer(data, output, show)


def _print_sums(records: list[GangRecord], by: str, output: str) -> None:
    groups: dict[str, list[GangRecord]] = {}
    for record in records:
        groups.setdefault(_GROUPS[by](record), []).append(record)
    data = [{by: key, **_sums(groups[key])} for key in sorted(groups)]
    if output == "csv":
        _print_csv(tuple(data[0]) if data else (by,), (row.values() for row in data))
        return

    def show() -> None:
        titles = (
            by.upper(),
            "GANGS",
            "COMPLETED",
            "FAILED",
            "GPU-H",
            "LOST GPU-H",
            "COST",
            "MEAN WAIT",
        )
        table = new_table(*titles, right=titles[1:])
        for row in data:
            table.add_row(
                str(row[by]),
                *(str(row[key]) for key in ("gangs", "completed", "failed")),
                _hours(row["gpuHours"] * 3600),
                _hours(row["lostGpuHours"] * 3600),
                "-" if row["cost"] is None else f"{row['cost']:.2f}",
                _elapsed(row["meanWait_s"]),
            )
        print_table(table, console())

    print_answer(data, output, show)


def _sums(records: list[GangRecord]) -> dict[str, Any]:
    outcomes = [record.outcome for record in records]
    costs = [record.cost for record in records if record.cost is not None]
    return {
        "gangs": len(records),
        "completed": outcomes.count(GangOutcome.COMPLETED),
        "failed": outcomes.count(GangOutcome.FAILED) + outcomes.count(GangOutcome.TIMEOUT),
        "gpuHours": sum(sum(record.gpu_s.values()) for record in records) / 3600,
        "lostGpuHours": sum(record.lost_gpu_s for record in records) / 3600,
        "cost": sum(costs) if costs else None,
        "meanWait_s": sum(record.wait_s for record in records) / len(records),
    }


def _print_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(names)
    for row in rows:
        writer.writerow(
            msgspec.json.encode(cell).decode() if isinstance(cell, list | dict) else cell
            for cell in row
        )


COMMANDS = {"history": history}
