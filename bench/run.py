"""Run one benchmark or all: `python bench/run.py bind`. Prints a table, writes flat JSON."""

import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

MODULES = {"simulator": "virtual_time"}
"""Modules of benchmarks whose name is taken by the package they measure."""

NAMES = (
    "plan",
    "placement",
    "queues",
    "traces",
    "muri",
    "fgd",
    "simulator",
    "bind",
    "jobs",
    "operators",
    "churn",
    "autoscale",
    "consent",
    "docs",
    "guides",
    "flood",
    "hostile",
    "remedies",
    "restart",
    "rounds",
    "scale",
    "web",
)


def main() -> None:
    """Run the benchmark that the command line names."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else "all"
    if wanted not in (*NAMES, "all"):
        sys.exit(f"error: NAME={wanted}: no such benchmark; there are: {', '.join(NAMES)}, all")
    sys.path.insert(0, str(Path(__file__).parent))
    folder = Path("build/bench")
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    for name in NAMES if wanted == "all" else (wanted,):
        console.print(f"benchmark {name}")
        figures = importlib.import_module(MODULES.get(name, name)).run()
        (folder / f"{name}.json").write_text(json.dumps(figures, indent=1, sort_keys=True))
        table = Table("FIGURE", "VALUE", box=None)
        for key, value in figures.items():
            table.add_row(key, f"{value:.3f}" if value < 100 else f"{value:.0f}")
        console.print(table)


if __name__ == "__main__":
    main()
