"""The pages as HTML: which rows each shows, and the templates that write them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gangsched.core.model.pods import GPU
from gangsched.web.model import GangRow, LogLine, NodeTile, PageModel, PodRow, QueueSample
from gangsched.web.sessions import ViewerSession
from gangsched.web.views import tiles, timeline
from gangsched.web.views.change_yaml import change_yaml
from gangsched.web.views.texts import amount, describe, duration, summary, utc_text
from gangsched.web.what_if import WhatIfAnswer, WhatIfChange

ROWS_ON_PAGE = 100
QUERY_LETTERS_MAX = 200
_NODES_IN_DETAIL = 64
_QUERY_ITEMS, _CHOICES = 16, 500
_LEGEND = 12
_STATES = ("Placed", "Binding", "Reserved", "Pending", "Gathering", "Broken", "Finished")

DASHBOARDS = (("gangsched-queues", "Queues"), ("gangsched-scheduler", "Scheduler"))
"""The dashboards of manifests/monitoring: uid and name."""

Query = Mapping[str, str]


class NoPageError(Exception):
    """What a viewer asked for does not exist, or the viewer may not see it."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a page is made from: the model as the viewer sees it, and the query."""

    model: PageModel
    viewer: ViewerSession
    query: Query
    here: str
    """The view with its query, as a relative address."""

    def get(self, name: str) -> str:
        """Return a value of the query, shortened."""
        return self.query.get(name, "")[:QUERY_LETTERS_MAX]

    def number(self, name: str, most: int) -> int:
        """Return a page number of the query, between 1 and the most."""
        text = self.query.get(name, "")
        wanted = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
        return max(1, min(wanted, most))


