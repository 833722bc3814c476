"""Evaluates user input in processes of its own: patterns, logs, the points of a search.

No input can exhaust the scheduler's own threads, memory or event loop: the processes have limits,
and one that passes its deadline is killed. Namespaces take turns.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from gangsched.core.bounds import EVALUATION_MIB, EVALUATION_S, EVALUATION_TRIES, EVALUATORS
from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib.experiment import SuggestedPoint, TriedPoint
from gangsched.jobs.katib.metrics import Series
from gangsched.kube.client.namespace_queue import NamespaceFairQueue
from gangsched.operators.evaluation.program import LENGTH, Answer, Request
from gangsched.operators.job_kind import BlockedError

log = logging.getLogger(__name__)

_WARM_S = 600.0
"""After this idle time a process is ended: its libraries take some hundred MiB."""

_ENDS_IN_S = 5.0
"""A process that closed its output has ended, or is about to."""

_SERIAL = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each thread of an algebra library would take memory of the process's limit."""

_OVERRUNS_KEPT = 10_000
_DECODE_ANSWER = msgspec.msgpack.Decoder(Answer).decode


class UnusableError(Exception):
    """The input cannot be evaluated; the message is the reason."""


class OverrunError(BlockedError):
    """An evaluation passed its bounds or failed; `may_retry` says whether it may be retried."""

    def __init__(self, clause: str, *, may_retry: bool) -> None:
        super().__init__(clause)
        self.may_retry = may_retry


