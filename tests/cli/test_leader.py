"""Which process schedules, by a Lease or a local plane's record, and the warning if none does."""

import json

import pytest
from recorded_planes import record

from gangsched.cli.cluster import leader, view
from gangsched.cli.doctor import CHECKS
from gangsched.config import SchedulerConfig
from gangsched.kube.client.errors import Forbidden, NotFound
from gangsched.local import plane as planes

NOW = "Fri, 15 Jan 2027 08:00:00 GMT"
FRESH = "2027-01-15T07:59:55.000000Z"
OLD = "2027-01-15T07:58:25.000000Z"
HOME = "gangsched-system"
LEASE = f"{HOME}/gangsched"
SERVER = "https://127.0.0.1:1"


def lease(holder="pod-1", renewed=FRESH) -> dict:
    """Return a Lease of 8 s."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 8, "renewTime": renewed}
    return {"spec": spec}


class Api:
    """An API server that knows Leases by their namespaces."""

    server = SERVER

    def __init__(self, leases=None, *, refuses=False) -> None:
        self.leases = leases or {}
        self.refuses = refuses

    async def get(self, path, **params) -> bytes:
        if self.refuses:
            raise Forbidden(403, "leases are not for you")
        if path.endswith("/v1/leases"):
            assert params["fieldSelector"] == "metadata.name=gangsched"
            items = [
                one | {"metadata": {"namespace": namespace}}
                for namespace, one in self.leases.items()
            ]
            return json.dumps({"items": items}).encode()
        namespace = path.split("/")[-3]
        if namespace not in self.leases:
            raise NotFound(404, "no Lease")
        return json.dumps(self.leases[namespace]).encode()

    async def date(self) -> str:
        return NOW

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """No plane is there, and nothing was told yet."""
    monkeypatch.setattr(planes.platformdirs, "user_state_dir", lambda _: str(tmp_path))
    monkeypatch.setattr(leader, "_warned", set())


ENDED = "no process leads: pod-1 last renewed the Lease gangsched-system/gangsched 95 s ago"
STANDINGS = {
    "one leads": ({HOME: lease()}, "ok", "pod-1 leads"),
    "it ended": ({HOME: lease(renewed=OLD)}, "fail", ENDED),
    "it left": (
        {HOME: lease(holder="")},
        "fail",
        f"no process leads: the Lease {LEASE} was released",
    ),
    "nobody": ({}, "warn", f"there is no Lease {LEASE}: gangsched has not led here"),
}


@pytest.mark.parametrize("case", STANDINGS)
async def test_a_lease_names_the_leader(case):
    leases, level, said = STANDINGS[case]
    found = await leader.leader_state(Api(leases), LEASE)
    assert (found.level, found.message) == (level, said)
    assert bool(found.remedy) == (level != "ok")


PLANES = {
    "it runs": ({"gangsched": True}, "ok", "of local control plane 'mine'", ""),
    "it ended": (
        {"gangsched": False, "kwok": True},
        "fail",
        "no process leads: gangsched of local control plane 'mine' ended",
        "gangsched local restart --name mine",
    ),
    "there is none": (
        {"kwok": True},
        "warn",
        f"there is no Lease {LEASE}, and local control plane 'mine' was started without gangsched",
        f"{leader.INSTALL} (its pods need process nodes), or gangsched run",
    ),
}


@pytest.mark.parametrize("case", PLANES)
async def test_a_local_plane_says_it_without_a_lease(case):
    programs, level, said, mend = PLANES[case]
    record("other", "https://127.0.0.1:2", gangsched=True)
    record("mine", SERVER, **programs)
    found = await leader.leader_state(Api(), LEASE)
    assert (found.level, found.remedy) == (level, mend)
    assert found.message.endswith(said)


async def test_the_doctor_names_programs_of_a_local_plane_that_ended():
    record("mine", SERVER, gangsched=True, kwok=False, agent=False)
    found = [one async for one in CHECKS["running"](Api(), HOME)]
    assert [(one.level, one.remedy) for one in found] == [
        ("ok", ""),
        ("fail", "gangsched local restart --name mine"),
    ]
    assert found[1].message == "kwok, agent of local control plane 'mine' ended"


async def test_commands_warn_once_without_a_leader(caplog):
    api = Api({HOME: lease(renewed=OLD)})
    await leader.warn_without_leader(api, LEASE)
    await leader.warn_without_leader(api, LEASE)
    assert caplog.messages == [
        f"note: no gang starts now: {ENDED}; what helps: kubectl logs -n {HOME} deploy/gangsched"
    ]


SILENT = {
    "one leads": Api({HOME: lease()}),
    "one leads elsewhere": Api({"team": lease()}),
    "who asks may not know": Api({HOME: lease(renewed=OLD)}, refuses=True),
}


@pytest.mark.parametrize("case", SILENT)
async def test_nothing_is_said_where_one_leads_or_that_is_not_known(case, caplog):
    await leader.warn_without_leader(SILENT[case], LEASE)
    assert caplog.messages == []


async def test_a_lease_elsewhere_hides_nothing_where_the_own_one_is_there(caplog):
    await leader.warn_without_leader(Api({HOME: lease(renewed=OLD), "tenant": lease()}), LEASE)
    assert ENDED in caplog.text


async def test_a_server_that_does_not_say_the_time_is_no_failure(caplog, monkeypatch):
    api = Api({HOME: lease(renewed=OLD)})
    monkeypatch.setattr(api, "date", no_date)
    await leader.warn_without_leader(api, LEASE)
    assert caplog.messages == []


async def no_date() -> str:
    """Return what a proxy leaves of the Date."""
    return ""


async def test_an_unheld_lease_elsewhere_does_not_count(caplog):
    await leader.warn_without_leader(Api({"team": lease(renewed=OLD)}), LEASE)
    assert f"note: perhaps no gang starts now: there is no Lease {LEASE}" in caplog.text


async def test_every_look_at_the_cluster_tells_it(monkeypatch, caplog):
    class Seen:
        def __getattr__(self, _: str) -> "Seen":
            return self

    async def read(client, config, policies):
        return Seen()

    async def protected(client, engine):
        return frozenset()

    monkeypatch.setattr(view, "KubeClient", lambda _: Api({HOME: lease(renewed=OLD)}))
    monkeypatch.setattr(view, "read_scheduler", read)
    monkeypatch.setattr(view.disruption_budgets, "protected", protected)
    await view.read_cluster(None, SchedulerConfig(), None)
    assert ENDED in caplog.text


HOMES = {
    "its own place": (Api({HOME: lease(renewed=OLD), "tenant": lease()}), HOME),
    "a chart's": (Api({"team": lease(), "old": lease(renewed=OLD)}), "team"),
    "one of two, which no one can tell": (Api({"team": lease(), "tenant": lease()}), ""),
    "none": (Api(), ""),
    "who asks may not know": (Api(refuses=True), ""),
}


@pytest.mark.parametrize("case", HOMES)
async def test_commands_read_what_is_kept_where_gangsched_leads_from(case):
    api, place = HOMES[case]
    assert await leader.leader_namespace(api, LEASE) == place
    found = await view.with_leader_namespace(api, SchedulerConfig())
    assert found.history_config_map == f"{place or HOME}/gangsched-history"
    given = SchedulerConfig(history_config_map="mine/history")
    assert (await view.with_leader_namespace(api, given)).history_config_map == "mine/history"
