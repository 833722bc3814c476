"""Pictures of clusters and placements: a box is a rack, a row is a host, a cell is a GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gangsched.core.cluster.state import Cluster
from gangsched.core.cluster.topology_tree import TopologyTree
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import NodeName, PodName
from gangsched.core.model.mig_profiles import Model, instance_starts
from gangsched.core.model.nodes import Layout
from gangsched.core.model.pods import GPU

_FREE, _TAKEN, _CHOSEN, _LINE = "#ffffff", "#c9ced6", "#2f7d5b", "#5b6472"
_CELL, _GAP = 1.0, 0.6

# Equal input gives equal bytes: no date, no random ids, text stays text.
mpl.rcParams["svg.hashsalt"] = "gangsched"
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["font.family"] = "sans-serif"


@dataclass(frozen=True, slots=True)
class ClusterDrawing:
    """One drawing of a cluster with its title and the places of a gang."""

    title: str
    cluster: Cluster
    waiting: PendingGang
    places: Mapping[PodName, NodeName]


def draw(scenes: Sequence[ClusterDrawing], path: Path) -> None:
    """Draw scenes side by side into an SVG file."""
    figure = Figure(figsize=(4.9 * len(scenes), 3.7), layout="constrained")
    axes = figure.subplots(1, len(scenes), squeeze=False)[0]
    for axis, scene in zip(axes, scenes, strict=True):
        _draw_cluster(axis, scene)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight", pad_inches=0.06)


def _draw_cluster(axis: Axes, scene: ClusterDrawing) -> None:
    tree = scene.cluster.tree()
    assert tree is not None, "a picture needs a topology"  # noqa: S101
    left = 0.0
    for block, racks in _by_domain(tree, scene.cluster).items():
        start, height = left, 0.0
        for rack, hosts in racks.items():
            width = _draw_rack(axis, scene, left, rack, hosts)
            height = max(height, len(hosts) * _CELL)
            left += width + _GAP
        outline = Rectangle(
            (start - 0.35, -height - 1.0), left - start - _GAP + 0.7, height + 1.9, fill=False
        )
        outline.set(edgecolor=_LINE, linewidth=0.8, linestyle=(0, (3, 2)))
        axis.add_patch(outline)
        axis.text(start - 0.2, -height - 0.8, block, fontsize=7, color=_LINE)
        left += _GAP
    axis.set_title(scene.title, fontsize=9, loc="left")
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.margins(0.02)
    axis.axis("off")


def _by_domain(tree: TopologyTree, cluster: Cluster) -> dict[str, dict[str, list[NodeName]]]:
    """Return hosts by finest domain, and finest domains by coarsest domain."""
    domains: dict[str, dict[str, list[NodeName]]] = {}
    finest = len(tree.codes) - 1
    for name in sorted(cluster.rows):
        row = cluster.rows[name]
        path = tree.paths[finest][int(tree.codes[finest][row])]
        domains.setdefault(path[0], {}).setdefault("/".join(path[1:]), []).append(name)
    return domains


def _draw_rack(
    axis: Axes, scene: ClusterDrawing, left: float, rack: str, hosts: list[NodeName]
) -> float:
    cluster = scene.cluster
    column = cluster.resources.index(GPU)
    ranks = {member.name: member.rank for member in scene.waiting.members}
    gpus = {m.name: dict(m.needs.requests).get(GPU, 0) for m in scene.waiting.members}
    width = 0.0
    for index, host in enumerate(hosts):
        row = cluster.rows[host]
        total = int(cluster.allocatable[row, column])
        cells = [""] * int(cluster.used[row, column])
        here = sorted(
            (p for p, node in scene.places.items() if node == host), key=ranks.__getitem__
        )
        for name in here:
            cells += [str(ranks[name])] * gpus[name]
        for gpu in range(total):
            label = cells[gpu] if gpu < len(cells) else None
            color = _FREE if label is None else _CHOSEN if label else _TAKEN
            corner = (left + gpu * _CELL, -(index + 1) * _CELL)
            cell = Rectangle(corner, _CELL, _CELL, facecolor=color, edgecolor=_LINE, linewidth=0.5)
            axis.add_patch(cell)
            if label:
                middle = (corner[0] + _CELL / 2, corner[1] + _CELL / 2)
                axis.text(*middle, label, fontsize=5.5, color="white", ha="center", va="center")
        width = max(width, total * _CELL)
    axis.text(left, 0.25, rack, fontsize=7, color=_LINE)
    return width


def draw_gpus(rows: Sequence[tuple[str, Sequence[Layout]]], model: Model, path: Path) -> None:
    """Draw the MIG layouts of a node's GPUs, one row of GPUs for each title."""
    figure = Figure(figsize=(9.8, 1.1 * len(rows) + 0.3), layout="constrained")
    axis = figure.subplots()
    for number, (title, layouts) in enumerate(rows):
        top = -number * 2.2
        axis.text(0, top + 1.15, title, fontsize=9)
        for index, layout in enumerate(layouts):
            _draw_gpu(axis, index * (model.slices + 1.5), top, layout, model)
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.axis("off")
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight", pad_inches=0.06)


def _draw_gpu(axis: Axes, left: float, top: float, layout: Layout, model: Model) -> None:
    frame = Rectangle((left, top), model.slices, 1, facecolor=_FREE, edgecolor=_LINE, linewidth=1)
    axis.add_patch(frame)
    if not layout:
        axis.text(left + model.slices / 2, top + 0.5, "whole", fontsize=7, ha="center", va="center")
    for profile, start in instance_starts(model, layout) or ():
        shape = model.shape(profile)
        size = shape.size if shape is not None else 1
        part = Rectangle((left + start, top), size, 1, facecolor="#d7e8df", edgecolor=_CHOSEN)
        axis.add_patch(part)
        axis.text(
            left + start + size / 2, top + 0.5, profile.split(".")[0], fontsize=6, ha="center",
            va="center",
        )  # fmt: skip
