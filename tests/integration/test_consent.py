"""Jobs that are asked before they are stopped: they save, answer, leave and resume."""

import json
from pathlib import Path

import pytest
from test_preemption import MANY, PREAMBLE, job, steps
from test_pytorchjob import UNTIL_TOLD, tell

from gangsched.api import names
from gangsched.api.timestamps import rfc3339_micro

SCRIPT = Path(__file__).parents[2] / "examples" / "consent.py"
ITEMS = {
    "stop-at": f"metadata.annotations['{names.STOP_ANNOTATION}']",
    "name": "metadata.name",
    "namespace": "metadata.namespace",
}


def asks(body: dict, grace_s: int = 120) -> dict:
    """Have a job ask for time to save, and its pods see that they are to be stopped."""
    body = json.loads(json.dumps(body))  # its roles share a template
    body["metadata"]["annotations"] = {names.GRACE_ANNOTATION: str(grace_s)}
    items = [{"path": path, "fieldRef": {"fieldPath": field}} for path, field in ITEMS.items()]
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        spec = role["template"]["spec"]
        spec.setdefault("volumes", []).append({"name": "stop", "downwardAPI": {"items": items}})
        mount = {"name": "stop", "mountPath": "/etc/gangsched"}
        spec["containers"][0].setdefault("volumeMounts", []).append(mount)
    return body


@pytest.fixture
def space(laptop):
    from kubernetes import client

    name = laptop.new_namespace()
    client.SchedulingV1Api(laptop.api).create_priority_class(
        {"metadata": {"name": f"urgent-{name}"}, "value": 1000}
    )
    client.RbacAuthorizationV1Api(laptop.api).create_namespaced_role_binding(
        name,
        {
            "metadata": {"name": "checkpoint"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "gangsched-checkpoint",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": name}],
        },
    )
    yield name
    laptop.remove_namespace(name)


def urgent(laptop, space, path) -> None:
    """Create a job of higher priority that takes all GPUs."""
    body = job("urgent", 4, ["sh", "-c", UNTIL_TOLD, "/checkpoints"], path=path)
    body["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": f"urgent-{space}"}}
    laptop.create_job(space, body)


def disruption(laptop, space, pod) -> dict:
    status = laptop.core.read_namespaced_pod(pod, space).status
    found = [one for one in status.conditions or [] if one.type == "DisruptionTarget"]
    return {"status": found[0].status, "reason": found[0].reason} if found else {}


def group_disruption(laptop, space, name) -> dict:
    """Return what a PodGroup shows of an announced stop, once its annotation says when."""
    group = laptop.custom.get_namespaced_custom_object(
        names.GROUP, names.VERSION, space, "podgroups", name
    )
    if names.STOP_ANNOTATION not in (group["metadata"].get("annotations") or {}):
        return {}
    found = [
        {"status": one["status"], "reason": one["reason"]}
        for one in (group.get("status") or {}).get("conditions") or []
        if one["type"] == "DisruptionTarget"
    ]
    return found[0] if found else {}


@pytest.mark.torch
def test_a_ddp_job_is_asked_saves_answers_and_loses_no_step(laptop, space, tmp_path):
    (tmp_path / "train.py").write_text(PREAMBLE + SCRIPT.read_text())
    (tmp_path / "steps").write_text(str(MANY))
    said = tmp_path / "train-master-0"
    env = [{"name": "CHECKPOINT", "value": "/checkpoints/last.pt"}]
    command = ["python", "/checkpoints/train.py"]
    laptop.create_job(space, asks(job("train", 4, command, path=tmp_path, env=env)))
    laptop.wait(lambda: said.exists() and len(steps(said.read_text())) > 10, "ten steps", 90)
    urgent(laptop, space, tmp_path)
    laptop.wait(lambda: laptop.is_true(space, "urgent", "Running"), "the urgent job", 90)
    assert not laptop.is_true(space, "train", "Succeeded"), "giving way is no success"
    first_run = said.read_text()
    assert "is not reported" not in first_run, "it has the right to answer"
    assert first_run.count("saved at step") == 1
    done = max(steps(first_run)) + 1
    (tmp_path / "steps").write_text(str(done + 10))
    tell(tmp_path)
    laptop.wait(lambda: laptop.is_true(space, "train", "Succeeded"), "the first job", 120)
    after = steps(said.read_text().removeprefix(first_run))
    assert min(after) == done, "no step is lost, and none is made twice"
    laptop.wait_event(space, "StopAnnounced", f"To be preempted by gang {space}/urgent")
    laptop.wait_event(space, "Preempted", f"Preempted by gang {space}/urgent")


