"""Deadlines: a gang that takes too long to plan is set aside, also after restarts."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from builders import POLICIES, gang, needs, node, pod
from prometheus_client import generate_latest
from waiting import patience_s, until_async

from gangsched.config import SchedulerConfig
from gangsched.core.engine.engine import State
from gangsched.core.facts import GangSeen, NodeSeen, PodGone
from gangsched.core.model.constraints import Constraints, LevelRequest, Spread
from gangsched.core.model.ids import GangId, PodUid
from gangsched.core.model.pods import Expression, Toleration
from gangsched.core.progress import Progress
from gangsched.kube.background import deadlines
from gangsched.kube.background.deadlines import Deadline, LateError, LostThreadError
from gangsched.kube.client.errors import EngineError, NotFound
from gangsched.kube.informers.watches import Guarded
from gangsched.kube.service import Scheduler
from gangsched.kube.stored import quarantine
from gangsched.metrics import Metrics
from policies.pack import Pack

BAD, GOOD = GangId("ns/bad"), GangId("ns/good")
HARD = needs(3)
"""What no plan comes back from."""


class ConfigMaps:
    """An API server that keeps ConfigMaps."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, str]] = {}
        self.writes = 0

    async def get(self, path, **_) -> bytes:
        if path not in self.kept:
            raise NotFound(404, "none")
        return json.dumps({"data": self.kept[path]}).encode()

    async def patch(self, path, body) -> bytes:
        if path not in self.kept:
            raise NotFound(404, "none")
        self.kept[path] |= body["data"]
        return b"{}"

    async def create(self, folder, body) -> bytes:
        self.kept[f"{folder}/{body['metadata']['name']}"] = dict(body["data"])
        return b"{}"


class Endless:
    """Never returns for some needs: it asks whether it may go on, or does not even do that."""

    def __init__(self, *, asks: bool) -> None:
        self.asks, self.tries, self.end = asks, 0, threading.Event()
        self._at: list[Progress] = []

    def place(self, waiting, snapshot):
        if waiting.members[0].needs != HARD:
            return Pack().place(waiting, snapshot)
        self.tries += 1
        self._at.append(snapshot.progress)
        while not self.end.wait(0.005):
            if self.asks:
                snapshot.progress.check()
        return Pack().place(waiting, snapshot)

    def hangs(self, progress: Progress) -> bool:
        """Tell whether a computation is at what it does not come back from."""
        at = any(one is progress for one in self._at)
        return at and not self.end.is_set() and not (self.asks and progress.stopped)


def time_passes_while(monkeypatch, hangs: Callable[[Progress], bool]) -> None:
    """Have deadlines pass only while the work hangs: a thread that is slow to run is not late."""
    wait, ends = asyncio.wait, deadlines._ends
    looked_at = []

    async def of(done, progress, *limits, **more) -> bool:
        looked_at.append(progress)
        return await ends(done, progress, *limits, **more)

    async def look(futures, **_) -> None:
        await wait(futures, timeout=0.002)
        while not (hangs(looked_at[-1]) or any(one.done() for one in futures)):
            await wait(futures, timeout=0.002)

    monkeypatch.setattr(deadlines, "_ends", of)
    monkeypatch.setattr(deadlines.asyncio, "wait", look)


@pytest.fixture
def endless(monkeypatch):
    """Make placers whose threads end with the test; only they are ever late."""
    made = []
    time_passes_while(monkeypatch, lambda progress: any(one.hangs(progress) for one in made))

    def make(*, asks: bool) -> Endless:
        made.append(Endless(asks=asks))
        return made[-1]

    yield make
    for one in made:
        one.end.set()


def a_scheduler(placer, api=None) -> Scheduler:
    """Return a scheduler that knows a node and two gangs; its clock stands still."""
    config = SchedulerConfig(plan_interval_s=0.01)
    policies = replace(POLICIES, placer=placer)
    scheduler = Scheduler(
        api or ConfigMaps(), config, policies, Metrics(), read_only=True, now_s=lambda: 1_000.0
    )
    for fact in (
        *(NodeSeen(node("n")), GangSeen(gang("bad", 1)), pod("bad-0", "bad", HARD)),
        *(GangSeen(gang("good", 1)), pod("good-0", "good", needs(1))),
    ):
        scheduler.driver.observe(fact)
    return scheduler


