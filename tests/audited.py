"""Where API servers of the tests note what is asked of them, for test_rights.py."""

from pathlib import Path

AUDIT = Path(__file__).parents[1] / "build" / "audit"
