"""Leadership, with a Lease in memory and manual clocks."""

import asyncio
import json
import random

import pytest

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import (
    Conflict,
    LeadershipLostError,
    NotFound,
    NotLeader,
    Unavailable,
)
from gangsched.kube.leadership.lease import Election, LeaseTiming

TIMING = LeaseTiming(duration_s=8.0, deadline_s=5.0, retry_s=1.0)


class Lease:
    """An API server with one Lease, and the clock of this machine."""

    def __init__(self) -> None:
        self.body = None
        self.version = 0
        self.now_s = 1000.0

    def put(self, body: dict) -> dict:
        self.version += 1
        self.body = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        return self.body


class Link:
    """One candidate's connection; `cut` answers nothing, `late` hears of success only."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.cut = self.unheard = False

    async def request(self, method, path, *, body=None, tries=1) -> bytes:
        del path, tries
        if self.cut:
            raise Unavailable(0, "no connection")
        if method == "GET":
            if self.lease.body is None:
                raise NotFound(404, "no lease")
            return json.dumps(self.lease.body).encode()
        if method == "POST" and self.lease.body is not None:
            raise Conflict(409, "exists")
        if method == "PUT" and body["metadata"]["resourceVersion"] != str(self.lease.version):
            raise Conflict(409, "changed")
        made = self.lease.put(body)
        if self.unheard:
            raise Unavailable(0, "the answer was lost")
        return json.dumps(made).encode()


def candidate(lease: Lease, name: str) -> tuple[Election, Link]:
    """Return a candidate and its connection."""
    link = Link(lease)
    return Election(link, "ns/l", TIMING, name, now=lambda: lease.now_s), link


async def test_a_standby_leads_when_the_lease_has_not_changed_for_its_duration():
    lease = Lease()
    (first, link), (second, _) = candidate(lease, "a"), candidate(lease, "b")
    assert await first._try()
    assert not await second._try()
    link.cut = True
    lease.now_s += 7.9
    assert not await second._try()
    assert not first.leads()
    lease.now_s += 0.2
    assert await second._try()
    assert second.leads()
    assert lease.body["spec"]["leaseTransitions"] == 2


async def test_a_standby_does_not_sleep_past_the_end_of_a_lease(monkeypatch):
    lease = Lease()
    (first, _), (second, _) = candidate(lease, "a"), candidate(lease, "b")
    assert await first._try()
    slept = []

    async def passes(for_s: float) -> None:
        slept.append(for_s)
        lease.now_s += for_s + 0.3  # every look takes time as well

    monkeypatch.setattr(asyncio, "sleep", passes)
    began_s = lease.now_s
    await second.acquire()
    assert lease.now_s - began_s < 8.5
    assert min(slept) > 0
    assert len(slept) <= 8


async def test_a_lease_that_is_given_back_is_free_at_once():
    lease = Lease()
    (first, _), (second, _) = candidate(lease, "a"), candidate(lease, "b")
    assert await first._try()
    await first.release()
    assert not first.leads()
    assert await second._try()


async def test_a_new_candidate_ignores_the_writers_clock():
    lease = Lease()
    first, _ = candidate(lease, "a")
    assert await first._try()
    lease.now_s += 100.0
    late, _ = candidate(lease, "b")
    assert not await late._try()


async def test_a_leader_without_its_lease_stops(monkeypatch):
    lease = Lease()
    first, link = candidate(lease, "a")
    assert await first._try()
    link.cut = True

    async def passes(_: float) -> None:
        lease.now_s += 1.0

    monkeypatch.setattr(asyncio, "sleep", passes)
    with pytest.raises(LeadershipLostError, match="was not renewed in time"):
        await first.hold()
    assert not first.leads()


async def test_a_leader_that_was_away_does_not_go_on(monkeypatch):
    """Though nobody took the Lease: what it wrote meanwhile was refused."""
    lease = Lease()
    first, _ = candidate(lease, "a")
    assert await first._try()

    async def passes(_: float) -> None:
        lease.now_s += 6.0

    monkeypatch.setattr(asyncio, "sleep", passes)
    with pytest.raises(LeadershipLostError):
        await first.hold()
    assert not first.leads()


@pytest.mark.parametrize("seed", range(200))
async def test_never_do_two_lead(seed):
    """Candidates that try, pause, lose their connection or an answer, in any order."""
    rng = random.Random(seed)
    lease = Lease()
    candidates = [candidate(lease, name) for name in "abc"]
    led: set[str] = set()
    for _ in range(300):
        one, link = rng.choice(candidates)
        match rng.randrange(8):
            case 0:
                link.cut = not link.cut
            case 1:
                link.unheard = not link.unheard
            case 2:
                await one.release()
            case 3 | 4:
                lease.now_s += rng.choice([0.1, 1.0, 4.0, 9.0])
            case _:
                await one._try()
        leaders = [other.identity for other, _ in candidates if other.leads()]
        assert len(leaders) <= 1
        led.update(leaders)
    assert led


async def test_a_former_leader_writes_nothing(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    async with KubeClient(path) as client:
        client.may_write = lambda: False
        with pytest.raises(NotLeader):
            await client.create("/api/v1/namespaces/ns/pods", {})
        with pytest.raises(Unavailable):
            await client.request("GET", "/api/v1/pods", tries=1)
