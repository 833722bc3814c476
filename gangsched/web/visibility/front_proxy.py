"""How the API server proves its identity, and names the user of a request that it passes on.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Invalid

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_PREFIX = "requestheader-"

Headers = CIMultiDict[str] | CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The authority and names of the certificates of the API server, and its headers."""

    authority: str
    names: frozenset[str]
    """Common names that may connect; empty: all that the authority signed."""
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    def trust(self, context: ssl.SSLContext) -> None:
        """Let only clients of the authority connect to a server with this context."""
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.authority)

    def accepts(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client with this verified certificate (of `getpeercert`) may ask."""
        subject = (certificate or {}).get("subject", ())
        names = {value for part in subject for key, value in part if key == "commonName"}
        return bool(names) and (not self.names or not self.names.isdisjoint(names))

    def user(self, headers: Headers) -> dict[str, Any] | None:
        """Return the user of a request, as a TokenReview writes it; None if no header names one."""
        name = next((value for key in self.user_headers if (value := headers.get(key))), None)
        if name is None:
            return None
        extra: dict[str, list[str]] = {}
        for key, value in headers.items():
            for prefix in self.extra_prefixes:
                if key.lower().startswith(prefix.lower()):
                    extra.setdefault(unquote(key[len(prefix) :].lower()), []).append(value)
        groups = [value for key in self.group_headers for value in headers.getall(key, ())]
        uid = next((value for key in self.uid_headers if (value := headers.get(key))), None)
        return {"username": name, "groups": groups, "uid": uid, "extra": extra or None}


async def front_proxy(client: KubeClient) -> FrontProxy:
    """Return what the API server says of itself.

    Raises:
        KubeError: it cannot be read, or (Invalid) the API server passes no requests on.

    """
    data = msgspec.json.decode(await client.get(CONFIG_MAP)).get("data") or {}
    authority = data.get(f"{_PREFIX}client-ca-file")
    users = _names(data, "username-headers")
    if not authority or not users:
        sentence = "the API server has no aggregation layer (flag --requestheader-client-ca-file)"
        raise Invalid(0, sentence)
    return FrontProxy(
        authority,
        frozenset(_names(data, "allowed-names")),
        users,
        _names(data, "uid-headers"),
        _names(data, "group-headers"),
        _names(data, "extra-headers-prefix"),
    )


def _names(data: Mapping[str, str], what: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(data.get(f"{_PREFIX}{what}") or "[]", type=tuple[str, ...])
    except msgspec.DecodeError as error:
        message = f"ConfigMap extension-apiserver-authentication: {what}: {error}"
        raise Invalid(0, message) from error
