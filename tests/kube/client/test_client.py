"""The user agent of the API client."""

import contextlib
import json

import pytest
from aiohttp import web

from gangsched.extender.server import serve
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Invalid
from gangsched.kube.client.paths import is_dns_name, object_path


async def test_a_renewed_token_is_used(tmp_path):
    """A pod's token lasts an hour; processes live longer."""
    said = []

    async def listen(request: web.Request) -> web.Response:
        said.append(request.headers.get("Authorization"))
        return web.json_response({})

    runner, port = await serve([web.get("/api/v1/nodes", listen)], "127.0.0.1", 0)
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "first"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        async with KubeClient(path) as client:
            await client.get("/api/v1/nodes")

            def renewed(settings) -> None:
                settings.api_key = dict.fromkeys(settings.api_key, "bearer second")

            client._settings.refresh_api_key_hook = renewed
            await client.get("/api/v1/nodes")
    finally:
        await runner.cleanup()
    assert said == ["Bearer first", "bearer second"]


def kubeconfig(folder, port: int):
    """Return the path of a kubeconfig for a server on this machine."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "first"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


LEAD_ASTRAY = ("..", ".", "", "../../secrets/s", "../../../pods?watch=1", "a/b", "a%2Fb", "a?b#c")


async def test_no_name_leads_to_another_object(tmp_path):
    """Whatever its name is, one object of the collection is asked for, or none."""
    asked = []

    async def listen(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.json_response({})

    runner, port = await serve([web.get("/{rest:.*}", listen)], "127.0.0.1", 0)
    folder = "/api/v1/namespaces/ns/configmaps"
    try:
        async with KubeClient(kubeconfig(tmp_path, port)) as client:
            for name in ("fine", *LEAD_ASTRAY):
                with contextlib.suppress(Invalid):
                    await client.get(object_path(folder, name))
            with pytest.raises(Invalid, match="is no path of an object"):
                await client.get(f"{folder}/../../kube-system/secrets/s")
            with pytest.raises(Invalid):
                async for _ in client.stream(f"{folder}/../pods", {}):
                    pass
    finally:
        await runner.cleanup()
    assert asked[0] == f"{folder}/fine"
    assert len(asked) == 6
    for path in asked:
        rest = path.removeprefix(f"{folder}/")
        assert rest != path
        assert not set(rest) & set("/?#")


@pytest.mark.parametrize("name", ["a", "a-b.c", "0", "a" * 253])
def test_names_of_objects(name):
    assert is_dns_name(name)


@pytest.mark.parametrize("name", [*LEAD_ASTRAY, "A", "-a", "a-", "a..b", "a" * 254, "a\n"])
def test_what_is_no_name_of_an_object(name):
    assert not is_dns_name(name)
