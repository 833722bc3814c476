"""Other operators with gangsched: how many work, and whether their gangs start whole.

Runs the tests of `make operators` with an observer that watches the pods (witness.py).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from witness import judge

TESTS = Path(__file__).parents[1] / "tests" / "integration"


def run() -> dict[str, float]:
    """Run every test with another operator, and count how its gangs started."""
    seen = Path("build/bench/operators.jsonl").absolute()
    paths = [str(Path(__file__).parent), str(TESTS), str(TESTS.parent)]
    command = [sys.executable, "-m", "pytest", "-p", "witness", "-m", "long or not long"]
    command += [
        str(TESTS / f"test_upstream_{name}.py") for name in ("operators", "jobsets", "groups")
    ]
    environment = os.environ | {"WITNESS": str(seen), "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(command, env=environment, check=False)
    counts = judge(map(json.loads, seen.read_text().splitlines()))
    print(f"  gangs that started: {counts.gangs}; operators: {', '.join(sorted(counts.operators))}")
    return {
        "operators_run": float(len(counts.operators)),
        "operators_gangs_atomic": counts.whole / counts.gangs if counts.gangs else 0.0,
        "operators_silent_singletons": float(counts.singletons),
        "operators_deadlocks": float(counts.deadlocks),
    }
