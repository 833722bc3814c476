"""kubectl exec and port-forward on process nodes, and pods that call the API server."""

import subprocess
import urllib.error
import urllib.request

import pytest
from waiting import patience_s

from gangsched.local.plane import client_environment

SERVER = "cd $(mktemp -d) && echo it works > index.html && exec python3 -m http.server 8123"
ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"


@pytest.fixture(scope="module")
def pod(laptop):
    """A namespace with a pod that serves a file, and its Service."""
    namespace = laptop.new_namespace()
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", SERVER],
        "env": [{"name": "WHO", "value": "the container"}],
        "workingDir": "/usr",
    }
    body = {
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "schedulerName": "gangsched",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }
    laptop.core.create_namespaced_pod(namespace, body)
    service = {"selector": {"app": "web"}, "clusterIP": "None"}
    laptop.core.create_namespaced_service(namespace, {"metadata": {"name": "web"}, "spec": service})
    laptop.wait(
        lambda: laptop.core.read_namespaced_pod("web", namespace).status.phase == "Running", "it"
    )
    ask = ("python3", "-c", ASK, "http://127.0.0.1:8123")
    laptop.wait(lambda: run(laptop, namespace, *ask).returncode == 0, "the server to serve")
    yield namespace
    laptop.remove_namespace(namespace)


def run(laptop, pod, *command, options=(), text=None) -> subprocess.CompletedProcess:
    """Run kubectl exec to its end."""
    line = [laptop.plane.info()["kubectl"], "exec", "-n", pod, *options, "web", "--", *command]
    return subprocess.run(
        line,
        env=client_environment(laptop.plane),
        input=text,
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )


def test_output_environment_and_folder(laptop, pod):
    done = run(laptop, pod, "sh", "-c", 'echo "$WHO in $(pwd)"; echo aside >&2')
    assert (done.returncode, done.stdout) == (0, "the container in /usr\n")
    assert done.stderr.endswith("aside\n")


def test_exit_codes(laptop, pod):
    assert run(laptop, pod, "sh", "-c", "exit 7").returncode == 7
    missing = run(laptop, pod, "no-such-program")
    assert missing.returncode == 127
    assert "no-such-program" in missing.stderr


def test_input_goes_in_whole(laptop, pod):
    text = "".join(f"line {i}\n" for i in range(50_000))
    done = run(laptop, pod, "wc", "-l", options=["-i"], text=text)
    assert done.stdout.strip() == "50000"
    assert run(laptop, pod, "cat", options=["-i"], text=text).stdout == text


def test_a_terminal(laptop, pod):
    """Script gives kubectl the terminal that it wants."""
    line = (
        f"{laptop.plane.info()['kubectl']} exec -n {pod} -it web -- sh -c 'tty; stty size; exit 3'"
    )
    done = subprocess.run(
        ["script", "-qec", f"stty rows 31 cols 97; {line}", "/dev/null"],
        env=client_environment(laptop.plane),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )
    assert "/dev/pts/" in done.stdout
    assert done.returncode == 3


def test_a_pod_reaches_itself_by_its_name(laptop, pod):
    """The first guide's look at the network."""
    assert "it works" in run(laptop, pod, "python3", "-c", ASK, "http://web:8123").stdout


def test_a_container_that_does_not_run(laptop, pod):
    done = run(laptop, pod, "true", options=["-c", "other"])
    assert done.returncode != 0
    assert "other" in done.stderr


def test_port_forward(laptop, pod):
    kubectl = laptop.plane.info()["kubectl"]
    forwarding = subprocess.Popen(
        [kubectl, "port-forward", "--address=127.0.0.1", "-n", pod, "pod/web", ":8123", ":9"],
        env=client_environment(laptop.plane),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        # "Forwarding from 127.0.0.1:40123 -> 8123": kubectl chooses free ports of ours itself.
        lines = [forwarding.stdout.readline() for _ in range(2)]
        assert all(line.startswith("Forwarding from") for line in lines), lines
        server, closed = (f"http://{line.split()[2]}" for line in lines)
        for _ in range(3):
            with urllib.request.urlopen(server, timeout=patience_s(20)) as answer:
                assert answer.read() == b"it works\n"
        with pytest.raises((ConnectionError, urllib.error.URLError)):
            urllib.request.urlopen(closed, timeout=patience_s(20))
        why = "port 9 of the pod: ConnectionRefusedError"
        assert any(why in line for line in forwarding.stdout)
    finally:
        forwarding.terminate()
        forwarding.wait(timeout=patience_s(20))


def test_a_pod_calls_the_api_server_with_its_own_account(laptop, pod):
    program = (
        "from kubernetes import client, config\n"
        "config.load_incluster_config()\n"
        "review = client.AuthenticationV1Api().create_self_subject_review({})\n"
        "print(review.status.user_info.username)"
    )
    done = run(laptop, pod, "python3", "-c", program)
    assert done.stdout.strip() == f"system:serviceaccount:{pod}:default", done.stderr
