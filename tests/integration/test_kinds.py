"""Every kind of kubeflow.org/v1 on a real API server: its states, its ends, its messages."""

import pytest
from test_pytorchjob import FOR_EVER, UNTIL_TOLD, listening, tell

from gangsched.jobs.kubeflow.kinds import FRAMEWORKS

pytestmark = pytest.mark.by("extender")  # their controllers do not see who binds

ROLES = {
    "TFJob": {"Chief": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
}


def job(kind, script, roles=None, name="j", **spec):
    """Return a job whose pods run shell scripts on process nodes; a mapping has one a role."""
    framework = FRAMEWORKS[kind]

    def template(role):
        text = script if isinstance(script, str) else script[role]
        container = {
            "name": framework.container,
            "image": "none",
            "command": ["sh", "-c", text],
            "resources": {"requests": {"cpu": "10m"}},
        }
        return {
            "spec": {
                "containers": [container],
                "tolerations": [{"key": "process", "operator": "Exists"}],
                "nodeSelector": {"gangsched.io/node-kind": "process"},
                "terminationGracePeriodSeconds": 0,
            }
        }

    replicas = {
        role: {"replicas": count, "template": template(role)}
        for role, count in (roles or ROLES[kind]).items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {framework.specs: replicas, **spec},
    }


@pytest.mark.parametrize("kind", ROLES)
def test_a_job_lives_and_succeeds(cluster, namespace, tmp_path, kind):
    cluster.create_job(namespace, listening(job(kind, f"env; {UNTIL_TOLD}"), tmp_path))
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Running", kind), "the job to run")
    tell(tmp_path)
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Succeeded", kind), "the job to end")
    true = {t for t, c in cluster.conditions(namespace, "j", kind).items() if c["status"] == "True"}
    assert true == {"Created", "Succeeded"}
    statuses = cluster.job(namespace, "j", kind)["status"]["replicaStatuses"]
    assert statuses.keys() == ROLES[kind].keys()
    table = cluster.kubectl("get", f"{kind.lower()}s", "-n", namespace)
    assert table.split()[:3] == ["NAME", "STATE", "AGE"]
    assert table.split()[4] == "Succeeded"


def test_paddles_rank_0_gets_its_own_address(cluster, namespace):
    cluster.create_job(namespace, job("PaddleJob", 'echo "<$PADDLE_MASTER>"'))
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Succeeded", "PaddleJob"), "the job")
    log = cluster.core.read_namespaced_pod_log("j-worker-0", namespace)
    address = cluster.core.read_namespaced_pod("j-worker-0", namespace).status.pod_ip
    assert log.strip() == f"<{address or '127.0.0.1'}:36543>"
    log = cluster.core.read_namespaced_pod_log("j-worker-1", namespace)
    assert log.strip().endswith(":36543>")


def test_servers_that_outlive_a_failed_job_are_stopped_with_their_logs(
    cluster, namespace, tmp_path
):
    script = {"PS": f"echo serving; {FOR_EVER}", "Worker": f"{UNTIL_TOLD}; exit 3"}
    body = job("TFJob", script, {"PS": 1, "Worker": 1})
    cluster.create_job(namespace, listening(body, tmp_path))
    log = ("logs", "-n", namespace, "j-ps-0")
    cluster.wait(lambda: cluster.kubectl(*log, check=False) == "serving\n", "the server to serve")
    tell(tmp_path)
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Failed", "TFJob"), "the job to fail")
    message = cluster.conditions(namespace, "j", "TFJob")["Failed"]["message"]
    assert message == (
        "TFJob j is failed because 1 Worker replica(s) failed: j-worker-0 ended with exit code 3."
    )
    server = cluster.wait(
        lambda: (
            (pod := cluster.core.read_namespaced_pod("j-ps-0", namespace)).status.phase == "Failed"
            and pod
        ),
        "the server to be stopped",
    )
    assert server.status.reason == "DeadlineExceeded"
    assert cluster.core.read_namespaced_pod_log("j-ps-0", namespace) == "serving\n"
    cluster.wait_event(namespace, "StoppedPod", "j-ps-0", "j")


def test_a_retired_kind_is_reported(cluster, namespace):
    cluster.create_job(namespace, job("MXJob", "true", {"Worker": 1}))
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Failed", "MXJob"), "the job to fail")
    condition = cluster.conditions(namespace, "j", "MXJob")["Failed"]
    assert condition["reason"] == "MXJobFailedValidation"
    assert "MXNet was retired" in condition["message"]
    assert not cluster.core.list_namespaced_pod(namespace).items


def test_two_jobs_of_one_name_do_not_share_a_gang(cluster, namespace):
    cluster.create_job(namespace, job("JAXJob", FOR_EVER))
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Running", "JAXJob"), "the first")
    cluster.create_job(namespace, job("XGBoostJob", "true"))
    cluster.wait_event(namespace, "NameTaken", "JAXJob j", "j")
    assert cluster.is_true(namespace, "j", "Running", "JAXJob")
    assert "Running" not in cluster.conditions(namespace, "j", "XGBoostJob")


def test_a_job_that_a_quota_would_let_in_by_half_is_kept_back(cluster, namespace):
    quota = {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}
    cluster.core.create_namespaced_resource_quota(namespace, quota)
    cluster.wait(
        lambda: cluster.core.read_namespaced_resource_quota("two", namespace).status.used,
        "the quota to be counted",
    )
    cluster.create_job(namespace, job("XGBoostJob", "true"))
    cluster.wait_event(namespace, "FailedCreatePod", "exceeded quota: two", "j")
    assert not cluster.core.list_namespaced_pod(namespace).items
    cluster.core.patch_namespaced_resource_quota(
        "two", namespace, {"spec": {"hard": {"pods": "3"}}}
    )
    cluster.wait(
        lambda: cluster.is_true(namespace, "j", "Succeeded", "XGBoostJob"), "the job to end", 60
    )


def test_a_job_that_another_controller_was_asked_to_run_is_left_alone(cluster, namespace):
    elsewhere = {"managedBy": "kueue.x-k8s.io/multikueue"}
    cluster.create_job(namespace, job("JAXJob", "true", runPolicy=elsewhere))
    cluster.create_job(namespace, job("JAXJob", "true", name="ours"))
    cluster.wait(lambda: cluster.is_true(namespace, "ours", "Succeeded", "JAXJob"), "ours to end")
    assert "status" not in cluster.job(namespace, "j", "JAXJob")


HELD = {
    "a limit of the namespace": (
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
        },
        {"resources": {"limits": {"cpu": "2"}}},
        "maximum cpu usage per Container is 1, but limit is 2",
    ),
    "a ConfigMap that is not there": (
        None,
        {"envFrom": [{"configMapRef": {"name": "code"}}]},
        "ConfigMap {namespace}/code does not exist",
    ),
}
"""What stands in the way of a gang's workers, how they ask for it, and what is said of it."""


