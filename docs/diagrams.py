"""Draws the diagrams of the explanations of docs/ as plain SVG; docs/pictures.py calls it."""

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

LETTER, LINE, PAD = 7.0, 16, 12
"""Width of a letter, height of a line, and the margin around a text, in pixels."""

HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    'width="{width}" height="{height}" role="img" aria-label="{title}" '
    'font-family="Helvetica, Arial, sans-serif" font-size="13">\n'
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
    'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#37474f"/></marker></defs>\n'
    '<rect width="100%" height="100%" fill="#ffffff"/>\n'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A box around its centre; further lines of its text are small. `plain` boxes are outside."""

    x: float
    y: float
    text: str
    plain: bool = False

    @property
    def half(self) -> tuple[float, float]:
        """Return half of the width and of the height."""
        lines = self.text.split("\n")
        return max(map(len, lines)) * LETTER / 2 + PAD, len(lines) * LINE / 2 + PAD / 2

    def border(self, to: tuple[float, float]) -> tuple[float, float]:
        """Return where a line from the centre to a point leaves the box."""
        (wide, high), over, down = self.half, to[0] - self.x, to[1] - self.y
        scale = min(
            wide / abs(over) if over else float("inf"), high / abs(down) if down else float("inf")
        )
        return self.x + over * scale, self.y + down * scale

    def svg(self) -> str:
        """Return the box and its text."""
        wide, high = self.half
        fill, edge = ("#eceff1", "#78909c") if self.plain else ("#e0f2f1", "#00897b")
        place = f'x="{self.x - wide:g}" y="{self.y - high:g}"'
        size = f'width="{2 * wide:g}" height="{2 * high:g}"'
        parts = [f'<rect {place} {size} rx="5" fill="{fill}" stroke="{edge}"/>\n']
        lines = self.text.split("\n")
        top = self.y - (len(lines) - 1) * LINE / 2 + 4.5
        for at, line in enumerate(lines):
            style = ' font-weight="bold"' if not at else ' font-size="12" fill="#455a64"'
            parts.append(
                f'<text x="{self.x:g}" y="{top + at * LINE:g}" text-anchor="middle"{style}>'
                f"{escape(line)}</text>\n"
            )
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between two boxes, by their names; `bend` are points on its line."""

    start: str
    end: str
    text: str = ""
    bend: tuple[tuple[float, float], ...] = ()
    at: tuple[float, float] | None = None
    """The position of the text; default: above the middle."""

    def svg(self, boxes: dict[str, Box]) -> str:
        """Return the line and its text."""
        start, end = boxes[self.start], boxes[self.end]
        first = self.bend[0] if self.bend else (end.x, end.y)
        last = self.bend[-1] if self.bend else (start.x, start.y)
        points = [start.border(first), *self.bend, end.border(last)]
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        line = f'<polyline points="{path}" fill="none" stroke="#37474f" marker-end="url(#head)"/>\n'
        middle = len(points) // 2
        (x1, y1), (x2, y2) = points[middle - 1], points[middle]
        x, y = self.at or ((x1 + x2) / 2, (y1 + y2) / 2 - 6)
        return line + _words(x, y, self.text)


def _words(x: float, y: float, text: str) -> str:
    """Return lines of text around a point."""
    return "".join(
        f'<text x="{x:g}" y="{y + at * LINE:g}" text-anchor="middle" font-size="12" '
        f'fill="#37474f">{escape(line)}</text>\n'
        for at, line in enumerate(text.split("\n"))
        if line
    )


def graph(title: str, size: tuple[int, int], boxes: dict[str, Box], arrows: list[Arrow]) -> str:
    """Return the SVG of boxes and arrows."""
    head = HEAD.format(width=size[0], height=size[1], title=escape(title))
    lines = "".join(arrow.svg(boxes) for arrow in arrows)
    return f"{head}{lines}{''.join(box.svg() for box in boxes.values())}</svg>\n"


def sequence(title: str, components: tuple[str, ...], steps: list[tuple[int, int, str]]) -> str:
    """Return the SVG of calls between components; a step from a component to itself is a note."""
    apart, top = 230, 60
    width, height = apart * len(components), top + 40 * len(steps) + 30
    parts = [HEAD.format(width=width, height=height, title=escape(title))]
    xs = [apart * (at + 0.5) for at in range(len(components))]
    for x, name in zip(xs, components, strict=True):
        parts.append(f'<line x1="{x:g}" y1="40" x2="{x:g}" y2="{height - 10}" stroke="#b0bec5"/>\n')
        parts.append(Box(x, 24, name, plain=name == components[-1]).svg())
    for at, (start, end, text) in enumerate(steps):
        y = top + 40 * at + 20
        if start == end:
            wide = len(text) * LETTER / 2 + 8
            parts.append(
                f'<rect x="{xs[start] - wide:g}" y="{y - 16}" width="{2 * wide:g}" height="24" '
                f'fill="#fff8e1" stroke="#ffb300"/>\n'
            )
            parts.append(_words(xs[start], y, text))
            continue
        parts.append(
            f'<line x1="{xs[start]:g}" y1="{y}" x2="{xs[end]:g}" y2="{y}" stroke="#37474f" '
            f'marker-end="url(#head)"/>\n'
        )
        parts.append(_words((xs[start] + xs[end]) / 2, y - 6, text))
    return "".join([*parts, "</svg>\n"])


