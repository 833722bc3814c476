"""The timeline: what ran, what runs and what will run, as bars around the present."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from gangsched.web.model import GangRow, PageModel, RunSpan, WindowRow
from gangsched.web.views.texts import amount, duration, utc_text
from gangsched.web.views.tiles import colour_of_name

PERIODS = {"1h": 3600.0, "6h": 6 * 3600.0, "1d": 86_400.0, "7d": 7 * 86_400.0, "30d": 30 * 86_400.0}
"""How far the timeline reaches to both sides of the present, in seconds."""

_WIDTH, _ROW, _CHART = 1000, 16, 60
_POINTS = 200
_MOST_FIT = 0.8
_TICKS = 4


@dataclass(slots=True)
class TimelineRow:
    """One gang, or one window of nodes: its bars and the same in words."""

    name: str
    gang: str
    queue: str
    text: str = ""
    bars: list[tuple[str, float, float]] = field(default_factory=list)
    """Class, start and end, in seconds."""

    order: tuple[int, float] = (0, 0.0)


def rows_of(model: PageModel, queue: str) -> list[TimelineRow]:
    """Return the rows: windows of nodes, running gangs, pending ones by start, then ended ones."""
    rows = [] if queue else [_window(window) for window in model.windows]
    gangs: dict[str, TimelineRow] = {}
    for run in model.runs:
        if run.gang and (not queue or run.queue == queue):
            row = gangs.setdefault(run.gang, TimelineRow(run.gang, run.gang, run.queue))
            row.bars.append((f"ran {colour_of_name(run.queue)}", run.started_s, run.ended_s))
            row.text = f"{run.outcome} {utc_text(run.ended_s)}"
            row.order = 4, -run.ended_s
    for gang in model.gangs.values():
        if queue and gang.queue != queue:
            continue
        if gang.state != "Finished":
            row = gangs.setdefault(gang.id, TimelineRow(gang.id, gang.id, gang.queue))
            _present(row, gang, model.now_s)
    return rows + sorted(gangs.values(), key=lambda row: (row.order, row.name))


def _window(window: WindowRow) -> TimelineRow:
    nodes = f"{window.nodes} nodes, " if window.nodes else ""
    end_s = window.end_s
    until = f" to {utc_text(end_s)}" if end_s is not None else ""
    return TimelineRow(
        window.name or window.what,
        "",
        "",
        f"{nodes}{utc_text(window.start_s)}{until}",
        [("window", window.start_s, end_s if end_s is not None else float("inf"))],
    )


def _present(row: TimelineRow, gang: GangRow, now_s: float) -> None:
    """Add the bars of a gang that runs or waits."""
    colour = colour_of_name(gang.queue)
    if gang.started_s is not None:
        row.bars.append((colour, gang.started_s, now_s))
        row.order, row.text = (1, gang.started_s), "runs"
        if gang.end is not None:
            row.bars.append((f"will {colour}", now_s, gang.end.median_s))
            row.bars.append(("range", gang.end.low_s, gang.end.high_s))
            row.text = (
                f"ends in {duration(gang.end.median_s - now_s)} "
                f"({duration(gang.end.low_s - now_s)} to {duration(gang.end.high_s - now_s)})"
            )
        return
    if gang.queued_since_s is not None:
        row.bars.append(("waits", gang.queued_since_s, now_s))
    start = gang.start
    if start is None or start.span is None:
        row.order, row.text = (3, 0.0), gang.reason or "no start is predicted"
        return
    span = start.span
    low_s, median_s, high_s = span.low_s, span.median_s, span.high_s
    row.bars.append((f"will {colour}", median_s, median_s + start.runtime_s))
    row.bars.append(("range", low_s, high_s))
    if start.reserved_s is not None:
        row.bars.append(("reserved", start.reserved_s, start.reserved_s))
    row.order = 2, median_s
    row.text = (
        f"starts in {duration(median_s - now_s)} "
        f"({duration(low_s - now_s)} to {duration(high_s - now_s)})"
    )


def fitting_period(rows: Iterable[TimelineRow], now_s: float) -> str:
    """Return the shortest period in which most of the bars end."""
    ends = sorted(
        abs(end_s - now_s)
        for row in rows
        for name, _, end_s in row.bars
        if end_s != float("inf") and name != "waits"
    )
    if not ends:
        return "1h"
    reach_s = ends[int(_MOST_FIT * (len(ends) - 1))]
    return next((name for name, length_s in PERIODS.items() if reach_s <= length_s), "30d")


def bars(row: TimelineRow, now_s: float, reach_s: float) -> Markup:
    """Draw the bars of a row."""
    shapes = []
    for name, start_s, end_s in row.bars:
        left, right = _x(start_s, now_s, reach_s), _x(end_s, now_s, reach_s)
        if right < 0 or left > _WIDTH:
            continue
        left, right = max(left, 0.0), min(right, float(_WIDTH))
        width = max(right - left, 3.0)
        top, height = (6, 4) if name in ("range", "waits") else (1, 14)
        fill = ' fill="url(#hatch)"' if name == "window" else ""
        shapes.append(
            f'<path class="{name}"{fill} d="M{left:.1f} {top}h{width:.1f}v{height}h{-width:.1f}z"/>'
        )
    middle = _WIDTH // 2
    return Markup(  # noqa: S704 -- numbers and class names; the label is escaped
        f'<svg class="bars" role="img" aria-label="{escape(row.text)}" '
        f'viewBox="0 0 {_WIDTH} {_ROW}" preserveAspectRatio="none">'
        f'{"".join(shapes)}<path class="now" d="M{middle} 0h2v{_ROW}h-2z"/></svg>'
    )


def _x(at_s: float, now_s: float, reach_s: float) -> float:
    return (max(min((at_s - now_s) / reach_s, 2.0), -2.0) + 1) / 2 * _WIDTH


def ticks(now_s: float, reach_s: float) -> list[tuple[str, str]]:
    """Return the labels below the bars: how far from the present, and when that is."""
    labels = []
    for step in range(-_TICKS // 2, _TICKS // 2 + 1):
        at_s = step / (_TICKS / 2) * reach_s
        text = "now" if not step else f"{'-' if step < 0 else '+'}{duration(abs(at_s))}"
        labels.append((text, utc_text(now_s + at_s)))
    return labels


@dataclass(frozen=True, slots=True)
class UsageChart:
    """GPUs that are used over time: a picture, and the same in words."""

    picture: Markup
    text: str


def usage_chart(model: PageModel, queue: str, reach_s: float) -> UsageChart | None:
    """Draw how many GPUs gangs used, and will use by the median forecast; None without GPUs."""
    spans = [_gpus_of_run(run) for run in model.runs if not queue or run.queue == queue]
    used = 0.0
    for gang in model.gangs.values():
        if queue and gang.queue != queue:
            continue
        if gang.started_s is not None and gang.state != "Finished":
            end_s = gang.end.median_s if gang.end is not None else float("inf")
            spans.append((gang.started_s, end_s, gang.gpus))
            used += gang.gpus
        elif gang.start is not None and gang.start.span is not None:
            median_s = gang.start.span.median_s
            spans.append((median_s, median_s + gang.start.runtime_s, gang.gpus))
    total = float(sum(node.gpus for node in model.nodes))
    if not total or not any(gpus for _, _, gpus in spans):
        return None
    levels = _levels(spans, model.now_s, reach_s)
    present = _POINTS // 2
    # Medians of single gangs are no plan: together they may need more than there is.
    levels[present:] = [min(level, total) for level in levels[present:]]
    top = max(total, *levels)
    step = _WIDTH / _POINTS
    path = "".join(f"V{_CHART - level / top * _CHART:.1f}h{step:g}" for level in levels)
    capacity = _CHART - total / top * _CHART
    middle = _WIDTH // 2
    text = (
        f"{amount(used)} of {amount(total)} GPUs are used by gangs now; "
        "later is drawn by the median starts and ends"
    )
    picture = Markup(  # noqa: S704 -- numbers alone
        f'<svg class="usage" role="img" aria-label="{escape(text)}" '
        f'viewBox="0 0 {_WIDTH} {_CHART}" preserveAspectRatio="none">'
        f'<path class="own" d="M0 {_CHART}{path}V{_CHART}z"/>'
        f'<path class="capacity" d="M0 {capacity:.1f}h{_WIDTH}v1h-{_WIDTH}z"/>'
        f'<path class="now" d="M{middle} 0h2v{_CHART}h-2z"/></svg>'
    )
    return UsageChart(picture, text)


def _gpus_of_run(run: RunSpan) -> tuple[float, float, float]:
    return run.started_s, run.ended_s, run.gpus


def _levels(
    spans: Iterable[tuple[float, float, float]], now_s: float, reach_s: float
) -> list[float]:
    """Return the GPUs in use at points from the begin to the end of a timeline."""
    step_s = 2 * reach_s / _POINTS
    changes = [0.0] * (_POINTS + 1)
    for start_s, end_s, gpus in spans:
        first = (start_s - now_s + reach_s) / step_s
        last = (min(end_s, now_s + 2 * reach_s) - now_s + reach_s) / step_s
        begin = min(max(round(first), 0), _POINTS)
        changes[begin] += gpus
        changes[max(min(round(last), _POINTS), begin)] -= gpus
    level, levels = 0.0, []
    for change in changes[:_POINTS]:
        level += change
        levels.append(max(level, 0.0))
    return levels
