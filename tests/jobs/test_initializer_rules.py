"""The initializers of TrainJobs: what their pods get, and what is hostile in them."""

import base64
import json

import pytest

from gangsched.core.bounds import STORAGE_URI_LETTERS, TOKEN_BYTES
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.owned_objects import Owned
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.trainjob import trainjob_kind
from gangsched.operators.runtime_watch import Runtimes
from gangsched.shipped import shipped

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
SHIPPED = {d["metadata"]["name"]: d for d in shipped("manifests/runtimes")}
RUNTIMES = {
    name: document
    for name, document in SHIPPED.items()
    if document["kind"] == "ClusterTrainingRuntime"
}
TOKEN = "hf_verysecret"  # noqa: S105


def steps(runtime="torch-finetuning", parts=None, uid="u", **spec):
    """Return what is done for a TrainJob on a shipped runtime."""
    runtimes = Runtimes()
    runtimes.seen(RUNTIMES[runtime] | {"metadata": RUNTIMES[runtime]["metadata"] | {"uid": "r"}})
    metadata = {"name": "t", "namespace": "ns", "uid": uid}
    body = {"metadata": metadata, "spec": {"runtimeRef": {"name": runtime}, **spec}}
    return trainjob_kind(runtimes).step(Owned(body, parts or {}), CLOCK)


def made(kind: str, actions) -> dict:
    """Return the object of a kind that is created."""
    return next(one for one in actions.create if one["kind"] == kind)


def pods(jobset: dict) -> dict[str, dict]:
    """Return the pod of each replicated job."""
    return {
        rjob["name"]: rjob["template"]["spec"]["template"]["spec"]
        for rjob in jobset["spec"]["replicatedJobs"]
    }


def variables(pod: dict) -> dict:
    """Return the variables of the only container."""
    (container,) = pod["containers"]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def initializer(part="dataset", uri="hf://a/b", **fields) -> dict:
    """Return spec.initializer with one part."""
    return {part: {"storageUri": uri, **fields}}


def test_the_shipped_runtimes_are_kubeflows_and_three_more():
    frameworks = {
        name: document["metadata"]["labels"]["trainer.kubeflow.org/framework"]
        for name, document in RUNTIMES.items()
    }
    assert frameworks == {
        "torch-distributed": "torch",
        "jax-distributed": "jax",
        "xgboost-distributed": "xgboost",
        "deepspeed-distributed": "deepspeed",
        "mlx-distributed": "mlx",
        "torchtune-llama3.2-1b": "torchtune",
        "torchtune-llama3.2-3b": "torchtune",
        "torchtune-qwen2.5-1.5b": "torchtune",
        "torch-finetuning": "torch",
        "trl-finetuning": "torchtune",
        "torch-with-cache": "torch",
    }


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_job_of_each_shipped_runtime_becomes_a_jobset(name):
    framework = RUNTIMES[name]["metadata"]["labels"]["trainer.kubeflow.org/framework"]
    command = ["tune", "run"] if framework == "torchtune" else ["true"]
    trainer = {"numNodes": 1, "command": command}
    jobset = made("JobSet", steps(name, trainer=trainer))
    jobs = pods(jobset)
    wanted = {"node"}
    wanted |= {"launcher"} if "mpi" in RUNTIMES[name]["spec"]["mlPolicy"] else set()
    wanted |= {"dataset-initializer", "model-initializer"} if "tun" in name else set()
    if "cache" in name:
        wanted |= {"dataset-initializer", "cache-head", "cache-worker"}
    assert set(jobs) == wanted
    if "tun" in name:
        (node,) = (job for job in jobset["spec"]["replicatedJobs"] if job["name"] == "node")
        assert {one["status"] for one in node["dependsOn"]} == {"Complete"}
        mounts = {job: pod["containers"][0]["volumeMounts"] for job, pod in jobs.items()}
        assert all(mount[0]["mountPath"] == "/workspace" for mount in mounts.values())


def test_builtin_trainer_runs_the_program_of_a_runtime_that_has_one():
    trainer = {"numNodes": 2, "command": ["tune", "run"], "args": ["epochs=2"]}
    node = pods(made("JobSet", steps("trl-finetuning", trainer=trainer)))["node"]
    (container,) = node["containers"]
    assert container["command"] == ["torchrun", "-m", "gangsched.finetuning"]
    assert container["args"] == ["epochs=2"]
    assert variables(node)["PET_MASTER_ADDR"] == "t-node-0-0.t"
    other = pods(made("JobSet", steps("trl-finetuning", trainer={"command": ["mine"]})))["node"]
    assert other["containers"][0]["command"] == ["mine"]


def test_a_claim_is_mounted_for_reading_into_its_initializer_alone():
    jobs = pods(made("JobSet", steps(initializer=initializer(uri="pvc://data/sets/a"))))
    pod = jobs["dataset-initializer"]
    assert variables(pod)["STORAGE_URI"] == "pvc://data/sets/a"
    claim = {"claimName": "data", "readOnly": True}
    assert pod["volumes"] == [{"name": "initializer-source", "persistentVolumeClaim": claim}]
    mounts = pod["containers"][0]["volumeMounts"]
    assert {"name": "initializer-source", "mountPath": "/mnt/storage", "readOnly": True} in mounts
    assert "volumes" not in jobs["model-initializer"]
    assert "volumes" not in jobs["node"]


