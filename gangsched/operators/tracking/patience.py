"""How long pods wait for a run: briefly, and not at all for a while after a failure."""

import time
from collections.abc import Callable

_PAUSE_S = 30.0
"""How long no job waits after a failure, or after a run that came too late."""


class Patience:
    """The wait for one server.

    A server that is down, or slow, delays the jobs of one moment by `wait_s`, at most once in half
    a minute; a server that refuses connections delays none.
    """

    def __init__(self, wait_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self.wait_s, self._now_s = wait_s, now_s
        self._impatient_until_s = 0.0

    def deadline_s(self) -> float:
        """Return until when a job that is seen now may wait."""
        return self._now_s() + self.wait_s

    def left_s(self, deadline_s: float) -> float:
        """Return how long a job may wait from now on; 0: not any more."""
        now_s = self._now_s()
        return 0.0 if now_s < self._impatient_until_s else max(deadline_s - now_s, 0.0)

    def lost(self) -> None:
        """Record a failure, or that a job has waited in vain."""
        self._impatient_until_s = self._now_s() + _PAUSE_S
