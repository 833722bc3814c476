"""Durations of tests: stored in build/durations.json, and printed by this file as a program."""

import json
import sys
from collections import defaultdict
from pathlib import Path

FILE = Path(__file__).parents[1] / "build" / "durations.json"


class Durations:
    """A pytest plugin that adds up set-up, call and teardown of each test."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report) -> None:
        self._took_s[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Add this session's tests to those of the sessions before."""
        took_s = {**read(), **self._took_s}
        FILE.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(took_s.items(), key=lambda pair: -pair[1])
        FILE.write_text(json.dumps({test: round(took, 3) for test, took in ordered}, indent=1))


def read() -> dict[str, float]:
    """Return what is known: seconds by test."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def main() -> None:
    """Print the slowest tests and the sum of all."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    took_s = read()
    print(f"\nslowest {count} of {len(took_s)} tests ({sum(took_s.values()):.0f} s in all):")
    for test, seconds in list(took_s.items())[:count]:
        print(f"{seconds:8.1f} s  {test}")


if __name__ == "__main__":
    main()
