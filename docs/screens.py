"""Pictures of the terminal and of the dashboards, from the day that test_predictions lives through.

`python docs/screens.py` starts a control plane with Prometheus and takes about four minutes. The
dashboards' panels are drawn from their own queries: Grafana is not needed, and not shown.
"""

import json
import math
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/integration"), str(ROOT / "tests")]
mpl.use("Agg")

from cluster import Cluster  # noqa: E402 -- found by the path above
from conftest import a_plane  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402
from test_monitoring import DASHBOARDS  # noqa: E402
from test_predictions import NODES, SETTINGS, declare, live_through  # noqa: E402

from gangsched.local.nodes import NodeFile  # noqa: E402
from gangsched.local.plane import Plane, PlaneOptions, client_environment  # noqa: E402

OUT = ROOT / "docs" / "screens"
SPACE = "training"
NOON_S = 27.0
LATER = """
apiVersion: gangsched.io/v1beta1
kind: PodGroup
metadata: {name: night-run}
spec:
  queue: vision
  expectedRuntimeSeconds: 20
  roles:
  - name: worker
    count: 2
    template:
      spec:
        containers: [{name: main, image: none, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
SCREENS = {
    "queue": ("queue",),
    "queue-speech": ("queue", "speech"),
    "explain": ("explain", f"{SPACE}/s-large"),
    "explain-never": ("explain", f"{SPACE}/v-never"),
    "when": ("when", "night-run.yaml", "-n", SPACE),
    "what-if": ("what-if", "--quota", "vision:nvidia.com/gpu=24"),
}


def main() -> None:
    """Live through the day and draw."""
    OUT.mkdir(exist_ok=True)
    config = ROOT / "build" / "day.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(SETTINGS)
    (ROOT / "build" / "night-run.yaml").write_text(LATER)
    flags = (("gangsched", f"--config {config}"),)
    options = PlaneOptions(binding="direct", flags=flags, monitoring=True)
    with a_plane("screens", NodeFile(nodes=(NODES,)), options) as plane:
        cluster = Cluster(plane, "direct")
        cluster.core.create_namespace({"metadata": {"name": SPACE}})
        cluster.namespace = SPACE
        time.sleep(2)
        declare(cluster)
        begin_s = time.time()
        day = threading.Thread(target=live_through, args=(cluster,))
        day.start()
        time.sleep(NOON_S)
        for name, command in SCREENS.items():
            screen(plane, name, command)
        day.join()
        for path in sorted(DASHBOARDS.glob("*.json")):
            board(plane, json.loads(path.read_text()), path.stem, begin_s)


def screen(plane: Plane, name: str, command: tuple[str, ...]) -> None:
    """Save what a command prints in a terminal of 80 columns."""
    done = subprocess.run(
        [sys.executable, "-m", "gangsched", *command],
        cwd=ROOT / "build",
        env=client_environment(plane)
        | {"COLUMNS": "80", "FORCE_COLOR": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    console = Console(record=True, width=80, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    said = Text.from_ansi(done.stdout + done.stderr)
    console.print(Text(f"$ gangsched {' '.join(command)}", style="bold"))
    console.print(said)
    widest = max(len(line) for line in said.plain.splitlines())
    Console().print(f"{name}: exit {done.returncode}, {widest} columns")
    drawn = console.export_svg(title="gangsched", font_aspect_ratio=0.61)
    # Without the fonts' addresses: a page of ours loads nothing from elsewhere.
    (OUT / f"{name}.svg").write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))


def board(plane: Plane, document: dict[str, Any], name: str, begin_s: float) -> None:
    """Draw the panels of a dashboard over the day, where its grid has them."""
    panels = [one for one in document["panels"] if one.get("targets")]
    height = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in document["panels"])
    figure = plt.figure(figsize=(16, 0.42 * height), facecolor="white")
    for one in panels:
        at = one["gridPos"]
        box = [
            at["x"] / 24 + 0.025,
            1 - (at["y"] + at["h"]) / height + 0.9 / height,
            at["w"] / 24 - 0.04,
            (at["h"] - 2.4) / height,
        ]
        axes = figure.add_axes(box)
        axes.set_title(one["title"], fontsize=9, loc="left")
        if one["type"] == "table":
            tabulate(plane, axes, one["targets"], begin_s)
            continue
        for target in one["targets"]:
            for labels, times, values in ask(plane, target["expr"], begin_s):
                label = target.get("legendFormat", "")
                for key, value in labels.items():
                    label = label.replace("{{" + key + "}}", value).replace(
                        "{{ " + key + " }}", value
                    )
                axes.plot([t - begin_s for t in times], values, lw=1.2, label=label)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=6, loc="upper left", frameon=False, ncols=2)
    figure.savefig(OUT / f"{name}.png", dpi=80)
    plt.close(figure)


def tabulate(plane: Plane, axes: Any, targets: list[dict[str, Any]], begin_s: float) -> None:
    """Draw a table as it was at noon: a row for each set of labels, a column for each query."""
    titles = [target["legendFormat"] for target in targets]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for target in targets:
        for labels, times, values in ask(plane, target["expr"], begin_s):
            now = [
                value for at_s, value in zip(times, values, strict=True) if at_s <= begin_s + NOON_S
            ]
            if now:
                key = tuple(labels.get(name, "") for name in ("queue", "resource", "kind"))
                rows.setdefault(key, {})[target["legendFormat"]] = f"{now[-1]:g}"
    cells = [[*key, *(row.get(title, "") for title in titles)] for key, row in sorted(rows.items())]
    axes.axis("off")
    titles = ["queue", "resource", "kind", *titles]
    height = min(0.08 * (len(cells) + 1), 1.0)
    drawn = axes.table(cells, colLabels=titles, cellLoc="left", bbox=[0, 1 - height, 1, height])
    drawn.auto_set_font_size(value=False)
    drawn.set_fontsize(7)


def ask(
    plane: Plane, query: str, begin_s: float
) -> Iterator[tuple[dict[str, str], tuple[float, ...], tuple[float, ...]]]:
    """Yield labels, times and values of what a query gives over the day."""
    query = query.replace("$queue", ".*").replace("$__rate_interval", "30s")
    end_s = time.time()
    arguments = {"query": query, "start": begin_s, "end": end_s, "step": 1}
    address = (
        plane.info()["prometheus"] + "/api/v1/query_range?" + urllib.parse.urlencode(arguments)
    )
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 -- our own
        for one in json.load(answer)["data"]["result"]:
            pairs = [(t, float(v)) for t, v in one["values"] if not math.isnan(float(v))]
            if pairs:
                yield one["metric"], *zip(*pairs, strict=True)


if __name__ == "__main__":
    main()
