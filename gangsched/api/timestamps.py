"""Moments as the API writes them (RFC 3339, UTC)."""

import time
from datetime import UTC, datetime


def rfc3339(at_s: float | None = None) -> str:
    """Return a moment, by default the present one, as metav1.Time has it.

    Args:
        at_s: seconds since 1970.

    """
    moment = datetime.fromtimestamp(time.time() if at_s is None else at_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(at_s: float | None = None) -> str:
    """Return a moment, by default the present one, as metav1.MicroTime has it."""
    moment = datetime.fromtimestamp(time.time() if at_s is None else at_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
