"""`/history` of the leader: records of ended gangs, for users who may list PodGroups."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from gangsched.config import ConfigError
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.recording.history_file import HistoryQuery, read_history

PATH = "/history"
LIMIT_MAX = 10_000
_TEXT_MAX, _NAMES_MAX = 253, 100
_AT_ONCE, _WAITING_MAX, _REVIEW_S = 2, 32, 10.0
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _DeniedError(Exception):
    """A request is not answered; `status` is that of HTTP, the message is for its client."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class HistoryRoute:
    """Answers with the records of a file, as far as the owner of the token may see the gangs."""

    def __init__(self, client: KubeClient, path: Path) -> None:
        """Take a client that does not repeat calls: any user may send tokens."""
        self._client, self._path = client, path
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.get(PATH, self._history)]

    async def _history(self, request: web.Request) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return web.Response(status=401, text="a bearer token is needed\n")
        if self._waiting >= _WAITING_MAX:
            return web.Response(status=429, text="too many requests wait; try again\n")
        self._waiting += 1
        try:
            async with self._slots:
                query = history_query(request.query)
                async with asyncio.timeout(_REVIEW_S):
                    await self._check(token, query)
                body = await asyncio.to_thread(self._read, query)
        except _DeniedError as error:
            return web.Response(status=error.status, text=f"{error}\n")
        except (KubeError, TimeoutError):
            return web.Response(status=503, text="the token cannot be reviewed now\n")
        except ConfigError as error:
            return web.Response(status=500, text=f"{error}\n")
        finally:
            self._waiting -= 1
        return web.Response(body=body, content_type="application/json")

    def _read(self, query: HistoryQuery) -> bytes:
        return msgspec.json.encode(list(read_history(self._path, query)))

    async def _check(self, token: str, query: HistoryQuery) -> None:
        """Check that the owner of a token may list the PodGroups that are asked for.

        Raises:
            _DeniedError: the token is not valid, or its owner may not.
            KubeError: the API server gave no answer.

        """
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = msgspec.json.decode(await self._client.create(_TOKENS, review)).get("status") or {}
        if not status.get("authenticated"):
            raise _DeniedError(401, "the token is not valid for this cluster")
        user = status.get("user") or {}
        for namespace in query.namespaces or ("",):
            if not await self._may_list(user, namespace):
                where = f"in namespace {namespace}" if namespace else "in all namespaces"
                sentence = f"{user.get('username')} may not list podgroups.gangsched.io {where}"
                raise _DeniedError(403, sentence)

    async def _may_list(self, user: Mapping[str, Any], namespace: str) -> bool:
        access = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "groups": user.get("groups") or [],
                "uid": user.get("uid"),
                "extra": user.get("extra"),
                "resourceAttributes": {
                    "verb": "list",
                    "group": "gangsched.io",
                    "resource": "podgroups",
                    "namespace": namespace,
                },
            },
        }
        answer = msgspec.json.decode(await self._client.create(_ACCESS, access))
        return (answer.get("status") or {}).get("allowed") is True


def history_query(asked: Mapping[str, str]) -> HistoryQuery:
    """Return what the parameters of a request ask for.

    Raises:
        _DeniedError: a parameter is malformed.

    """
    return HistoryQuery(
        _number(asked, "since", 0.0),
        _number(asked, "until", float("inf")),
        _names(asked, "namespaces") or None,
        asked.get("queue", "")[:_TEXT_MAX],
        asked.get("user", "")[:_TEXT_MAX],
        _names(asked, "outcomes"),
        _names(asked, "names"),
        int(min(max(_number(asked, "limit", LIMIT_MAX), 0), LIMIT_MAX)),
    )


def _number(asked: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(asked.get(name, default))
    except ValueError:
        value = float("nan")
    if value != value:  # noqa: PLR0124 -- not a number
        raise _DeniedError(400, f"{name}={asked[name][:100]!r} must be a number")
    return value


def _names(asked: Mapping[str, str], name: str) -> tuple[str, ...]:
    names = tuple(part for part in asked.get(name, "").split(",") if part)
    if len(names) > _NAMES_MAX or any(len(part) > _TEXT_MAX for part in names):
        raise _DeniedError(400, f"{name} must be at most {_NAMES_MAX} names, with commas")
    return names
