"""When a run on KWOK ends early."""

from types import SimpleNamespace

import pytest

from simulator.kwok import rehearsal

QUIET_S = 100.0
SLOW_S = 90.0
"""How long the next job takes until it ends: less than a run is given to be quiet."""


@pytest.mark.parametrize(("ending", "left"), [(10, 0), (4, 6)])
async def test_a_run_is_given_up_only_when_nothing_ends(monkeypatch, ending, left):
    """Ten jobs, of which some end, each later than a machine at full speed would need for all."""
    seen = rehearsal._Seen({}, lambda: 0.0, left=10)
    now_s = 0.0

    def next_moment(_: str) -> None:
        nonlocal now_s, ending
        now_s += SLOW_S
        seen.left -= bool(ending)
        ending -= bool(ending)
        seen.changed.set()

    monkeypatch.setattr(rehearsal, "time", SimpleNamespace(monotonic=lambda: now_s))
    await rehearsal._ended(seen, QUIET_S, next_moment)
    assert seen.left == left
