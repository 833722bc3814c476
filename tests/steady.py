"""Runs the suite, or some tests, again and again on busy cores; lists every test that failed.

    python tests/steady.py 3
    python tests/steady.py 10 tests/integration/test_racks.py

Two processes burn the cores meanwhile. The log of each run is kept in build/steady.
"""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from audited import AUDIT

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "steady"
BURNERS = 2
SUITE = (
    ("-n", "3", "--dist", "loadscope", "--no-loadscope-reorder", "-m", "not long and not last"),
    ("-m", "last", "tests/integration"),
)


def burn() -> None:
    """Keep a core busy until this process is stopped."""
    while True:
        pass


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Burn the cores while the block runs."""
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(BURNERS)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.terminate()


def run(name: str, arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, set[str]]:
    """Run pytest once; return how many tests passed, and which failed."""
    log, results = FOLDER / f"{name}.log", FOLDER / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={results}"]
    with log.open("w") as out:
        done = subprocess.run(
            command, cwd=ROOT, stdout=out, stderr=out, env=os.environ | environment, check=False
        )
    passed, failed = 0, set()
    if results.exists():
        for case in ET.parse(results).iter("testcase"):  # noqa: S314 -- our own pytest wrote it
            if case.find("failure") is not None or case.find("error") is not None:
                failed.add(f"{case.get('classname')}::{case.get('name')}")
            elif case.find("skipped") is None:
                passed += 1
    if done.returncode and not failed:
        failed.add(f"pytest itself, with exit code {done.returncode}: see {log}")
    return passed, failed


def main() -> None:
    """Run as the command line says; exit with 1 if any test failed in any run."""
    if len(sys.argv) < 2 or not sys.argv[1].isdigit():
        sys.exit("usage: python tests/steady.py RUNS [TEST ...]")
    runs, tests = int(sys.argv[1]), tuple(sys.argv[2:])
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    parts = (("-n", "3", "--dist", "loadscope", *tests),) if tests else SUITE
    failures: dict[str, list[int]] = defaultdict(list)
    with busy():
        for number in range(1, runs + 1):
            began_s, passed, failed = time.monotonic(), 0, set()
            shutil.rmtree(AUDIT, ignore_errors=True)
            for part, arguments in enumerate(parts):
                audited = {"AUDITED": "1"} if part else {}
                more, bad = run(f"run-{number}-{part}", arguments, audited)
                passed, failed = passed + more, failed | bad
            for test in failed:
                failures[test].append(number)
            took_s = time.monotonic() - began_s
            print(
                f"run {number} of {runs}: {passed} passed, {len(failed)} failed, {took_s:.0f} s",
                flush=True,
            )
    for test, numbers in sorted(failures.items()):
        print(f"failed in {len(numbers)} of {runs} runs ({numbers}): {test}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
