"""The calls of MLflow's REST API, with a bound on everything that the server answers.

A server may be down, slow, or under the control of others: each call has a deadline, an answer has
a largest size, no redirect is followed, and identifiers are checked before they are used.
"""

import asyncio
import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import msgspec

from gangsched.core.bounds import TRACKING_BYTES
from gangsched.core.model.text import shown
from gangsched.jobs import tracking
from gangsched.jobs.common.model import Json
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.client.paths import object_path
from gangsched.operators.tracking.targets import TrackingServer

_PATH = "/api/2.0/mlflow"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CREDENTIAL = re.compile(r"[ -~]{1,8192}")
_RUNS_LISTED = 10
_CALLS_AT_ONCE = 8
_MS = 1_000
_DENIED = (401, 403)
_ABOUT_ALL = (401, 408, 429)
"""Answers below 500 that say something about the server or its credentials, not about a job."""

_T = TypeVar("_T")


class TrackingError(Exception):
    """The server did not do what was asked; the message is a clause with the reason."""

    def __init__(self, reason: str, code: str = "", *, is_refusal: bool = False) -> None:
        """`code` is MLflow's; a refusal is about one job and says nothing about the server."""
        super().__init__(reason)
        self.code, self.is_refusal = code, is_refusal


class _Tag(msgspec.Struct):
    key: str
    value: str = ""


class _RunInfo(msgspec.Struct):
    run_id: str
    status: str = ""


class _RunData(msgspec.Struct):
    tags: list[_Tag] = []


class _Run(msgspec.Struct):
    info: _RunInfo
    data: _RunData = msgspec.field(default_factory=_RunData)


class _RunAnswer(msgspec.Struct):
    run: _Run


class _RunsAnswer(msgspec.Struct):
    runs: list[_Run] = []


class _Experiment(msgspec.Struct):
    experiment_id: str
    lifecycle_stage: str = "active"


class _ExperimentAnswer(msgspec.Struct):
    experiment: _Experiment


class _CreatedExperiment(msgspec.Struct):
    experiment_id: str


class _ErrorAnswer(msgspec.Struct):
    error_code: str = ""
    message: str = ""


class _Nothing(msgspec.Struct):
    pass


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run on the server."""

    id: str
    tags: Mapping[str, str]


def open_session() -> aiohttp.ClientSession:
    """Return a session that keeps no cookies, reads no proxy settings and unpacks no answers."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=_CALLS_AT_ONCE),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"User-Agent": "gangsched", "Accept-Encoding": "identity"},
    )


