"""Certificates, tokens and kubeconfigs of one local control plane."""

import secrets
from pathlib import Path

import trustme
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

SERVICE_IP = "10.96.0.1"
"""First address of the service range: the API server's address for clients in the cluster."""


class Authority:
    """A certificate authority that lives as long as the control plane; its key stays in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA()
        self.ca = folder / "ca.crt"
        self.tokens = folder / "tokens.csv"
        """The users of all kubeconfigs, as kube-apiserver reads them."""
        self._ca.cert_pem.write_to_path(str(self.ca))

    def server(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """Issue a server certificate; return the paths of certificate and key."""
        return self._write(name, self._ca.issue_cert(*addresses, common_name=name))

    def client(self, name: str, user: str, group: str) -> tuple[Path, Path]:
        """Issue a client certificate: the API server reads CN as user and O as group."""
        issued = self._ca.issue_cert("client.local", common_name=user, organization_name=group)
        return self._write(name, issued)

    def service_account_keys(self) -> tuple[Path, Path]:
        """Create the key pair that signs service account tokens."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private, public = self.folder / "sa.key", self.folder / "sa.pub"
        _secret(
            private,
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        )
        public.write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        return private, public

    def kubeconfig(self, path: Path, server: str, user: str, group: str) -> Path:
        """Write a kubeconfig for one user.

        It holds a token: kube-apiserver verifies a client certificate with each request, which
        took a twelfth of its time.
        """
        token = secrets.token_urlsafe(32)
        self.tokens.touch(mode=0o600)
        with self.tokens.open("a") as file:
            file.write(f'{token},{user},{user},"{group}"\n')
        name = path.parent.name
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": server, "certificate-authority": str(self.ca)},
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
        _secret(path, yaml.safe_dump(document, sort_keys=False).encode())
        return path

    def _write(self, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        _secret(key, issued.private_key_pem.bytes())
        return certificate, key


def _secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
