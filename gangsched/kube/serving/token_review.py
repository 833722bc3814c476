"""Access to the served paths: the API server reviews the token, then the permission."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gangsched.core.bounds import REVIEWS_WAITING, TOKENS_KNOWN
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError

_KEPT_S = 60.0
_REFUSED_S = 10.0
_REVIEW_S = 10.0
_AT_ONCE = 2
_OPEN = ("/healthz", "/readyz", "/history")
"""Paths of probes, which show no secrets and have no token, and one that reviews tokens itself."""


class BusyError(Exception):
    """Too many tokens wait for their review already."""


class _Known:
    """A bounded number of answers by token and path; the oldest is dropped first."""

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._answers: dict[tuple[bytes, str], tuple[float, int]] = {}

    def __contains__(self, key: tuple[bytes, str]) -> bool:
        """Return whether there was such an answer, also an expired one."""
        return key in self._answers

    def get(self, key: tuple[bytes, str]) -> int | None:
        until_s, status = self._answers.get(key, (0.0, 0))
        return status if time.monotonic() < until_s else None

    def put(self, key: tuple[bytes, str], status: int) -> None:
        self._answers.pop(key, None)
        if len(self._answers) >= TOKENS_KNOWN.most:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = time.monotonic() + self._kept_s, status

    def drop(self, key: tuple[bytes, str]) -> None:
        self._answers.pop(key, None)


class _Turnstile:
    """Limits how many reviews run at once, and how many may wait."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    @asynccontextmanager
    async def passed(self) -> AsyncIterator[None]:
        if self._waiting >= REVIEWS_WAITING.most:
            raise BusyError
        self._waiting += 1
        try:
            async with self._slots:
                yield
        finally:
            self._waiting -= 1


class TokenReviewer:
    """Answers by token and path: an allowed caller is cached for a minute, a denied one for less.

    Callers with a valid token before do not wait behind unknown callers: any pod may send tokens.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._allowed, self._refused = _Known(_KEPT_S), _Known(_REFUSED_S)
        self._returning, self._strangers = _Turnstile(), _Turnstile()

    async def status(self, token: str, path: str) -> int:
        """Return 200 if the owner of a token may get a path, else 401 or 403.

        Raises:
            KubeError: the API server gave no answer.
            TimeoutError: the review took too long.
            BusyError: too many tokens wait for their reviews.

        """
        key = hashlib.sha256(token.encode()).digest(), path
        known = self._allowed.get(key) or self._refused.get(key)
        if known is not None:
            return known
        turnstile = self._returning if key in self._allowed else self._strangers
        async with asyncio.timeout(_REVIEW_S), turnstile.passed():
            # A second call for the same token may have waited for the first.
            known = self._allowed.get(key) or self._refused.get(key)
            status = known if known is not None else await self._ask(token, path)
        if status == 200:
            self._allowed.put(key, status)
        else:
            self._allowed.drop(key)
            self._refused.put(key, status)
        return status

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


def require_review(reviews: TokenReviewer) -> Middleware:
    """Return the middleware that rejects callers without the right to the path."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _OPEN:
            return await handler(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return web.Response(status=401, text="a bearer token is needed\n")
        try:
            status = await reviews.status(token, request.path)
        except (KubeError, TimeoutError):
            return web.Response(status=503, text="the token cannot be reviewed now\n")
        except BusyError:
            return web.Response(status=429, text="too many tokens wait for their review\n")
        if status != 200:
            return web.Response(status=status, text=f"not allowed: get {request.path}\n")
        return await handler(request)

    return check
