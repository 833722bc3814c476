"""An API server with one ConfigMap."""

import json

from gangsched.kube.client.errors import NotFound


class StubConfigMap:
    """An API server with one ConfigMap, at first without it."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.writes = 0

    async def get(self, _) -> bytes:
        if self.data is None:
            raise NotFound(404, "no such ConfigMap")
        return json.dumps({"data": self.data}).encode()

    async def patch(self, _, body) -> bytes:
        if self.data is None:
            raise NotFound(404, "no such ConfigMap")
        self.data |= body["data"]
        self.writes += 1
        return b"{}"

    async def create(self, _, body) -> bytes:
        self.data = dict(body["data"])
        self.writes += 1
        return b"{}"