@contextlib.asynccontextmanager
async def planning(scheduler):
    """Have a scheduler plan for a while."""
    scheduler._wake.set()
    task = asyncio.create_task(scheduler._planning_loop())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def lost(scheduler) -> None:
    """Plan until a thread is lost, and keep what is kept when a process ends."""
    scheduler._wake.set()
    with pytest.raises(LostThreadError, match=r"planning did not end within .* at ns/bad"):
        await asyncio.wait_for(scheduler._planning_loop(), patience_s(30))
    await scheduler.quarantine.save()


def placed(scheduler, gang_id=GOOD) -> bool:
    return scheduler.engine.view.gangs[gang_id].state is State.RESERVED


# -- a computation and its deadline ---------------------------------------------------------------


async def test_a_computation_that_takes_too_long_is_stopped_and_names_its_gang(monkeypatch):
    progress, end = Progress(), threading.Event()
    time_passes_while(monkeypatch, lambda at: at.gang == BAD and not at.stopped)

    def work() -> None:
        progress.turn(GOOD)
        progress.turn(BAD)
        while not end.wait(0.005):
            progress.check()

    with pytest.raises(LateError) as late:
        await Deadline("planning", 1.0, 1.0).run(work, progress)
    assert late.value.gang == BAD


async def test_a_stopped_computation_is_blamed_and_not_the_next(monkeypatch):
    progress, told = Progress(), threading.Event()
    time_passes_while(monkeypatch, lambda at: at.gang == BAD and not at.stopped)

    def work() -> None:
        progress.turn(BAD)
        while not progress.stopped:
            told.wait(0.005)
        progress.turn(GOOD)

    with pytest.raises(LateError) as late:
        await Deadline("planning", 1.0, 1.0).run(work, progress)
    assert late.value.gang == BAD


async def test_what_does_not_stop_is_lost():
    end = threading.Event()
    with pytest.raises(LostThreadError):
        await Deadline("planning", 0.05, 0.05).run(end.wait, Progress(BAD))
    end.set()


async def test_a_plan_of_many_gangs_may_take_long_as_a_whole(monkeypatch):
    progress, end = Progress(), threading.Event()
    looks = 0

    async def look(futures, **_) -> None:
        nonlocal looks
        looks += 1
        if looks % 10 == 0:
            progress.turn(GOOD)  # it comes along
        if looks == 100:
            end.set()
            await asyncio.gather(*futures)

    monkeypatch.setattr(deadlines.asyncio, "wait", look)
    assert await Deadline("planning", 1.0, 1.0, each_gang=True).run(end.wait, progress)
    assert looks == 100