def architecture() -> str:
    """The loop from the cluster to the engine, the planner and back."""
    boxes = {
        "api": Box(130, 150, "Kubernetes API\nnodes, pods, groups,\nqueues, jobs", plain=True),
        "informers": Box(340, 60, "kube/informers\nJSON becomes facts"),
        "engine": Box(540, 150, "core/engine\nstates of gangs,\nusage of nodes and queues"),
        "planner": Box(800, 150, "core/planning\none cycle, in a thread:\nquota, place, preempt"),
        "policies": Box(800, 270, "policies\norder, sharing, placer,\nbackfill, preemptor"),
        "actuation": Box(345, 240, "kube/actuation, kube/status\norders become API calls"),
        "jobs": Box(130, 290, "operators + jobs\njobs become PodGroups and pods"),
    }
    arrows = [
        Arrow("api", "informers", "watch", at=(215, 88)),
        Arrow("informers", "engine", "facts", at=(450, 85)),
        Arrow("engine", "planner", "snapshot", bend=((640, 120), (700, 120)), at=(670, 112)),
        Arrow("planner", "engine", "plan", bend=((700, 180), (640, 180)), at=(670, 196)),
        Arrow("planner", "policies"),
        Arrow("engine", "actuation", "orders", at=(495, 205)),
        Arrow("actuation", "api", "calls", at=(265, 190)),
        Arrow("jobs", "api"),
    ]
    return graph("How facts become orders", (920, 330), boxes, arrows)


def states() -> str:
    """The states of a gang."""
    boxes = {
        "gathering": Box(100, 60, "GATHERING\nmembers are missing"),
        "pending": Box(330, 60, "PENDING\nwaits to be planned"),
        "reserved": Box(570, 60, "RESERVED\nnodes are assigned"),
        "binding": Box(800, 60, "BINDING\nbindings are posted"),
        "broken": Box(450, 210, "BROKEN\nis torn down"),
        "placed": Box(800, 210, "PLACED\nruns"),
    }
    arrows = [
        Arrow("gathering", "pending"),
        Arrow("pending", "gathering", "a pod is lost", ((330, 120), (100, 120)), (215, 136)),
        Arrow("pending", "broken", "below its minimum\nfor too long", at=(325, 155)),
        Arrow("pending", "reserved", "plan"),
        Arrow("reserved", "binding", "barrier"),
        Arrow("binding", "placed", "minimum\nbound", at=(840, 130)),
        Arrow("reserved", "broken", "refused,\nlate", at=(480, 120)),
        Arrow("binding", "broken", "refused", at=(680, 150)),
        Arrow("placed", "broken", "below its minimum, or preempted"),
        Arrow("broken", "gathering", "every bind answered,\nevery pod gone", at=(225, 185),
              bend=((100, 210),)),
        Arrow("placed", "gathering", "no pod is left", at=(450, 269),
              bend=((800, 275), (10, 275), (10, 60))),
    ]  # fmt: skip
    return graph("The states of a gang", (910, 300), boxes, arrows)


def cycle() -> str:
    """The six steps of a planning cycle."""
    boxes = {
        "restore": Box(130, 50, "1 restore\nbackfill reservations"),
        "next": Box(400, 50, "2 next gang\nby sharing and order"),
        "admit": Box(670, 50, "3 admit\nqueue, users, quota"),
        "place": Box(670, 160, "4 place\nplacer, then repartition"),
        "preempt": Box(400, 160, "5 preempt\nevict the cheapest set"),
        "reserve": Box(130, 160, "6 reserve\nthe earliest start"),
        "started": Box(670, 270, "placement\ncharged to the snapshot"),
        "refused": Box(130, 270, "refusal\nand its equivalence class"),
    }
    arrows = [
        Arrow("restore", "next"),
        Arrow("next", "admit"),
        Arrow("admit", "place", "yes", at=(690, 108)),
        Arrow("admit", "preempt", "quota in use", at=(505, 100)),
        Arrow("place", "preempt", "no place"),
        Arrow("place", "started", "a place", at=(700, 218)),
        Arrow("preempt", "started", "victims", at=(520, 232)),
        Arrow("preempt", "reserve", "none"),
        Arrow("reserve", "refused"),
    ]
    return graph("A planning cycle", (810, 320), boxes, arrows)


def barrier() -> str:
    """The calls between engine, binder, kube-scheduler and API server until a gang is bound."""
    components = ("engine", "PodBinder", "kube-scheduler", "Kubernetes API")
    steps = [
        (0, 3, "Reserve: status.assignments of the PodGroup"),
        (0, 1, "Prepare, for each pod"),
        (1, 3, "remove the scheduling gate"),
        (3, 2, "the pod may be scheduled"),
        (2, 1, "/filter: the reserved node?"),
        (2, 1, "/bind: held"),
        (1, 0, "fact Prepared"),
        (0, 0, "every member is at the barrier"),
        (0, 1, "Bind, for all pods"),
        (1, 3, "POST binding"),
        (3, 1, "bound, or an error"),
        (1, 0, "fact Bound or BindFailed"),
        (1, 2, "/bind returns"),
    ]
    return sequence("The barrier with the extender", components, steps)


def draw(folder: Path) -> None:
    """Write every diagram into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in {
        "architecture": architecture,
        "barrier": barrier,
        "planning-cycle": cycle,
        "states": states,
    }.items():
        (folder / f"{name}.svg").write_text(write())
