"""How the pods of a batch job end: only the pod of the script says that a job failed."""

import json
import socket
import threading

import pytest

from gangsched.submission.pod import link
from gangsched.submission.pod.script import end_others
from gangsched.submission.pod.tasks import PodTasks, TaskServer


@pytest.fixture
def worker(tmp_path, monkeypatch):
    (tmp_path / "key").write_text("a key of the job")
    monkeypatch.setattr(link, "FOLDER", tmp_path)
    tasks = PodTasks()
    with TaskServer(0, tasks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tasks, server.server_address[1]
        server.shutdown()


def test_a_worker_pod_ends_with_0_when_the_script_ends(worker):
    tasks, port = worker
    end_others(["127.0.0.1"], port)
    assert tasks.over.is_set()  # the answer came after the end
    assert tasks.code == 0


def test_a_pod_that_is_gone_does_not_stop_the_others(worker, monkeypatch):
    tasks, port = worker
    monkeypatch.setattr("gangsched.submission.pod.script._END_S", 0.0)
    end_others(["127.0.0.2.invalid", "127.0.0.1"], port)
    assert tasks.over.is_set()


def test_a_request_without_the_key_ends_no_pod(worker):
    tasks, port = worker
    with socket.create_connection(("127.0.0.1", port)) as connection:
        file = connection.makefile("rwb")
        file.readline(200)
        file.write(b"0" * 64 + b"\n" + json.dumps({"kind": "end"}).encode() + b"\n")
        file.flush()
        assert file.readline(100) == b""  # the pod closes the connection
    assert not tasks.over.is_set()
