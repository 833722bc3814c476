"""The client of the API server: who it says it is."""

import json

from aiohttp import web

from gangsched.extender.server import serve
from gangsched.kube.client import KubeClient


async def test_a_token_that_was_written_anew_is_used(tmp_path):
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
                settings.api_key["authorization"] = "bearer second"

            client._settings.refresh_api_key_hook = renewed
            await client.get("/api/v1/nodes")
    finally:
        await runner.cleanup()
    assert said == ["Bearer first", "bearer second"]
