"""Passes that are repeated, and changes that may fail: the next pass tries again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from gangsched.core.model.ids import GangId
from gangsched.core.progress import Progress
from gangsched.kube.client.errors import Forbidden, KubeError, NotFound

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Hint = Callable[[GangId, str, str], None]
"""Writes an Event about a gang: gang, message, reason."""

_PASS_S = 2.0
_ABSENT_S = 30.0
_LOOK_S = 0.2
_AT_ONCE = 16
"""Calls to the API server at the same time."""


async def repeat_passes(
    step: Callable[[], Awaitable[None]], kinds: str, wakes: Callable[[], bool] = lambda: False
) -> None:
    """Repeat a pass until cancelled, more rarely while the cluster does not have its kinds.

    Once it `wakes` the next pass does not wait.
    """
    absent = False
    while True:
        try:
            await step()
            absent = False
        except NotFound:
            if not absent:
                log.warning("there is no %s in this cluster", kinds)
            absent = True
        for _ in range(round((_ABSENT_S if absent else _PASS_S) / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            if wakes():
                break


async def pass_once(step: Callable[[], Awaitable[None]]) -> None:
    """Delete what an earlier setting left, by one pass, and do nothing more until cancelled."""
    with suppress(NotFound, Forbidden):  # no such kind or namespace, or an older role
        await step()
    await asyncio.Event().wait()


@contextmanager
def stopped_after(progress: Progress, limit_s: float) -> Iterator[None]:
    """Stop what watches a progress, in threads, unless the block ends before."""

    def stop() -> None:
        progress.stopped = True

    timer = asyncio.get_running_loop().call_later(limit_s, stop)
    try:
        yield
    finally:
        timer.cancel()


async def guarded(subject: str, work: Awaitable[T]) -> T | None:
    """Carry out one change; a failure is logged, and its result is None."""
    try:
        return await work
    except KubeError as error:
        log.warning("%s: %s", subject, error)
        return None


async def in_parallel(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Do something with each item, a few at a time; an error ends it after the present ones."""
    results: list[R] = []
    for at in range(0, len(items), _AT_ONCE):
        done = await asyncio.gather(*map(work, items[at : at + _AT_ONCE]), return_exceptions=True)
        for one in done:
            if isinstance(one, BaseException):
                raise one
            results.append(one)
    return results
