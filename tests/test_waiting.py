"""Waiting in tests: deadlines grow on a busier machine."""

import sys

import pytest
import waiting


class Clock:
    """A clock that stands still but for those who sleep by it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, for_s: float) -> None:
        self.now_s += for_s


@pytest.fixture
def clock(monkeypatch):
    """A machine that is four times as slow as it was when the tests began."""
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(waiting, "_measured", lambda: 4 * waiting.FACTOR)
    return made


@pytest.mark.parametrize(("comes", "is_there"), [(3.9, True), (4.2, False)])
def test_a_machine_that_became_busier_has_longer(clock, comes, is_there):
    came_s = comes * waiting.patience_s(10)
    if is_there:
        assert waiting.until(lambda: clock.now_s > came_s, "it", 10)
    else:
        with pytest.raises(AssertionError, match="in vain for it"):
            waiting.until(lambda: clock.now_s > came_s, "it", 10)
    assert clock.now_s == pytest.approx(min(comes, 4) * waiting.patience_s(10), abs=1.0)


def test_a_command_is_run_to_its_end():
    code = "import sys; sys.stderr.write('no'); print(input()); sys.exit(3)"
    done = waiting.ended([sys.executable, "-c", code], 30, stdin="yes")
    assert (done.returncode, done.stdout, done.stderr) == (3, "yes\n", "no")


def test_a_command_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(waiting, "_measured", lambda: 0.0)
    with pytest.raises(AssertionError, match="in vain for sleep 1000"):
        waiting.ended(["sleep", "1000"], 0.01)
