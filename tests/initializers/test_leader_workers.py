"""The cache that Kubeflow's runtime asks for: what is created, and an API server that refuses."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from gangsched.initializers import __main__ as program
from gangsched.initializers import leader_workers
from gangsched.initializers.kubernetes import Api
from gangsched.initializers.leader_workers import create_cache
from gangsched.initializers.source import Source, StorageError

TOKEN = "a.token.of.a.pod"  # noqa: S105
JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "t", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
}
VARIABLES = {
    "STORAGE_URI": "cache://schema/table",
    "METADATA_LOC": "s3a://bucket/a/metadata/1.metadata.json",
    "CACHE_IMAGE": "ghcr.io/kubeflow/trainer/data-cache",
    "TRAIN_JOB_NAME": "t",
    "CLUSTER_SIZE": "4",
    "WORKER_MEM": "9Gi",
}


class Server(ThreadingHTTPServer):
    """An API server that keeps what it gets; `refused` has paths with their answers."""

    def __init__(self, folder) -> None:
        self.objects = {"/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/t": JOB}
        self.refused, self.asked = {}, []
        super().__init__(("127.0.0.1", 0), Handler)
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        authority.cert_pem.write_to_path(folder / "ca.crt")
        (folder / "token").write_text(TOKEN)
        (folder / "namespace").write_text("ns\n")

    def named(self, name: str) -> dict:
        """Return the object whose path ends with a name."""
        return next(body for path, body in self.objects.items() if path.endswith(f"/{name}"))


class Handler(BaseHTTPRequestHandler):
    """Answers as an API server does."""

    def answer(self, code: int, body: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        if self.path in self.server.refused:
            self.answer(*self.server.refused[self.path])
        elif self.path in self.server.objects:
            self.answer(200, self.server.objects[self.path])
        else:
            self.answer(404, {"message": f"{self.path} is not there"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = f"{self.path}/{body['metadata']['name']}"
        if self.path in self.server.refused:
            self.answer(*self.server.refused[self.path])
        elif path in self.server.objects:
            self.answer(409, {"message": "it exists"})
        else:
            if body["kind"] == "LeaderWorkerSet":
                body["status"] = {"conditions": [{"type": "Available", "status": "True"}]}
            self.server.objects[path] = body
            self.answer(201, body)

    def log_message(self, *_arguments) -> None:
        """Print nothing."""


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def api(server, tmp_path):
    port = str(server.server_address[1])
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    return Api(where, tmp_path)


def test_the_cache_is_what_trainer_creates_and_a_gang(server, api):
    assert create_cache(VARIABLES, api) == "t-cache"
    service, group = server.named("t-cache-service"), server.named("leaderworkersets/t-cache")
    assert service["spec"]["selector"] == {"app": "t-cache-head"}
    assert group["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert group["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "q"}
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 4
    for role, memory in (("head", "1Gi"), ("worker", "9Gi")):
        part = template["leaderTemplate" if role == "head" else "workerTemplate"]
        spec = part["spec"]
        assert spec["schedulerName"] == "gangsched"
        assert spec["serviceAccountName"] == "t-cache"
        (container,) = spec["containers"]
        assert container["command"] == [role]
        assert container["resources"]["requests"]["memory"] == memory
        assert {"name": "TABLE_NAME", "value": "table"} in container["env"]
        assert part["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert template["leaderTemplate"]["metadata"]["labels"]["app"] == "t-cache-head"
    assert {bearer for _, bearer in server.asked} == {f"Bearer {TOKEN}"}


def test_a_restarted_initializer_continues(server, api):
    create_cache(VARIABLES, api)
    before = dict(server.objects)
    assert create_cache(VARIABLES, api) == "t-cache"
    assert server.objects == before


def test_an_object_of_another_job_is_not_taken(server, api):
    create_cache(VARIABLES, api)
    server.named("leaderworkersets/t-cache")["metadata"]["ownerReferences"][0]["uid"] = "other"
    with pytest.raises(StorageError, match="LeaderWorkerSet t-cache exists and belongs to another"):
        create_cache(VARIABLES, api)


GROUPS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets"
TRAINJOB = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/t"


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        (
            TRAINJOB,
            (403, {"message": "trainjobs is forbidden"}),
            "TrainJob t cannot be read: .*for",
        ),
        (GROUPS, (404, {"message": "no such kind"}), "LeaderWorkerSet t-cache: no such kind"),
        (GROUPS, (500, b"x" * 10_000), "LeaderWorkerSet t-cache: x{300}$"),
        (TRAINJOB, (200, b"not JSON"), "TrainJob t cannot be read: the API server does not answer"),
        (TRAINJOB, (200, b"[" * 100_000), "TrainJob t cannot be read"),
    ],
)
def test_an_api_server_that_refuses_ends_the_initializer(server, api, path, answer, message):
    server.refused[path] = answer
    with pytest.raises(StorageError, match=message) as error:
        create_cache(VARIABLES, api)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"TRAIN_JOB_NAME": ""}, "TRAIN_JOB_NAME is not set"),
        ({"CLUSTER_SIZE": "1"}, "CLUSTER_SIZE is '1'; 2 to 65 is allowed"),
        ({"CLUSTER_SIZE": "9" * 99}, "2 to 65 is allowed"),
        ({"READINESS_PERIOD_SECONDS": "x"}, "READINESS_PERIOD_SECONDS is 'x'; 0 to 3600"),
    ],
)
def test_a_variable_that_is_wrong_is_named(api, changes, message):
    with pytest.raises(StorageError, match=message):
        create_cache(VARIABLES | changes, api)


def test_a_cache_that_never_is_ready_ends_the_initializer(server, api, monkeypatch):
    monkeypatch.setattr(
        leader_workers, "INITIALIZER_S", leader_workers.INITIALIZER_S._replace(most=0)
    )
    with pytest.raises(StorageError, match="LeaderWorkerSet t-cache is not available within 0 s"):
        create_cache(VARIABLES, api)


def test_without_a_service_account_the_program_says_so(caplog):
    assert program.main(["dataset"], VARIABLES) == 1
    assert "the pod has no service account" in caplog.text


PLACES = {
    "pvc://digits/train": Source("pvc", "digits", "train"),
    "s3a://bucket/train": Source("s3", "bucket", "train"),
    "hf://owner/name": Source("hf", "owner", "name"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_address_of_a_cache_is_a_name_and_its_place_a_variable(place):
    variables = {"METADATA_LOC": place, "IAM_ROLE": "arn:role"}
    source, more = program.located("cache://a/b", variables)
    assert source == PLACES[place]
    assert more["ROLE_ARN"] == "arn:role"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "METADATA_LOC is not set"),
        ("s3a://b/metadata/1.metadata.json", "a table of Iceberg"),
        ("http://169.254.169.254/", "METADATA_LOC has the scheme 'http'"),
        ("file:///etc/passwd", "METADATA_LOC is file:///etc/passwd; only volumes"),
        ("cache://a/b", "METADATA_LOC has the scheme 'cache'"),
    ],
)
def test_a_place_that_no_cache_reads_is_refused(place, message):
    with pytest.raises(StorageError, match=message):
        program.located("cache://a/b", {"METADATA_LOC": place})
