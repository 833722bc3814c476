"""The figures of a report as SVG, from the files of runs: one function for each."""

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "gangsched",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
    }
)

CLASSES = ((1, 1, "1"), (2, 7, "2-7"), (8, 8, "8"), (9, 63, "9-63"), (64, 10**9, "64 and more"))
"""Size classes by all GPUs of a job."""

_TOP = 8
_WIDE = (9.0, 2.6)
_SMALL = (4.4, 2.6)
_LEGEND_IN = 0.3
_LEGEND_ROW_IN = 0.18
_LEGEND_COLUMNS = 4
_LABEL_CHARACTER_IN = 0.062
_LONGEST_LABEL_IN = 4.0


def _axes_of(
    size_in: tuple[float, float], left_in: float = 0.8, top_in: float = 0.1
) -> tuple[Figure, Axes]:
    """Return a figure and its axes, with given margins.

    The library's own layouts draw a figure three times to find its margins.
    """
    (width, height), right_in, bottom_in = size_in, 0.15, 0.45
    figure = Figure(size_in)
    inner = width - left_in - right_in, height - bottom_in - top_in
    place = left_in / width, bottom_in / height, inner[0] / width, inner[1] / height
    return figure, figure.add_axes(place)


def _legend(figure: Figure, columns: int, *given: Sequence[Any]) -> None:
    """Put a legend into the margin above the axes."""
    figure.legend(*given, ncols=columns, loc="upper left", borderaxespad=0.2, fontsize=8)


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def time_unit(end_s: float) -> tuple[float, str]:
    """Return the unit in which a length of time is easy to read."""
    for unit_s, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if end_s >= 3 * unit_s:
            return unit_s, name
    return 1.0, "seconds"


def over_time(samples: Mapping[str, pa.Table], columns: tuple[str, str], label: str) -> str:
    """Draw the quotient of two columns over time, a line for each variant."""
    more_rows = (len(samples) - 1) // _LEGEND_COLUMNS
    figure, axes = _axes_of(_WIDE, top_in=_LEGEND_IN + _LEGEND_ROW_IN * more_rows)
    end_s = max(max(table["at_s"].to_pylist(), default=0.0) for table in samples.values())
    unit_s, unit = time_unit(end_s)
    for name, table in samples.items():
        over = np.array(table[columns[0]], dtype=float)
        under = np.maximum(np.array(table[columns[1]], dtype=float), 1)
        at = np.array(table["at_s"], dtype=float) / unit_s
        axes.plot(at, 100 * over / under, label=name, linewidth=1)
    axes.set(xlabel=unit, ylabel=label, ylim=(0, None))
    if len(samples) > 1:
        _legend(figure, min(len(samples), _LEGEND_COLUMNS))
    return _svg(figure)


def _colours(queues: Sequence[str]) -> dict[str, Any]:
    """Return a colour for each queue, the same in all figures; the last is for pods of no gang."""
    palette = np.array(colormaps["tab20"].colors)  # type: ignore[attr-defined]
    colours = {name: palette[at % len(palette)] for at, name in enumerate(queues)}
    return colours | {queues[-1]: np.array((0.5, 0.5, 0.5))}


def waiting(details: Mapping[str, Any]) -> str:
    """Draw the number of pending jobs by queue over time."""
    rows = details["waiting"]
    total: dict[str, int] = {}
    for _, by_queue in rows:
        for name, count in by_queue.items():
            total[name] = total.get(name, 0) + count
    ranked = sorted(total, key=lambda name: -total[name])
    shown, rest = ranked[:_TOP], ranked[_TOP:]
    unit_s, unit = time_unit(details["end_s"])
    lines = [[by_queue.get(name, 0) for _, by_queue in rows] for name in shown]
    if rest:
        lines.append([sum(by_queue.get(name, 0) for name in rest) for _, by_queue in rows])
    figure, axes = _axes_of(_WIDE, top_in=_LEGEND_IN)
    if lines:
        labels = [*shown, *([f"{len(rest)} others"] * bool(rest))]
        colours = _colours(details["queues"])
        colors = [*(colours[name] for name in shown), (0.8, 0.8, 0.8)]
        axes.stackplot([at_s / unit_s for at_s, _ in rows], lines, labels=labels, colors=colors)
        _legend(figure, len(labels))
    axes.set(xlabel=unit, ylabel="pending jobs", ylim=(0, None))
    return _svg(figure)


