"""Nodes as pictures: SVG with classes as colours, because no style may be inline."""

from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

from markupsafe import Markup, escape

from gangsched.web.model import Domain, NodeTile, Segment

COLOURS = 8
_WIDTH, _HEIGHT, _GAP = 32, 6, 2
_COLUMNS = 4
_GROUPS_MAX = 800

ColourOf = Callable[[Segment], str]


def colour_by_gang(segment: Segment) -> str:
    """Return the colour class of the gang of a segment."""
    return colour_of_name(segment.gang)


def colour_by_queue(segment: Segment) -> str:
    """Return the colour class of the queue of a segment."""
    return colour_of_name(segment.queue if segment.gang else "")


def colour_of_name(name: str) -> str:
    """Return the colour class of a gang or queue; that of other pods for ""."""
    return f"c{crc32(name.encode(errors='replace')) % COLOURS}" if name else "other"


def groups(nodes: Iterable[NodeTile]) -> dict[Domain, list[NodeTile]]:
    """Return the nodes by their finest domains; with too many domains, by coarser ones."""
    tiles = list(nodes)
    depth = max((len(node.domain) for node in tiles), default=0)
    while True:
        found: dict[Domain, list[NodeTile]] = {}
        for node in tiles:
            found.setdefault(node.domain[:depth], []).append(node)
        if len(found) <= _GROUPS_MAX or not depth:
            return dict(sorted(found.items()))
        depth -= 1


def picture(nodes: Sequence[NodeTile], colour: ColourOf, label: str) -> Markup:
    """Draw many nodes as bars."""
    paths: dict[str, list[str]] = {"free": []}
    for index, node in enumerate(nodes):
        x = index % _COLUMNS * (_WIDTH + _GAP) + 1
        y = index // _COLUMNS * (_HEIGHT + _GAP) + 1
        _draw(paths, node, colour, (x, y, _WIDTH, _HEIGHT))
    width = _COLUMNS * (_WIDTH + _GAP)
    height = -(-max(len(nodes), 1) // _COLUMNS) * (_HEIGHT + _GAP)
    return _svg(paths, width, height, label)


def bar(node: NodeTile, colour: ColourOf, label: str) -> Markup:
    """Draw one node as a wide bar, with a line between two GPUs."""
    width, height = 256, 16
    paths: dict[str, list[str]] = {"free": []}
    _draw(paths, node, colour, (1, 1, width, height))
    if 1 < node.gpus <= 64:
        steps = (1 + width * index / node.gpus for index in range(1, node.gpus))
        paths["line"] = [f"M{_number(x)} 1v{height}" for x in steps]
    return _svg(paths, width + 2, height + 2, label)


def _draw(
    paths: dict[str, list[str]],
    node: NodeTile,
    colour: ColourOf,
    box: tuple[float, float, float, float],
) -> None:
    x, y, width, height = box
    outline = _rectangle(x, y, width, height)
    paths["free"].append(outline)
    left = 0.0
    for segment in node.segments:
        part = min(segment.units / node.size * width, width - left)
        if part > 0:
            paths.setdefault(colour(segment), []).append(_rectangle(x + left, y, part, height))
        left += part
    if node.failing:
        paths.setdefault("failing", []).append(outline)
    elif node.cordoned:
        paths.setdefault("cordoned", []).append(outline)
    if node.reserved_for or node.set_aside:
        paths.setdefault("reserved", []).append(outline)


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    return f"M{_number(x)} {_number(y)}h{_number(width)}v{_number(height)}h{_number(-width)}z"


def _number(value: float) -> str:
    return f"{round(value, 2):g}"


def _svg(paths: dict[str, list[str]], width: float, height: float, label: str) -> Markup:
    fills = {"cordoned": "url(#hatch)", "failing": "url(#cross)", "reserved": "none"}
    parts = []
    for name, shapes in paths.items():
        fill = f' fill="{fills[name]}"' if name in fills else ""
        parts.append(f'<path class="{name}"{fill} d="{"".join(shapes)}"/>')
    size = f'viewBox="0 0 {_number(width)} {_number(height)}"'
    text = str(escape(label))
    return Markup(  # noqa: S704 -- numbers and class names of this module; the label is escaped
        f'<svg class="nodes" role="img" aria-label="{text}" {size}>{"".join(parts)}</svg>'
    )
