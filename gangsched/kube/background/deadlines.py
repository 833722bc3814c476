"""Long computations: each in a thread of its own, with a deadline that the event loop watches.

A computation that passes its deadline is told to stop, and does at its next step. One that does
not is lost: no thread can be ended from outside. Then the process has to end, and the next leader
has to know of the gang that it was at (`quarantine.py`).

The threads are no executor's: whatever fills asyncio's own keeps no plan waiting, and a lost one
does not keep the process from ending.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gangsched.core.model.ids import GangId
from gangsched.core.progress import Progress, StoppedError
from gangsched.kube.client.errors import EngineError

Found = TypeVar("Found")

_LOOKS = 20
"""How often a computation is looked at until its deadline. Looks are counted, not seconds: a
process that was stopped for a while, or a busy loop, makes no computation late."""

_SLOW_LOOKS = 2
"""After so many looks work counts as slow: it may end the process by its memory."""

Slow = Callable[[GangId | None], None]


def _ignore_slow(_: GangId | None) -> None:
    """Do nothing about what is slow."""


class LateError(Exception):
    """A computation passed its deadline and stopped on request, at `gang`."""

    def __init__(self, what: str, gang: GangId | None, deadline_s: float) -> None:
        self.gang, self.problem = gang, f"{what} took longer than {deadline_s:g} s"
        super().__init__(f"{self.problem} at {gang or 'no gang'}")


class LostThreadError(EngineError):
    """A computation did not stop on request: only the end of the process stops it."""

    def __init__(self, what: str, gang: GangId | None, waited_s: float) -> None:
        self.gang, self.problem = gang, f"{what} did not end within {waited_s:g} s"
        super().__init__(f"{self.problem} at {gang or 'no gang'}")


@dataclass(frozen=True, slots=True)
class Deadline:
    """How long a computation may take, by itself or for `each_gang`, and then to stop (grace)."""

    what: str
    deadline_s: float
    grace_s: float
    each_gang: bool = False

    async def run(
        self, work: Callable[[], Found], progress: Progress, slow: Slow = _ignore_slow
    ) -> Found:
        """Do work that reports its progress, and return its result.

        Long before the deadline `slow` is called with the present gang, for each that takes long.

        Raises:
            LateError: it took too long, and stopped.
            LostThreadError: it took too long, and goes on.

        """
        done = _in_thread(work, self.what)
        try:
            each = self.each_gang
            if not await _ends(done, progress, self.deadline_s, slow, each_gang=each):
                progress.stopped = True
                if not await _ends(done, progress, self.grace_s):
                    waited_s = self.deadline_s + self.grace_s
                    raise LostThreadError(self.what, progress.gang, waited_s)
            return done.result()
        except StoppedError as error:
            raise LateError(self.what, error.gang, self.deadline_s) from error
        finally:
            if not done.done():  # the caller was cancelled
                progress.stopped = True
                done.cancel()


async def _ends(
    done: "asyncio.Future[Found]",
    progress: Progress,
    limit_s: float,
    slow: Slow = _ignore_slow,
    *,
    each_gang: bool = False,
) -> bool:
    """Wait until work is done; return whether it was in time."""
    looks, turns = 0, progress.turns
    while looks < _LOOKS:
        await asyncio.wait([done], timeout=limit_s / _LOOKS)
        if done.done():
            return True
        looks += 1
        if each_gang and progress.turns != turns:
            looks, turns = 0, progress.turns
        if looks == _SLOW_LOOKS:
            slow(progress.gang)
    return False


def _in_thread(work: Callable[[], Found], name: str) -> "asyncio.Future[Found]":
    """Begin work in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Found] = loop.create_future()

    def settle(set_what: Callable[..., None], what: object) -> None:
        if not done.done():
            set_what(what)

    def begin() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 -- the waiting caller gets it
            answer: tuple[Callable[..., None], object] = done.set_exception, error
        else:
            answer = done.set_result, result
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, *answer)

    threading.Thread(target=begin, name=name, daemon=True).start()
    return done
