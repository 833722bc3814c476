"""The pages of `gangsched web` on a real control plane, for viewers with different rights."""

import asyncio
import contextlib
import re

import aiohttp
import pytest
from test_jobset import jobset, replicated
from waiting import patience_s, until_async

from gangsched.cli.web import serve_cluster, serve_file
from gangsched.config import load_config
from gangsched.kube.client.access import Access
from gangsched.web.sessions import new_code

pytestmark = pytest.mark.by("direct")  # the pages read what the binding wrote


@contextlib.asynccontextmanager
async def served(work):
    """Serve the pages; yield their address and the code of the login."""
    lines = []
    task = asyncio.ensure_future(work(lines.append))
    try:

        def ready():
            if task.done():
                task.result()
            return re.search(r"http://\S+:\d+", " ".join(lines)) and lines

        await until_async(ready, "the pages are served")
        found = re.search(r"code (\S+)", " ".join(lines))
        yield re.search(r"http://\S+:\d+", lines[0])[0], found[1] if found else ""
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def viewer(url, secret=""):
    """Yield a function that reads a page as a viewer who has logged in."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        if secret:
            form = {"token": secret}
            async with session.post(f"{url}/login", data=form, headers={"Origin": url}) as answer:
                assert answer.status == 200

        async def read(path):
            async with session.get(url + path) as answer:
                return await answer.text()

        async def post(path, form):
            async with session.post(url + path, data=form, headers={"Origin": url}) as answer:
                return await answer.text()

        read.post = post
        yield read


async def shows(read, path, word):
    """Wait until a page has a word."""
    async with asyncio.timeout(patience_s(30)):
        while word not in await read(path):
            await asyncio.sleep(0)


def tenant(cluster, namespace) -> str:
    """Let an account of a namespace list its gangs; return a token."""
    cluster.kubectl("create", "role", "gangs", "-n", namespace, "--verb=list,get",
                    "--resource=podgroups.gangsched.io")  # fmt: skip
    cluster.kubectl("create", "rolebinding", "gangs", "-n", namespace, "--role=gangs",
                    f"--serviceaccount={namespace}:default")  # fmt: skip
    return cluster.kubectl("create", "token", "default", "-n", namespace).strip()


def test_a_cluster_and_its_snapshot_are_shown_to_their_viewers(cluster, namespace, tmp_path):
    other = cluster.new_namespace()
    try:
        cluster.gang(namespace, "own", 1, gpus=8)
        cluster.wait_placed(namespace, "own-", 1)
        cluster.gang(other, "secret", 1, gpus=4)
        cluster.wait_placed(other, "secret-", 1)
        cluster.gang(namespace, "wide", 64, gpus=8)
        asyncio.run(_live(cluster, namespace, other))
        file = tmp_path / "now.jsonl"
        assert cluster.gangsched("snapshot", str(file))[0] == 0
        asyncio.run(_snapshot(file, namespace, other))
    finally:
        cluster.remove_namespace(other)


async def _live(cluster, namespace, other):
    access = Access(cluster.plane.kubeconfig)

    def work(say):
        return serve_cluster(access, load_config(None), 0, say, code=new_code())

    async with served(work) as (url, code):
        async with viewer(url, code) as read:
            text = await read(f"/gang?name={namespace}/own")
            assert "Placed" in text
            assert f"{other}/secret" in await read(f"/gangs?q={other}")

            await shows(read, f"/gang?name={namespace}/wide", "LargerThanCluster")
            cluster.gang(namespace, "next", 1, gpus=1)
            await shows(read, f"/gangs?q={namespace}/next&state=Placed", "1 of")
            await shows(read, f"/gang?name={namespace}/next", "1 pod run on ")
            text = await read("/what-if?count=64&node=k-0")
            assert f"{namespace}/wide" in text
            assert "starts at all" in text
            cluster.kubectl("delete", "podgroups.gangsched.io/next", "pod/next-0", "-n", namespace)
            await shows(read, "/timeline", "ended 2")
        tenant_token = tenant(cluster, namespace)
        async with viewer(url, tenant_token) as read:
            assert "Placed" in await read(f"/gang?name={namespace}/own")
            what_if = "/what-if?count=64&node=k-0"
            wide = f"/gang?name={namespace}/wide"
            for path in ("/cluster", "/gangs", "/queues", "/timeline", what_if, wide):
                text = await read(path)
                assert other not in text, path
                assert "secret" not in text, path
            assert "There is no gang" in await read(f"/gang?name={other}/secret")
            assert f"system:serviceaccount:{namespace}:default" in await read("/gangs")
        await _rest(url, tenant_token, f"{namespace}/own", other)
        await _actions(cluster, url, (code, tenant_token), namespace)


async def _actions(cluster, url, secrets, namespace):
    """Viewers act with their own rights: the code's may cancel, the tenant's may not."""
    code, token = secrets
    job = jobset(replicated("w", "sleep 1", pods=9, gpus=4), name="job")
    cluster.create_job(namespace, job)
    form = {"gang": f"{namespace}/job"}
    async with viewer(url, token) as read:
        await shows(read, f"/gang?name={namespace}/job", "Hold")
        text = await read.post("/action", {**form, "kind": "cancel"})
        assert "Not done:" in text
        assert "cannot delete" in text or "cannot get" in text or "there is no job" in text
    async with viewer(url, code) as read:
        text = await read.post("/action", {**form, "kind": "hold"})
        assert f"JobSet {namespace}/job is held." in text
        cluster.wait(lambda: not cluster.group_status(namespace, "job"), "its gang is gone")
        text = await read.post("/action", {**form, "kind": "release"})
        assert f"JobSet {namespace}/job is released." in text
        await shows(read, f"/gang?name={namespace}/job", "Hold")
        text = await read.post("/action", {**form, "kind": "cancel"})
        assert f"JobSet {namespace}/job is cancelled." in text
        text = await read.post("/action", {"kind": "book", "value": "2:1:3"})
        assert "2 nodes are set aside in 1 h, for 3 h." in text
        await shows(read, "/timeline", "pages-")
    cluster.kubectl("delete", "reservations.gangsched.io", "--all")


async def _rest(url, token, own, other):
    """A client with a token reads what its account may see."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        async with session.get(f"{url}/api/v1/gangs/{own}") as answer:
            gang = await answer.json()
            assert (gang["gang"]["state"], gang["pods"][0]["state"]) == ("Placed", "running")
        async with session.get(f"{url}/api/v1/gangs") as answer:
            text = await answer.text()
            assert own in text
            assert other not in text
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/v1/gangs") as answer,
    ):
        assert answer.status == 401


async def _snapshot(file, namespace, other):
    async with (
        served(lambda say: serve_file(file, load_config(None), 0, say)) as (url, _),
        viewer(url) as read,
    ):
        assert "Placed" in await read(f"/gang?name={namespace}/own")
        assert f"{other}/secret" in await read("/gangs")
        assert "k-0" in await read("/cluster")