async def test_an_error_is_passed_on_and_a_result_too():
    deadline = Deadline("planning", 3600.0, 1.0)
    assert await deadline.run(lambda: 5, Progress()) == 5
    with pytest.raises(ZeroDivisionError):
        await deadline.run(lambda: 1 // 0, Progress())


async def test_a_cancelled_caller_stops_its_work():
    progress, begun, ended = Progress(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        while not progress.stopped:
            ended.wait(0.005)
        ended.set()

    task = asyncio.create_task(Deadline("planning", 3600.0, 1.0).run(work, progress))
    await until_async(begun.is_set, "the work to begin")
    task.cancel()
    await until_async(ended.is_set, "the work to stop")


# -- planning -------------------------------------------------------------------------------------


async def test_a_gang_that_takes_too_long_is_set_aside_and_the_others_start(endless):
    placer = endless(asks=True)
    scheduler = a_scheduler(placer)
    async with planning(scheduler) as task:
        await until_async(lambda: placed(scheduler) or task.done(), "the good gang's room", 30)
        assert not task.done()
        refusal = scheduler.engine.view.refusals[BAD]
        assert refusal.reason == "PlanFailed"
        assert "gang ns/bad failed (planning took longer than" in refusal.message
        assert "when the gang's request changes, or in 3600 s" in refusal.message
        # Whoever asks for the same is not planned either.
        for fact in (GangSeen(gang("twin", 1)), pod("twin-0", "twin", HARD)):
            scheduler.driver.observe(fact)
        twin = GangId("ns/twin")
        await until_async(lambda: twin in scheduler.engine.view.refusals, "a word to the twin")
        assert "gang ns/bad has an equal request" in scheduler.engine.view.refusals[twin].message
        assert placer.tries == 1
        # What asks for something else is tried again.
        for fact in (PodGone(PodUid("bad-0")), pod("bad-1", "bad", needs(2))):
            scheduler.driver.observe(fact)
        await until_async(lambda: placed(scheduler, BAD), "the mended gang's room")
    figures = generate_latest(scheduler.metrics.registry)
    assert b'gangsched_deadlines_passed_total{work="planning"} 1.0' in figures


async def test_a_lost_thread_ends_the_process_and_the_next_leader_goes_on(endless):
    api, placer = ConfigMaps(), endless(asks=False)
    await lost(a_scheduler(placer, api))
    for _ in range(2):  # it is no crash loop
        scheduler = a_scheduler(placer, api)
        await scheduler.quarantine.read(scheduler.now_s())
        async with planning(scheduler) as task:
            await until_async(lambda s=scheduler: placed(s) or task.done(), "the good gang's room")
            assert not task.done()
        assert "planning did not end within" in scheduler.engine.view.refusals[BAD].message
        assert placer.tries == 1
    for fact in (PodGone(PodUid("bad-0")), pod("bad-1", "bad", needs(2))):
        scheduler.driver.observe(fact)
    async with planning(scheduler):
        await until_async(lambda: placed(scheduler, BAD), "the mended gang's room")


async def test_another_version_tries_everything_again(endless, monkeypatch):
    api, placer = ConfigMaps(), endless(asks=False)
    await lost(a_scheduler(placer, api))
    monkeypatch.setattr(quarantine, "__version__", "99")
    scheduler = a_scheduler(placer, api)
    await scheduler.quarantine.read(scheduler.now_s())
    placer.end.set()  # as if it were mended
    async with planning(scheduler):
        await until_async(lambda: placed(scheduler, BAD), "the gang's room")


def test_a_request_is_known_by_its_values_and_not_by_names_in_the_code():
    """Else renaming a class would have every request that ended a process planned again."""
    constraints = Constraints(near=LevelRequest(required="rack"), spread=(Spread("zone", 2),))
    asks = needs(
        8,
        selector=(Expression("a", "In", ("b",)),),
        tolerations=(Toleration("", "Exists", "", ""),),
    )
    waiting = a_scheduler(Pack()).engine.view.pending(BAD)
    members = tuple(replace(one, needs=asks) for one in waiting.members)
    waiting = replace(waiting, members=members, constraints=constraints)
    assert quarantine.request(waiting) == "ns/94a98969b5ff6d223806f3486c430085"
    for other in (
        replace(waiting, members_min=2),
        replace(waiting, constraints=replace(constraints, near=LevelRequest(preferred="rack"))),
        replace(waiting, members=tuple(replace(one, needs=needs(7)) for one in members)),
    ):
        assert quarantine.request(other) != quarantine.request(waiting)


async def test_an_entry_with_another_digest_lets_its_gang_be_planned_and_goes_with_time():
    scheduler = a_scheduler(Pack())
    of_before = scheduler.engine.view.pending(BAD)
    scheduler.quarantine.add_gang(of_before, "slow", 10.0, 1_000.0)
    (entry,) = scheduler.quarantine._gangs.values()
    scheduler.quarantine._gangs = {"ns/of-before": entry}
    assert not scheduler.quarantine.caught(scheduler.engine.view, 1_000.0)
    assert scheduler.quarantine._gangs, "it is kept for its time"
    assert not scheduler.quarantine.caught(scheduler.engine.view, 1_011.0)
    assert not scheduler.quarantine._gangs


@pytest.mark.parametrize("text", ["{", '"no"', '{"version": "x", "gangs": {"a": 1}}', "[" * 9999])
async def test_what_is_kept_and_cannot_be_read_is_said(text, caplog):
    api = ConfigMaps()
    kept = quarantine.Quarantine(api, "ns/name")
    await kept._place.write(text)
    await kept.read(0.0)
    assert "ConfigMap ns/name, set-aside.json: " in caplog.text


async def test_only_so_many_are_kept(endless, monkeypatch):
    monkeypatch.setattr(quarantine, "SET_ASIDE", quarantine.SET_ASIDE._replace(most=3))
    scheduler = a_scheduler(Pack())
    waiting = scheduler.engine.view.pending(BAD)
    for gpus in range(1, 10):
        asks = replace(waiting, members_min=gpus)
        scheduler.quarantine.add_gang(asks, "it is slow", 3600.0, scheduler.now_s())
    assert len(scheduler.quarantine._gangs) == 3


async def test_run_times_and_what_is_set_aside_share_a_config_map(endless):
    api = ConfigMaps()
    scheduler = a_scheduler(Pack(), api)
    await scheduler.history._place.write("{}")
    waiting = scheduler.engine.view.pending(BAD)
    scheduler.quarantine.add_gang(waiting, "it is slow", 3600.0, scheduler.now_s())
    await scheduler.quarantine.save()
    (kept,) = api.kept.values()
    assert kept.keys() == {"run-times.json", "set-aside.json"}


async def killed(scheduler) -> None:
    """Plan until the bad gang is a suspect, and end without a word."""
    async with planning(scheduler):
        await until_async(lambda: scheduler.quarantine._changed, "a suspect")
        await scheduler.quarantine.save()


async def test_who_is_planned_when_two_processes_are_killed_is_set_aside(endless):
    api, placer = ConfigMaps(), endless(asks=False)
    for _ in range(2):
        scheduler = a_scheduler(placer, api)
        await scheduler.quarantine.read(scheduler.now_s())
        await killed(scheduler)
    scheduler = a_scheduler(placer, api)
    await scheduler.quarantine.read(scheduler.now_s())
    async with planning(scheduler) as task:
        await until_async(lambda: placed(scheduler) or task.done(), "the good gang's room")
    refusal = scheduler.engine.view.refusals[BAD]
    assert "2 processes ended while they planned the gang" in refusal.message


async def test_who_was_slow_and_came_to_an_end_is_no_suspect(endless):
    placer = endless(asks=False)
    scheduler = a_scheduler(placer)
    async with planning(scheduler):
        await until_async(lambda: scheduler.quarantine._suspects, "a suspect")
        placer.end.set()
        await until_async(lambda: placed(scheduler, BAD), "its room")
    assert not scheduler.quarantine._suspects


# -- beside planning ------------------------------------------------------------------------------


async def test_a_forecast_that_takes_too_long_is_not_reported(endless, monkeypatch):
    scheduler = a_scheduler(endless(asks=True))
    beside = scheduler.background
    told = []
    monkeypatch.setattr(beside, "_keep_predictions", told.append)
    predicting = asyncio.create_task(beside._forecast_loop())
    await until_async(lambda: told or predicting.done(), "the forecast to end")
    predicting.cancel()
    assert told == [{}]
    figures = generate_latest(scheduler.metrics.registry)
    assert b'gangsched_deadlines_passed_total{work="forecast"} 1.0' in figures


async def test_a_forecast_that_does_not_stop_ends_the_process(endless):
    api = ConfigMaps()
    scheduler = a_scheduler(endless(asks=False), api)
    with pytest.raises(LostThreadError):
        await scheduler.background.supervise("predictions", scheduler.background._forecast_loop)
    await scheduler.quarantine.save()
    after = a_scheduler(Pack(), api)
    await after.quarantine.read(after.now_s())
    assert [one.gang.id for one in after.thinking.begin_cycle().equivalence_classes[0].gangs] == [
        GOOD
    ]


class Slow:
    """Advises nobody in time."""

    def __init__(self) -> None:
        self.asked = []

    async def refresh(self, *_) -> None:
        """See nothing."""

    def on(self, waiting):
        return type("View", (), {"progress": Progress(waiting.gang.id)})()

    def plan_advice(self, waiting, _, view) -> None:
        self.asked.append(waiting.gang.id)
        end = threading.Event()
        while not end.wait(0.005):
            view.progress.check()


async def test_advice_that_takes_too_long_is_not_given_until_the_gang_changes(monkeypatch):
    slow = Slow()
    time_passes_while(monkeypatch, lambda progress: not progress.stopped)
    monkeypatch.setattr("gangsched.kube.background.supervisor.LiveAdvisor", lambda *_: slow)
    scheduler = a_scheduler(Pack())
    beside = scheduler.background
    beside._config = SchedulerConfig(advice_interval_s=0.01, background_cpu_share=1.0)
    waiting = scheduler.engine.view.pending(BAD)
    rounds = 0

    def take_advice_requests(*_):
        nonlocal rounds
        rounds += 1
        return ((waiting, None),)

    monkeypatch.setattr(scheduler.engine, "take_advice_requests", take_advice_requests)
    advising = asyncio.create_task(beside._advice_loop())
    await until_async(lambda: rounds > 3 or advising.done(), "some rounds")
    assert slow.asked == [BAD]
    waiting = replace(waiting, version=waiting.version + 1)
    await until_async(lambda: len(slow.asked) == 2 or advising.done(), "another try")
    advising.cancel()


# -- objects that the engine fails on -------------------------------------------------------------


class Told:
    """A receiver that tells the engine of each object."""

    kind = "PodGroup"

    def __init__(self, scheduler) -> None:
        self.scheduler, self.wrong = scheduler, []

    def on_update(self, raw) -> None:
        name = json.loads(raw)["metadata"]["name"]
        self.scheduler.driver.observe(GangSeen(gang(name, 1)))

    def malformed(self, raw, message) -> None:
        self.wrong.append((json.loads(raw)["metadata"]["name"], message))


def group(name: str, member: int = 1, version: str = "1") -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version}
    return json.dumps({"metadata": metadata, "spec": {"minMember": member}}).encode()


def failing(scheduler) -> Guarded:
    """Have the engine fail on one gang."""
    observe = scheduler.engine.observe

    def fail(fact, now_s):
        if isinstance(fact, GangSeen) and fact.gang.id == "ns/deadly":
            raise OverflowError("too large")
        return observe(fact, now_s)

    scheduler.engine.observe = fail
    return Guarded(Told(scheduler), scheduler.quarantine, scheduler.metrics, scheduler.now_s)


async def test_an_object_that_ended_a_process_ends_no_other():
    api = ConfigMaps()
    first = a_scheduler(Pack(), api)
    with pytest.raises(EngineError):
        failing(first).on_update(group("deadly"))
    await first.quarantine.save()
    second = a_scheduler(Pack(), api)
    await second.quarantine.read(second.now_s())
    guarded = failing(second)
    guarded.on_update(group("deadly", version="2"))  # its status was written
    guarded.on_update(group("other"))
    ((name, message),) = guarded._receiver.wrong
    assert name == "deadly"
    assert message == (
        "the scheduler failed on this object (OverflowError: too large); please report the error"
    )
    assert GangId("ns/other") in second.engine.view.gangs
    with pytest.raises(EngineError):  # it was changed: it is tried again
        guarded.on_update(group("deadly", member=2))


async def test_what_is_set_aside_is_written_before_the_process_ends(monkeypatch):
    api = ConfigMaps()
    config = SchedulerConfig(startup_delay_s=0.0)
    scheduler = Scheduler(api, config, POLICIES, Metrics())
    guarded = failing(scheduler)

    async def read(*_) -> None:
        guarded.on_update(group("deadly"))

    monkeypatch.setattr(scheduler, "read", read)
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(scheduler.run(), patience_s(10))
    (kept,) = api.kept.values()
    assert "PodGroup ns/deadly" in kept["set-aside.json"]