def mended(cluster, namespace, obstacle):
    """Take away what stands in the way."""
    if obstacle is None:
        code = {"metadata": {"name": "code"}, "data": {"a": "b"}}
        cluster.core.create_namespaced_config_map(namespace, code)
    else:
        cluster.core.delete_namespaced_limit_range(obstacle["metadata"]["name"], namespace)


@pytest.mark.parametrize("case", HELD)
def test_nothing_is_created_while_some_of_it_would_be_refused(cluster, namespace, case):
    obstacle, asked, words = HELD[case]
    words = words.format(namespace=namespace)
    if obstacle is not None:
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=cluster.yaml(obstacle))
    body = job("XGBoostJob", "true")
    worker = body["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"][0] |= asked
    cluster.create_job(namespace, body)
    cluster.wait_event(namespace, "FailedCreatePod", words, "j")
    condition = cluster.wait(
        lambda: (
            (now := cluster.conditions(namespace, "j", "XGBoostJob")["Created"])["reason"]
            == "XGBoostJobWaiting"
            and now
        ),
        "the condition to say why",
    )
    assert words in condition["message"]
    assert not cluster.core.list_namespaced_pod(namespace).items
    assert not cluster.kubectl("get", "podgroups", "-n", namespace, "-o", "name")
    mended(cluster, namespace, obstacle)
    cluster.wait(
        lambda: cluster.is_true(namespace, "j", "Succeeded", "XGBoostJob"), "the job to end", 60
    )
    assert cluster.conditions(namespace, "j", "XGBoostJob")["Created"]["reason"] == (
        "XGBoostJobCreated"
    )


def test_a_template_that_no_api_server_takes_ends_the_job(cluster, namespace):
    body = job("XGBoostJob", "true")
    worker = body["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    cluster.create_job(namespace, body)
    cluster.wait(lambda: cluster.is_true(namespace, "j", "Failed", "XGBoostJob"), "the end")
    condition = cluster.conditions(namespace, "j", "XGBoostJob")["Failed"]
    assert condition["reason"] == "XGBoostJobFailedValidation"
    assert 'volumeMounts[0].name: Not found: "data"' in condition["message"]
    cluster.wait_event(namespace, condition["reason"], condition["message"], "j")
    assert not cluster.core.list_namespaced_pod(namespace).items
    assert not cluster.kubectl("get", "podgroups", "-n", namespace, "-o", "name")
