"""Keys that the pods of one job share: key pairs for ssh, and the key of a data cache."""

import base64
import secrets

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gangsched.jobs.common.model import Json
from gangsched.jobs.trainer.datacache import KEY, KEY_TYPE

_KEY_BYTES = 32


def with_ssh_key_pair(document: Json) -> Json:
    """Return a document; a Secret of type ssh-auth without data gets a fresh key pair."""
    if document.get("type") != "kubernetes.io/ssh-auth" or "data" in document:
        return document
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    data = {"ssh-privatekey": private, "ssh-publickey": public + b"\n"}
    return document | {"data": {k: base64.b64encode(v).decode() for k, v in data.items()}}


def with_cache_key(document: Json) -> Json:
    """Return a document; a Secret of a data cache without data gets a fresh key."""
    if document.get("type") != KEY_TYPE or "data" in document:
        return document
    key = secrets.token_hex(_KEY_BYTES)
    return document | {"data": {KEY: base64.b64encode(key.encode()).decode()}}
