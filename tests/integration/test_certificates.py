"""The real kube-scheduler uses a renewed client certificate without a restart."""

import contextlib
import itertools
import json
import ssl
import subprocess
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from cryptography import x509
from waiting import until

from gangsched.kube.serving.certificates import due, issue
from gangsched.local import components

HOST = "127.0.0.1"
OURS = "asks-with-a-certificate"


class Asked(BaseHTTPRequestHandler):
    """An extender that takes every node, and notes who asked."""

    serials: list[int]

    def do_POST(self):
        der = self.connection.getpeercert(binary_form=True)
        self.serials.append(x509.load_der_x509_certificate(der).serial_number)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"NodeNames": asked["NodeNames"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()  # HTTP/1.0: the next question is a new connection
        self.wfile.write(answer)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def certificates(tmp_path):
    """Return a folder like the one that a Secret is mounted as, and what it holds."""
    data = issue(None, HOST)
    mount(tmp_path, data)
    return tmp_path, data


def mount(folder, data) -> None:
    """Put a Secret's files where kube-scheduler reads them."""
    for name, content in data.items():
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)


@contextlib.contextmanager
def extender(folder):
    """Serve an extender with mutual TLS; yield its port and the serials it saw."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / "ca.crt")
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    handler = type("Handler", (Asked,), {"serials": []})
    server = ThreadingHTTPServer((HOST, 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, handler.serials
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def scheduler(laptop, folder, port):
    """Run a kube-scheduler that asks there."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(laptop.plane.folder / "scheduler.kubeconfig")},
        "profiles": [{"schedulerName": OURS}],
        "extenders": [
            {
                "urlPrefix": f"https://{HOST}:{port}",
                "enableHTTPS": True,
                "tlsConfig": {
                    "caFile": str(folder / "ca.crt"),
                    "certFile": str(folder / "client.crt"),
                    "keyFile": str(folder / "client.key"),
                },
                "filterVerb": "filter",
                "nodeCacheCapable": True,
            }
        ],
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    binary = components.program("kube-scheduler")
    command = [
        str(binary),
        "--config",
        str(path),
        "--bind-address",
        HOST,
        "--secure-port",
        "0",  # it serves nothing, and needs no port
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


def test_kube_scheduler_asks_with_the_certificate_that_is_there_now(laptop, certificates):
    folder, data = certificates
    namespace = laptop.new_namespace()
    names = (f"pod-{number}" for number in itertools.count())

    with extender(folder) as (port, serials), scheduler(laptop, folder, port):

        def asked_with(serial: int) -> bool:
            """Have one more pod scheduled, and tell by which certificate it was asked about."""
            seen, name = len(serials), next(names)
            laptop.pod(namespace, name, gpus=0, kind="process", schedulerName=OURS)
            laptop.wait(lambda: name in laptop.bound(namespace), f"{name} to be bound", 60)
            return set(serials[seen:]) == {serial}

        for made in (data, renewed := issue(data, HOST)):
            mount(folder, made)
            serial = x509.load_pem_x509_certificate(made["client.crt"]).serial_number
            # client-go keeps what it read of a file for a second.
            until(lambda s=serial: asked_with(s), "the certificate that is there", every_s=0.5)
    assert renewed["ca.crt"] == data["ca.crt"]
    laptop.remove_namespace(namespace)


def test_the_authority_outlives_what_it_issues():
    """It is never renewed: kube-scheduler reads it once."""
    authority = x509.load_pem_x509_certificate(issue(None, HOST)["ca.crt"])
    assert authority.not_valid_after_utc > datetime(2037, 1, 1, tzinfo=UTC)
    assert not due(issue(None, HOST), datetime.now(UTC))
