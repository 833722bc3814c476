"""Operators of others beside gangsched: how many run, and whether the gangs of their pods do.

It runs the tests of `make operators`, and a witness that watches the pods from outside
(witness.py).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from witness import judge

TESTS = Path(__file__).parents[1] / "tests" / "integration"


def run() -> dict[str, float]:
    """Run every test beside an operator of others, and judge what was seen."""
    seen = Path("build/bench/operators.jsonl").absolute()
    paths = [str(Path(__file__).parent), str(TESTS), str(TESTS.parent)]
    command = [sys.executable, "-m", "pytest", "-p", "witness", "-m", "long or not long"]
    command += [
        str(TESTS / f"test_upstream_{name}.py") for name in ("operators", "jobsets", "groups")
    ]
    environment = os.environ | {"WITNESS": str(seen), "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(command, env=environment, check=False)
    found = judge(map(json.loads, seen.read_text().splitlines()))
    print(f"  gangs that started: {found.gangs}; operators: {', '.join(sorted(found.operators))}")
    return {
        "operators_run": float(len(found.operators)),
        "operators_gangs_atomic": found.whole / found.gangs if found.gangs else 0.0,
        "operators_silent_singletons": float(found.singletons),
        "operators_deadlocks": float(found.deadlocks),
    }
