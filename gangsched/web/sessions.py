"""Who a viewer is and what the viewer may see: token reviews, access reviews and sessions.

A session is an entry in the memory of this process. The cookie is its random name, and nothing
else. A token is reviewed again every minute, so that a revoked token ends its session.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Forbidden, KubeError
from gangsched.web.rights import EVERYTHING, Rights

SESSION_S = 8 * 3600.0
TOKEN_LETTERS_MAX = 16_384
_SESSIONS_MAX = 256
_REVIEWED_S = 60.0
_REVIEW_S = 30.0
_LOGINS_WAITING = 64
_AT_ONCE = 8
_NAMES_MAX = 1000
"""Namespaces, and queues, that are reviewed one by one for a viewer; others stay hidden."""

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def new_code() -> str:
    """Return a code for the terminal, which cannot be guessed."""
    return secrets.token_urlsafe(16)


class LoginError(Exception):
    """A login failed; the message is for the viewer. `status` is that of HTTP."""

    def __init__(self, message: str, status: int = 401) -> None:
        self.status = status
        super().__init__(message)


@dataclass(slots=True)
class ViewerSession:
    """One viewer who has logged in; without a token, by the code of the terminal."""

    user: str
    rights: Rights
    ends_s: float
    token: str | None = field(default=None, repr=False)
    reviewed_s: float = 0.0
    notice: str = ""
    """What the last action did; the next page shows it once."""

    review: asyncio.Lock = field(default_factory=asyncio.Lock)


LOCAL = ViewerSession("this user", EVERYTHING, float("inf"))
"""The viewer of a file, which needs no login."""

Names = Callable[[], tuple[Iterable[str], Iterable[str]]]
"""Returns the namespaces that have gangs, and the queues."""


class ViewerReviews:
    """Asks the API server who has a token and what that user may read."""

    def __init__(self, client: KubeClient, names: Names) -> None:
        self._client, self._names = client, names
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def viewer(self, token: str) -> tuple[str, Rights]:
        """Return the name of a token's user, and the rights.

        Raises:
            LoginError: the token is not valid, or the API server cannot review it.

        """
        try:
            async with asyncio.timeout(_REVIEW_S):
                user = await self._user(token)
                return str(user.get("username") or ""), await self._rights(user)
        except Forbidden as error:
            message = (
                "The account of gangsched web may not create TokenReviews and SubjectAccessReviews."
            )
            raise LoginError(message, 503) from error
        except (KubeError, TimeoutError) as error:
            raise LoginError("The API server cannot review the token now.", 503) from error

    async def _user(self, token: str) -> dict[str, Any]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = msgspec.json.decode(await self._client.create(_TOKENS, body)).get("status") or {}
        if not status.get("authenticated"):
            raise LoginError("The token is not valid for this cluster.")
        user = status.get("user")
        return user if isinstance(user, dict) else {}

    async def _rights(self, user: dict[str, Any]) -> Rights:
        namespaces, queues = self._names()
        all_groups, all_queues, nodes = await asyncio.gather(
            self.may(user, verb="list", group="gangsched.io", resource="podgroups"),
            self.may(user, verb="list", group="gangsched.io", resource="queues"),
            self.may(user, verb="list", group="", resource="nodes"),
        )
        own_namespaces, own_queues = await asyncio.gather(
            self._each(
                user,
                [] if all_groups else namespaces,
                lambda name: {
                    "verb": "list",
                    "group": "gangsched.io",
                    "resource": "podgroups",
                    "namespace": name,
                },
            ),
            self._each(
                user,
                [] if all_queues else queues,
                lambda name: {
                    "verb": "get",
                    "group": "gangsched.io",
                    "resource": "queues",
                    "name": name,
                },
            ),
        )
        return Rights(all_groups, own_namespaces, all_queues, own_queues, nodes)

    async def _each(
        self,
        user: dict[str, Any],
        names: Iterable[str],
        attributes: Callable[[str], dict[str, str]],
    ) -> frozenset[str]:
        asked = sorted(set(names))[:_NAMES_MAX]
        answers = await asyncio.gather(*(self.may(user, **attributes(name)) for name in asked))
        return frozenset(name for name, allowed in zip(asked, answers, strict=True) if allowed)

    async def may(self, user: dict[str, Any], **attributes: str) -> bool:
        """Return whether a user (the `user` of a TokenReview) may do what the attributes say.

        Raises:
            KubeError: the API server gave no answer.

        """
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "groups": user.get("groups") or [],
                "uid": user.get("uid"),
                "extra": user.get("extra"),
                "resourceAttributes": attributes,
            },
        }
        async with self._slots:
            answer = msgspec.json.decode(await self._client.create(_ACCESS, body))
        return (answer.get("status") or {}).get("allowed") is True


class ViewerSessions:
    """The sessions of a live cluster, by the value of the cookie."""

    def __init__(self, reviews: ViewerReviews, code: str | None = None) -> None:
        """Take `code`, which logs in as the account that reads the cluster; None: tokens alone."""
        self._reviews, self._code = reviews, code
        self._sessions: dict[str, ViewerSession] = {}
        self._waiting = 0
        self._of_tokens: dict[str, str] = {}
        """Cookies of the sessions of REST clients, by the hash of their token."""

    @property
    def has_code(self) -> bool:
        """Return whether a code logs in too."""
        return self._code is not None

    async def log_in(self, secret: str) -> str:
        """Return the cookie of a new session, for a token or for the code.

        Raises:
            LoginError: it is neither, or it cannot be reviewed.

        """
        secret = secret.strip()
        if not secret or len(secret) > TOKEN_LETTERS_MAX or not secret.isascii():
            raise LoginError(f"Enter a token{' or the code' if self._code else ''}.", 400)
        now_s = time.monotonic()
        if self._code is not None and hmac.compare_digest(secret.encode(), self._code.encode()):
            session = ViewerSession("the account of the kubeconfig", EVERYTHING, now_s + SESSION_S)
        else:
            user, rights = await self._review(secret)
            session = ViewerSession(user, rights, now_s + SESSION_S, secret, time.monotonic())
        while len(self._sessions) >= _SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = session
        return cookie

    async def _review(self, token: str) -> tuple[str, Rights]:
        if self._waiting >= _LOGINS_WAITING:
            raise LoginError("Too many tokens are reviewed now; try again.", 429)
        self._waiting += 1
        try:
            return await self._reviews.viewer(token)
        finally:
            self._waiting -= 1

    async def of_token(self, token: str) -> ViewerSession:
        """Return the session of a token that a client of the REST interface sends each time.

        Raises:
            LoginError: the token is not valid, or it cannot be reviewed now.

        """
        digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        cookie = self._of_tokens.get(digest, "")
        session = await self.of(cookie)
        if session is not None:
            return session
        cookie = await self.log_in(token)
        session = self._sessions[cookie]
        previous = self._of_tokens.pop(digest, "")  # another request of the client was first
        self.log_out(previous)
        self._of_tokens[digest] = cookie
        while len(self._of_tokens) > _SESSIONS_MAX:
            del self._of_tokens[next(iter(self._of_tokens))]
        return session

    async def of(self, cookie: str) -> ViewerSession | None:
        """Return the session of a cookie with present rights, or None.

        Raises:
            LoginError: the rights cannot be reviewed now.

        """
        session = self._sessions.get(cookie)
        if session is None:
            return None
        if time.monotonic() >= session.ends_s:
            self.log_out(cookie)
            return None
        if session.token is not None and time.monotonic() - session.reviewed_s > _REVIEWED_S:
            async with session.review:
                await self._renew(cookie, session)
        return session if cookie in self._sessions else None

    async def _renew(self, cookie: str, session: ViewerSession) -> None:
        if session.token is None or time.monotonic() - session.reviewed_s <= _REVIEWED_S:
            return  # another request of the viewer waited for the same review
        try:
            session.user, session.rights = await self._review(session.token)
        except LoginError as error:
            if error.status != 401:
                raise
            self.log_out(cookie)
            return
        session.reviewed_s = time.monotonic()

    def log_out(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(cookie, None)
