"""Timers against a plain look at all gangs, over random changes."""

import random

import pytest

from gangsched.core.engine.lifecycle.timers import Timers
from gangsched.core.model.ids import GangId

GANGS = [GangId(f"ns/g{index}") for index in range(6)]


@pytest.mark.parametrize("seed", range(40))
def test_whoever_is_due_is_found_when_it_is(seed):
    rng = random.Random(seed)
    due_s: dict[GangId, float] = {}
    timers = Timers(due_s.get)
    now_s = 0.0
    for _ in range(300):
        gang = rng.choice(GANGS)
        change = rng.choice(("watched", "later", "never", "gone", "time", "time"))
        if change == "watched":
            due_s[gang] = now_s + rng.choice((1.0, 2.0, 5.0, 5.0, 20.0))
            timers.watch(gang)
        elif change == "later" and gang in due_s:
            due_s[gang] += rng.choice((0.5, 3.0))  # nobody says so
        elif change == "never":
            due_s.pop(gang, None)
        elif change == "gone":
            due_s.pop(gang, None)
            timers.forget(gang)
        else:
            now_s += rng.choice((0.0, 0.5, 4.0))
            expected = {one for one in GANGS if due_s.get(one, float("inf")) <= now_s}
            found = timers.due(now_s)
            assert set(found) == expected
            assert len(found) == len(expected)
            for one in found:
                del due_s[one]
        assert timers.next_s() == min(due_s.values(), default=None)


def test_who_is_due_at_once_is_found_by_name():
    due_s = dict.fromkeys(reversed(GANGS), 1.0)
    timers = Timers(due_s.get)
    for gang in due_s:
        timers.watch(gang)
    assert timers.due(0.9) == []
    assert timers.due(1.0) == GANGS
