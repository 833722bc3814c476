"""The few calls of a pod to the API server, with the rights of its service account."""

import json
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gangsched.initializers.source import StorageError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CALL_S = 20.0
_ANSWER_BYTES = 2**22
_SHOWN = 300


class Api:
    """The API server as the pod's service account sees it."""

    def __init__(self, variables: Mapping[str, str], account: Path = ACCOUNT) -> None:
        host, port = (variables.get(f"KUBERNETES_SERVICE_{key}") for key in ("HOST", "PORT"))
        if not host or not port or not (account / "token").exists():
            raise StorageError(
                "the pod has no service account; the initializer of this runtime needs one that "
                "may create LeaderWorkerSets, Services and ServiceAccounts"
            )
        name = f"[{host}]" if ":" in host else host
        self._address = f"https://{name}:{port}"
        self._account = account
        self._trusted = ssl.create_default_context(cafile=os.fspath(account / "ca.crt"))
        self.namespace = (account / "namespace").read_text().strip()

    def get(self, path: str, what: str) -> Any:
        """Return an object.

        Raises:
            StorageError: there is none, or it may not be read.

        """
        return self._call("GET", path, None, what)

    def create(self, path: str, body: Mapping[str, Any], what: str) -> Any:
        """Create an object, or return the one of its name if an owner of it is the same.

        Raises:
            StorageError: it may not be created, or another object has its name.

        """
        found = self._call("POST", path, body, what, allowed=409)
        if found is not None:
            return found
        found = self.get(f"{path}/{body['metadata']['name']}", what)
        owners = {owner.get("uid") for owner in found["metadata"].get("ownerReferences") or []}
        if body["metadata"]["ownerReferences"][0]["uid"] not in owners:
            raise StorageError(f"{what} exists and belongs to another object; delete it")
        return found

    def _call(self, method: str, path: str, body: Any, what: str, allowed: int = 0) -> Any:
        # A token of a pod is replaced while the pod runs.
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._address + path, data, headers, method=method)  # noqa: S310 - https
        try:
            with urlopen(request, timeout=_CALL_S, context=self._trusted) as answer:  # noqa: S310
                return json.loads(answer.read(_ANSWER_BYTES))
        except HTTPError as error:
            if error.code == allowed:
                return None
            said = error.read(_ANSWER_BYTES).decode(errors="replace")
            raise StorageError(f"{what}: {_message(said) or error}") from error
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            raise StorageError(f"{what}: the API server does not answer: {error}") from error


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])[:_SHOWN]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text[:_SHOWN]
