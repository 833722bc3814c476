"""The examples of the four guides, run to their ends, and figures of Katib, MLflow and consent.

`make katib` and `make tracking` write two of the figures, in environments of their own. What is
not there is left out of the figures, and a line says which command makes it.
"""

import json
from pathlib import Path

import consent
from rich.console import Console

from gangsched.cli.guides import guides, run_guide

_MADE_BY = {"katib.json": "make katib", "tracking.json": "make tracking"}


def run() -> dict[str, float]:
    """Run every guide on a control plane of its own; return flat figures."""
    console = Console()
    results = [result for guide in guides().values() for result in run_guide(console, guide)]
    for result in results:
        if result.outcome != "ok":
            console.print(f"{result.outcome}: {result.title}: {result.reason}", soft_wrap=True)
    ended = sum(result.outcome == "ok" for result in results)
    figures = {
        "guides_examples": float(len(results)),
        "guides_examples_run_share": ended / len(results),
        "guides_examples_s": sum(result.took_s for result in results),
    }
    lost = consent.run()
    figures |= {key: lost[key] for key in ("preemptions", "lost_steps_p99")}
    for name, command in _MADE_BY.items():
        path = Path("build") / name
        if path.exists():
            figures |= json.loads(path.read_text())
        else:
            console.print(f"{path} is missing; {command} writes it")
    return figures
