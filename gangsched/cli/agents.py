"""`gangsched mcp`: read-only tools for agents, by the Model Context Protocol on standard streams.

Each call reads the cluster, or the file that is named. Calls run one after another, each with
a deadline, and answers are bounded.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from gangsched import __version__
from gangsched.cli import queries
from gangsched.cli.cluster.view import job_lookup
from gangsched.cli.source import ClusterSource, local_history
from gangsched.config import ConfigError, load_config
from gangsched.kube.client.errors import KubeError
from gangsched.recording.history_file import HistoryQuery, read_history
from gangsched.shipped import folder

_ROWS_MAX, _BYTES_MAX, _TEXT_MAX = 200, 256 * 1024, 100_000
_DEADLINE_S = 120.0
_WAITING_MAX = 8
_PAGE_LETTERS, _PAGES = 4000, 3
_READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)

Tool = Callable[..., Awaitable[dict[str, Any]]]

INSTRUCTIONS = """gangsched schedules gangs of pods on Kubernetes. These tools read, and change
nothing. Names are NAMESPACE/NAME. Times are RFC 3339. A gang that waits has a reason, what would
help, and a predicted start with a range."""


class AgentTools:
    """The tools. A problem that the caller can mend is the text of an error."""

    def __init__(self, source: ClusterSource, history: Path | None = None) -> None:
        self._source, self._history = source, history
        self._one, self._waiting = asyncio.Semaphore(1), 0

    async def explain(self, gang: str) -> dict[str, Any]:
        """Say why a gang or job waits, what would help and when it starts, or where it runs."""
        source = self._source
        name = source.full_name(gang[:600], None)

        def work() -> Any:
            if source.snapshot is not None:
                return queries.explain(source.view(), name)
            lookup = job_lookup(source.access, load_config(source.config))
            return queries.explain(source.view(), name, lookup)

        return {"gang": await self._answer(work)}

    async def queue(self, name: str = "") -> dict[str, Any]:
        """List the queues with quota and use, or the pending gangs of one queue in their order."""
        if not name:
            return _rows(await self._answer(lambda: queries.queues(self._source.view())))
        view_rows = await self._answer(
            lambda: queries.pending_gangs_of(self._source.view(), name[:253])
        )
        return _rows(view_rows)

    async def when(self, manifest: str, namespace: str = "default") -> dict[str, Any]:
        """Predict when a job would start; `manifest` is YAML of a training job or PodGroup."""
        if len(manifest) > _TEXT_MAX:
            raise ConfigError(f"the manifest has more than {_TEXT_MAX:,} letters")

        def work() -> Any:
            with TemporaryDirectory() as place:
                file = Path(place) / "manifest.yaml"
                file.write_text(manifest)
                return queries.predict_start(self._source.view(), file, namespace)

        return {"start": await self._answer(work)}

    async def what_if(
        self,
        quotas: list[str] | None = None,
        nodes: list[str] | None = None,
        priorities: list[str] | None = None,
        bookings: list[str] | None = None,
        pools: list[str] | None = None,
    ) -> dict[str, Any]:
        """Compare starts with and without changes.

        Forms: quotas QUEUE:RESOURCE=AMOUNT, nodes COUNT:NODE, priorities NAMESPACE/NAME=NUMBER,
        bookings COUNT:IN:FOR in hours, pools POOL=COUNT (more nodes of an autoscaler's pool).
        """
        parts = (quotas, nodes, priorities, bookings, pools)
        given = [(part or [])[:_CHANGES_MAX] for part in parts]
        if not any(given):
            raise ConfigError("give quotas, nodes, priorities, bookings or pools to compare")

        def work() -> Any:
            view, changed = self._source.view(), self._source.view()
            changed.now_s = view.now_s
            rows = queries.what_if(view, changed, queries.Changes(*given))
            return [row for row in rows if row["gained_s"] != 0]

        return _rows(await self._answer(work))

    async def history(
        self,
        namespace: str = "",
        user: str = "",
        queue: str = "",
        days: float = 7.0,
        outcome: str = "",
    ) -> dict[str, Any]:
        """List gangs that ended, the last first: wait with reasons, run time, GPU-seconds, nodes.

        Outcomes: Completed, Failed, Timeout, Preempted, Cancelled.
        """
        query = HistoryQuery(
            since_s=time.time() - max(days, 0.0) * 86_400.0,
            namespaces=(namespace[:253],) if namespace else None,
            queue=queue[:253],
            user=user[:253],
            outcomes=(outcome[:32],) if outcome else (),
            limit=_ROWS_MAX,
        )

        def work() -> Any:
            file = self._history or local_history(self._source.access)
            return [msgspec.to_builtins(record) for record in read_history(file, query)]

        return _rows(await self._answer(work))

    async def docs(self, query: str) -> dict[str, Any]:
        """Search the documentation of gangsched; the answer has the best pages in part."""
        words = query.lower()[:200].split()

        def work() -> Any:
            return _pages(words)

        return {"pages": await self._answer(work)}

    async def _answer(self, work: Callable[[], Any]) -> Any:
        """Run a question in a thread.

        Raises:
            ConfigError: it has no answer, takes too long, or too many wait.

        """
        if self._waiting >= _WAITING_MAX:
            raise ConfigError("too many questions wait; ask again later")
        self._waiting += 1
        try:
            async with self._one, asyncio.timeout(_DEADLINE_S):
                answer = await asyncio.to_thread(work)
        except TimeoutError as error:
            raise ConfigError(f"there was no answer within {_DEADLINE_S:g} s") from error
        except KubeError as error:
            raise ConfigError(str(error)) from error
        finally:
            self._waiting -= 1
        if len(msgspec.json.encode(answer)) > _BYTES_MAX and not isinstance(answer, list):
            raise ConfigError(f"the answer has more than {_BYTES_MAX:,} bytes")
        return answer


_CHANGES_MAX = 20


def _rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first rows, and how many there are."""
    shown = rows[:_ROWS_MAX]
    while shown and len(msgspec.json.encode(shown)) > _BYTES_MAX:
        shown = shown[: len(shown) // 2]
    return {"rows": shown, "total": len(rows)}


def _pages(words: list[str]) -> list[dict[str, str]]:
    """Return the pages that have most of the words, each from its first paragraph with one."""
    if not folder("docs").is_dir():
        raise ConfigError("the documentation is part of the source, and is not installed here")
    found = []
    for path in sorted(folder("docs").rglob("*.md")):
        if path.parent.name == "decisions":
            continue
        text = path.read_text()
        lower = text.lower()
        score = sum(word in lower for word in words) + sum(word in path.stem for word in words)
        if words and score:
            at = max(min((lower.find(w) for w in words if w in lower), default=0) - 500, 0)
            begin = text.find("\n\n", at) if at else 0
            part = text[max(begin, 0) :][:_PAGE_LETTERS].strip()
            found.append((-score, path.name, part))
    return [{"page": name, "text": part} for _, name, part in sorted(found)[:_PAGES]]


def agent_server(source: ClusterSource, history: Path | None = None) -> MCPServer[Any]:
    """Return the server with its tools; `history` is a file of ended gangs."""
    server: MCPServer[Any] = MCPServer(
        "gangsched", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    tools = AgentTools(source, history)
    for name, tool in (
        ("explain", tools.explain),
        ("queue", tools.queue),
        ("when", tools.when),
        ("what_if", tools.what_if),
        ("history", tools.history),
        ("docs", tools.docs),
    ):
        server.tool(name=name, annotations=_READ_ONLY)(_with_sentences(tool))
    return server


def _with_sentences(tool: Tool) -> Tool:
    """Return a tool that answers with the sentence of a problem that its caller can mend."""

    @functools.wraps(tool)
    async def run(*arguments: Any, **named: Any) -> dict[str, Any]:
        try:
            return await tool(*arguments, **named)
        except ConfigError as error:
            raise ToolError(str(error)) from error

    return run