class MlflowApi:
    """One server."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        server: TrackingServer,
        client: KubeClient,
        timeout_s: float,
    ) -> None:
        """`client` reads the Secret of the server; a call may take `timeout_s`."""
        self._session, self._server, self._client = session, server, client
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._credentials: dict[str, str] | None = None

    async def experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it does not exist.

        Raises:
            TrackingError: the server has no such experiment.

        """
        for _ in range(2):
            try:
                answer = await self._call(
                    "GET", "experiments/get-by-name", {"experiment_name": name}, _ExperimentAnswer
                )
            except TrackingError as error:
                if error.code != "RESOURCE_DOES_NOT_EXIST":
                    raise
            else:
                if answer.experiment.lifecycle_stage != "active":
                    message = f"the experiment {shown(name)} is deleted on the server"
                    raise TrackingError(message, is_refusal=True)
                return _checked(answer.experiment.experiment_id)
            try:
                made = await self._call(
                    "POST", "experiments/create", {"name": name}, _CreatedExperiment
                )
                return _checked(made.experiment_id)
            except TrackingError as error:  # another process may have created it just now
                if error.code != "RESOURCE_ALREADY_EXISTS":
                    raise
        raise TrackingError(f"the experiment {shown(name)} cannot be created")

    async def runs_of(self, experiment_id: str, uid: str) -> list[FoundRun]:
        """Return the runs of a job, the first one first."""
        body = {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{tracking.UID}` = '{_checked(uid)}'",
            "max_results": _RUNS_LISTED,
            "order_by": ["attributes.start_time ASC"],
        }
        answer = await self._call("POST", "runs/search", body, _RunsAnswer)
        return [_found(run) for run in answer.runs]

    async def create_run(
        self, experiment_id: str, name: str, start_s: float, tags: Mapping[str, str]
    ) -> FoundRun:
        """Create a run, and return it."""
        body = {
            "experiment_id": experiment_id,
            "run_name": name,
            "start_time": int(start_s * _MS),
            "tags": _tags(tags),
        }
        return _found((await self._call("POST", "runs/create", body, _RunAnswer)).run)

    async def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run."""
        body = {"run_id": run_id, "tags": _tags(tags)}
        await self._call("POST", "runs/log-batch", body, _Nothing)

    async def update_run(self, run_id: str, status: str, end_s: float | None = None) -> None:
        """Set the status of a run, and when it ended."""
        body: Json = {"run_id": run_id, "status": status}
        if end_s is not None:
            body["end_time"] = int(end_s * _MS)
        await self._call("POST", "runs/update", body, _Nothing)

    async def delete_run(self, run_id: str) -> None:
        """Mark a run as deleted; the server keeps it for a while."""
        await self._call("POST", "runs/delete", {"run_id": run_id}, _Nothing)

    async def _call(self, method: str, path: str, body: Json, kind: type[_T]) -> _T:
        """Make one call.

        Raises:
            TrackingError: the server did not answer, or not what MLflow answers.

        """
        given: dict[str, Any] = {"params": body} if method == "GET" else {"json": body}
        try:
            async with self._session.request(
                method,
                f"{self._server.uri}{_PATH}/{path}",
                headers=await self._headers(),
                timeout=self._timeout,
                allow_redirects=False,
                **given,
            ) as answer:
                content = await _content(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise TrackingError(f"no answer ({type(error).__name__})") from error
        if answer.status != 200:
            if answer.status in _DENIED:
                self._credentials = None  # the Secret may have changed
            raise _error(answer.status, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TrackingError("its answer is not that of an MLflow server") from error

    async def _headers(self) -> dict[str, str]:
        """Return the header with the credentials of the Secret.

        Raises:
            TrackingError: there is no such Secret, or it has no credentials.

        """
        if self._credentials is None:
            self._credentials = await self._read() if self._server.secret else {}
        return self._credentials

    async def _read(self) -> dict[str, str]:
        secret = self._server.secret or ""
        namespace, name = secret.split("/")
        path = object_path(f"/api/v1/namespaces/{namespace}/secrets", name)
        try:
            async with asyncio.timeout(self._timeout.total):
                body: Json = msgspec.json.decode(await self._client.get(path))
            data = {key: _secret(text) for key, text in (body.get("data") or {}).items()}
        except (KubeError, TimeoutError, ValueError) as error:
            why = type(error).__name__
            raise TrackingError(f"Secret {secret} cannot be read ({why})") from error
        if data.get("token"):
            return {"Authorization": f"Bearer {data['token']}"}
        if data.get("username") and "password" in data:
            pair = base64.b64encode(f"{data['username']}:{data['password']}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        raise TrackingError(f"Secret {secret} has no key token, and no keys username and password")


async def _content(answer: aiohttp.ClientResponse) -> bytes:
    """Return the bytes of an answer.

    Raises:
        ValueError: there are too many.

    """
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > TRACKING_BYTES.most:
            answer.close()
            raise ValueError("too long")
    return bytes(content)


def _error(status: int, content: bytes) -> TrackingError:
    try:
        answer = msgspec.json.decode(content, type=_ErrorAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = _ErrorAnswer()
    said = f": {shown(answer.message)}" if answer.message else ""
    refuses = 400 <= status < 500 and status not in _ABOUT_ALL
    return TrackingError(f"it answered {status}{said}", answer.error_code, is_refusal=refuses)


def _secret(text: object) -> str:
    """Return a value of a Secret without the newline that editors add.

    Raises:
        ValueError: it cannot be sent in a header.

    """
    value = base64.b64decode(str(text)).decode().strip()
    if not _CREDENTIAL.fullmatch(value):
        raise ValueError("not printable")
    return value


def _tags(tags: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _found(run: _Run) -> FoundRun:
    return FoundRun(_checked(run.info.run_id), {item.key: item.value for item in run.data.tags})


def _checked(identifier: str) -> str:
    """Return an identifier that may be part of a path, a filter and a variable.

    Raises:
        TrackingError: it may not.

    """
    if not _ID.fullmatch(identifier):
        raise TrackingError(f"{shown(identifier)} is not an identifier of MLflow")
    return identifier
