"""The contracts of the kinds of kubeflow.org/v1, row by row: variables, leaders, deciding roles."""

import json

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import GroupView, Observed, PodView
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.training_job import parse

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")


def body(kind: str, restart: str | None = None, port: int | None = None, **roles) -> dict:
    """Return a job of a kind; other fields of the spec go by `spec`."""
    framework = FRAMEWORKS[kind]
    spec = roles.pop("spec", {})
    container = {"name": framework.container, "image": "x"}
    if port is not None:
        container["ports"] = [{"name": framework.port_name, "containerPort": port}]
    replicas = {
        role: {"replicas": count, "template": {"spec": {"containers": [dict(container)]}}}
        | ({"restartPolicy": restart} if restart else {})
        for role, count in roles.items()
    }
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {framework.specs: replicas, **spec},
    }


def job(kind: str, **more):
    """Return a parsed job."""
    return parse(body(kind, **more), "gangsched", kind)


def variables(parsed, role: str, index: int) -> dict:
    """Return the variables of a pod's main container."""
    framework = FRAMEWORKS[parsed.kind]
    template = framework.pod_template(parsed, parsed.role(role), index)
    main = framework.main_container(template["spec"])
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in main.get("env") or []}


ENVIRONMENTS = {
    "xgboost master": (
        ("XGBoostJob", {"Master": 1, "Worker": 2}),
        ("Master", 0),
        {
            "MASTER_ADDR": "j-master-0",
            "MASTER_PORT": "9999",
            "WORLD_SIZE": "3",
            "RANK": "0",
            "WORKER_PORT": "9999",
            "WORKER_ADDRS": "j-worker-0,j-worker-1",
            "PYTHONUNBUFFERED": "1",
        },
    ),
    "xgboost worker": (
        ("XGBoostJob", {"Master": 1, "Worker": 2}),
        ("Worker", 1),
        {"RANK": "2", "MASTER_ADDR": "j-master-0"},
    ),
    "xgboost alone": (
        ("XGBoostJob", {"Master": 1}),
        ("Master", 0),
        {"WORLD_SIZE": "1", "WORKER_ADDRS": None, "WORKER_PORT": None},
    ),
    "paddle collective, rank 0": (
        ("PaddleJob", {"Worker": 2}),
        ("Worker", 0),
        {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": "j",
            "PADDLE_NNODES": "2",
            "POD_IP_DUMMY": {"fieldRef": {"fieldPath": "status.podIP"}},
            "PADDLE_MASTER": "$(POD_IP_DUMMY):36543",
            "PADDLE_SERVER_NUM": None,
            "PADDLE_TRAINER_NUM": None,
        },
    ),
    "paddle collective, rank 1": (
        ("PaddleJob", {"Worker": 2}),
        ("Worker", 1),
        {"PADDLE_MASTER": "j-worker-0:36543", "POD_IP_DUMMY": None},
    ),
    "paddle servers": (
        ("PaddleJob", {"Master": 1, "Worker": 2}),
        ("Master", 0),
        {"PADDLE_MASTER": "$(POD_IP_DUMMY):36543", "PADDLE_SERVER_NUM": "1"},
    ),
    "paddle trainers": (
        ("PaddleJob", {"Master": 1, "Worker": 2}),
        ("Worker", 0),
        {
            "PADDLE_MASTER": "j-master-0:36543",
            "PADDLE_TRAINER_NUM": "1",
            "PADDLE_SERVER_NUM": None,
        },
    ),
    "jax": (
        ("JAXJob", {"Worker": 3}),
        ("Worker", 2),
        {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": "6666",
            "COORDINATOR_ADDRESS": "j-worker-0",
            "NUM_PROCESSES": "3",
            "PROCESS_ID": "2",
        },
    ),
    "a tensorflow job of one pod": (
        ("TFJob", {"Worker": 1}),
        ("Worker", 0),
        {"TF_CONFIG": None},
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment(name):
    (kind, roles), (role, index), wanted = ENVIRONMENTS[name]
    found = variables(job(kind, **roles), role, index)
    for key, value in wanted.items():
        assert found.get(key) == value, key


def _at(role: str, index: int, port: int = 2222, domain: str = "") -> str:
    return f"j-{role}-{index}.ns.svc{domain}:{port}"


TF_CONFIGS = {
    "workers": (
        {"Worker": 2},
        ("Worker", 1),
        {"worker": [_at("worker", 0), _at("worker", 1)]},
    ),
    "servers": (
        {"PS": 1, "Worker": 2},
        ("PS", 0),
        {"ps": [_at("ps", 0)], "worker": [_at("worker", 0), _at("worker", 1)]},
    ),
    "a chief and an evaluator": (
        {"Chief": 1, "Worker": 1, "Evaluator": 1},
        ("Evaluator", 0),
        {
            "chief": [_at("chief", 0)],
            "evaluator": [_at("evaluator", 0)],
            "worker": [_at("worker", 0)],
        },
    ),
    "a port of the user's": (
        {"Worker": 2, "port": 7777},
        ("Worker", 0),
        {"worker": [_at("worker", 0, 7777), _at("worker", 1, 7777)]},
    ),
    "dynamic, a worker": (
        {"PS": 2, "Worker": 3, "spec": {"enableDynamicWorker": True}},
        ("Worker", 1),
        {"worker": {"1": _at("worker", 1)}, "ps": [_at("ps", 0), _at("ps", 1)]},
    ),
    "dynamic, a server": (
        {"PS": 2, "Worker": 3, "spec": {"enableDynamicWorker": True}},
        ("PS", 1),
        {"worker": {}, "ps": [_at("ps", 1)]},
    ),
}


@pytest.mark.parametrize("name", TF_CONFIGS)
def test_tf_config(name):
    fields, (role, index), cluster = TF_CONFIGS[name]
    config = json.loads(variables(job("TFJob", **fields), role, index)["TF_CONFIG"])
    assert config["cluster"] == cluster
    assert config["task"] == {"type": role.lower(), "index": index}
    assert config.get("environment") == (None if "dynamic" in name else "cloud")


def test_a_cluster_domain_ends_addresses(monkeypatch):
    monkeypatch.setenv("CUSTOM_CLUSTER_DOMAIN", "cluster.local")
    config = json.loads(variables(job("TFJob", Worker=2), "Worker", 0)["TF_CONFIG"])
    assert config["cluster"]["worker"][0] == _at("worker", 0, domain=".cluster.local")


def test_tf_config_is_for_the_container_that_trains():
    raw = body("TFJob", Worker=2)
    raw["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append(
        {"name": "sidecar", "image": "x"}
    )
    parsed = parse(raw, "gangsched", "TFJob")
    template = FRAMEWORKS["TFJob"].pod_template(parsed, parsed.role("Worker"), 0)
    main, beside = template["spec"]["containers"]
    assert [one["name"] for one in main["env"]] == ["TF_CONFIG"]
    assert "env" not in beside


LEADERS = {
    "a chief": ("TFJob", {"Chief": 1, "Worker": 2}, {"chief-0"}),
    "a master of tensorflow": ("TFJob", {"Master": 1, "Worker": 2}, {"master-0"}),
    "worker 0 where nobody leads": ("TFJob", {"PS": 1, "Worker": 2}, {"worker-0"}),
    "xgboost": ("XGBoostJob", {"Master": 1, "Worker": 2}, {"master-0"}),
    "paddle": ("PaddleJob", {"Worker": 2}, set()),
    "jax": ("JAXJob", {"Worker": 2}, {"worker-0"}),
    "pytorch without a master": ("PyTorchJob", {"Worker": 2}, {"worker-0"}),
}


@pytest.mark.parametrize("name", LEADERS)
def test_who_carries_the_masters_label(name):
    kind, roles, wanted = LEADERS[name]
    parsed, framework = job(kind, **roles), FRAMEWORKS[kind]
    found = {
        f"{role.type.lower()}-{index}"
        for role in parsed.roles
        for index in range(role.replicas)
        if "training.kubeflow.org/job-role" in framework.labels(parsed, role, index)
    }
    assert found == wanted


def states(parsed, **phases) -> Observed:
    """Return the pods of a job; the words of a role's phases are those of its pods, in order."""
    pods = tuple(
        PodView(f"j-{role}-{i}", f"{role}{i}", role, phase, exit_code=int(phase == "Failed"))
        for role, text in phases.items()
        for i, phase in enumerate(text.split())
    )
    names = frozenset(pod.name for pod in pods)
    group = GroupView("g", "Placed", "", dict.fromkeys(names, "n"))
    return Observed(pods, names, group)


ENDS = {
    "the chief ends": (
        ("TFJob", {"Chief": 1, "Worker": 2}),
        {"chief": "Succeeded", "worker": "Running Running"},
        "Succeeded",
    ),
    "worker 0 ends, servers go on": (
        ("TFJob", {"PS": 1, "Worker": 2}),
        {"ps": "Running", "worker": "Succeeded Running"},
        "Succeeded",
    ),
    "worker 1 ends": (
        ("TFJob", {"PS": 1, "Worker": 2}),
        {"ps": "Running", "worker": "Running Succeeded"},
        "Running",
    ),
    "all workers have to": (
        ("TFJob", {"Worker": 2, "spec": {"successPolicy": "AllWorkers"}}),
        {"worker": "Succeeded Running"},
        "Running",
    ),
    "all workers did": (
        ("TFJob", {"Worker": 2, "spec": {"successPolicy": "AllWorkers"}}),
        {"worker": "Succeeded Succeeded"},
        "Succeeded",
    ),
    "a worker beside a chief fails": (
        ("TFJob", {"Chief": 1, "Worker": 1}),
        {"chief": "Running", "worker": "Failed"},
        "Failed",
    ),
    "a server fails": (
        ("TFJob", {"PS": 1, "Worker": 1}),
        {"ps": "Failed", "worker": "Running"},
        "Failed",
    ),
    "a dynamic worker fails": (
        ("TFJob", {"PS": 1, "Worker": 2, "spec": {"enableDynamicWorker": True}}),
        {"ps": "Running", "worker": "Running Failed"},
        "Running",
    ),
    "only workers run beside a chief": (
        ("TFJob", {"Chief": 1, "Worker": 1}),
        {"chief": "Pending", "worker": "Running"},
        "Created",
    ),
    "xgboost's master ends": (
        ("XGBoostJob", {"Master": 1, "Worker": 1}),
        {"master": "Succeeded", "worker": "Running"},
        "Succeeded",
    ),
    "an xgboost worker fails": (
        ("XGBoostJob", {"Master": 1, "Worker": 1}),
        {"master": "Running", "worker": "Failed"},
        "Failed",
    ),
    "one of paddle's workers ends": (
        ("PaddleJob", {"Worker": 2}),
        {"worker": "Succeeded Running"},
        "Running",
    ),
    "paddle's workers end": (
        ("PaddleJob", {"Worker": 2}),
        {"worker": "Succeeded Succeeded"},
        "Succeeded",
    ),
    "a paddle worker fails and is made anew": (
        ("PaddleJob", {"Worker": 2}),
        {"worker": "Running Failed"},
        "Restarting",
    ),
    "jax's workers end": (
        ("JAXJob", {"Worker": 2}),
        {"worker": "Succeeded Succeeded"},
        "Succeeded",
    ),
    "a jax worker fails": (
        ("JAXJob", {"Worker": 2}),
        {"worker": "Running Failed"},
        "Failed",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_job_ends(name):
    (kind, fields), phases, wanted = ENDS[name]
    parsed = job(kind, **fields)
    actions = reconcile(parsed, states(parsed, **phases), CLOCK)
    true = [c["type"] for c in actions.status["conditions"] if c["status"] == "True"]
    assert true[-1] == wanted
    if wanted != "Created":
        reason = actions.status["conditions"][-1]["reason"]
        assert reason == f"{kind}{wanted}"


def test_pods_that_outlive_their_job_are_stopped_and_keep_their_logs():
    parsed = job("TFJob", PS=1, Worker=2)
    failed = reconcile(parsed, states(parsed, ps="Running", worker="Failed Running"), CLOCK)
    assert [pod.name for pod in failed.stop_pods] == ["j-ps-0", "j-worker-1"]
    assert not failed.delete_pods
    good = reconcile(parsed, states(parsed, ps="Running", worker="Succeeded Running"), CLOCK)
    assert (good.stop_pods, good.requeue_in_s) == ([], 60.0)


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_policy_of_the_users_counts_instead(policy):
    parsed = job("TFJob", PS=1, Worker=1, spec={"runPolicy": {"cleanPodPolicy": policy}})
    actions = reconcile(parsed, states(parsed, ps="Running", worker="Failed"), CLOCK)
    deleted = {"None": [], "Running": ["j-ps-0"], "All": ["j-ps-0", "j-worker-0"]}[policy]
    assert [pod.name for pod in actions.delete_pods] == deleted
    assert not actions.stop_pods


def test_a_dynamic_worker_that_failed_stays_as_it_is():
    parsed = job("TFJob", PS=1, Worker=2, spec={"enableDynamicWorker": True})
    actions = reconcile(parsed, states(parsed, ps="Running", worker="Running Failed"), CLOCK)
    assert not actions.delete_pods
    assert not actions.create_pods


WRONG = {
    "an unknown role": (
        body("TFJob", Driver=1),
        (
            "TFJob ns/j: spec.tfReplicaSpecs.Driver: 'Driver' is not a replica type; "
            "use Chief or Master or Worker or PS or Evaluator"
        ),
    ),
    "two leaders": (
        body("TFJob", Chief=1, Master=1),
        "TFJob ns/j: spec.tfReplicaSpecs has a Chief and a Master; one of them leads",
    ),
    "two chiefs": (
        body("TFJob", Chief=2),
        "TFJob ns/j: spec.tfReplicaSpecs.Chief.replicas is 2; a job has exactly 1 Chief",
    ),
    "no master": (
        body("XGBoostJob", Worker=2),
        "XGBoostJob ns/j: spec.xgbReplicaSpecs needs a Master",
    ),
    "a role twice": (
        body("JAXJob", Worker=1, worker=1),
        "JAXJob ns/j: spec.jaxReplicaSpecs.worker: there are two roles Worker; remove one",
    ),
    "nothing": (body("JAXJob"), "JAXJob ns/j: spec.jaxReplicaSpecs needs a Worker"),
    "a retired kind": (
        body("MXJob", Worker=1),
        (
            "MXJob ns/j: MXNet was retired in 2023, and no operator since 1.8 runs its jobs; "
            "kinds of jobs that run are: PyTorchJob, TFJob, MPIJob, XGBoostJob, "
            "PaddleJob, JAXJob"
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(name):
    raw, sentence = WRONG[name]
    kind = sentence.split(" ", 1)[0]
    with pytest.raises(InvalidJobError) as caught:
        parse(raw, "gangsched", kind)
    assert str(caught.value) == sentence


def test_nothing_after_a_key_is_as_good_as_no_key():
    raw = body("PyTorchJob", Master=1, Worker=2)
    for role in raw["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["metadata"] = None
        role["template"]["spec"]["nodeSelector"] = None
    roles = parse(raw, "gangsched", "PyTorchJob").roles
    assert all(role.template.keys() == {"spec"} for role in roles)


def test_a_template_may_not_be_nested_without_end():
    raw = body("PyTorchJob", Master=1)
    deep: list = []
    for _ in range(200):
        deep = [deep]
    raw["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["x"] = deep
    with pytest.raises(InvalidJobError, match="nested deeper than 100 levels"):
        parse(raw, "gangsched", "PyTorchJob")


@pytest.mark.parametrize("name", ["1st", "Job", "a" * 60])
def test_a_name_no_service_can_have(name):
    raw = body("JAXJob", Worker=11)
    raw["metadata"]["name"] = name
    with pytest.raises(InvalidJobError, match=r"metadata\.name is .* at most 53 letters"):
        parse(raw, "gangsched", "JAXJob")


def test_keys_are_normalised():
    assert [role.type for role in job("TFJob", ps=1, WORKER=2).roles] == ["Worker", "PS"]