def nodes_bought(details: Mapping[str, Any]) -> str:
    """Draw how many nodes of each pool there were; "" without pools."""
    rows = details["nodes_bought"]
    if not rows:
        return ""
    figure, axes = _axes_of(_WIDE, top_in=_LEGEND_IN)
    unit_s, unit = time_unit(details["end_s"])
    at = [0.0, *(at_s / unit_s for at_s, _ in rows), details["end_s"] / unit_s]
    names = list(rows[0][1])
    lines = [[0, *(counts[name] for _, counts in rows), rows[-1][1][name]] for name in names]
    axes.stackplot(at, lines, labels=names, step="post")
    _legend(figure, len(names))
    axes.set(xlabel=unit, ylabel="bought nodes", ylim=(0, None))
    return _svg(figure)


def by_size(jobs: Mapping[str, pa.Table], column: str, part: float, label: str) -> str:
    """Draw a percentile of a column for each size class, bars for each variant."""
    figure, axes = _axes_of(_SMALL)
    width = 0.8 / len(jobs)
    heights_of: dict[str, list[float]] = {}
    for name, table in jobs.items():
        gpus = np.array(table["pods"]) * np.array(table["gpus"])
        values = np.array(table[column], dtype=float)
        heights = []
        for least, most, _ in CLASSES:
            chosen = values[(gpus >= least) & (gpus <= most) & ~np.isnan(values)]
            heights.append(float(np.percentile(chosen, part)) if len(chosen) else 0.0)
        heights_of[name] = heights
    unit_s, unit = (
        time_unit(max(map(max, heights_of.values()))) if column.endswith("_s") else (1, "")
    )
    for number, (name, heights) in enumerate(heights_of.items()):
        at = np.arange(len(CLASSES)) + number * width
        axes.bar(at, np.array(heights) / unit_s, width, label=name)
    label = f"{label}, {unit}".removesuffix(", ")
    axes.set_xticks(np.arange(len(CLASSES)) + 0.4 - width / 2, [name for *_, name in CLASSES])
    axes.set(xlabel="GPUs of the job", ylabel=label)
    if 1 < len(jobs) <= 4:
        axes.legend(fontsize=7)
    return _svg(figure)


