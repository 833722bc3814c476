"""Users' expressions are evaluated in processes with limits, without delaying others."""

import asyncio
import signal
import subprocess
import sys

import msgspec
import psutil
import pytest
from waiting import patience_s, until_async

from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib.experiment import TriedPoint
from gangsched.operators.evaluation import pool as module
from gangsched.operators.evaluation.pool import Evaluators, OverrunError, UnusableError
from gangsched.operators.evaluation.program import LENGTH, Request

HOUR_S = 3600.0
"""The deadline where none is to pass: on a slow machine a process takes long to begin."""

FILTER = r"(\w+)=(\d+)"


def owned(namespace="ns", uid="u") -> Owned:
    return Owned({"metadata": {"namespace": namespace, "name": "e", "uid": uid}}, {})


def search(name: str, space: dict, **settings) -> dict:
    return {
        "algorithm": {
            "algorithmName": name,
            "algorithmSettings": [{"name": k, "value": str(v)} for k, v in settings.items()],
        },
        "objective": {"type": "minimize"},
        "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": space}],
    }


ENDLESS = search("grid", {"min": "1e300", "max": "2e300", "step": "1"})
"""A grid of 10^300 points, which are all written alike."""

AT = [TriedPoint({"x": "1" + "0" * 300}, "done", 1.0)]


class OnlyTheEndlessIsLate(module._Evaluator):
    """A process that has an hour for every request but the endless one."""

    async def ask(self, request):
        self._deadline_s = 0.3 if b"1e300" in request else HOUR_S
        return await super().ask(request)


def processes() -> list[psutil.Process]:
    return [
        one
        for one in psutil.Process().children()
        if "gangsched.operators.evaluation.program" in " ".join(_command(one))
    ]


def _command(process: psutil.Process) -> list[str]:
    """Return the command line of a process, nothing of one that has ended already."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one too
        return []


async def test_logs_patterns_and_searches_are_answered_by_processes_that_start_when_needed():
    async with Evaluators(HOUR_S) as evaluators:
        assert not processes()
        found = await evaluators.values(owned(), b"a=1\nb=2 a=3\n", ["a"], [FILTER])
        assert found == {"a": [1.0, 3.0]}
        found = await evaluators.matching(owned(), ["^N.*down$", "x"], ["NVLink is down", "ok"])
        assert found == {"^N.*down$": ["NVLink is down"], "x": []}
        spec = search("random", {"min": "0", "max": "1"})
        assert len(await evaluators.points(owned(), spec, AT, 3)) == 3
        assert len(processes()) == 1  # nobody had to wait for it
    assert not processes()


async def test_what_is_no_expression_is_said_and_the_process_goes_on():
    async with Evaluators(HOUR_S) as evaluators:
        with pytest.raises(UnusableError, match="is no expression"):
            await evaluators.values(owned(), b"a=1", ["a"], ["(("])
        (process,) = processes()
        assert await evaluators.values(owned(), b"a=1", ["a"], []) == {"a": [1.0]}
        assert processes() == [process]


async def test_what_never_ends_is_ended_and_given_up_the_third_time(monkeypatch):
    monkeypatch.setattr(module, "_Evaluator", OnlyTheEndlessIsLate)
    async with Evaluators(HOUR_S) as evaluators:
        for again in (True, True, False):
            with pytest.raises(OverrunError, match="it takes longer than") as error:
                await evaluators.points(owned(), ENDLESS, AT, 1)
            assert error.value.may_retry is again
        assert not processes()
        assert await evaluators.values(owned(), b"a=1", ["a"], []) == {"a": [1.0]}
        with pytest.raises(OverrunError) as error:
            await evaluators.points(owned(), ENDLESS, AT, 1)
        assert error.value.may_retry  # it was answered in between


async def test_an_evaluation_with_too_much_memory_is_reported():
    greedy = search("tpe", {"min": "0", "max": "1"}, n_startup_trials=1, n_ei_candidates=10**9)
    async with Evaluators(HOUR_S, memory_mib=300) as evaluators:
        with pytest.raises(OverrunError, match="it takes more than 300 MiB of memory"):
            await evaluators.points(owned(), greedy, [TriedPoint({"x": "0.5"}, "done", 1.0)] * 2, 1)
        assert await evaluators.values(owned(), b"a=1", ["a"], []) == {"a": [1.0]}


async def test_a_process_that_dies_is_replaced():
    async with Evaluators(HOUR_S) as evaluators:
        asked = asyncio.create_task(evaluators.points(owned(), ENDLESS, AT, 1))
        await until_async(processes, "a process")
        processes()[0].kill()
        with pytest.raises(OverrunError, match="its process ended with code -9"):
            await asked
        assert await evaluators.values(owned(), b"a=1", ["a"], []) == {"a": [1.0]}


async def test_who_asks_much_waits_for_himself():
    answered: list[str] = []

    async def ask(namespace: str) -> None:
        await evaluators.values(owned(namespace), b"a=1", ["a"], [])
        answered.append(namespace)

    async with Evaluators(HOUR_S, processes=1) as evaluators:
        await asyncio.gather(*(ask("many") for _ in range(30)), ask("one"))
    assert answered.index("one") <= 2


async def test_searches_without_end_leave_a_process_to_others():
    async with Evaluators(HOUR_S) as evaluators:
        asked = [
            asyncio.create_task(evaluators.points(owned("many", str(i)), ENDLESS, AT, 1))
            for i in range(20)
        ]
        await until_async(processes, "a process")
        for _ in range(3):
            assert await evaluators.values(owned("one"), b"a=1", ["a"], []) == {"a": [1.0]}
        assert not any(one.done() for one in asked)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_there_are_never_more_processes_than_allowed_and_none_is_left():
    async with Evaluators(HOUR_S, processes=2) as evaluators:
        asked = [
            asyncio.create_task(evaluators.points(owned(f"ns{i}", str(i)), ENDLESS, AT, 1))
            for i in range(5)
        ]
        await until_async(lambda: len(processes()) == 2, "two processes")
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert len(processes()) <= 2
    assert not processes()


async def test_a_process_gives_the_rest_of_the_machine_precedence():
    async with Evaluators(HOUR_S) as evaluators:
        await evaluators.values(owned(), b"a=1", ["a"], [])
        (process,) = processes()
        assert process.nice() > psutil.Process().nice()


async def test_a_failing_evaluation_is_reported_and_ends_the_third_time():
    wrong = search("sobol", {"min": "0"})
    async with Evaluators(HOUR_S) as evaluators:
        for again in (True, True, False):
            with pytest.raises(OverrunError, match=r"it failed with .*KeyError") as error:
                await evaluators.points(owned(), wrong, AT, 1)
            assert error.value.may_retry is again


def frame(task: str, *arguments) -> bytes:
    """Return a request as it is written to a process."""
    request = msgspec.msgpack.encode(Request(task, list(arguments)))
    return LENGTH.pack(len(request)) + request


def test_an_orphaned_process_ends_by_itself():
    """By the kernel when it has had its time, and at once when there is nothing more to do."""
    busy, idle = frame("points", ENDLESS, AT, 1, "u"), frame("values", b"", [], [])
    for requests, cpu_s, code in ((busy, 1, -signal.SIGXCPU), (idle, 60, 0)):
        program = [
            sys.executable,
            "-m",
            "gangsched.operators.evaluation.program",
            str(cpu_s),
            "300",
        ]
        done = subprocess.run(
            program, input=requests, capture_output=True, check=False, timeout=patience_s(120)
        )
        assert done.returncode == code
