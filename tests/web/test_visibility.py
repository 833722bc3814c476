"""Kueue's API of pending workloads: what it lists, and whom the server answers."""

import asyncio
import base64
import contextlib
import json
import ssl

import aiohttp
import msgspec
import pytest
import trustme
from multidict import CIMultiDict
from web_sources import page_source

from gangsched.kube.client.errors import Forbidden, Invalid, NotFound, Unavailable
from gangsched.web.keeper import ModelKeeper
from gangsched.web.model import GangRow, PageModel, QueueRow, Span, StartRow
from gangsched.web.sessions import ViewerReviews
from gangsched.web.visibility import aggregated_server
from gangsched.web.visibility.aggregated_server import (
    ServedAt,
    VisibilityService,
    register,
)
from gangsched.web.visibility.front_proxy import CONFIG_MAP, FrontProxy, front_proxy
from gangsched.web.visibility.pending_workloads import (
    LIMIT_MAX,
    PendingQuery,
    PendingQueryError,
    PendingWorkloads,
    pending_query,
)

API = "/apis/visibility.kueue.x-k8s.io/v1beta2"
DEFAULT = f"{API}/clusterqueues/default/pendingworkloads"
PROXY_NAME = "front-proxy-client"


def waiting(name, position, queue="q", since_s=0.0):
    """Return a pending gang, in a place of its queue."""
    start = StartRow(position, "planned", Span(1.0, 2.0, 3.0))
    return GangRow(
        name, queue, "u", "Pending", 7, 1, 0, 1, 1.0, queued_since_s=since_s, start=start
    )


def model_of(*rows, namespaces=None):
    queues = (QueueRow("q", 0, len(rows), 0, namespaces=namespaces), QueueRow("other", 0, 0, 0))
    gangs = {row.id: row for row in rows}
    return PageModel(1, 0.0, "here", live=True, levels=(), nodes=(), queues=queues, gangs=gangs)


def names(summary):
    return [item["metadata"]["name"] for item in summary["items"]]


# -- what is listed --------------------------------------------------------------------------------


def test_positions_count_in_the_queue_and_in_the_namespace():
    model = model_of(
        waiting("a/third", 3),
        waiting("b/second", 2),
        waiting("a/first", 1),
        waiting("a/x", 1, "other"),
    )
    summary = PendingWorkloads(model, "q").summary(PendingQuery("q", None))
    assert [
        (i["metadata"]["name"], i["positionInClusterQueue"], i["positionInLocalQueue"])
        for i in summary["items"]
    ] == [("first", 0, 0), ("second", 1, 0), ("third", 2, 1)]
    assert summary["items"][0] == {
        "metadata": {
            "name": "first",
            "namespace": "a",
            "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "priority": 7,
        "localQueueName": "q",
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }
    local = PendingWorkloads(model, "q").summary(PendingQuery("q", "a"))
    assert [(i["metadata"]["name"], i["positionInClusterQueue"]) for i in local["items"]] == [
        ("first", 0),
        ("third", 2),
    ]


def test_a_part_of_the_list_is_asked_for():
    model = model_of(*(waiting(f"a/{number}", number) for number in range(5)))
    pending = PendingWorkloads(model, "q")
    asked = pending_query("q", None, {"offset": "1", "limit": "2"})
    assert names(pending.summary(asked)) == ["1", "2"]
    assert names(pending.summary(pending_query("q", None, {"offset": "9"}))) == []
    assert pending_query("q", None, {"limit": "0"}).limit == 1000
    assert pending_query("q", None, {"limit": "999999"}).limit == LIMIT_MAX


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "9" * 40, "٣"])
def test_a_malformed_number_is_named(text):
    with pytest.raises(PendingQueryError, match="must be a whole number") as caught:
        pending_query("q", None, {"limit": text})
    assert caught.value.code == 400


@pytest.mark.parametrize(("queue", "namespace"), [("none", None), ("q", "c"), ("none", "a")])
def test_a_queue_that_may_not_be_used_is_not_found(queue, namespace):
    model = model_of(waiting("a/x", 1), namespaces=frozenset({"a"}))
    with pytest.raises(PendingQueryError, match=f'"{queue}" not found') as caught:
        PendingWorkloads(model, queue).summary(PendingQuery(queue, namespace))
    assert caught.value.code == 404


# -- the API server's description of itself --------------------------------------------------------