def waits(jobs: Mapping[str, pa.Table]) -> str:
    """Draw the cumulative distribution of waits."""
    figure, axes = _axes_of(_SMALL)
    for name, table in jobs.items():
        values = np.sort(np.array(table["wait_s"], dtype=float))
        values = values[~np.isnan(values)]
        if len(values):
            states = table["state"].to_pylist()
            able = sum(state not in ("NotYetSubmitted", "CanNeverRun") for state in states)
            part = np.arange(1, len(values) + 1) / able
            axes.step(np.maximum(values, 1.0), 100 * part, where="post", label=name, linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([1, 60, 3600, 86_400, 7 * 86_400], ["1 s", "1 m", "1 h", "1 d", "1 w"])
    axes.set(xlabel="wait", ylabel="% of jobs that can run", ylim=(0, 101))
    if len(jobs) > 1 and axes.lines:
        axes.legend(loc="lower right", fontsize=7)
    return _svg(figure)


def fairness(jobs: Mapping[str, pa.Table], parts: int = 20) -> str:
    """Draw Jain's index over the queues' mean slowdowns of started jobs, by arrival time."""
    figure, axes = _axes_of(_SMALL)
    for name, table in jobs.items():
        at = np.array(table["at_s"], dtype=float)
        slow = np.array(table["slowdown"], dtype=float)
        queues = np.array(table["queue"].to_pylist())
        unit_s, unit = time_unit(float(at.max(initial=1.0)))
        edges = np.linspace(0, at.max(initial=1.0), parts + 1)
        indices = []
        for start, end in pairwise(edges):
            inside = (at >= start) & (at <= end)
            inside &= ~np.isnan(slow)
            means = [slow[inside & (queues == q)].mean() for q in np.unique(queues[inside])]
            square = sum(mean**2 for mean in means) * len(means)
            indices.append(sum(means) ** 2 / square if square else np.nan)
        axes.step(edges[:-1] / unit_s, indices, where="post", label=name, linewidth=1)
        axes.set(xlabel=f"arrival, {unit}", ylabel="Jain's index", ylim=(0, 1.02))
    return _svg(figure)


def lanes(details: Mapping[str, Any]) -> str:
    """Draw the queue that uses most of each rack over time, paler if less is used."""
    queue, busy = np.array(details["lane_queue"]), np.array(details["lane_busy"])
    colours = _colours(details["queues"])
    colors = np.array(list(colours.values()))
    picture = 1 - busy[..., None] * (1 - colors[queue])
    longest_in = _LABEL_CHARACTER_IN * max(map(len, details["lanes"]), default=0)
    size_in = _WIDE[0], 1.0 + 0.14 * len(queue)
    figure, axes = _axes_of(size_in, 0.15 + min(longest_in, _LONGEST_LABEL_IN), _LEGEND_IN)
    unit_s, unit = time_unit(details["end_s"])
    extent = (0, details["end_s"] / unit_s, len(queue) - 0.5, -0.5)
    axes.imshow(picture, aspect="auto", interpolation="nearest", extent=extent)
    step = max(len(queue) // 12, 1)
    axes.set_yticks(range(0, len(queue), step), details["lanes"][::step], fontsize=7)
    axes.grid(visible=False)
    axes.set(xlabel=unit)
    usage = np.bincount(queue.ravel(), busy.ravel(), len(colours))
    shown = [at for at in np.argsort(-usage, kind="stable")[:_TOP] if usage[at]]
    names = list(colours)
    if shown:
        patches = [Patch(color=colours[names[at]]) for at in shown]
        _legend(figure, len(shown), patches, [names[at] for at in shown])
    return _svg(figure)


def heat(details: Mapping[str, Any]) -> str:
    """Draw every node at some times: the darker, the more of its GPUs are used."""
    pictures: Sequence[Any] = details["pictures"]
    has = np.array(details["gpus_of_nodes"], dtype=float)
    if not pictures or not has.any():
        return ""
    wide = int(np.ceil(np.sqrt(len(has) * 1.6)))
    rows = 1 + (len(pictures) - 1) // 3
    height_in = 1.0 + 1.9 * rows
    figure = Figure((_WIDE[0], height_in))
    figure.subplots_adjust(0.01, 0.02, 0.99, 1 - _LEGEND_IN / height_in, wspace=0.03)
    unit_s, unit = time_unit(details["end_s"])
    axes = figure.subplots(rows, min(len(pictures), 3), squeeze=False)
    for place in axes.flat:
        place.set_axis_off()
    for place, (at_s, used) in zip(axes.flat, pictures, strict=False):
        grid = np.full(-(-len(has) // wide) * wide, np.nan)
        share = np.array(used, dtype=float) / np.maximum(has, 1)
        grid[: len(has)] = np.where(np.array(used) < 0, np.nan, share)
        place.imshow(grid.reshape(-1, wide), vmin=0, vmax=1, cmap="YlGnBu", interpolation="nearest")
        place.set_title(f"{at_s / unit_s:.1f} {unit}", fontsize=8)
    return _svg(figure)
