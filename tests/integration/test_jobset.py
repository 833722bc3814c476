"""JobSets (jobset.x-k8s.io/v1alpha2) on a real API server and the real Job controller."""

import pytest
from cluster import GPU
from test_pytorchjob import FOR_EVER, UNTIL_TOLD, listens, tell

pytestmark = pytest.mark.by("direct")  # its controller does not see it

PREFIX = "jobset.sigs.k8s.io"


def replicated(name, script, replicas=1, pods=1, depends=None, gpus=0, folder=None, **job):
    """Return a replicated job whose pods run a shell script on process nodes.

    By a `folder` they can be told to go on.
    """
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m"}, "limits": {GPU: str(gpus)} if gpus else {}},
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "tolerations": [{"key": "process", "operator": "Exists"}],
        "nodeSelector": {"gangsched.io/node-kind": "process"},
        "terminationGracePeriodSeconds": 0,
    }
    if folder is not None:
        listens(spec, folder)
    found = {
        "name": name,
        "replicas": replicas,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 0,
                "template": {"spec": spec},
                **job,
            }
        },
    }
    if depends:
        found["dependsOn"] = [{"name": n, "status": s} for n, s in depends.items()]
    return found


def jobset(*jobs, name="js", **spec):
    """Return a JobSet."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def get(cluster, namespace, name="js"):
    """Return a JobSet as it is."""
    return cluster.custom.get_namespaced_custom_object(
        "jobset.x-k8s.io", "v1alpha2", namespace, "jobsets", name
    )


def state(cluster, namespace) -> str:
    """Return how a JobSet ended, or nothing."""
    return (get(cluster, namespace).get("status") or {}).get("terminalState", "")


def condition(cluster, namespace, kind) -> dict:
    """Return one of its conditions."""
    listed = (get(cluster, namespace).get("status") or {}).get("conditions") or []
    return next((one for one in listed if one["type"] == kind), {})


def test_all_pods_start_together_know_each_other_and_succeed(cluster, namespace, tmp_path):
    known = "until getent hosts js-work-1-1.js; do sleep 0.1; done"
    script = f"{known}; echo $JOB_COMPLETION_INDEX; {UNTIL_TOLD}"
    work = replicated("work", script, replicas=2, pods=2, folder=tmp_path)
    cluster.create_job(namespace, jobset(work))

    def know_each_other() -> bool:
        pods = cluster.core.list_namespaced_pod(namespace).items
        indices = [pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in pods]
        log = ("logs", "-n", namespace)
        said = [cluster.kubectl(*log, pod.metadata.name, check=False) for pod in pods]
        last = [text.splitlines()[-1:] for text in said]
        return len(pods) == 4 and last == [[index] for index in indices]

    cluster.wait(know_each_other, "all four to know the last of them")
    tell(tmp_path)
    cluster.wait(lambda: state(cluster, namespace) == "Completed", "the JobSet to complete")
    done = condition(cluster, namespace, "Completed")
    assert (done["reason"], done["message"]) == (
        "AllJobsCompleted",
        "jobset completed successfully",
    )
    (counts,) = get(cluster, namespace)["status"]["replicatedJobsStatus"]
    assert counts == {
        "name": "work",
        "ready": 0,
        "succeeded": 2,
        "failed": 0,
        "active": 0,
        "suspended": 0,
    }
    pods = cluster.core.list_namespaced_pod(namespace).items
    assert len(pods) == 4
    for pod in pods:
        labels = pod.metadata.labels
        index, at = (
            labels[f"{PREFIX}/job-index"],
            labels["batch.kubernetes.io/job-completion-index"],
        )
        assert pod.spec.hostname == f"js-work-{index}-{at}"
        assert pod.spec.subdomain == "js"
        assert labels[f"{PREFIX}/jobset-name"] == "js"
        assert labels[f"{PREFIX}/restart-attempt"] == "0"
        assert labels[f"{PREFIX}/global-replicas"] == "2"
        assert labels["gangsched.io/pod-group"] == "js"
        log = cluster.core.read_namespaced_pod_log(pod.metadata.name, namespace)
        assert log.splitlines()[-1] == at
    cluster.wait_event(namespace, "AllJobsCompleted", name="js")


def test_a_jobset_too_large_does_not_start_in_part(cluster, namespace):
    cluster.create_job(
        namespace,
        jobset(replicated("a", "sleep 99", gpus=2), replicated("b", "sleep 99", pods=5, gpus=2)),
    )
    cluster.wait(
        lambda: "6 pods" in cluster.group_status(namespace, "js").get("message", ""),
        "the reason that names all six",
    )
    assert not cluster.bound(namespace)


def test_what_waits_for_completion_is_a_gang_of_its_own(cluster, namespace):
    cluster.create_job(
        namespace,
        jobset(
            replicated("data", "echo fetched"),
            replicated("train", "echo trained", pods=2, depends={"data": "Complete"}),
        ),
    )
    cluster.wait(lambda: state(cluster, namespace) == "Completed", "the JobSet to complete")
    pods = cluster.core.list_namespaced_pod(namespace).items
    groups = {p.metadata.labels["gangsched.io/pod-group"] for p in pods}
    assert groups == {"js", "js-data"}
    begun = {p.metadata.labels[f"{PREFIX}/replicatedjob-name"]: p.status.start_time for p in pods}
    assert begun["data"] <= begun["train"]


def test_in_order_the_first_is_ready_before_the_next_is_created(cluster, namespace, tmp_path):
    cluster.create_job(
        namespace,
        jobset(
            replicated("leader", UNTIL_TOLD, folder=tmp_path),
            replicated("worker", UNTIL_TOLD, pods=2, folder=tmp_path),
            startupPolicy={"startupPolicyOrder": "InOrder"},
        ),
    )
    cluster.wait(lambda: condition(cluster, namespace, "StartupPolicyInProgress"), "it to begin")
    cluster.wait(
        lambda: condition(cluster, namespace, "StartupPolicyCompleted").get("status") == "True",
        "all to be ready",
    )
    tell(tmp_path)
    cluster.wait(lambda: state(cluster, namespace) == "Completed", "the JobSet to complete")
    assert condition(cluster, namespace, "StartupPolicyInProgress")["status"] == "False"
    assert condition(cluster, namespace, "StartupPolicyCompleted")["status"] == "True"
    pods = {
        p.metadata.labels[f"{PREFIX}/replicatedjob-name"]: p
        for p in cluster.core.list_namespaced_pod(namespace).items
    }
    assert pods["leader"].metadata.creation_timestamp <= pods["worker"].metadata.creation_timestamp


def test_a_failed_job_restarts_all_as_often_as_allowed(cluster, namespace):
    cluster.create_job(
        namespace,
        jobset(
            replicated("good", FOR_EVER),
            replicated("bad", "sleep 1; exit 1"),
            failurePolicy={"maxRestarts": 1},
        ),
    )
    cluster.wait(lambda: state(cluster, namespace) == "Failed", "the JobSet to fail", 90)
    failed = condition(cluster, namespace, "Failed")
    assert failed["reason"] == "ReachedMaxRestarts"
    assert failed["message"] == (
        "jobset failed due to reaching max number of restarts (first failed job: js-bad-0)"
    )
    status = get(cluster, namespace)["status"]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    cluster.wait(
        lambda: not cluster.bound(namespace, "js-good"), "what still ran to be deleted", 60
    )


def test_without_a_policy_the_first_failure_ends_it(cluster, namespace):
    cluster.create_job(namespace, jobset(replicated("bad", "exit 1")))
    cluster.wait(lambda: state(cluster, namespace) == "Failed", "the JobSet to fail")
    assert condition(cluster, namespace, "Failed")["reason"] == "FailedJobs"


def test_suspend_stops_all_pods_and_resume_starts_them_together(cluster, namespace):
    cluster.create_job(namespace, jobset(replicated("work", FOR_EVER, pods=2), suspend=True))
    cluster.wait(
        lambda: condition(cluster, namespace, "Suspended").get("status") == "True", "suspension"
    )
    assert not cluster.core.list_namespaced_pod(namespace).items
    patch(cluster, namespace, {"spec": {"suspend": False}})
    cluster.wait_placed(namespace, "js-", 2)
    cluster.wait(
        lambda: condition(cluster, namespace, "Suspended").get("reason") == "ResumeJobs",
        "resumption",
    )
    patch(cluster, namespace, {"spec": {"suspend": True}})
    cluster.wait(lambda: not cluster.bound(namespace), "the pods to go", 60)


def test_a_jobset_goes_when_its_time_is_over(cluster, namespace):
    cluster.create_job(namespace, jobset(replicated("work", "true"), ttlSecondsAfterFinished=1))
    cluster.wait(
        lambda: (
            not cluster.custom.list_namespaced_custom_object(
                "jobset.x-k8s.io", "v1alpha2", namespace, "jobsets"
            )["items"]
        ),
        "the JobSet to go",
        60,
    )


def test_what_is_wrong_is_said_on_the_jobset(cluster, namespace):
    late = replicated("b", "true", depends={"c": "Ready"})
    cluster.create_job(namespace, jobset(replicated("a", "true"), late))
    cluster.wait(lambda: condition(cluster, namespace, "Failed"), "the reason")
    assert condition(cluster, namespace, "Failed")["message"] == (
        f"JobSet {namespace}/js: spec.replicatedJobs[b].dependsOn names 'c'; it must name an "
        "earlier replicated job: a"
    )
    assert not cluster.core.list_namespaced_pod(namespace).items


def test_a_mistake_that_is_mended_is_forgiven(cluster, namespace):
    body = jobset(replicated("a", "true"), coordinator={"replicatedJob": "c"})
    cluster.create_job(namespace, body)
    cluster.wait(lambda: condition(cluster, namespace, "Failed"), "the reason")
    patch(cluster, namespace, {"spec": {"coordinator": {"replicatedJob": "a"}}})
    cluster.wait(lambda: state(cluster, namespace) == "Completed", "the JobSet to complete")
    assert not condition(cluster, namespace, "Failed")


def patch(cluster, namespace, body):
    """Change a JobSet."""
    cluster.custom.patch_namespaced_custom_object(
        "jobset.x-k8s.io", "v1alpha2", namespace, "jobsets", "js", body
    )


def test_no_part_is_created_while_another_would_be_refused(cluster, namespace):
    late = replicated("late", "true", depends={"early": "Complete"})
    pod = late["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["envFrom"] = [{"configMapRef": {"name": "code"}}]
    cluster.create_job(namespace, jobset(replicated("early", "true"), late))
    words = f"ConfigMap {namespace}/code does not exist"
    cluster.wait_event(namespace, "FailedCreatePod", words, "js")
    for kind in ("podgroups", "jobs.batch"):
        assert not cluster.kubectl("get", kind, "-n", namespace, "-o", "name")
    cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": "code"}})
    cluster.wait(lambda: state(cluster, namespace) == "Completed", "the JobSet to complete", 60)


def test_a_pod_that_no_api_server_takes_is_said_on_the_jobset(cluster, namespace):
    wrong = replicated("wrong", "true")
    pod = wrong["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    cluster.create_job(namespace, jobset(replicated("right", "true"), wrong))

    def said() -> str:
        conditions = (get(cluster, namespace).get("status") or {}).get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "Failed"), "")

    message = cluster.wait(said, "the JobSet to say what is wrong")
    assert 'volumeMounts[0].name: Not found: "data"' in message
    assert not cluster.kubectl("get", "jobs.batch", "-n", namespace, "-o", "name")
