"""Key pairs for ssh between the pods of one job."""

import base64

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gangsched.jobs.common.model import Json


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
