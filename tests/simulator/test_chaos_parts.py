"""Parts of chaos: a seed makes the same plan again, and the observer finds violations."""

import copy
import json
import time

import aiohttp
import pytest
from aiohttp import web
from waiting import until_async

from gangsched.core.facts import HistoryRestored
from gangsched.kube.stored import gang_history
from simulator.chaos.observer import IndependentObserver
from simulator.chaos.plan import FAULTS_S, plan
from simulator.chaos.reports import (
    Reports,
    compared_group,
    compared_pod,
    ends_within,
    past_view,
    queue_view,
    view_differences,
)
from simulator.chaos.run import standing
from simulator.chaos.service import LeaderService
from simulator.chaos.skewed import set_off, skew


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
    observer = IndependentObserver({"n": 8})
    observer.on_update(pod("a", "n", 4))
    observer.on_update(pod("b", "n", 4))
    assert not observer.violations
    observer.on_update(pod("c", "n", 1))
    (said,) = observer.violations
    assert "node n has 8 GPUs and pods of 9: a, b, c" in said


def test_an_ended_pod_frees_capacity():
    observer = IndependentObserver({"n": 8})
    observer.on_update(pod("a", "n", 8))
    observer.on_update(pod("a", "n", 8, phase="Succeeded"))
    observer.on_update(pod("b", "n", 8))
    assert not observer.violations


class Gang:
    """A gang of two pods of four GPUs."""

    name, pods, gpus = "g", 2, 4


def test_what_should_run_and_does_not_is_said():
    observer = IndependentObserver({"n": 8})
    assert "would fit, and is pending" in standing(observer, Gang, {"g": "Placed"})
    observer.on_update(pod("a", "n", 4))
    assert "runs in part: 1 of 2" in standing(observer, Gang, {"g": "Placed"})
    observer.on_update(pod("b", "n", 4))
    assert not standing(observer, Gang, {"g": "Placed"})


def test_a_gang_without_capacity_may_be_pending():
    observer = IndependentObserver({"n": 8})
    observer.on_update(pod("other", "n", 5, gang="x"))
    assert not standing(observer, Gang, {"g": "Placed"})


def test_odd_seeds_go_through_kube_scheduler_and_every_kind_of_fault_comes():
    plans = [plan(seed) for seed in range(1, 41)]
    assert {one.binding for one in plans if one.seed % 2} == {"extender"}
    assert {one.binding for one in plans if not one.seed % 2} == {"direct"}
    faults = [fault for one in plans for fault in one.faults]
    assert {fault.kind for fault in faults} == {"kill", "stop", "network", "node", "clock"}
    assert any(fault.target == "kube-scheduler-gangsched" for fault in faults)
    assert all(fault.jump_s for fault in faults if fault.kind == "clock")


def test_a_phase_that_is_behind_is_said():
    observer = IndependentObserver({"n": 8})
    for name in ("a", "b"):
        observer.on_update(pod(name, "n", 4))
    assert standing(observer, Gang, {"g": "Pending"}) == "gang g runs, and its phase is 'Pending'"


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


# -- what the next leader tells ---------------------------------------------------------------

WAITS = {
    "phase": "Pending",
    "queue": "default",
    "start": {
        "position": 1,
        "expected": "2026-01-01T01:00:00Z",
        "reserved": "2026-01-01T01:00:00Z",
        "basis": "assumed",
    },
    "refusal": {"reason": "NotEnoughFree"},
    "conditions": [
        {
            "type": "Scheduled",
            "status": "False",
            "reason": "NotEnoughFree",
            "message": "It waits.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


def with_(status: dict, /, **changes: object) -> dict:
    """Return a status with other values; those of `start` and of its condition by their names."""
    status = copy.deepcopy(status)
    for name, value in changes.items():
        within = (status, status.get("start", {}), *status.get("conditions", ()))
        next(one for one in within if name in one)[name] = value
    return status


def reported(view, *statuses: dict) -> Reports:
    """Return what heard of an object in this status, and after a mark in the others."""
    found = Reports(view, lambda one: f"gang {one['metadata']['name']}")
    for number, status in enumerate(statuses):
        body = {"metadata": {"name": "g", "uid": "u"}, "status": status}
        found.on_update(json.dumps(body).encode())
        if number == 0:
            found.mark()
    return found


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"position": 2}, "position of gang g: 1 before, 2 after"),
        ({"reserved": "2026-01-01T01:00:01Z"}, "reservation of gang g"),
        ({"reserved": None}, "reservation of gang g"),
        ({"start": None}, "position of gang g: 1 before, None after"),
        ({"lastTransitionTime": "2026-01-01T00:00:09Z"}, "wait of gang g"),
        ({"phase": "Reserved"}, "phase of gang g: Pending before, Reserved after"),
        ({"queue": "other"}, "queue of gang g"),
        ({"basis": "learnt"}, "basis of gang g"),
        ({"reason": "QueueFull"}, "reason of gang g"),
    ],
)
def test_what_another_leader_tells_otherwise_is_found(changes, what):
    """Also where a later version says again what stood there before."""
    found = reported(compared_group, WAITS, with_(WAITS, **changes), WAITS).unmark()
    assert any(one.startswith(what) for one in found), found


def test_what_time_alone_changes_is_no_difference():
    later = with_(WAITS, expected="2026-01-01T01:10:00Z", message="It still waits.")
    assert (
        reported(
            compared_group, WAITS, later, with_(WAITS, reserved="2026-01-01T00:30:00Z")
        ).differences
        == []
    )


