"""Certificates of our ports, in one Secret: gangsched creates the Secret and renews it in time.

The Secret has an authority, a certificate for gangsched and one for kube-scheduler, which mounts
its part. If two processes create the Secret at once, both use the one that was created first. A
Secret without the authority's key is renewed outside gangsched, and is used unchanged.
"""

import asyncio
import base64
import contextlib
import logging
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import trustme
from cryptography import x509

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Invalid, KubeError, NotFound

log = logging.getLogger(__name__)

_LASTS = timedelta(days=365)
_RENEWED_BEFORE = timedelta(days=120)
_LOOK_S = 600.0
_SERVED = ("ca.crt", "tls.crt", "tls.key")

Data = dict[str, bytes]


class Certificates:
    """TLS contexts that follow the Secret `namespace/name`; `host` is the name of the server."""

    def __init__(self, client: KubeClient, secret: str, host: str) -> None:
        self._client = client
        self._namespace, _, self._name = secret.partition("/")
        self._host = host
        self._data: Data = {}
        self._contexts: list[ssl.SSLContext] = []

    @property
    def authority(self) -> bytes:
        """Return the certificate of the authority as PEM, once a context was made."""
        return self._data["ca.crt"]

    async def context(self, *, clients: bool) -> ssl.SSLContext:
        """Return a server's context; with `clients`, only the authority's clients may connect.

        Raises:
            KubeError: the Secret cannot be had.

        """
        if not self._data:
            self._data = await self._have()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self._data["ca.crt"].decode())
        _load(context, self._data)
        self._contexts.append(context)
        return context

    async def keep(self) -> None:
        """Renew and follow the Secret until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                data = await self._have()
            except KubeError as error:
                log.warning("Secret %s/%s: %s", self._namespace, self._name, error)
                continue
            if data != self._data:
                log.info("the certificates in Secret %s/%s changed", self._namespace, self._name)
                self._data = data
                for context in self._contexts:
                    _load(context, data)

    async def _have(self) -> Data:
        """Return the data of the Secret, which is created or renewed first if necessary.

        Raises:
            KubeError: the Secret cannot be read or written, or (Invalid) has unusable data.

        """
        folder = f"/api/v1/namespaces/{self._namespace}/secrets"
        try:
            stored = _read(await self._client.get(f"{folder}/{self._name}"))
        except NotFound:
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self._name},
                "data": _written(issue(None, self._host)),
            }
            with contextlib.suppress(Conflict):
                return _read(await self._client.create(folder, secret))
            stored = _read(await self._client.get(f"{folder}/{self._name}"))
        where = f"Secret {self._namespace}/{self._name}"
        ours = not stored or {"ca.crt", "ca.key"} <= stored.keys()
        if ours and due(stored, datetime.now(UTC)):
            log.info("renewing the certificates in %s", where)
            try:
                body = {"data": _written(issue(stored or None, self._host))}
            except ValueError as error:
                raise Invalid(0, f"{where}: ca.crt or ca.key cannot be read: {error}") from error
            stored = _read(await self._client.patch(f"{folder}/{self._name}", body))
        _check(stored, where)
        return stored


def issue(known: Data | None, host: str) -> Data:
    """Return new certificates by the authority of a Secret, or by a new one."""
    if known is None:
        authority = trustme.CA()
    else:
        authority = trustme.CA.from_pem(known["ca.crt"], known["ca.key"])
    until = datetime.now(UTC) + _LASTS
    own = authority.issue_cert(host, not_after=until)
    client = authority.issue_cert("kube-scheduler.gangsched", not_after=until)
    return {
        "ca.crt": authority.cert_pem.bytes(),
        "ca.key": authority.private_key_pem.bytes(),
        **_pair("tls", own),
        **_pair("client", client),
    }


def due(data: Data, now: datetime) -> bool:
    """Return whether to renew certificates: a part is missing, or little time is left."""
    try:
        ends = x509.load_pem_x509_certificate(data["tls.crt"]).not_valid_after_utc
    except (KeyError, ValueError):
        return True
    return now > ends - _RENEWED_BEFORE


def _check(data: Data, where: str) -> None:
    """Raise Invalid if these certificates cannot be served."""
    missing = ", ".join(name for name in _SERVED if name not in data)
    if missing:
        needs = f"it must have {', '.join(_SERVED)}, or nothing at all"
        raise Invalid(0, f"{where}: there is no {missing}; {needs}")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(cadata=data["ca.crt"].decode())
        _load(context, data)
    except (ssl.SSLError, ValueError) as error:
        raise Invalid(0, f"{where}: its certificates cannot be served: {error}") from error


def _pair(name: str, certificate: trustme.LeafCert) -> Data:
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    return {f"{name}.crt": chain, f"{name}.key": certificate.private_key_pem.bytes()}


def _load(context: ssl.SSLContext, data: Data) -> None:
    """Let a context serve a certificate from now on; ssl reads certificates only from files."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tls.crt", "tls.key"):
            (Path(folder) / name).write_bytes(data[name])
        context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")


def _written(data: Data) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _read(raw: bytes) -> Data:
    secret: dict[str, Any] = msgspec.json.decode(raw)
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
