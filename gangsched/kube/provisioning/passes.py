"""Passes that are repeated, and changes that may fail: the next pass tries again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gangsched.core.model.ids import GangId
from gangsched.kube.client.errors import KubeError, NotFound

log = logging.getLogger(__name__)

T = TypeVar("T")

Hint = Callable[[GangId, str, str], None]
"""Writes an Event about a gang: gang, message, reason."""

_PASS_S = 2.0
_ABSENT_S = 30.0


async def repeat_passes(step: Callable[[], Awaitable[None]], kinds: str) -> None:
    """Repeat a pass until cancelled, more rarely while the cluster does not have its kinds."""
    absent = False
    while True:
        try:
            await step()
            absent = False
        except NotFound:
            if not absent:
                log.warning("there is no %s in this cluster", kinds)
            absent = True
        await asyncio.sleep(_ABSENT_S if absent else _PASS_S)


async def guarded(subject: str, work: Awaitable[T]) -> T | None:
    """Carry out one change; a failure is logged, and its result is None."""
    try:
        return await work
    except KubeError as error:
        log.warning("%s: %s", subject, error)
        return None
