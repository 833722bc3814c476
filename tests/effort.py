"""How much a run tries: `quick` for a developer, `suite` for every change, `nightly` for a release.

HYPOTHESIS_PROFILE names which. The first two try the same each time. A nightly run tries seeds that
no run had before: they begin at NIGHT, a number that says the same again.
"""

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "suite")
_SHARES = {"quick": 0.4, "suite": 1.0, "nightly": 4.0}
_NIGHT = int(os.environ.get("NIGHT", "20260101"))

_BY_THE_CLOCK = (HealthCheck.too_slow,)
settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=_BY_THE_CLOCK,
)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=40)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=1000,
    print_blob=True,
    suppress_health_check=_BY_THE_CLOCK,
)


def seeds(count: int) -> range:
    """Return the seeds to try where the suite tries `count`."""
    first = _NIGHT * 10_000 if PROFILE == "nightly" else 0
    return range(first, first + max(1, int(count * _SHARES[PROFILE])))
