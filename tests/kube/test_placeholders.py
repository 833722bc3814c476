"""Placeholder pods as pure functions: which exist, and what an autoscaler sees of them."""

import asyncio
import json
from dataclasses import replace

import pytest
from builders import GPU, an_engine, needs, waiting
from waiting import until_async

from gangsched.api import names
from gangsched.autoscaling_config import NODES_NAMESPACE, PlaceholderConfig
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import Queue, Quota
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.kube.provisioning.demand import GangDemand
from gangsched.kube.provisioning.passes import in_parallel, pass_once, repeat_passes
from gangsched.kube.provisioning.placeholders.decide import Tries, decide_placeholders, next_try
from gangsched.kube.provisioning.placeholders.placeholders import PlaceholderPods
from gangsched.kube.provisioning.placeholders.pods import (
    SCHEDULER,
    Placeholder,
    decode_placeholders,
    placeholder_body,
    unschedulable,
)
from gangsched.kube.provisioning.request import base_name, required_sets
from gangsched.kube.provisioning.templates import PodTemplateError

CONFIG = PlaceholderConfig(attempts=3, retry_s=60, late_s=100, pods_max=8, gangs_max=3,
                           namespace_max=2)  # fmt: skip


def want(name: str, *, pods: int = 2, lacks: bool = True) -> GangDemand:
    """Return a gang of the queue `q` that lacks nodes."""
    roles = (Role("worker", pods, pods, needs(8)),)
    pending = waiting(Gang(GangId(name), pods, roles, queue="q"))
    base = base_name(GangId(name), 0.0, required_sets(pending))
    return GangDemand(GangId(name), base, pending, lacks)


def group(of: GangDemand, total: int = 2, *, attempt: int = 1, **more) -> list[Placeholder]:
    base = of.base or "gangsched-" + "0" * 20
    known = Placeholder("", "u", of.gang, base, attempt, 0, total, 1000.0, marked=True)
    return [
        replace(known, name=f"{base}-{attempt}-{index}", index=index, **more)
        for index in range(total)
    ]


def decided(wants, placeholders=(), *, tries=None, quota: int = 1000, now_s: float = 1000.0):
    engine = an_engine()
    engine.observe(f.QueueSeen(Queue("q", quotas=(Quota(GPU, quota * 1000, borrowing=0),))), 0.0)
    ledger = engine.view.ledger
    usage, types = ledger.usage, ledger.gpu_types
    return decide_placeholders(wants, placeholders, tries or {}, usage, types, CONFIG, now_s)


def created(steps):
    return [(one.gang, attempt, missing) for one, (_, attempt), missing in steps.create]


def test_a_gang_that_lacks_nodes_gets_one_placeholder_for_each_pod():
    gang = want("ns/a")
    assert created(decided([gang])) == [("ns/a", 1, (0, 1))]
    again = decided([gang], group(gang))
    assert (again.create, again.mark, again.delete, again.late) == ([], [], [], [])
    assert created(decided([want("ns/a", lacks=False)])) == []


def test_no_placeholder_is_shown_before_all_exist():
    gang = want("ns/a")
    first = group(gang, marked=False)
    begun = decided([gang], first[:1])
    assert (created(begun), begun.mark) == ([("ns/a", 1, (1,))], [])
    assert decided([gang], first).mark == first


def test_placeholders_are_deleted_once_their_gang_has_nodes_or_is_gone():
    gang = want("ns/a")
    assert decided([GangDemand(gang.gang)], group(gang)).delete == group(gang)
    assert decided([], group(gang)).delete == group(gang)
    changed = decided([want("ns/a", pods=3)], group(gang))
    assert changed.delete == group(gang)
    assert created(changed) == [("ns/a", 1, (0, 1, 2))]


def test_a_gang_that_no_longer_lacks_nodes_keeps_its_placeholders():
    gang = want("ns/a", lacks=False)
    assert decided([gang], group(gang)).delete == []


def test_quota_for_one_gang_is_one_group():
    first, second = want("ns/a"), want("ns/b")
    assert created(decided([first, second], quota=16)) == [("ns/a", 1, (0, 1))]
    kept = decided([first, second], group(second), quota=16)
    assert (kept.create, kept.delete) == ([], []), "what exists is not given up for another"
    assert decided([first], group(first), quota=8).delete == group(first)


def test_gangs_and_pods_are_limited():
    gangs = [want(f"{space}/{at}") for space in ("x", "y") for at in range(3)]
    assert [one[0] for one in created(decided(gangs))] == ["x/0", "x/1", "y/0"]
    large = [want("x/a", pods=5), want("y/b", pods=5), want("z/c", pods=3)]
    assert [one[0] for one in created(decided(large))] == ["x/a", "z/c"]


def test_a_gang_that_gets_no_nodes_asks_again_after_a_pause_that_doubles():
    gang = want("ns/a")
    late = decided([gang], group(gang), now_s=1101.0)
    assert late.delete == group(gang)
    assert late.late == [(gang, (gang.base, 1))]
    assert late.create == []
    first = next_try(Tries(), CONFIG, 1101.0)
    assert (first, next_try(first, CONFIG, 2000.0)) == (Tries(1, 1161.0), Tries(2, 2120.0))
    assert created(decided([gang], tries={gang.base: first}, now_s=1160.0)) == []
    again = decided([gang], tries={gang.base: first}, now_s=1161.0)
    assert created(again) == [("ns/a", 2, (0, 1))]
    assert created(decided([gang], tries={gang.base: Tries(3)}, now_s=1e9)) == []


def test_an_earlier_attempt_is_deleted():
    gang = want("ns/a")
    both = [*group(gang), *group(gang, attempt=2)]
    assert decided([gang], both).delete == group(gang)


