"""Process nodes with every isolation of this machine run pods as a kubelet does."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
import urllib3
from cluster import Cluster
from conftest import a_plane
from kubernetes.client import ApiException
from waiting import patience_s, until

from gangsched.api.timestamps import rfc3339
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import Plane, PlaneOptions, client_environment
from gangsched.local.processes import UNBUFFERED, marked

MODES = ["root", "user", "none"] if os.geteuid() == 0 else ["user", "none"]
ONCE = pytest.mark.parametrize("node", MODES[-1:], indirect=True)
"""For what has no part in how pods are isolated."""


class Isolated(Cluster):
    """A control plane, and the namespace in which pods run with one isolation."""

    def __init__(self, plane) -> None:
        super().__init__(plane, "extender")
        self.home = self.new_namespace()

    def in_home(self, *arguments: str) -> str:
        """Return what kubectl says in the namespace."""
        return self.kubectl(*arguments, "-n", self.home)


@pytest.fixture(scope="module")
def plane(laptop):
    """The shared control plane of process nodes, which isolate as before afterwards."""
    own = laptop.plane.programs.get("agent").command
    yield laptop.plane
    isolate(laptop, own, MODES[0])


@pytest.fixture(scope="module", params=MODES)
def node(plane, request):
    """The control plane with an agent of one isolation."""
    command = list(plane.programs.get("agent").command)
    command[command.index("--isolation") + 1] = request.param
    found = Isolated(plane)
    isolate(found, command, request.param)
    yield found
    found.remove_namespace(found.home)


def isolate(cluster, command: list[str], by: str) -> None:
    """Restart the agent with another isolation."""
    programs = cluster.plane.programs
    programs.stop("agent")
    (programs.logs / "agent.log").write_text("")
    programs.start("agent", command, UNBUFFERED)
    cluster.wait(lambda: mode(cluster) == by, f"a node that isolates by {by}")


def mode(node) -> str:
    """Return the isolation, as the node itself tells it."""
    info = node.core.read_node("p-0").status.node_info
    return info.container_runtime_version.removeprefix("process://")


def run(node, name, script, *, folder=None, **spec) -> None:
    """Run a shell script as a pod; it has a folder of this machine as "$0", if it is given one."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    if folder is not None:
        container["command"].append("/shared")
        container["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
        spec["volumes"] = [{"name": "shared", "hostPath": {"path": str(folder)}}]
    container |= spec.pop("container", {})
    body = {
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {
            "schedulerName": "gangsched",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }
    node.core.create_namespaced_pod(node.home, body)


def phase(node, name) -> str:
    return node.core.read_namespaced_pod(name, node.home).status.phase


def conditions(node, name) -> dict:
    found = node.core.read_namespaced_pod(name, node.home).status.conditions
    return {one.type: one for one in found}


def ended(node, name, wanted="Succeeded"):
    """Wait for the end of a pod and return its log."""
    node.wait(lambda: phase(node, name) in ("Succeeded", "Failed"), f"{name} to end")
    assert phase(node, name) == wanted
    return node.in_home("logs", name)


def remove(node, *names) -> None:
    for name in names:
        node.core.delete_namespaced_pod(name, node.home)
    node.wait(
        lambda: (
            not {p.metadata.name for p in node.core.list_namespaced_pod(node.home).items}
            & set(names)
        ),
        "the pods to go",
    )


def test_the_node_says_how_it_isolates(node):
    assert mode(node) in MODES
    text = (node.plane.programs.logs / "agent.log").read_text()
    assert ("share this machine's loopback" in text) == (mode(node) == "none")


def test_environment_and_files(node):
    node.core.create_namespaced_config_map(
        node.home, {"metadata": {"name": "code"}, "data": {"a.sh": "echo from the file\n"}}
    )
    node.core.create_namespaced_secret(
        node.home, {"metadata": {"name": "key"}, "stringData": {"token": "hush"}}
    )
    env = [
        {"name": "A", "value": "a"},
        {"name": "B", "value": "$(A)b$$(A)$(C)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    run(
        node,
        "files",
        "",
        container={
            "command": [
                "sh",
                "-c",
                'sh "$1"; echo "$B $NODE $TOKEN $CPU"; echo x > "$2" && cat "$2"',
                "sh",
                "/code/here/a.sh",
                "/scratch/new",
            ],
            "env": env,
            "resources": {"limits": {"cpu": "2"}},
            "volumeMounts": [
                {"name": "code", "mountPath": "/code/here"},
                {"name": "scratch", "mountPath": "/scratch"},
            ],
        },
        volumes=[
            {"name": "code", "configMap": {"name": "code"}},
            {"name": "scratch", "emptyDir": {}},
        ],
    )
    log = ended(node, "files").splitlines()
    assert log[0] == "from the file"
    assert log[1].split()[0] == "ab$(A)$(C)"
    assert log[1].split()[1] in ("p-0", "p-1")
    assert log[1].split()[2] == "hush"
    assert log[2] == "x"
    remove(node, "files")


def keep(node, name, *, kept=True) -> None:
    """Have the object of a deleted pod stay to be looked at, or stay no longer."""
    finalizers = ["test.gangsched.io/looked-at"] if kept else None
    node.core.patch_namespaced_pod(name, node.home, {"metadata": {"finalizers": finalizers}})


ON_AND_ON = 'touch "$0/ready"; while :; do sleep 0.1; done'
"""What a script does once it has said what a signal is to do."""


def test_a_pod_that_is_stopped_keeps_what_others_say_of_it(node, tmp_path):
    """A preempted pod may well end with 0: only its DisruptionTarget tells that it is not done."""
    polite = f"trap 'exit 0' TERM; {ON_AND_ON}"
    run(node, "stopped", polite, folder=tmp_path, terminationGracePeriodSeconds=600)
    keep(node, "stopped")
    node.wait(lambda: phase(node, "stopped") == "Running", "it to run")
    node.wait((tmp_path / "ready").exists, "its trap to be set")
    before = conditions(node, "stopped")
    why = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": rfc3339(),  # one that is old is taken back by Kubernetes
    }
    node.core.patch_namespaced_pod_status("stopped", node.home, {"status": {"conditions": [why]}})
    node.core.delete_namespaced_pod("stopped", node.home)
    node.wait(lambda: phase(node, "stopped") == "Succeeded", "it to end")
    after = conditions(node, "stopped")
    assert after["DisruptionTarget"].reason == "PreemptionByScheduler"
    assert (before["Ready"].status, after["Ready"].status) == ("True", "False")
    assert after["Initialized"].last_transition_time == before["Initialized"].last_transition_time
    keep(node, "stopped", kept=False)


def test_nothing_a_pod_writes_reaches_the_machine(node):
    if mode(node) == "none":
        pytest.skip("without isolation pods share this machine's files, and the agent says so")
    run(node, "writer", "mkdir -p /brandnew && echo x > /brandnew/file && cat /brandnew/file")
    assert ended(node, "writer") == "x\n"
    assert not Path("/brandnew").exists()
    assert not Path("/var/run/secrets/kubernetes.io").exists()
    remove(node, "writer")


def test_exit_codes_and_signals(node):
    run(node, "three", "exit 3")
    run(node, "signal", "kill -TERM $$$$")  # the kubelet makes $$ of it, and so do we
    run(node, "absent", "", container={"command": ["no-such-program"]})
    for name, code in (("three", 3), ("signal", 143), ("absent", 127)):
        node.wait(lambda n=name: phase(node, n) == "Failed", f"{name} to fail")
        pod = node.core.read_namespaced_pod(name, node.home)
        assert pod.status.container_statuses[0].state.terminated.exit_code == code
    remove(node, "three", "signal", "absent")


@ONCE
def test_restarts_and_previous_log(node):
    run(node, "again", 'echo "run at $(date +%s%N)"; exit 1', restartPolicy="Always")
    node.wait(
        lambda: (
            (s := node.core.read_namespaced_pod("again", node.home).status.container_statuses)
            and s[0].restart_count >= 1
        ),
        "a restart",
    )
    previous = node.in_home("logs", "again", "--previous")
    assert previous.startswith("run at")
    remove(node, "again")


@ONCE
def test_logs_follow_until_the_end(node, tmp_path):
    wait = 'while [ ! -e "$0/followed" ]; do sleep 0.1; done'
    run(node, "slow", f"echo line 1; {wait}; echo line 2; echo line 3", folder=tmp_path)
    node.wait(lambda: phase(node, "slow") == "Running", "the start")
    follow = [node.plane.info()["kubectl"], "logs", "-n", node.home, "-f", "slow"]
    with subprocess.Popen(
        follow, env=client_environment(node.plane), stdout=subprocess.PIPE, text=True
    ) as following:
        try:
            assert following.stdout.readline() == "line 1\n"
            (tmp_path / "followed").touch()
            assert following.stdout.read() == "line 2\nline 3\n"
        finally:
            following.kill()
    assert node.in_home("logs", "slow", "--tail=1") == "line 3\n"
    remove(node, "slow")


def test_the_grace_period_is_kept_then_ended(node, tmp_path):
    """Who ends when asked to is not waited for, here for a day; who does not has all the time."""
    for name, trap, grace_s in (("polite", "exit 0", 86_400), ("stubborn", "", 2)):
        folder = tmp_path / name
        folder.mkdir()
        script = f"trap '{trap}' TERM; {ON_AND_ON}"
        run(node, name, script, folder=folder, terminationGracePeriodSeconds=grace_s)
        node.wait((folder / "ready").exists, f"{name} to have set its trap")
    remove(node, "polite")
    keep(node, "stubborn")
    due = node.core.delete_namespaced_pod("stubborn", node.home).metadata.deletion_timestamp
    node.wait(lambda: phase(node, "stubborn") == "Failed", "it to be killed")
    # The API server adds the grace period to the moment at which it was asked.
    assert conditions(node, "stubborn")["Ready"].last_transition_time >= due
    keep(node, "stubborn", kept=False)


@ONCE
def test_changes_while_the_api_server_is_away_are_reported_later(node, tmp_path):
    wait = 'while [ ! -e "$0/told" ]; do sleep 0.1; done'
    # The kubelet makes $$ of $$$$, and so do we.
    run(node, "ends", f'echo $$$$ > "$0/pid"; {wait}; exit 3', folder=tmp_path)
    node.wait(lambda: phase(node, "ends") == "Running", "it to run")
    noted = tmp_path / "pid"
    pid = int(node.wait(lambda: noted.exists() and noted.read_text().strip(), "its process"))
    node.plane.programs.stop("kube-apiserver", hard=True)
    (tmp_path / "told").touch()
    until(lambda: not psutil.pid_exists(pid), "the agent to see its end")
    node.restart("kube-apiserver")

    def told() -> bool:
        try:
            return phase(node, "ends") == "Failed"
        except (urllib3.exceptions.HTTPError, ApiException):
            return False  # it is not up yet

    node.wait(told, "its end")
    # It answers before it lets pods in: the tests that follow make some.
    node.wait(lambda: node.kubectl("get", "--raw", "/readyz", check=False) == "ok", "readiness")
    remove(node, "ends")


@ONCE
def test_init_containers_come_first_and_stop_the_pod_when_they_fail(node):
    first = {
        "name": "first",
        "image": "x",
        "command": ["sh", "-c", "echo one > /shared/f"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    if mode(node) == "none":
        first["command"] = ["touch", "/shared/f"]
    run(
        node,
        "ordered",
        "",
        initContainers=[first],
        container={
            "command": ["ls", "/shared"],
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        },
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    assert ended(node, "ordered") == "f\n"
    bad = {"name": "bad", "image": "x", "command": ["false"]}
    run(node, "never", "echo never", initContainers=[bad])
    node.wait(lambda: phase(node, "never") == "Failed", "the failure")
    remove(node, "ordered", "never")


@ONCE
def test_a_missing_config_map_is_reported_and_then_used(node):
    run(
        node,
        "waits",
        "",
        container={
            "command": ["cat", "/late/key"],
            "volumeMounts": [{"name": "late", "mountPath": "/late"}],
        },
        volumes=[{"name": "late", "configMap": {"name": "late"}}],
    )
    node.wait(
        lambda: any("configmap 'late' not found" in m for _, m in node.events(node.home)),
        "the Event",
    )
    node.core.create_namespaced_config_map(
        node.home, {"metadata": {"name": "late"}, "data": {"key": "here"}}
    )
    assert ended(node, "waits") == "here"
    remove(node, "waits")


@ONCE
def test_an_unsupported_volume_is_reported(node):
    run(node, "odd", "true", volumes=[{"name": "n", "nfs": {"server": "x", "path": "/"}}])
    node.wait(
        lambda: any("no volume of kind nfs 'n'" in m for _, m in node.events(node.home)),
        "the Event",
    )
    remove(node, "odd")


SERVE = """
import socket, sys, os
port = int(os.environ["MASTER_PORT"])
if "master" in os.environ["HOSTNAME"]:
    server = socket.create_server(("", port))
    peer, _ = server.accept()
    peer.sendall(os.environ["WHO"].encode())
    peer.close()
else:
    import time
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.1)
    print("heard", peer.recv(100).decode())
"""


def test_two_jobs_use_one_port_at_once(node):
    """Both masters listen on 23456 by their own name; each worker hears its own master."""
    for who in ("ada", "bob"):
        container = {
            "name": "pytorch",
            "image": "x",
            "command": ["python", "-c", SERVE],
            "env": [{"name": "WHO", "value": who}],
        }
        role = {
            "replicas": 1,
            "restartPolicy": "Never",
            "template": {"spec": {"containers": [container]}},
        }
        node.create_job(
            node.home,
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": who},
                "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}},
            },
        )
    for who in ("ada", "bob"):
        node.wait(lambda w=who: node.is_true(node.home, w, "Succeeded"), who)
        node.wait(lambda w=who: f"heard {w}" in node.in_home("logs", f"{w}-worker-0"), "its word")
        node.custom.delete_namespaced_custom_object(
            "kubeflow.org", "v1", node.home, "pytorchjobs", who
        )


# -- the control plane itself -------------------------------------------------------------------


@ONCE
def test_a_killed_up_is_cleaned_up_by_the_next_and_nothing_is_left_behind(node):
    """SIGKILL in the middle of `up`: the next finds what it had started; `down` leaves nothing.

    Meanwhile another plane runs, and goes on.
    """
    plane = Plane("test-killed")
    plane.down()
    command = [sys.executable, "-m", "gangsched", "local", "up", "--name", plane.name]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: len(marked(plane.folder)) >= 2, "two programs", 60, every_s=0.02)
        finally:
            process.kill()
    orphans = marked(plane.folder)
    assert orphans
    with a_plane(plane.name, NodeFile(), PlaneOptions(binding="off", bare=True)):
        assert not [p for p in orphans if _lives(p)]
        assert plane.info()["server"] != node.plane.info()["server"]
        Cluster(plane, "off").core.create_namespace({"metadata": {"name": "mine"}})
        names = [n.metadata.name for n in node.core.list_namespace().items]
        assert "mine" not in names
        programs = plane.programs.all()
    assert not plane.folder.exists()
    assert not marked(plane.folder)
    assert programs
    assert not [p for p in programs if p.alive()]
    assert not node.plane.programs.ended()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@ONCE
def test_health_and_readiness(node):
    base = node.plane.info()["metrics"].removesuffix("/metrics")

    def answer(path) -> bytes:
        with urllib.request.urlopen(base + path, timeout=patience_s(20)) as answer:
            return answer.read()

    assert answer("/healthz") == b"ok"
    node.wait(lambda: answer("/readyz") == b"leading", "it to have read the cluster")