class Cluster:
    """An API server: its description, an APIService, and who may read which queue."""

    def __init__(self, ca="PEM", allowed=()):
        self.data = {
            "requestheader-client-ca-file": ca,
            "requestheader-allowed-names": json.dumps([PROXY_NAME]),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        self.allowed, self.asked, self.patched, self.error = set(allowed), [], [], None
        self.service = {"namespace": "gangsched-system", "name": "gangsched-visibility"}
        self.gate = asyncio.Event()
        self.gate.set()
        self.secret, self.looked = None, 0

    async def get(self, path):
        if self.error is not None:
            raise self.error
        if path == CONFIG_MAP:
            return json.dumps({"data": self.data})
        if "/secrets/" in path:
            if self.secret is None:
                raise NotFound(404, path)
            return json.dumps(self.secret)
        self.looked += 1
        if self.service is None:
            raise NotFound(404, path)
        return json.dumps({"spec": {"service": self.service}})

    async def patch(self, path, body):
        self.patched.append((path, body))
        return b"{}"

    async def create(self, path, body):
        if path.endswith("/secrets"):
            self.secret = body
            return json.dumps(body)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        self.asked.append(spec)
        asked = spec["resourceAttributes"]
        key = spec["user"], asked["resource"], asked["namespace"], asked["name"]
        return json.dumps({"status": {"allowed": key in self.allowed}})


async def test_the_description_of_the_api_server_is_read():
    proxy = await front_proxy(Cluster())
    headers = CIMultiDict(
        [
            ("X-Remote-User", "alice"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", "b"),
            ("X-Remote-Extra-Acme%2fScope", "one"),
            ("X-Remote-Extra-Acme%2fScope", "two"),
        ]
    )
    assert proxy.user(headers) == {
        "username": "alice",
        "groups": ["a", "b"],
        "uid": None,
        "extra": {"acme/scope": ["one", "two"]},
    }
    assert proxy.user(CIMultiDict({"X-Remote-Group": "system:masters"})) is None


async def test_an_api_server_without_an_aggregation_layer_is_named():
    cluster = Cluster()
    cluster.data = {"client-ca-file": "PEM"}
    with pytest.raises(Invalid, match="no aggregation layer"):
        await front_proxy(cluster)
    cluster = Cluster()
    cluster.data["requestheader-group-headers"] = "{"
    with pytest.raises(Invalid, match="group-headers"):
        await front_proxy(cluster)


def test_only_allowed_names_are_accepted():
    proxy = FrontProxy("PEM", frozenset({PROXY_NAME}), ("u",), (), (), ())
    assert proxy.accepts({"subject": ((("commonName", PROXY_NAME),),)})
    assert not proxy.accepts({"subject": ((("commonName", "alice"),),)})
    assert not proxy.accepts({"subject": ((("organizationName", PROXY_NAME),),)})
    assert not proxy.accepts(None)
    anybody = FrontProxy("PEM", frozenset(), ("u",), (), (), ())
    assert anybody.accepts({"subject": ((("commonName", "x"),),)})
    assert not anybody.accepts({})


# -- the server ------------------------------------------------------------------------------------


class ApiServer:
    """Passes requests of users on to the server under test, as the API server does."""

    def __init__(self, authority, url, server_ca):
        self.authority, self.url, self.server_ca = authority, url, server_ca

    async def get(self, path, user="alice", name=PROXY_NAME, method="GET", headers=None):
        context = ssl.create_default_context(cadata=self.server_ca)
        if name is not None:
            self.authority.issue_cert("x.local", common_name=name).configure_cert(context)
        sent = headers or ({"X-Remote-User": user} if user else {})
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method,
                self.url + path,
                headers=sent,
                ssl=context,
                server_hostname="gangsched-visibility.gangsched-system.svc",
            ) as answer,
        ):
            return answer.status, msgspec.json.decode(await answer.read())


@contextlib.asynccontextmanager
async def served(cluster):
    """Serve the pending workloads of a small cluster; yield how the API server asks."""
    authority = trustme.CA()
    cluster.data["requestheader-client-ca-file"] = authority.cert_pem.bytes().decode()
    keeper = ModelKeeper(page_source())
    kept = asyncio.ensure_future(keeper.run())
    reviews = ViewerReviews(cluster, lambda: ((), ()))
    at = ServedAt("127.0.0.1", 0, "gangsched-system")
    service = await VisibilityService.start(cluster, keeper, reviews, at)
    keeping = asyncio.ensure_future(service.keep())
    try:
        ca = base64.b64decode(cluster.secret["data"]["ca.crt"]).decode()
        yield ApiServer(authority, f"https://127.0.0.1:{service.port}", ca)
    finally:
        for task in (keeping, kept):
            task.cancel()
        await asyncio.gather(keeping, kept, return_exceptions=True)