def test_a_gang_that_came_or_went_is_a_difference():
    one = reported(compared_group, WAITS)
    one.on_delete("u", None)
    one.on_update(json.dumps({"metadata": {"name": "h", "uid": "v"}}).encode())
    assert one.unmark() == ["gang g is gone", "gang h was added"]


def test_a_restarted_wait_is_a_violation_at_any_time():
    one = reported(compared_group, WAITS, with_(WAITS, lastTransitionTime="2026-01-01T00:00:09Z"))
    assert "and was so since 2026-01-01T00:00:00Z" in one.violations[0]
    runs = with_(WAITS, status="True", lastTransitionTime="2026-01-01T00:00:09Z")
    assert not reported(compared_group, WAITS, runs).violations


def test_places_that_changed_are_a_difference():
    runs = {"phase": "Placed", "assignments": [{"pod": "g-0", "node": "n-0"}], "proof": "proved"}
    moved = with_(runs, assignments=[{"pod": "g-0", "node": "n-1"}], proof="")
    found = reported(compared_group, runs, moved).unmark()
    assert [one.split(" of ")[0] for one in found] == ["places", "proof"]


def test_a_pod_that_is_stopped_is_a_difference():
    found = Reports(compared_pod, lambda one: f"pod {one['metadata']['name']}")
    found.on_update(pod("a", "n", 4))
    found.mark()
    leaves = json.loads(pod("a", "n", 4))
    leaves["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found.on_update(json.dumps(leaves).encode())
    assert found.unmark() == ["deleted of pod a: False before, True after"]


def spent(decayed: float, in_all: float, as_of: str) -> dict:
    """Return a queue's status that says how much GPU time was used."""
    row = {
        "user": "",
        "decayedGpuSeconds": decayed,
        "periodSeconds": 60,
        "period": 7,
        "gpuSeconds": in_all,
    }
    return {"pending": 1, "admitted": 2, "asOf": as_of, "spent": [row], "head": {"gang": "n/g"}}


def test_gpu_time_that_is_forgotten_is_a_difference():
    before = spent(100.0, 50.0, "2026-01-01T00:00:00Z")
    for decayed, in_all, as_of, kept in (
        (101.0, 51.0, "2026-01-01T00:01:00Z", True),
        (50.0, 50.0, "2026-01-08T00:00:00Z", True),  # a half-life later
        (99.0, 50.0, "2026-01-01T00:01:00Z", False),
        (101.0, 49.0, "2026-01-01T00:01:00Z", False),
    ):
        found = reported(queue_view, before, spent(decayed, in_all, as_of)).unmark()
        assert ["GPU time of gang g" in one for one in found] == [True] * (not kept)
    assert reported(queue_view, before, before | {"pending": 2}).differences
    assert reported(queue_view, before, before | {"head": {"gang": "n/other"}}).differences


def kept(**changes: object) -> str:
    """Return what is kept of a gang that has been through much."""
    values = {
        "created_s": 10.0,
        "attempts": 2,
        "excluded_nodes": (("n-1", 500.0),),
        "backoff_until_s": 400.0,
        "reserved_start_s": 1_000.0,
        "reserved_nodes": (("g-0", "n-0"),),
        "admitted": ((("nvidia.com/gpu", ""), 8),),
    }
    return gang_history.written([HistoryRestored("n/g", **values | changes)])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"created_s": 11.0}, "wait"),
        ({"attempts": 0}, "tries"),
        ({"excluded_nodes": ()}, "excluded nodes"),
        ({"backoff_until_s": None}, "back-off"),
        ({"reserved_start_s": 1_001.0}, "reservation"),
        ({"reserved_start_s": None}, "reservation"),
        ({"reserved_nodes": (("g-0", "n-1"),)}, "reservation places"),
        ({"admitted": ()}, "admitted quota"),
        ({"waits_for_capacity": True}, "held back"),
    ],
)
def test_a_past_that_is_forgotten_is_found(changes, what):
    before, after = (past_view(text, 100.0) for text in (kept(), kept(**changes)))
    assert [one.split(" of ")[0] for one in view_differences(before, after)] == [what]


def test_a_past_that_ended_by_itself_is_no_difference():
    forgot = kept(excluded_nodes=(), backoff_until_s=None)
    assert view_differences(past_view(kept(), 600.0), past_view(forgot, 600.0)) == []
    assert view_differences(past_view(kept(), 0.0), past_view("", 0.0)) == ["n/g is gone"]
    assert ends_within(kept(), 300.0, 450.0)
    assert not ends_within(kept(), 500.0, 900.0)


def watched(gang: str = "g") -> IndependentObserver:
    """Return a observer of a gang of two pods that runs."""
    one = IndependentObserver({"n": 8}, {gang: 2}, lambda _: True, "")
    for name in ("a", "b"):
        one.on_update(pod(name, "n", 4))
    return one


def test_a_whole_gang_that_is_stopped_for_nothing_is_seen():
    one = watched()
    one.on_delete("a", None)
    assert "pod a of g, which ran whole, was deleted" in one.violations[0]
    leaves = json.loads(pod("a", "n", 4))
    leaves["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    one = watched()
    one.on_update(json.dumps(leaves).encode())
    assert len(one.violations) == 1


def test_who_was_deleted_or_lost_a_node_may_end():
    deleted, lost, came = watched(), watched(), watched("other")
    deleted.excuse("g")
    lost.lose("n")
    came.placed = lambda _: False
    for one in (deleted, lost, came):
        one.on_delete("a", None)
        assert not one.violations
