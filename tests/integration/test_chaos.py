"""A few seeds of faults on a real control plane; `make chaos SEEDS=n` runs many."""

from waiting import FACTOR

from simulator.chaos.run import run


async def test_gangs_stay_whole_whatever_happens():
    said: list[str] = []
    bad = await run(range(2, 4), said.append, FACTOR)
    assert not bad, "\n".join(said)
