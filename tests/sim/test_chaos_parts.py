"""Chaos' own parts: a seed says the same again, and the witness sees what must never be."""

import json
import time

import aiohttp
import pytest
from aiohttp import web
from waiting import until_async

from simulator.chaos.plan import FAULTS_S, plan
from simulator.chaos.run import standing
from simulator.chaos.service import LeaderService
from simulator.chaos.skewed import set_off, skew
from simulator.chaos.witness import Witness


def test_a_seed_says_the_same_again():
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


@pytest.mark.parametrize("seed", range(50))
def test_every_fault_is_mended_in_time(seed):
    for fault in plan(seed).faults:
        assert 0 <= fault.at_s < FAULTS_S
        if fault.kind != "kill":  # one that was killed may begin anew a moment later
            assert fault.at_s + fault.lasts_s <= FAULTS_S


def pod(name: str, node: str, gpus: int, gang: str = "g", phase: str = "Running") -> bytes:
    """Return a pod as the API writes it."""
    limits = {"nvidia.com/gpu": str(gpus)}
    return json.dumps(
        {
            "metadata": {"name": name, "uid": name, "labels": {"gangsched.io/pod-group": gang}},
            "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
            "status": {"phase": phase},
        }
    ).encode()


def test_two_pods_on_one_place_are_seen():
    witness = Witness({"n": 8})
    witness.seen(pod("a", "n", 4))
    witness.seen(pod("b", "n", 4))
    assert not witness.violations
    witness.seen(pod("c", "n", 1))
    (said,) = witness.violations
    assert "node n has 8 GPUs and pods of 9: a, b, c" in said


def test_a_pod_that_ended_makes_room():
    witness = Witness({"n": 8})
    witness.seen(pod("a", "n", 8))
    witness.seen(pod("a", "n", 8, phase="Succeeded"))
    witness.seen(pod("b", "n", 8))
    assert not witness.violations


class Gang:
    """A gang of two pods of four GPUs."""

    name, pods, gpus = "g", 2, 4


def test_what_should_run_and_does_not_is_said():
    witness = Witness({"n": 8})
    assert "would fit, and waits" in standing(witness, Gang, {"g": "Placed"})
    witness.seen(pod("a", "n", 4))
    assert "runs in part: 1 of 2" in standing(witness, Gang, {"g": "Placed"})
    witness.seen(pod("b", "n", 4))
    assert not standing(witness, Gang, {"g": "Placed"})


def test_what_has_no_room_may_wait():
    witness = Witness({"n": 8})
    witness.seen(pod("other", "n", 5, gang="x"))
    assert not standing(witness, Gang, {"g": "Placed"})


def test_odd_seeds_go_through_kube_scheduler_and_every_kind_of_fault_comes():
    plans = [plan(seed) for seed in range(1, 41)]
    assert {one.binding for one in plans if one.seed % 2} == {"extender"}
    assert {one.binding for one in plans if not one.seed % 2} == {"direct"}
    faults = [fault for one in plans for fault in one.faults]
    assert {fault.kind for fault in faults} == {"kill", "stop", "weather", "node", "clock"}
    assert any(fault.who == "kube-scheduler-gangsched" for fault in faults)
    assert all(fault.jump_s for fault in faults if fault.kind == "clock")


def test_a_phase_that_is_behind_is_said():
    witness = Witness({"n": 8})
    for name in ("a", "b"):
        witness.seen(pod(name, "n", 4))
    assert standing(witness, Gang, {"g": "Pending"}) == "gang g runs, and its phase is 'Pending'"


def test_a_clock_that_is_off(tmp_path, monkeypatch):
    file = tmp_path / "clock"
    set_off(file, 3600.0)
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    skew(file)
    assert time.time() == 13_600.0
    set_off(file, -60.0)
    assert time.time() == 9_940.0


async def test_a_service_follows_the_leader():
    """Connections go to whoever says that it leads, and end where nobody listens."""
    leads = {"a": True, "b": False}

    async def ready(name: str) -> int:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(text="leading" if leads[name] else "standing by")

        return await _listen(answer, "/readyz")

    async def extender(name: str) -> int:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=name)

        return await _listen(answer, "/who")

    runners: list[web.AppRunner] = []

    async def _listen(handler, path: str) -> int:
        app = web.Application()
        app.router.add_get(path, handler)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner.addresses[0][1]

    ports = {name: (await ready(name), await extender(name)) for name in leads}
    service = LeaderService(dict(ports.values()))
    port = await service.open()

    async def who() -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/who") as answer,
        ):
            return await answer.text()

    async def follows(name: str) -> None:
        await until_async(lambda: service._leader == ports[name][1], f"the Service to find {name}")

    await follows("a")
    assert await who() == "a"
    leads |= {"a": False, "b": True}
    await follows("b")
    assert await who() == "b"
    await service.close()
    for runner in runners:
        await runner.cleanup()
