"""Who may read what we serve: the API server reviews the token, then the right to the path."""

import hashlib
import time

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gangsched.kube.client import KubeClient
from gangsched.kube.errors import KubeError

_KEPT_S = 60.0
_KEPT_MOST = 1024
_OPEN = ("/healthz", "/readyz")
"""What probes ask has no secrets, and probes have no token."""


class Reviews:
    """Answers by token and path, each kept for a minute."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[tuple[bytes, str], tuple[float, int]] = {}

    async def status(self, token: str, path: str) -> int:
        """Return 200 where a token's owner may get a path, else 401 or 403.

        Raises:
            KubeError: the API server gave no answer.

        """
        key = hashlib.sha256(token.encode()).digest(), path
        known = self._known.get(key)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        found = await self._ask(token, path)
        if len(self._known) >= _KEPT_MOST:
            self._known.clear()
        self._known[key] = time.monotonic() + _KEPT_S, found
        return found

    async def _ask(self, token: str, path: str) -> int:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        answer = await self._client.create("/apis/authentication.k8s.io/v1/tokenreviews", review)
        status = msgspec.json.decode(answer)["status"]
        if not status.get("authenticated"):
            return 401
        user = status["user"]
        access = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "groups": user.get("groups") or [],
                "uid": user.get("uid"),
                "extra": user.get("extra"),
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._client.create(path, access)
        return 200 if msgspec.json.decode(answer)["status"].get("allowed") else 403


def guard(reviews: Reviews) -> Middleware:
    """Return what lets only those in who may."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _OPEN:
            return await handler(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return web.Response(status=401, text="a bearer token is needed\n")
        try:
            status = await reviews.status(token, request.path)
        except KubeError:
            return web.Response(status=503, text="the token cannot be reviewed now\n")
        if status != 200:
            return web.Response(status=status, text=f"not allowed: get {request.path}\n")
        return await handler(request)

    return check
