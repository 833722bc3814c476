"""The audit logs of the tests' API servers, for test_rights.py."""

from pathlib import Path

AUDIT = Path(__file__).parents[1] / "build" / "audit"