class _LostError(Exception):
    """The process was killed, or ended by itself; the message is the reason."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    namespace: str
    request: bytes
    answer: asyncio.Future[Answer]


class Evaluators:
    """A pool of processes, started on demand. Use as an async context manager.

    Args:
        deadline_s: largest duration of one evaluation, in seconds.
        memory_mib: memory of each process, in MiB.
        processes: largest number of processes.

    """

    def __init__(
        self,
        deadline_s: float = EVALUATION_S.most,
        memory_mib: int = EVALUATION_MIB.most,
        processes: int = EVALUATORS.most,
    ) -> None:
        self._limits = deadline_s, memory_mib
        self._most = processes
        # With two or more processes, one is always free for another namespace.
        self._queue: NamespaceFairQueue[_Evaluation] = NamespaceFairQueue(
            lambda evaluation: evaluation.namespace, max(processes - 1, 1)
        )
        self._servers: list[asyncio.Task[None]] = []
        self._idle = 0
        self._overruns: OrderedDict[str, int] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.cancel()
        await asyncio.gather(*self._servers, return_exceptions=True)
        self._servers.clear()
        self._idle = 0

    # -- requests -------------------------------------------------------------------------------

    async def matching(
        self, owned: Owned, patterns: Sequence[str], messages: Sequence[str]
    ) -> dict[str, list[str]]:
        """Return the messages that match, by pattern. Raises the same errors as `points`."""
        answer = await self._ask(owned, "matching", [list(patterns), list(messages)])
        return msgspec.convert(answer, dict[str, list[str]])

    async def values(
        self, owned: Owned, log: bytes, names: Sequence[str], filters: Sequence[str]
    ) -> Series:
        """Return the values of metrics in a log. Raises the same errors as `points`."""
        answer = await self._ask(owned, "values", [log, list(names), list(filters)])
        return msgspec.convert(answer, Series)

    async def points(
        self, owned: Owned, spec: Json, tried: list[TriedPoint], count: int
    ) -> list[SuggestedPoint]:
        """Return the next points of a search.

        Raises:
            UnusableError: the search has no points; the message is the reason.
            OverrunError: the search took too long or too much memory, or failed.

        """
        needed = {key: spec[key] for key in ("algorithm", "objective", "parameters")}
        answer = await self._ask(owned, "points", [needed, tried, count, owned.uid])
        return msgspec.convert(answer, list[SuggestedPoint])

    async def template(self, owned: Owned, text: str) -> Json:
        """Return the job of a template that is text. Raises the same errors as `points`."""
        answer = await self._ask(owned, "template", [text])
        return msgspec.convert(answer, Json)

    # -- answers --------------------------------------------------------------------------------

    async def _ask(self, owned: Owned, task: str, arguments: list[Any]) -> Any:
        request = msgspec.msgpack.encode(Request(task, arguments))
        evaluation = _Evaluation(
            owned.namespace, request, asyncio.get_running_loop().create_future()
        )
        self._queue.put(evaluation)
        if len(self._queue) > self._idle and len(self._servers) < self._most:
            self._servers.append(asyncio.create_task(self._serve()))
        try:
            answer = await evaluation.answer
        except _LostError as error:
            raise self._overrun(owned.uid, str(error)) from error
        if answer.no_memory:
            raise self._overrun(owned.uid, f"it takes more than {self._limits[1]} MiB of memory")
        if answer.failed:
            log.warning("%s/%s: %s failed: %s", owned.namespace, owned.name, task, answer.failed)
            last_line = answer.failed.strip().rsplit("\n", 1)[-1]
            raise self._overrun(owned.uid, f"it failed with {shown(last_line)}")
        self._overruns.pop(owned.uid, None)
        if answer.wrong:
            raise UnusableError(answer.wrong)
        return answer.value

    def _overrun(self, uid: str, clause: str) -> OverrunError:
        count = self._overruns.pop(uid, 0) + 1
        self._overruns[uid] = count
        if len(self._overruns) > _OVERRUNS_KEPT:
            self._overruns.popitem(last=False)
        return OverrunError(clause, may_retry=count < EVALUATION_TRIES.most)

    async def _serve(self) -> None:
        process = _Evaluator(*self._limits)
        try:
            while True:
                evaluation = await self._next(process)
                try:
                    await _answer(process, evaluation)
                finally:
                    self._queue.done(evaluation)
        finally:
            await process.end()

    async def _next(self, process: "_Evaluator") -> _Evaluation:
        self._idle += 1
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_WARM_S):
                        return await self._queue.get()
                await process.end()
        finally:
            self._idle -= 1


async def _answer(process: "_Evaluator", evaluation: _Evaluation) -> None:
    if evaluation.answer.done():
        return  # the caller does not wait any more
    try:
        answer = await process.ask(evaluation.request)
    except Exception as error:  # noqa: BLE001 -- the caller gets it
        if not evaluation.answer.done():
            evaluation.answer.set_exception(error)
    else:
        if not evaluation.answer.done():
            evaluation.answer.set_result(answer)


class _Evaluator:
    """One process; a request starts it if it does not run."""

    def __init__(self, deadline_s: float, memory_mib: int) -> None:
        self._deadline_s, self._memory_mib = deadline_s, memory_mib
        self._process: Process | None = None

    async def ask(self, request: bytes) -> Answer:
        """Return the answer to a request.

        Raises:
            _LostError: the process ended without an answer.

        """
        try:
            async with asyncio.timeout(self._deadline_s):
                process = self._process or await self._begin()
                assert process.stdin is not None, "a pipe"  # noqa: S101
                process.stdin.write(LENGTH.pack(len(request)) + request)
                await process.stdin.drain()
                answer = _DECODE_ANSWER(await self._frame(process))
        except TimeoutError:
            await self.end()
            raise _LostError(f"it takes longer than {self._deadline_s:g} s") from None
        except (EOFError, ConnectionError) as error:
            code = await self.end(_ENDS_IN_S)
            if code == -signal.SIGXCPU:
                raise _LostError(f"it takes longer than {self._deadline_s:g} s") from error
            raise _LostError(f"its process ended with code {code}") from error
        except BaseException:
            await self.end()  # a late answer would be read as the answer to another request
            raise
        if answer.no_memory:
            await self.end()
        return answer

    async def _begin(self) -> Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gangsched.operators.evaluation.program",
            str(int(self._deadline_s) + 1),
            str(self._memory_mib),
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, **_SERIAL},
            start_new_session=True,
        )
        await self._frame(self._process)  # the process is ready
        return self._process

    async def _frame(self, process: Process) -> bytes:
        assert process.stdout is not None, "a pipe"  # noqa: S101
        head = await process.stdout.readexactly(LENGTH.size)
        return await process.stdout.readexactly(*LENGTH.unpack(head))

    async def end(self, by_itself_in_s: float = 0.0) -> int | None:
        """End the process, if there is one, and return its exit code.

        Wait first if the process ends by itself: a signal would hide its exit code.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(by_itself_in_s):
                return await process.wait()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