async def test_users_get_what_the_api_server_lets_them():
    allowed = {
        ("alice", "clusterqueues", "", "default"),
        ("bob", "localqueues", "ns", "default"),
    }
    cluster = Cluster(allowed=allowed)
    async with served(cluster) as api:
        status, summary = await api.get(DEFAULT)
        assert status == 200
        assert summary["kind"] == "PendingWorkloadsSummary"
        assert names(summary) == ["waits"]
        assert (await api.get(DEFAULT, user="bob"))[0] == 403
        local = f"{API}/namespaces/ns/localqueues/default/pendingworkloads"
        status, summary = await api.get(local, user="bob")
        assert (status, names(summary)) == (200, ["waits"])
        status, failure = await api.get(local.replace("/ns/", "/theirs/"), user="bob")
        assert (status, failure["reason"]) == (403, "Forbidden")
        assert '"bob" may not get localqueues/pendingworkloads' in failure["message"]
        assert all(
            spec["resourceAttributes"]["subresource"] == "pendingworkloads"
            for spec in cluster.asked
        )


async def test_the_authority_is_written_into_the_api_service():
    cluster = Cluster()
    async with served(cluster):
        async with asyncio.timeout(30):
            while not cluster.patched:
                await asyncio.sleep(0)
        ((path, body),) = cluster.patched
        assert path.endswith("/apiservices/v1beta2.visibility.kueue.x-k8s.io")
        assert body == {"spec": {"caBundle": cluster.secret["data"]["ca.crt"]}}


async def test_the_api_service_of_kueue_stays_as_it_is():
    cluster = Cluster()
    cluster.service = {"namespace": "kueue-system", "name": "kueue-visibility-server"}
    at = ServedAt("127.0.0.1", 0, "gangsched-system")
    assert "kueue-system/kueue-visibility-server" in await register(cluster, b"PEM", at)
    cluster.service = None
    assert "apply manifests/visibility" in await register(cluster, b"PEM", at)
    assert cluster.patched == []


async def test_an_api_service_that_comes_later_is_found(monkeypatch):
    monkeypatch.setattr(aggregated_server, "_RETRY_S", 0.01)
    cluster = Cluster()
    service, cluster.service = cluster.service, None
    async with served(cluster):
        async with asyncio.timeout(30):
            while not cluster.looked:
                await asyncio.sleep(0)
            cluster.service = service
            while not cluster.patched:
                await asyncio.sleep(0)


async def test_only_the_api_server_is_answered():
    cluster = Cluster(allowed={("alice", "clusterqueues", "", "default")})
    async with served(cluster) as api:
        status, failure = await api.get(DEFAULT, name="somebody")
        assert (status, failure["message"]) == (401, "Only the API server may connect.")
        with pytest.raises(aiohttp.ClientError):
            await api.get(DEFAULT, name=None)
        stranger = ApiServer(trustme.CA(), api.url, api.server_ca)
        with pytest.raises(aiohttp.ClientError):
            await stranger.get(DEFAULT)
        status, failure = await api.get(DEFAULT, headers={"X-Remote-Group": "system:masters"})
        assert (status, failure["message"]) == (401, "The request names no user.")
        assert cluster.asked == []


async def test_discovery_and_failures_are_objects_of_kubernetes():
    cluster = Cluster(allowed={("alice", "clusterqueues", "", "none")})
    async with served(cluster) as api:
        assert (await api.get("/apis"))[1]["groups"][0]["name"] == "visibility.kueue.x-k8s.io"
        assert (await api.get("/apis/visibility.kueue.x-k8s.io"))[1]["kind"] == "APIGroup"
        listed = (await api.get(API))[1]
        assert ("clusterqueues/pendingworkloads", ["get"]) in [
            (one["name"], one["verbs"]) for one in listed["resources"]
        ]
        for path, code in ((DEFAULT.replace("default", "none"), 404), ("/openapi/v2", 404)):
            status, failure = await api.get(path)
            assert (status, failure["kind"], failure["code"]) == (code, "Status", code)
        status, failure = await api.get(DEFAULT, method="DELETE")
        assert (status, failure["reason"]) == (405, "MethodNotAllowed")


async def test_requests_that_wait_for_reviews_are_bounded(monkeypatch):
    monkeypatch.setattr(aggregated_server, "_WAITING_MAX", 1)
    cluster = Cluster(allowed={("alice", "clusterqueues", "", "default")})
    async with served(cluster) as api:
        cluster.gate.clear()
        first = asyncio.ensure_future(api.get(DEFAULT))
        status = 0
        async with asyncio.timeout(30):
            while status != 429:
                second = asyncio.ensure_future(api.get(DEFAULT))
                done, _ = await asyncio.wait({second, first}, return_when="FIRST_COMPLETED")
                status = done.pop().result()[0]
        cluster.gate.set()
        answers = [await task for task in (first, second)]
        assert sorted(status for status, _ in answers) == [200, 429]


@pytest.mark.parametrize("error", [Unavailable(503, "x"), Forbidden(403, "x")])
async def test_an_api_server_that_cannot_review_is_named(error):
    cluster = Cluster()
    async with served(cluster) as api:
        cluster.error = error
        status, failure = await api.get(DEFAULT)
        assert (status, failure["reason"]) == (503, "ServiceUnavailable")
