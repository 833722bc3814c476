"""A queue that serves namespaces in turn."""

import asyncio

from waiting import patience_s, until_async

from gangsched.kube.client.namespace_queue import NamespaceFairQueue
from gangsched.operators.work_queue import _WORKERS_OF_NAMESPACE, WorkQueue


async def test_a_namespace_with_many_items_delays_itself_only():
    lanes = NamespaceFairQueue(lambda item: item[0])
    for number in range(1000):
        lanes.put(("much", number))
    lanes.put(("little", 0))
    lanes.put(("some", 0))
    lanes.put(("some", 1))
    assert len(lanes) == 1003
    taken = [await lanes.get() for _ in range(6)]
    assert taken == [
        ("much", 0),
        ("little", 0),
        ("some", 0),
        ("much", 1),
        ("some", 1),
        ("much", 2),
    ]


async def test_who_waits_gets_what_comes_and_a_cancelled_one_takes_nothing_away():
    lanes = NamespaceFairQueue(lambda item: item)
    first, second = (asyncio.create_task(lanes.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    lanes.put("a")
    assert await asyncio.wait_for(second, patience_s(10)) == "a"
    third, fourth = (asyncio.create_task(lanes.get()) for _ in range(2))
    await asyncio.sleep(0)
    lanes.put("b")
    third.cancel()  # it was woken, and goes before it could take anything
    assert await asyncio.wait_for(fourth, patience_s(10)) == "b"
    assert not len(lanes)


async def test_a_lane_has_no_more_items_out_than_it_may():
    lanes = NamespaceFairQueue(lambda item: item[0], 2)
    for item in ("a1", "a2", "a3", "b1"):
        lanes.put(item)
    assert [await lanes.get() for _ in range(3)] == ["a1", "b1", "a2"]
    waiting = asyncio.create_task(lanes.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    lanes.done("b1")
    await asyncio.sleep(0)
    assert not waiting.done()
    lanes.done("a1")
    assert await waiting == "a3"
    for item in ("a2", "a3"):
        lanes.done(item)
    assert not lanes._out


async def test_a_namespace_with_slow_objects_leaves_workers_to_others():
    worked, never = [], asyncio.Event()

    async def step(key) -> None:
        worked.append(key)
        if key[0] == "slow":
            await never.wait()

    work = WorkQueue(step)
    for number in range(20):
        work.wake(("slow", str(number)))
    running = asyncio.create_task(work.run())
    await until_async(lambda: len(worked) == _WORKERS_OF_NAMESPACE, "the workers to be busy")
    for number in range(5):
        work.wake(("quick", str(number)))
    await until_async(lambda: len(worked) == _WORKERS_OF_NAMESPACE + 5, "the others' objects")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
