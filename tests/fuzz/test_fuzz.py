"""A short fuzzing run for each decoder of external input; `make fuzz MINUTES=n` runs longer."""

import random

import pytest
from effort import seeds
from mutate import bad
from targets import FREE, targets
from watched import arm, disarm, tried

NAMES = list(targets(None))
_TRIES = seeds(100)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """All targets by name, with documents that they take."""
    return targets(tmp_path_factory.mktemp("targets"))


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_answered(name, known, tmp_path):
    """One that hangs ends the process with the stack of every thread."""
    target, documents = known[name]
    rng = random.Random(name)
    try:
        for _ in _TRIES:
            arm()
            tried(target, bad(rng.choice(documents), rng, free=name in FREE), tmp_path / "input")
    finally:
        disarm()
