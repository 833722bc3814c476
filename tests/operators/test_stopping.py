"""How kopf runs the job controllers: in their own thread, and until they are asked to stop."""

import asyncio
import inspect
import signal
from contextlib import asynccontextmanager
from unittest.mock import Mock

import kopf
from test_controllers import Server
from waiting import until_async

from gangsched.operators import manager
from gangsched.operators.ownership import KindOwners


class Changing:
    """Other kinds are ours whenever `standing` and `changed` are set."""

    def __init__(self, *_) -> None:
        self.owners, self.changed = KindOwners(frozenset({"JAXJob"})), asyncio.Event()
        self.changed.set()

    async def run(self) -> None:
        await asyncio.Event().wait()


async def test_they_end_by_a_signal_once_no_kind_is_left_and_by_nothing_else(monkeypatch):
    """Kopf keeps the signals to itself, and kills the process ten minutes after it was stopped."""
    made, spawned = [], []

    def own(*_) -> Changing:
        made.append(Changing())
        return made[0]

    async def spawn(*, settings, **_):
        spawned.append(settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        return [asyncio.create_task(asyncio.Event().wait())]

    @asynccontextmanager
    async def watched(_, controllers, __):
        entered.append(set(controllers))
        yield asyncio.create_task(asyncio.Event().wait())

    entered: list[set[str]] = []
    monkeypatch.setattr(manager, "Ownership", own)
    monkeypatch.setattr(manager, "watching_parts", watched)
    monkeypatch.setattr(manager.kopf, "spawn_tasks", spawn)
    running = asyncio.create_task(manager.run_operators(None, Server(None)))
    await until_async(lambda: spawned, "the kind to be run")
    assert spawned[0].process.ultimate_exiting_timeout is None
    made[0].owners = KindOwners()
    made[0].changed.set()
    await until_async(lambda: len(entered) == 2, "no kind to be left")
    assert len(spawned) == 1
    assert not running.done()
    signal.raise_signal(signal.SIGTERM)
    await until_async(running.done, "the end")
    await running


async def test_stopping_controllers_wait_only_for_their_own_tasks(monkeypatch):
    began = asyncio.Event()

    def register(registry, *_):
        @kopf.on.login(registry=registry)
        async def login(**_):
            began.set()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def watched(*_):
        yield asyncio.create_task(asyncio.Event().wait())

    monkeypatch.setattr(manager, "_register", register)
    monkeypatch.setattr(manager, "watching_parts", watched)
    running = asyncio.create_task(manager.run_operators(None, Server(None), kinds=("JAXJob",)))
    await asyncio.wait([running, asyncio.create_task(began.wait())], return_when="FIRST_COMPLETED")
    assert not running.done()
    beside = asyncio.create_task(asyncio.Event().wait())
    try:
        signal.raise_signal(signal.SIGTERM)
        await running
        assert not beside.done()
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)


def test_changes_of_jobs_are_taken_in_by_the_thread_of_the_controllers():
    """Kopf awaits a coroutine there, and calls any other function in threads of its own."""
    registry, controller = kopf.OperatorRegistry(), Mock()
    controller.kind.api_version, controller.kind.plural = "kubeflow.org/v1", "jaxjobs"
    controller.kind.kind = "JAXJob"
    manager._register_kind(registry, controller)
    (handler,) = registry._watching.get_all_handlers()
    assert inspect.iscoroutinefunction(handler.fn)
