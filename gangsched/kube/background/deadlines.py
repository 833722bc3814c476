"""Deadlines of long computations: each runs in its own thread, and the event loop watches it.

A computation that passes its deadline gets the request to stop, and stops at its next step. A
computation that ignores the request is lost, because no thread can be ended from outside. Then the
process has to end, and the next leader reads from the quarantine which gang caused it
(`quarantine.py`).

The threads belong to no executor, for two reasons: a full executor of asyncio must delay no plan,
and a lost thread must not keep the process from ending.
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
"""How often the event loop checks a computation before its deadline. It counts checks, not seconds:
a suspended process or a busy event loop makes no computation late."""

_SLOW_LOOKS = 2
"""A computation counts as slow after this many checks: its memory may end the process."""

Slow = Callable[[GangId | None], None]


def _ignore_slow(_: GangId | None) -> None:
    """Ignore that a computation is slow."""


class LateError(Exception):
    """A computation passed its deadline and stopped on request; it was planning `gang`."""

    def __init__(self, what: str, gang: GangId | None, deadline_s: float) -> None:
        self.gang, self.problem = gang, f"{what} took longer than {deadline_s:g} s"
        super().__init__(f"{self.problem} at {gang or 'no gang'}")


class LostThreadError(EngineError):
    """A computation did not stop on request; only the end of the process can stop it."""

    def __init__(self, what: str, gang: GangId | None, waited_s: float) -> None:
        self.gang, self.problem = gang, f"{what} did not end within {waited_s:g} s"
        super().__init__(f"{self.problem} at {gang or 'no gang'}")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The seconds that a computation may take, and the seconds (grace) that it may take to stop.

    With `each_gang` the deadline starts again for each gang.
    """

    what: str
    deadline_s: float
    grace_s: float
    each_gang: bool = False

    async def run(
        self, work: Callable[[], Found], progress: Progress, slow: Slow = _ignore_slow
    ) -> Found:
        """Run work that reports its progress, and return its result.

        If a gang takes long, `slow` is called with it, long before the deadline.

        Raises:
            LateError: the work took too long, and stopped.
            LostThreadError: the work took too long, and has not stopped.

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
    """Wait for the end of work; return whether it ended within the limit."""
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
    """Start work in a thread that does not keep the process from ending."""
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