def test_many_failures_wait_an_hour_at_most():
    assert next_try(Tries(10_000), CONFIG, 0.0) == Tries(10_001, 3600.0)


# -- pods ----------------------------------------------------------------------------------------

POD = {
    "metadata": {"labels": {"app": "x", "gangsched.io/queue": "q"}, "annotations": {"a": "b"}},
    "spec": {
        "schedulerName": "gangsched",
        "nodeName": "n",
        "priorityClassName": "system-node-critical",
        "priority": 2_000_001_000,
        "serviceAccountName": "secret",
        "schedulingGates": [{"name": "gangsched.io/gang"}],
        "affinity": {"podAntiAffinity": {"required": []}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [
            {"name": "main", "image": "i", "command": ["c"], "env": [{"name": "TOKEN"}],
             "resources": {"limits": {GPU: "8"}}, "volumeMounts": [{"name": "data"}]},
        ],
    },
}  # fmt: skip
KEY = "gangsched-" + "a" * 20, 3


def test_a_placeholder_asks_for_what_the_pod_asks_and_can_run_nothing():
    body = placeholder_body(GangId("ns/a"), KEY, 1, 4, POD)
    assert body["metadata"]["name"] == f"{KEY[0]}-3-1"
    assert body["metadata"]["labels"] == {"app": "x", "gangsched.io/placeholder": "true"}
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "8"}}}
    assert body["spec"] == {
        "affinity": POD["spec"]["affinity"],
        "containers": [container],
        "schedulerName": "gangsched-placeholder",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }


def test_pods_with_claims_of_devices_have_no_placeholder():
    claims = {**POD, "spec": {**POD["spec"], "resourceClaims": [{"name": "gpu"}]}}
    with pytest.raises(PodTemplateError, match="resourceClaims"):
        placeholder_body(GangId("ns/a"), KEY, 0, 4, claims)


def read(*bodies):
    items = [{**one, "metadata": {"uid": "u", **one["metadata"]}} for one in bodies]
    return decode_placeholders(json.dumps({"items": items}).encode())[0]


def test_what_is_written_is_read():
    body = placeholder_body(GangId("ns/a"), KEY, 1, 4, POD)
    (one,) = read(body)
    known = Placeholder(f"{KEY[0]}-3-1", "u", GangId("ns/a"), *KEY, 1, 4, 0.0, marked=False)
    assert one == known
    shown = {**body, **unschedulable(GangId("ns/a"), "2026-01-01T00:00:00Z")}
    assert read(shown) == [replace(known, marked=True)]


def test_other_pods_are_left_alone():
    body = placeholder_body(GangId("ns/a"), KEY, 1, 4, POD)
    other = {**body, "spec": {**body["spec"], "schedulerName": "default-scheduler"}}
    metadata = body["metadata"]
    named = {**body, "metadata": {**metadata, "name": "mine"}}
    uncounted = {**body, "metadata": {**metadata, "annotations": {}}}
    going = {**body, "metadata": {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert read(other, named, uncounted, going) == []


# -- settings and passes -------------------------------------------------------------------------


def test_only_one_source_brings_nodes():
    with pytest.raises(ValueError, match="provisioning and placeholders both bring nodes"):
        SchedulerConfig(provisioning={}, placeholders={})
    assert SchedulerConfig(placeholders={}).placeholders.pods_max == 1000


async def test_an_error_of_one_call_is_raised_after_the_others():
    done = []

    async def work(item: int) -> None:
        if item == 3:
            raise ValueError(item)
        await asyncio.sleep(0)
        done.append(item)

    with pytest.raises(ValueError, match="3"):
        await in_parallel(work, range(40))
    assert done == [item for item in range(16) if item != 3]


@pytest.mark.parametrize("error", [NotFound(404, "no namespace"), Forbidden(403, "an older role")])
async def test_without_a_setting_there_is_one_pass_and_no_error(error):
    passed = asyncio.Event()

    async def step() -> None:
        passed.set()
        raise error

    running = asyncio.create_task(pass_once(step))
    await passed.wait()
    done, _ = await asyncio.wait([running], timeout=0.05)
    assert not done
    running.cancel()


class Pods:
    """Placeholders that an API server has."""

    def __init__(self, count: int) -> None:
        self.names = {f"gangsched-{'0' * 20}-1-{index}" for index in range(count)}

    async def get(self, path: str, **params: str) -> bytes:
        assert path.endswith(f"/{NODES_NAMESPACE}/pods")
        assert params["labelSelector"] == "gangsched.io/placeholder=true"
        annotations = {names.PLACEHOLDERS_ANNOTATION: "2"}
        items = [
            {
                "metadata": {"name": name, "uid": name, "annotations": annotations},
                "spec": {"schedulerName": SCHEDULER},
            }
            for name in sorted(self.names)
        ]
        return json.dumps({"metadata": {}, "items": items}).encode()

    async def delete(self, path: str, options: dict) -> None:
        name = path.rpartition("/")[2]
        assert options["preconditions"] == {"uid": name}
        self.names.discard(name)


async def test_without_the_setting_earlier_placeholders_are_deleted():
    api = Pods(2)
    pods = PlaceholderPods(api, an_engine().view, None, print, lambda: 0.0)
    running = asyncio.create_task(pods.run())
    await until_async(lambda: not api.names, "no placeholder")
    running.cancel()


async def test_a_pass_does_not_wait_once_something_wakes_it():
    passes = 0

    async def step() -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            raise asyncio.CancelledError

    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(asyncio.CancelledError):
        await repeat_passes(step, "nothing", wakes=lambda: True)
    assert passes == 3
    assert loop.time() - began_s < 60
