"""Learned run times outlive the scheduler, in a ConfigMap with its own rights."""

import asyncio
import json

import pytest
from waiting import until_async

from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.kube.client.client import KubeClient
from gangsched.kube.stored.runtime_history import RuntimeHistoryStore

pytestmark = pytest.mark.by("direct")  # binding has no part in what is stored


HOME, NAME = "gangsched-system", "gangsched-history"


def stored(cluster) -> dict | None:
    """Return what is kept in the cluster, or None."""
    one = f"metadata.name={NAME}"
    found = cluster.core.list_namespaced_config_map(HOME, field_selector=one).items
    return json.loads(found[0].data["run-times.json"]) if found else None


def test_what_was_learnt_is_there_after_a_restart(cluster):
    kubeconfig = cluster.plane.folder / "gangsched.kubeconfig"
    learnt = RuntimeHistory()

    async def write() -> None:
        wanted = json.loads(json.dumps(learnt.to_json()))
        async with KubeClient(kubeconfig) as client:
            keeper = RuntimeHistoryStore(client, f"{HOME}/{NAME}")
            await keeper.read(RuntimeHistory())  # nothing there yet is no error
            writing = asyncio.create_task(keeper.run(learnt, 0.05))
            await until_async(lambda: stored(cluster) == wanted, "it to be kept", 30)
            writing.cancel()

    async def read() -> RuntimeHistory:
        found = RuntimeHistory()
        async with KubeClient(kubeconfig) as client:
            await RuntimeHistoryStore(client, f"{HOME}/{NAME}").read(found)
        return found

    cluster.plane.programs.stop("gangsched")  # it keeps there what it learns itself
    try:
        cluster.kubectl("delete", "configmap", NAME, "-n", HOME, "--ignore-not-found")
        for run_s in (60.0, 80.0):  # the second time it exists already
            learnt.record(Gang(GangId(f"ns/night-{run_s:.0f}"), 1, (), user="ann"), run_s)
            asyncio.run(write())
        known = asyncio.run(read())
    finally:
        cluster.restart("gangsched")
    assert list(known.runs[("ann", "ns/night")]) == [60.0, 80.0]
    estimate = known.estimate(Gang(GangId("ns/night-7"), 1, (), user="ann"))
    assert (estimate.runtime_s, estimate.source.value) == (70.0, "learnt")
