"""The program that evaluates user input: patterns, logs, searches. It has limits of its own.

It reads requests from its input and writes answers to its output, each after its length. A request
may end the process, or keep it busy until it is killed, without other losses.
"""

import math
import os
import resource
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import IO, Any

import msgspec

from gangsched.jobs.katib.experiment import SuggestedPoint, TriedPoint
from gangsched.operators.search.expressions import ExpressionError, matching
from gangsched.operators.search.search_space import SpaceError
from gangsched.operators.search.template_text import TemplateError

LENGTH = struct.Struct(">I")
"""Format of the length before each request and answer."""

_NICENESS = 10


class Request(msgspec.Struct):
    """A request: the name of a task, and its arguments."""

    task: str
    arguments: list[Any]


class Answer(msgspec.Struct, omit_defaults=True):
    """The value of a task, or what is `wrong` with its arguments, or how it `failed`."""

    value: Any = None
    wrong: str = ""
    failed: str = ""
    no_memory: bool = False


def _values(log: bytes, names: list[str], filters: list[str]) -> dict[str, list[float]]:
    from gangsched.operators.search.metrics_collector import read  # noqa: PLC0415 -- only when needed

    return read(log.decode(errors="replace"), names, filters)


def _points(spec: Any, tried: list[Any], count: int, uid: str) -> list[SuggestedPoint]:
    from gangsched.operators.search.suggestion import suggest  # noqa: PLC0415 -- heavy

    return suggest(spec, msgspec.convert(tried, list[TriedPoint]), count, uid)


def _template(text: str) -> Any:
    from gangsched.operators.search.template_text import parsed  # noqa: PLC0415 -- only when needed

    return parsed(text)


_TASKS: dict[str, Callable[..., Any]] = {
    "matching": matching,
    "values": _values,
    "points": _points,
    "template": _template,
}


def answer(raw: bytes) -> bytes:
    """Run the task of a request, and return the answer."""
    try:
        request = msgspec.msgpack.decode(raw, type=Request)
        reply = Answer(value=_TASKS[request.task](*request.arguments))
    except (ExpressionError, SpaceError, TemplateError) as error:
        reply = Answer(wrong=str(error))
    except MemoryError:
        reply = Answer(no_memory=True)
    except Exception:  # noqa: BLE001 -- the caller gets it
        reply = Answer(failed=traceback.format_exc())
    return msgspec.msgpack.encode(reply)


def _limit(memory_mib: int) -> None:
    """Bound the memory and the CPU of this process."""
    data = memory_mib * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)


def _allow(cpu_s: int) -> None:
    """Limit the CPU seconds of the next task: the kernel ends an abandoned process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(usage.ru_utime + usage.ru_stime) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _read(source: IO[bytes]) -> bytes | None:
    head = source.read(LENGTH.size)
    return source.read(*LENGTH.unpack(head)) if len(head) == LENGTH.size else None


def main(cpu_s: int, memory_mib: int) -> None:
    """Answer requests until the input ends; an empty answer reports readiness."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print to standard error, not between answers
    warnings.simplefilter("ignore")
    _limit(memory_mib)
    reply = b""
    while True:
        answers.write(LENGTH.pack(len(reply)) + reply)
        answers.flush()
        request = _read(sys.stdin.buffer)
        if request is None:
            return
        _allow(cpu_s)
        reply = answer(request)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
