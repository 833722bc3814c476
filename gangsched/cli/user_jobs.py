"""Commands for a user's jobs, with the caller's rights: ps, top, logs, cancel, hold, release."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from gangsched.cli.options import Context, Kubeconfig, Namespace, Output
from gangsched.cli.output.printing import console, new_table, print_answer, print_table
from gangsched.config import ConfigError
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.userjobs import actions
from gangsched.userjobs.finding import UserJob, find_jobs
from gangsched.userjobs.hostlist import hostlist
from gangsched.userjobs.listing import STATES, JobRow, holdings, job_rows, read_objects
from gangsched.userjobs.pod_logs import LogOptions, print_logs

AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="of all namespaces")]
_ASK_FROM = 2
"""So many jobs are cancelled only with `--yes`, or after a question."""


def ps(
    *,
    user: Annotated[str, typer.Option("--user", "-u", help="of this user")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="of this queue")] = "",
    states: Annotated[
        str, typer.Option("--states", "-t", help="PD, R, CG, CD, F or all; default: not ended")
    ] = "",
    jobs: Annotated[str, typer.Option("--jobs", "-j", help="numbers or names, with commas")] = "",
    start: Annotated[bool, typer.Option("--start", help="expected starts of pending jobs")] = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List jobs with their states, nodes and reasons, as squeue does."""
    access = Access(kubeconfig, context)
    wanted = _states(states)

    async def read() -> list[JobRow]:
        async with KubeClient(access) as client:
            inside = None if all_namespaces else namespace or access.namespace()
            return job_rows(await read_objects(client, inside))

    names = {name.strip() for name in jobs.split(",") if name.strip()}
    rows = [
        row
        for row in asyncio.run(read())
        if (not user or row.user == user)
        and (not queue or row.queue == queue)
        and row.state in wanted
        and (not names or names & {row.job_id, row.name, row.title})
        and (not start or row.state == "PD")
    ]
    now_s = time.time()
    data = [row.data(now_s) for row in rows]
    print_answer(data, output, lambda: _show(rows, now_s, start=start, everywhere=all_namespaces))


def _states(text: str) -> set[str]:
    if not text:
        return {"PD", "R", "CG"}
    if text.lower() == "all":
        return set(STATES)
    long = {name: short for short, name in STATES.items()}
    wanted = {part.strip().upper() for part in text.split(",") if part.strip()}
    known = {long.get(part, part) for part in wanted}
    wrong = known - set(STATES)
    if wrong:
        listed = ", ".join(f"{short} ({name})" for short, name in STATES.items())
        raise ConfigError(f"--states: {min(wrong)!r} is no state; use all, or some of {listed}")
    return known


def _show(rows: list[JobRow], now_s: float, *, start: bool, everywhere: bool) -> None:
    columns = ["JOBID", *(["NAMESPACE"] if everywhere else []), "NAME", "QUEUE", "USER", "ST"]
    columns += ["EXPECTED START" if start else "TIME", "NODES", "NODELIST(REASON)"]
    table = new_table(*columns, right={"TIME", "NODES"})
    for row in rows:
        where = hostlist(row.nodes) if row.state != "PD" else f"({row.reason})"
        moment = row.expected_start or "N/A" if start else _elapsed(row, now_s)
        count = len(row.nodes) or row.pods
        table.add_row(
            row.job_id or "-",
            *([row.namespace] if everywhere else []),
            row.title,
            row.queue or "default",
            row.user,
            row.state,
            moment,
            str(count or ""),
            where,
        )
    print_table(table, console())


