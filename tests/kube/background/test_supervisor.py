"""Background tasks may fail and are restarted; the engine may not fail."""

import asyncio

import pytest
from builders import POLICIES, gang, needs, node, plan, pod
from prometheus_client import generate_latest
from waiting import patience_s, until_async

from gangsched.config import SchedulerConfig
from gangsched.core.facts import GangSeen, NodeSeen
from gangsched.core.model.runtime import EstimateSource
from gangsched.core.planning.forecast import Prediction
from gangsched.kube.client.errors import EngineError
from gangsched.kube.service import Scheduler
from gangsched.kube.status.status_record import StatusRecord
from gangsched.metrics import Metrics


@pytest.fixture
def scheduler(monkeypatch):
    """Return one that changes nothing, with no time between a failure and the next try."""
    monkeypatch.setattr("gangsched.kube.background.supervisor._AGAIN_S", 0.0)
    return Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)


async def test_a_failed_task_is_counted_logged_and_restarted(scheduler, caplog):
    tries, done = [], asyncio.Event()

    async def work() -> None:
        tries.append(1)
        if len(tries) <= 2:
            raise ZeroDivisionError("a defect")
        done.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(scheduler.background.supervise("advice", work))
    await asyncio.wait_for(done.wait(), patience_s(10))
    task.cancel()
    assert caplog.text.count("advice failed") == 2
    assert "a defect" in caplog.text
    figures = generate_latest(scheduler.metrics.registry)
    assert b'gangsched_failures_total{work="advice"} 2.0' in figures


async def test_a_failure_of_the_engine_is_passed_on(scheduler):
    async def work() -> None:
        raise EngineError("a defect")

    with pytest.raises(EngineError):
        await scheduler.background.supervise("advice", work)


async def test_a_failure_of_the_engine_ends_the_process_wherever_caught(scheduler, monkeypatch):
    async def read(*_) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(scheduler, "read", read)
    monkeypatch.setattr(scheduler.engine, "observe", lambda *_: {}["a defect"])
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(0)
    with pytest.raises(EngineError):  # as in an answer to kube-scheduler, where aiohttp catches it
        scheduler.driver.observe(NodeSeen(node("n")))
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(running, patience_s(10))
    assert raised.group_contains(EngineError)


async def test_an_order_that_fails_unexpectedly_ends_the_process(scheduler, monkeypatch):
    async def read(*_) -> None:
        await asyncio.Event().wait()

    async def order() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(scheduler, "read", read)
    running = asyncio.create_task(scheduler.run())
    scheduler.pods.start(order())
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(running, patience_s(10))
    assert raised.group_contains(ZeroDivisionError)


def test_the_first_forecast_of_a_gang_is_forgotten_with_it(scheduler):
    beside = scheduler.background
    beside._keep_predictions(
        {"ns/gone": Prediction("ns/gone", 1, 5.0, 5.0, 5.0, EstimateSource.LEARNED)}
    )
    assert not scheduler.expected.gangs()


async def test_a_gang_that_starts_during_a_forecast_gets_none(scheduler, monkeypatch):
    """What a running gang is told would stand on it for ever."""
    scheduler.driver.observe(NodeSeen(node("n")))
    for name, gpus in (("starts", 1), ("waits", 9)):
        scheduler.driver.observe(GangSeen(gang(name, 1)))
        scheduler.driver.observe(pod(f"{name}-0", name, needs(gpus)))

    async def run_in_time(_, __, snapshot) -> dict[str, Prediction]:
        plan(scheduler.engine)
        found = [one.gang.id for one in snapshot.pending]
        return {one: Prediction(one, 1, 5.0, 5.0, 5.0, EstimateSource.LEARNED) for one in found}

    told = []
    monkeypatch.setattr(scheduler.thinking, "run_in_time", run_in_time)
    writer = type(scheduler.status)
    monkeypatch.setattr(writer, "predict", lambda _, found, __: told.append(set(found)))
    predicting = asyncio.create_task(scheduler.background._forecast_loop())
    await until_async(lambda: told or predicting.done(), "the forecast to end")
    predicting.cancel()
    assert told == [{"ns/waits"}]
    assert scheduler.expected.gangs() == {"ns/waits"}


async def test_queues_report_their_next_gang_once_known(scheduler, monkeypatch):
    """Before the first plan and the first forecast the words of an earlier process stand."""
    began = asyncio.Event()

    async def run(*_) -> None:
        began.set()

    monkeypatch.setattr("gangsched.kube.background.supervisor._LOOK_S", 0.0)
    monkeypatch.setattr("gangsched.kube.background.supervisor._KNOWN_S", 3600.0)
    monkeypatch.setattr(scheduler.queue_status, "run", run)
    wants = [True]
    monkeypatch.setattr(scheduler.engine, "has_pending_work", lambda: wants[0])
    task = asyncio.create_task(scheduler.background.tasks()["the status of queues"]())
    await asyncio.sleep(0)
    scheduler.background._keep_predictions({})
    for _ in range(5):
        await asyncio.sleep(0)
    assert not began.is_set(), "nobody was planned yet"
    wants[0] = False
    await asyncio.wait_for(task, patience_s(10))
    assert began.is_set()


async def test_queues_are_reported_without_any_prediction(scheduler, monkeypatch):
    async def run(*_) -> None:
        pass

    monkeypatch.setattr("gangsched.kube.background.supervisor._KNOWN_S", 0.0)
    monkeypatch.setattr(scheduler.queue_status, "run", run)
    await asyncio.wait_for(scheduler.background.tasks()["the status of queues"](), patience_s(10))


def test_a_wider_range_is_reported_though_its_middle_stays():
    word = StatusRecord(start={"position": 1}, expected_s=100.0, earliest_s=50.0, latest_s=200.0)
    assert not word.is_significant(
        Prediction("ns/g", 1, 100.0, 50.0, 240.0, EstimateSource.LEARNED), None, 0.0
    )
    assert word.is_significant(
        Prediction("ns/g", 1, 100.0, 50.0, 400.0, EstimateSource.LEARNED), None, 0.0
    )


def test_a_range_with_a_passed_end_is_reported_again():
    """The first moment a gang may start at moves with the clock, while the middle stays."""
    word = StatusRecord(start={"position": 1}, expected_s=3600.0, earliest_s=30.0, latest_s=4000.0)

    def moved(low_s: float, now_s: float) -> bool:
        one = Prediction("ns/g", 1, 3600.0, low_s, 4000.0, EstimateSource.LEARNED)
        return word.is_significant(one, None, now_s)

    assert not moved(600.0, 580.0), "a write of every gang at every forecast would be too many"
    assert moved(1500.0, 1400.0)
