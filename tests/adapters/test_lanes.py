"""A queue whose namespaces take turns."""

import asyncio

from waiting import patience_s

from gangsched.kube.lanes import Lanes


async def test_whoever_puts_much_waits_for_himself_alone():
    lanes = Lanes(lambda item: item[0])
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
    lanes = Lanes(lambda item: item)
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