def environment() -> Environment:
    """Return the templates; all that they insert is escaped."""
    found = Environment(
        loader=PackageLoader("gangsched.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"duration": duration, "amount": amount, "moment": utc_text}
    return found


@dataclass(frozen=True, slots=True)
class GangParts:
    """What the page of a gang shows beside its row; `remedies` also say why there are none."""

    pods: tuple[PodRow, ...]
    remedies: tuple[tuple[str, ...], str]
    story: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class WhatIfParts:
    """A change with its answer, or with the problem why there is none, and the orders to choose."""

    change: WhatIfChange
    answer: WhatIfAnswer | None
    problem: str
    orders: tuple[str, ...]


class PageWriter:
    """Writes the pages of a server."""

    def __init__(self, *, may_act: bool = False, grafana: str | None = None) -> None:
        """Take `may_act`: viewers may hold, release and cancel; and the address of dashboards."""
        self._templates, self._may_act = environment(), may_act
        base = (grafana or "").rstrip("/")
        self._dashboards = [(f"{base}/d/{uid}", name) for uid, name in DASHBOARDS] if base else []

    def page(self, name: str, request: PageRequest) -> str:
        """Return one page.

        Raises:
            NoPageError: the query names nothing that the viewer may see.

        """
        return self._write(name, request, _VIEWS[name](request))

    def gang(self, request: PageRequest, row: GangRow, parts: GangParts) -> str:
        """Return the page of one gang."""
        values = {
            "row": row,
            "pods": parts.pods,
            "known_nodes": {node.name for node in request.model.nodes},
            "remedies": parts.remedies,
            "story": parts.story,
            "chart": span_chart(row, request.model.now_s),
        }
        return self._write("gang", request, values)

    def what_if(self, request: PageRequest, parts: WhatIfParts) -> str:
        """Return the page that compares a change, with its answer or with why there is none."""
        model, answer = request.model, parts.answer
        rows = answer.changed[:ROWS_ON_PAGE] if answer is not None else ()
        values = {
            "form": _form_of(request.query),
            "answer": answer,
            "rows": rows,
            "more": len(answer.changed) - len(rows) if answer is not None else 0,
            "problem": parts.problem,
            "yaml": change_yaml(parts.change, model.now_s) if answer is not None else "",
            "queues": [row.name for row in model.queues[:_CHOICES]],
            "nodes": [node.name for node in model.nodes if node.name][:_CHOICES],
            "gangs": [row.id for row in model.gangs.values() if row.waits][:_CHOICES],
            "orders": parts.orders,
            "pools": model.pools[:_CHOICES],
            "book": parts.change.book,
        }
        return self._write("what-if", request, values)

    def _write(self, name: str, request: PageRequest, values: Mapping[str, Any]) -> str:
        notice, request.viewer.notice = request.viewer.notice, ""
        return self._templates.get_template(f"{name}.html").render(
            view=name,
            may_act=self._may_act,
            notice=notice,
            dashboards=self._dashboards,
            here=request.here,
            asked=sorted(request.query.items())[:_QUERY_ITEMS],
            model=request.model,
            viewer=request.viewer,
            login=request.viewer.ends_s != float("inf"),
            **values,
        )

    def login(self, problem: str = "", *, has_code: bool) -> str:
        """Return the page that asks for a token, or for the code too."""
        template = self._templates.get_template("login.html")
        return template.render(problem=problem, has_code=has_code)

    def failure(self, title: str, message: str) -> str:
        """Return a page with one sentence."""
        return self._templates.get_template("failure.html").render(title=title, message=message)


# -- views --------------------------------------------------------------------------------------


def _cluster(request: PageRequest) -> dict[str, Any]:
    model, path = request.model, request.get("in")
    colour = tiles.colour_by_queue if request.get("color") == "queue" else tiles.colour_by_gang
    within = tuple(path.split("/")) if path else ()
    nodes = [node for node in model.nodes if node.domain[: len(within)] == within]
    if path and not nodes:
        raise NoPageError(f"There is no domain {path!r}.")
    boxes = []
    detail = len(nodes) <= _NODES_IN_DETAIL
    for domain, there in tiles.groups(nodes).items():
        name = "/".join(domain)
        boxes.append(
            {
                "name": name
                or ("all nodes" if not model.levels else "nodes without a known place"),
                "link": name if name and domain != within else "",
                "text": summary(there),
                "picture": None
                if detail
                else tiles.picture(there, colour, f"{name or 'nodes'}: {summary(there)}"),
                "nodes": [(node, tiles.bar(node, colour, describe(node))) for node in there]
                if detail
                else [],
            }
        )
    return {
        "boxes": boxes,
        "within": path,
        "above": "/".join(within[:-1]),
        "by_queue": colour is tiles.colour_by_queue,
        "text": summary(nodes),
        "legend": _legend(nodes, colour, by_queue=colour is tiles.colour_by_queue),
    }


def _legend(
    nodes: Iterable[NodeTile], colour: tiles.ColourOf, *, by_queue: bool
) -> list[tuple[str, str, float]]:
    """Return colour, name and units of the gangs or queues that use most."""
    units: dict[tuple[str, str], float] = {}
    for node in nodes:
        for segment in node.segments:
            if segment.gang:
                name = segment.queue if by_queue else segment.gang
                key = colour(segment), name
                units[key] = units.get(key, 0.0) + segment.units
    most = sorted(units.items(), key=lambda item: (-item[1], item[0][1]))[:_LEGEND]
    return [(*key, amount) for key, amount in most]


def _node(request: PageRequest) -> dict[str, Any]:
    name = request.get("name")
    node = next((node for node in request.model.nodes if node.name == name), None)
    if node is None or not name:
        raise NoPageError(f"There is no node {name!r}.")
    return {"node": node, "bar": tiles.bar(node, tiles.colour_by_gang, describe(node))}


def _queues(request: PageRequest) -> dict[str, Any]:
    pages = -(-len(request.model.queues) // ROWS_ON_PAGE) or 1
    number = request.number("page", pages)
    first = (number - 1) * ROWS_ON_PAGE
    rows = request.model.queues[first : first + ROWS_ON_PAGE]
    return {"rows": rows, "page": number, "pages": pages}


def _queue(request: PageRequest) -> dict[str, Any]:
    name = request.get("name")
    row = next((row for row in request.model.queues if row.name == name), None)
    if row is None:
        raise NoPageError(f"There is no queue {name!r}.")
    waiting = [gang for gang in request.model.gangs.values() if gang.queue == name and gang.waits]
    waiting.sort(key=lambda gang: gang.turn)
    return {
        "row": row,
        "past": past_of(request.model.samples.get(name, ())),
        "waiting": waiting[:ROWS_ON_PAGE],
        "more": max(len(waiting) - ROWS_ON_PAGE, 0),
        "hidden": max(row.pending - len(waiting), 0) if request.model.hidden_gangs else 0,
    }


def _gangs(request: PageRequest) -> dict[str, Any]:
    model, words = request.model, request.get("q").lower().split()
    state, queue = request.get("state"), request.get("queue")
    found = [
        row
        for row in model.gangs.values()
        if (not state or row.state == state)
        and (not queue or row.queue == queue)
        and all(word in f"{row.id} {row.queue} {row.user} {row.reason}".lower() for word in words)
    ]
    found.sort(key=lambda row: (_STATES.index(row.state) if row.state in _STATES else 9, row.id))
    pages = -(-len(found) // ROWS_ON_PAGE) or 1
    number = request.number("page", pages)
    first = (number - 1) * ROWS_ON_PAGE
    return {
        "rows": found[first : first + ROWS_ON_PAGE],
        "count": len(found),
        "page": number,
        "pages": pages,
        "q": request.get("q"),
        "state": state,
        "queue": queue,
        "states": _STATES,
        "queues": [row.name for row in model.queues[:500]],
    }


def _timeline(request: PageRequest) -> dict[str, Any]:
    model, queue = request.model, request.get("queue")
    rows = timeline.rows_of(model, queue)
    pages = -(-len(rows) // ROWS_ON_PAGE) or 1
    number = request.number("page", pages)
    shown = rows[(number - 1) * ROWS_ON_PAGE : number * ROWS_ON_PAGE]
    period = request.get("period")
    if period not in timeline.PERIODS:
        period = timeline.fitting_period(shown, model.now_s)
    reach_s = timeline.PERIODS[period]
    return {
        "rows": [(row, timeline.bars(row, model.now_s, reach_s)) for row in shown],
        "count": len(rows),
        "page": number,
        "pages": pages,
        "period": period,
        "periods": tuple(timeline.PERIODS),
        "ticks": timeline.ticks(model.now_s, reach_s),
        "chart": timeline.usage_chart(model, queue, reach_s),
        "queue": queue,
        "queues": [row.name for row in model.queues[:500]],
    }


_VIEWS = {
    "cluster": _cluster,
    "node": _node,
    "queues": _queues,
    "queue": _queue,
    "gangs": _gangs,
    "timeline": _timeline,
}
VIEW_NAMES = tuple(_VIEWS)


# -- what if ------------------------------------------------------------------------------------

_FIELDS = (
    "queue", "resource", "amount", "count", "node", "gang", "priority",
    "book_nodes", "book_in", "book_hours", "order", "pool", "pool_nodes",
)  # fmt: skip


def _form_of(query: Query) -> dict[str, str]:
    return {name: query.get(name, "").strip()[:QUERY_LETTERS_MAX] for name in _FIELDS}


def change_of(query: Query) -> WhatIfChange:
    """Return the change that the form of a query asks for."""
    form = _form_of(query)
    quota = nodes = priority = book = pool = ""
    if form["amount"]:
        quota = f"{form['queue']}:{form['resource'] or GPU}={form['amount']}"
    if form["count"]:
        nodes = f"{form['count']}:{form['node']}"
    if form["priority"]:
        priority = f"{form['gang']}={form['priority']}"
    if form["book_nodes"]:
        book = f"{form['book_nodes']}:{form['book_in'] or 0}:{form['book_hours'] or 1}"
    if form["pool_nodes"]:
        pool = f"{form['pool']}={form['pool_nodes']}"
    return WhatIfChange(quota, nodes, priority, book, form["order"], pool)


# -- pictures of times --------------------------------------------------------------------------


def span_chart(row: GangRow, now_s: float) -> dict[str, Any] | None:
    """Return the numbers of the picture of a start or an end, or None."""
    span = row.end if row.state == "Placed" else row.start.span if row.start else None
    if span is None:
        return None
    length_s = max(span.high_s - now_s, 1.0) * 1.05
    times = (span.low_s, span.median_s, span.high_s)
    places = [round(max(at_s - now_s, 0.0) / length_s * 600, 1) for at_s in times]
    return {"what": "end" if row.state == "Placed" else "start", "span": span, "at": places}


def past_of(samples: tuple[QueueSample, ...]) -> dict[str, Any] | None:
    """Return the picture of a queue's share over time: its points, and the same in words."""
    if len(samples) < 2 or samples[-1].at_s <= samples[0].at_s:
        return None
    begin_s, end_s = samples[0].at_s, samples[-1].at_s
    top = max(*(sample.share for sample in samples), 0.01)
    points = " ".join(
        f"{(sample.at_s - begin_s) / (end_s - begin_s) * 600:.1f},"
        f"{59 - sample.share / top * 58:.1f}"
        for sample in samples
    )
    return {"points": points, "begin_s": begin_s, "top": top}