def _elapsed(row: JobRow, now_s: float) -> str:
    if row.started_s is None or row.state == "PD":
        return "0:00"
    minutes, seconds = divmod(max(round(now_s - row.started_s), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def top(
    *,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List what running jobs hold: pods, nodes, GPUs and cores, the largest first."""
    access = Access(kubeconfig, context)

    async def read() -> list[dict[str, Any]]:
        async with KubeClient(access) as client:
            inside = None if all_namespaces else namespace or access.namespace()
            return holdings(await read_objects(client, inside))

    rows = asyncio.run(read())

    def show() -> None:
        columns = ["NAME", "QUEUE", "USER", "PODS", "NODES", "GPUS", "CORES"]
        if all_namespaces:
            columns.insert(0, "NAMESPACE")
        table = new_table(*columns, right={"PODS", "NODES", "GPUS", "CORES"})
        for row in rows:
            names = [row["namespace"]] if all_namespaces else []
            counts = (row["pods"], row["nodes"], row["gpus"], f"{row['cores']:g}")
            table.add_row(*names, row["title"], row["queue"], row["user"], *map(str, counts))
        print_table(table, console())

    print_answer(rows, output, show)


def job_logs(
    job: Annotated[str, typer.Argument(help="number or name of the job")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="until the pods end")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="of this pod alone")] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="lines of each pod")] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the logs of all pods of a job, each line after the name of its pod."""
    access = Access(kubeconfig, context)

    async def read() -> int:
        async with KubeClient(access) as client:
            inside = namespace or access.namespace()
            found = await find_jobs(client, inside, job)
            return await print_logs(client, found, LogOptions(follow, rank, tail), typer.echo)

    if not asyncio.run(read()):
        raise ConfigError(f"{job} has no pods with logs yet")


def cancel_jobs(
    jobs: Annotated[list[str] | None, typer.Argument(help="numbers or names")] = None,
    *,
    user: Annotated[str, typer.Option("--user", "-u", help="all of this user")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="all of this queue")] = "",
    state: Annotated[str, typer.Option("--state", "-t", help="only PD or R")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Cancel jobs: delete them with their pods, as scancel does."""
    if not (jobs or user or queue or state):
        raise ConfigError("name the jobs to cancel, or give --user, --queue or --state")
    wanted = _states(state) if state else {"PD", "R", "CG"}

    def matches(row: JobRow) -> bool:
        own = (not user or row.user == user) and (not queue or row.queue == queue)
        return own and row.state in wanted

    async def work(client: KubeClient, inside: str) -> list[str]:
        chosen = await _chosen(client, inside, jobs, matches if user or queue or state else None)
        if len(chosen) >= _ASK_FROM and not yes:
            for job in chosen:
                typer.echo(str(job))
            typer.confirm(f"Cancel these {len(chosen)} jobs?", abort=True)
        return await _each(chosen, lambda job: actions.cancel_job(client, job))

    _act(work, namespace, Access(kubeconfig, context))


def hold_jobs(
    jobs: Annotated[list[str], typer.Argument(help="numbers or names")],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Hold pending jobs: they do not start until they are released."""

    async def work(client: KubeClient, inside: str) -> list[str]:
        chosen = await _chosen(client, inside, jobs, None)
        rows = job_rows(await read_objects(client, inside))
        running = {(row.kind, row.name) for row in rows if row.state in ("R", "CG")}

        async def one(job: UserJob) -> str:
            runs = (job.kind.kind, job.name) in running
            return await actions.hold_job(client, job, runs=runs)

        return await _each(chosen, one)

    _act(work, namespace, Access(kubeconfig, context))


def release_jobs(
    jobs: Annotated[list[str], typer.Argument(help="numbers or names")],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Release held jobs: they wait for their start again."""

    async def work(client: KubeClient, inside: str) -> list[str]:
        chosen = await _chosen(client, inside, jobs, None)
        return await _each(chosen, lambda job: actions.release_job(client, job))

    _act(work, namespace, Access(kubeconfig, context))


async def _chosen(
    client: KubeClient,
    namespace: str,
    names: list[str] | None,
    matches: Callable[[JobRow], bool] | None,
) -> list[UserJob]:
    """Return the jobs of names, and those that match; all are found before any is changed."""
    found: dict[str, UserJob] = {}
    if names:
        for name in names:
            for job in await find_jobs(client, namespace, name):
                found[job.uid] = job
        if matches is None:
            return list(found.values())
    if matches is None:
        return []
    rows = [row for row in job_rows(await read_objects(client, namespace)) if matches(row)]
    of_rows: dict[str, UserJob] = {}
    for row in rows:
        for job in await find_jobs(client, namespace, row.name):
            of_rows[job.uid] = job
    return [job for uid, job in of_rows.items() if not names or uid in found]


async def _each(jobs: list[UserJob], act: Callable[[UserJob], Awaitable[str]]) -> list[str]:
    """Act on each job; what went well is said also where another one fails."""
    sentences: list[str] = []
    for job in jobs:
        try:
            sentences.append(await act(job))
        except Exception:
            for sentence in sentences:
                typer.echo(sentence)
            raise
    return sentences


def _act(
    work: Callable[[KubeClient, str], Awaitable[list[str]]], namespace: str | None, access: Access
) -> None:
    async def run() -> list[str]:
        async with KubeClient(access) as client:
            return await work(client, namespace or access.namespace())

    sentences = asyncio.run(run())
    for sentence in sentences:
        typer.echo(sentence)
    if not sentences:
        typer.echo("No job matches.")


COMMANDS: dict[str, Callable[..., None]] = {
    "ps": ps,
    "top": top,
    "logs": job_logs,
    "cancel": cancel_jobs,
    "hold": hold_jobs,
    "release": release_jobs,
}
"""The commands by name."""