def test_an_exit_with_0_after_the_answer_is_no_completion(laptop, space, tmp_path):
    """The program ends by itself once it has saved, before the scheduler stops it."""
    saves = (
        'if [ -e "$0/go-on" ]; then exit 0; fi; touch "$0/begun-$HOSTNAME"; '
        'while [ ! -e "$0/saved" ]; do sleep 0.1; done; exit 0'
    )
    laptop.create_job(
        space, asks(job("train", 4, ["sh", "-c", saves, "/checkpoints"], path=tmp_path))
    )
    begun = [tmp_path / f"begun-train-{role}-0" for role in ("master", "worker")]
    laptop.wait(lambda: all(file.exists() for file in begun), "the job to run", 60)
    urgent(laptop, space, tmp_path)
    pods = ("train-master-0", "train-worker-0")
    announced = {"status": "True", "reason": names.STOP_ANNOUNCED}
    laptop.wait(
        lambda: all(disruption(laptop, space, pod) == announced for pod in pods), "the notice", 60
    )
    laptop.wait(
        lambda: group_disruption(laptop, space, "train") == announced, "the notice of the group", 60
    )
    answer = {"metadata": {"annotations": {names.CHECKPOINT_ANNOTATION: rfc3339_micro()}}}
    laptop.core.patch_namespaced_pod(pods[0], space, answer)
    (tmp_path / "saved").touch()
    laptop.wait(lambda: laptop.is_true(space, "urgent", "Running"), "the urgent job", 90)
    assert not laptop.is_true(space, "train", "Succeeded"), "it was stopped, and is not complete"
    tell(tmp_path)
    laptop.wait(lambda: laptop.is_true(space, "train", "Succeeded"), "the first job", 120)


def test_a_withdrawn_stop_lets_the_job_run_on(laptop, space, tmp_path):
    command = ["sh", "-c", UNTIL_TOLD, "/checkpoints"]
    laptop.create_job(space, asks(job("train", 4, command, path=tmp_path)))
    laptop.wait(lambda: laptop.is_true(space, "train", "Running"), "the job to run", 60)
    before = laptop.core.read_namespaced_pod("train-master-0", space).metadata.uid
    urgent(laptop, space, tmp_path)

    def shown():
        return disruption(laptop, space, "train-master-0").get("status")

    laptop.wait(lambda: shown() == "True", "the notice", 60)
    laptop.custom.delete_namespaced_custom_object(
        "kubeflow.org", "v1", space, "pytorchjobs", "urgent"
    )
    laptop.wait(lambda: shown() == "False", "the notice to be withdrawn", 60)
    pod = laptop.core.read_namespaced_pod("train-master-0", space)
    laptop.wait(
        lambda: (
            names.STOP_ANNOTATION
            not in laptop.core.read_namespaced_pod("train-master-0", space).metadata.annotations
        ),
        "the annotation to go",
        60,
    )
    assert pod.metadata.uid == before
    tell(tmp_path)
    laptop.wait(lambda: laptop.is_true(space, "train", "Succeeded"), "its end", 60)


