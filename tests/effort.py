"""How much a run tries: `suite` for every change, `nightly` before a release.

HYPOTHESIS_PROFILE names which. The first tries the same each time, enough to detect every change of
`make mutations`. A nightly run tries at least ten times as much, with seeds that no run had before:
they begin at NIGHT, a number that repeats the run.
"""

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "suite")
_SHARES = {"suite": 0.4, "nightly": 4.0}
_NIGHT = int(os.environ.get("NIGHT", "20260101"))

_BY_THE_CLOCK = (HealthCheck.too_slow,)
settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=_BY_THE_CLOCK,
)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=1000,
    print_blob=True,
    suppress_health_check=_BY_THE_CLOCK,
)


def seeds(count: int) -> range:
    """Return the seeds to try: `count` times the share of the profile, and at least one."""
    first = _NIGHT * 10_000 if PROFILE == "nightly" else 0
    return range(first, first + max(1, int(count * _SHARES[PROFILE])))
