"""Learnt run times outlive the scheduler: kept in a ConfigMap, under its own rights."""

import asyncio

from gangsched.core.accounts.estimate import History
from gangsched.core.model import Gang, GangId
from gangsched.kube.client import KubeClient
from gangsched.kube.history import HistoryKeeper


def test_what_was_learnt_is_there_after_a_restart(cluster):
    kubeconfig = cluster.plane.folder / "gangsched.kubeconfig"
    name = "gangsched-system/gangsched-history"
    learnt = History()
    for run_s in (60.0, 80.0):
        learnt.ended(Gang(GangId(f"ns/night-{run_s:.0f}"), 1, (), user="ann"), run_s)

    async def write() -> None:
        async with KubeClient(kubeconfig) as client:
            keeper = HistoryKeeper(client, name)
            await keeper.read(History())  # nothing there yet is no error
            writing = asyncio.create_task(keeper.run(learnt, 0.05))
            await asyncio.sleep(1.0)
            writing.cancel()

    async def read() -> History:
        found = History()
        async with KubeClient(kubeconfig) as client:
            await HistoryKeeper(client, name).read(found)
        return found

    asyncio.run(write())
    for _ in range(3):  # the scheduler that runs here keeps its own there, once a minute
        asyncio.run(write())  # it exists already
        known = asyncio.run(read())
        if ("ann", "ns/night") in known.runs:
            break
    assert list(known.runs[("ann", "ns/night")]) == [60.0, 80.0]
    estimate = known.estimate(Gang(GangId("ns/night-7"), 1, (), user="ann"))
    assert (estimate.runtime_s, estimate.source.value) == (70.0, "learnt")
