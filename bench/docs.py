"""The share of the documentation's commands that tests run; see tests/pages.py."""

import importlib
import sys
from pathlib import Path


def run() -> dict[str, float]:
    """Print the commands that no test here runs, and return the share of the others."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    pages = importlib.import_module("pages")
    for line, why in pages.ELSEWHERE.items():
        print(f"  elsewhere: {line}: {why}")
    for page, changes in pages.CHANGED.items():
        for old, new, why in changes:
            print(f"  changed in {page}: {old!r} to {new!r}: {why}")
    figures: dict[str, float] = pages.share()
    return figures