def test_a_node_that_is_to_stop_lets_a_job_save(laptop, space, tmp_path):
    command = ["sh", "-c", UNTIL_TOLD, "/checkpoints"]
    laptop.create_job(space, asks(job("train", 4, command, path=tmp_path)))
    laptop.wait(lambda: laptop.is_true(space, "train", "Running"), "the job to run", 60)
    node = laptop.core.read_namespaced_pod("train-master-0", space).spec.node_name

    def stops(at: str | None) -> None:
        laptop.core.patch_node(node, {"metadata": {"annotations": {names.STOP_ANNOTATION: at}}})

    def shown():
        return disruption(laptop, space, "train-master-0").get("status")

    try:
        stops("2999-01-01T00:00:00Z")
        laptop.wait(lambda: shown() == "True", "the notice", 60)
    finally:
        stops(None)
    laptop.wait(lambda: shown() == "False", "the notice to be withdrawn", 60)
    laptop.wait_event(space, "StopAnnounced", f"Node {node} is about to stop")
    tell(tmp_path)
    laptop.wait(lambda: laptop.is_true(space, "train", "Succeeded"), "its end", 60)


# -- who may say so -------------------------------------------------------------------------------


def bound_client(laptop, space, pod):
    """Return a client with the token of a pod."""
    from kubernetes import client

    body = {
        "spec": {
            "audiences": [],
            "expirationSeconds": 3600,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            },
        }
    }
    made = laptop.core.create_namespaced_service_account_token("default", space, body)
    known = laptop.api.configuration
    settings = client.Configuration()
    settings.host, settings.ssl_ca_cert = known.host, known.ssl_ca_cert
    settings.api_key = {"authorization": f"Bearer {made.status.token}"}
    return client.CoreV1Api(client.ApiClient(settings))


def bare(name: str) -> dict:
    container = {"name": "main", "image": "none", "command": ["true"]}
    spec = {"containers": [container], "nodeSelector": {"no": "node"}}
    return {"metadata": {"name": name, "labels": {"of": name}}, "spec": spec}


@pytest.fixture
def answers(laptop, space):
    """Return a function by which one pod patches another, and returns the refusal."""
    from kubernetes import client

    other = laptop.new_namespace()
    made = {
        name: laptop.core.create_namespaced_pod(where, bare(name))
        for name, where in (("own", space), ("beside", space), ("afar", other))
    }
    api = bound_client(laptop, space, made["own"])

    def patched(name: str, metadata: dict, spec: dict | None = None) -> str:
        body = {"metadata": metadata} | ({"spec": spec} if spec else {})
        try:
            api.patch_namespaced_pod(name, made[name].metadata.namespace, body)
        except client.ApiException as error:
            return json.loads(error.body)["message"]
        return ""

    yield patched
    laptop.remove_namespace(other)


def test_a_pod_answers_for_itself_and_changes_nothing_else(answers):
    said = {names.CHECKPOINT_ANNOTATION: "2026-01-31T12:00:00.5Z"}
    assert not answers("own", {"annotations": said})
    assert "only the pod itself may change" in answers("beside", {"annotations": said})
    assert "cannot patch resource" in answers("afar", {"annotations": said})
    assert "annotation gangsched.io/checkpoint-at alone" in answers(
        "own", {"annotations": {names.STOP_ANNOTATION: "2026-01-31T12:00:00Z"}}
    )
    for change in (
        {"labels": {names.POD_GROUP_LABEL: "theirs"}},
        {"annotations": {**said, "gangsched.io/gpu-devices": "0"}},
        {"finalizers": ["example.com/stay"]},
    ):
        assert "annotation gangsched.io/checkpoint-at alone" in answers("own", change)
    image = {"containers": [{"name": "main", "image": "other"}]}
    assert "annotation gangsched.io/checkpoint-at alone" in answers("own", {}, image)
    wrong = {names.CHECKPOINT_ANNOTATION: "soon"}
    assert "must be a UTC time such as" in answers("own", {"annotations": wrong})