def test_a_secret_of_the_user_reaches_its_initializer_alone():
    jobs = pods(made("JobSet", steps(initializer=initializer(secretRef={"name": "hub"}))))
    assert jobs["dataset-initializer"]["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "hub"}}
    ]
    assert "envFrom" not in jobs["model-initializer"]["containers"][0]
    assert "envFrom" not in jobs["node"]["containers"][0]


def test_a_token_in_the_job_reaches_its_pod_from_a_secret_alone():
    given = initializer("model", env=[{"name": "ACCESS_TOKEN", "value": TOKEN}])
    actions = steps(initializer=given)
    secret = made("Secret", actions)
    assert base64.b64decode(secret["data"]["model.ACCESS_TOKEN"]).decode() == TOKEN
    jobset = made("JobSet", actions)
    assert TOKEN not in json.dumps(jobset)
    reference = {"name": secret["metadata"]["name"], "key": "model.ACCESS_TOKEN"}
    jobs = pods(jobset)
    assert variables(jobs["model-initializer"])["ACCESS_TOKEN"] == {"secretKeyRef": reference}
    assert secret["metadata"]["name"] not in json.dumps([jobs["node"], jobs["dataset-initializer"]])
    order = [one["kind"] for one in actions.create]
    assert order.index("Secret") < order.index("JobSet")
    (event,) = [one for one in actions.events if one.reason == "TokenInSpec"]
    assert TOKEN not in event.message
    assert "spec.initializer.model.env ACCESS_TOKEN" in event.message


def test_a_token_that_changed_while_the_job_was_suspended_has_a_secret_of_its_own():
    def env(value: str) -> dict:
        return initializer(env=[{"name": "ACCESS_TOKEN", "value": value}])

    before = steps(initializer=env("a"), suspend=True)
    jobset = made("JobSet", before)
    resumed = steps(parts={("JobSet", "t"): jobset}, initializer=env("b"), suspend=False)
    secret = made("Secret", resumed)
    assert secret["metadata"]["name"] != made("Secret", before)["metadata"]["name"]
    assert secret["metadata"]["name"] in json.dumps(resumed.patch)
    assert base64.b64decode(secret["data"]["dataset.ACCESS_TOKEN"]) == b"b"


def test_an_equal_token_of_another_job_has_another_secret():
    given = initializer(env=[{"name": "ACCESS_TOKEN", "value": "a"}])
    first, second = (made("Secret", steps(uid=uid, initializer=given)) for uid in "uv")
    assert first["metadata"]["name"] != second["metadata"]["name"]


WRONG = {
    "hf://" + "a" * STORAGE_URI_LETTERS.most: "characters; at most 2048 are allowed",
    "hf://a/b\nx": "control characters",
    "hf://a/b c": "white space",
    "s3://key:password@bucket/x": "write them into a Secret",
    "https://hf_token@host/x": "write them into a Secret",
    "pvc://data/../other": "a path without `..`",
    "pvc://data/./x": "a path without `..`",
    "pvc:///x": "pvc://CLAIM/PATH is allowed",
    "pvc://../x": "pvc://CLAIM/PATH is allowed",
    "pvc://other/ns:data": "",
    "pvc://Data": "pvc://CLAIM/PATH is allowed",
    "pvc:data": "pvc://CLAIM/PATH is allowed",
    "gs://bucket/x": "",
    "tatsu-lab/alpaca": "",
}


@pytest.mark.parametrize("part", ["dataset", "model"])
@pytest.mark.parametrize("uri", WRONG, ids=lambda uri: uri[:30])
def test_an_address_is_refused_by_its_field(uri, part):
    words = WRONG[uri]
    if not words:
        assert steps(initializer=initializer(part, uri)).create
        return
    with pytest.raises(InvalidJobError, match=rf"ns/t: spec.initializer.{part}.storageUri") as said:
        steps(initializer=initializer(part, uri))
    assert words in str(said.value)
    assert "password" not in str(said.value).replace("a user or a password", "")


def test_a_token_has_a_bound():
    env = [{"name": "ACCESS_TOKEN", "value": "é" * TOKEN_BYTES.most}]
    with pytest.raises(InvalidJobError, match="ACCESS_TOKEN has more than 8192 bytes"):
        steps(initializer=initializer(env=env))


@pytest.mark.parametrize(
    "variable",
    [{"name": "ACCESS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {}],
)
def test_variables_without_a_plain_token_stay_as_they_are(variable):
    named = variable or {"name": "ENDPOINT", "value": "http://store:9000"}
    actions = steps(initializer=initializer(env=[named]))
    assert [one["kind"] for one in actions.create] == ["JobSet"]
    pod = pods(made("JobSet", actions))["dataset-initializer"]
    assert named in pod["containers"][0]["env"]
