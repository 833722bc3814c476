"""The read-only REST interface: the same models as JSON, and its description by OpenAPI 3.1."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gangsched import __version__
from gangsched.web.model import (
    GangRow,
    LogLine,
    NodeTile,
    PageModel,
    PodRow,
    QueueRow,
    RunSpan,
    WindowRow,
)

PREFIX = "/api/v1"
LIMIT_DEFAULT, LIMIT_MAX = 500, 5000


class QueryError(Exception):
    """A query of the interface is malformed; the message is for its client."""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """The cluster in numbers; times are seconds since 1970."""

    subject: str
    now_s: float
    forecast_at_s: float | None
    forecast_problem: str
    nodes: int
    gpus: int
    gpus_used: float
    gangs: int
    hidden_gangs: int
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """One gang with its pods, what would help, and what happened to it, the last first."""

    gang: GangRow
    pods: tuple[PodRow, ...]
    would_help: tuple[str, ...]
    story: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of the interface: its rows, and by which values of the row one may filter."""

    rows: Callable[[PageModel], Iterable[Any]]
    kind: type
    summary: str
    filters: tuple[str, ...] = ()


LISTINGS: dict[str, Listing] = {
    "nodes": Listing(lambda model: model.nodes, NodeTile, "The nodes and who uses them"),
    "queues": Listing(lambda model: model.queues, QueueRow, "The queues, parents first"),
    "gangs": Listing(
        lambda model: model.gangs.values(),
        GangRow,
        "The gangs that the viewer may see, with reasons and expected starts",
        ("queue", "state", "namespace", "user"),
    ),
    "runs": Listing(
        lambda model: model.runs, RunSpan, "Runs that ended, the last ones last", ("queue",)
    ),
    "windows": Listing(
        lambda model: model.windows, WindowRow, "Advance reservations, maintenance, stops of nodes"
    ),
}


def cluster_answer(model: PageModel) -> ClusterAnswer:
    """Return the cluster in numbers."""
    return ClusterAnswer(
        model.subject,
        model.now_s,
        model.forecast_at_s,
        model.forecast_problem,
        len(model.nodes),
        sum(node.gpus for node in model.nodes),
        round(sum(node.used for node in model.nodes if node.gpus), 3),
        len(model.gangs),
        model.hidden_gangs,
        model.levels,
    )


def listing_answer(name: str, model: PageModel, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a part of a list: `items`, the `total` of all that match, and where the `next` begin.

    Raises:
        QueryError: a value of the query is malformed, or there is no such filter.

    """
    listing = LISTINGS[name]
    known = ("limit", "offset", *listing.filters)
    unknown = next((key for key in query if key not in known), None)
    if unknown is not None:
        raise QueryError(f"{name} has no query {unknown[:100]!r}; there are: {', '.join(known)}.")
    limit = _number(query, "limit", LIMIT_DEFAULT, LIMIT_MAX)
    offset = _number(query, "offset", 0, 10**9)
    wanted = [(key, query[key]) for key in listing.filters if key in query]
    rows = [
        row
        for row in listing.rows(model)
        if all(getattr(row, key) == value for key, value in wanted)
    ]
    end = offset + limit
    return {
        "now_s": model.now_s,
        "total": len(rows),
        "next": end if end < len(rows) else None,
        "items": rows[offset:end],
    }


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not 0 <= number <= most:
        raise QueryError(f"{name}={text[:100]!r} must be a whole number from 0 to {most}.")
    return number


def encoded(value: object) -> bytes:
    """Return a value as JSON; an endless time is null."""
    return msgspec.json.encode(value)


def description(*, login: bool) -> dict[str, Any]:
    """Return the OpenAPI description; `login` says that tokens are asked for."""
    kinds = (ClusterAnswer, GangAnswer, *(listing.kind for listing in LISTINGS.values()))
    (*schemas,), components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    of_kind = dict(zip(kinds, schemas, strict=True))
    paths = {
        f"{PREFIX}/cluster": _path("The cluster in numbers", of_kind[ClusterAnswer], ()),
        f"{PREFIX}/gangs/{{namespace}}/{{name}}": _path(
            "One gang",
            of_kind[GangAnswer],
            (_parameter("namespace", "path"), _parameter("name", "path")),
        ),
    }
    paged = (
        _parameter("limit", "query", {"type": "integer", "minimum": 0, "maximum": LIMIT_MAX}),
        _parameter("offset", "query", {"type": "integer", "minimum": 0}),
    )
    for name, listing in LISTINGS.items():
        schema = {
            "type": "object",
            "required": ["now_s", "total", "next", "items"],
            "properties": {
                "now_s": {"type": "number"},
                "total": {"type": "integer"},
                "next": {"type": ["integer", "null"]},
                "items": {"type": "array", "items": of_kind[listing.kind]},
            },
        }
        filters = tuple(_parameter(key, "query") for key in listing.filters)
        paths[f"{PREFIX}/{name}"] = _path(listing.summary, schema, (*paged, *filters))
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "gangsched", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
    if login:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _path(summary: str, schema: dict[str, Any], parameters: Iterable[Any]) -> dict[str, Any]:
    answer = {"description": summary, "content": {"application/json": {"schema": schema}}}
    problem = {
        "description": "A sentence that says what is wrong",
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": {"error": {"type": "string"}}}
            }
        },
    }
    return {
        "get": {
            "summary": summary,
            "parameters": list(parameters),
            "responses": {"200": answer, "default": problem},
        }
    }


def _parameter(name: str, where: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "schema": schema or {"type": "string"},
    }
