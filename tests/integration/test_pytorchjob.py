"""The contract of PyTorchJob (kubeflow.org/v1), row by row, on a real API server."""

import copy
import json

import kubernetes
import pytest

pytestmark = pytest.mark.by("extender")  # its controller does not see who binds

TOLERATE = [{"key": "process", "operator": "Exists"}]


def job(name="j", *, workers=2, master=True, command=None, **spec):
    """Return a job whose pods run on process nodes, or on KWOK nodes without a command."""
    kind = "process" if command else "kwok"
    container = {
        "name": "pytorch",
        "image": "none",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": "1"}},
    }
    if command:
        container["command"] = command
    template = {
        "spec": {
            "containers": [container],
            "tolerations": TOLERATE,
            "nodeSelector": {"gangsched.io/node-kind": kind},
            "terminationGracePeriodSeconds": 0,
        }
    }
    policy = spec.pop("restart", "Never")
    role = {"replicas": 1, "restartPolicy": policy, "template": template}
    roles = {"Master": copy.deepcopy(role)} if master else {}
    if workers:
        roles["Worker"] = copy.deepcopy(role) | {"replicas": workers}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, **spec.pop("metadata", {})},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
    }


def shell(text: str) -> list[str]:
    """Return a shell command."""
    return ["sh", "-c", text]


FOR_EVER = "sleep 1000000"
UNTIL_TOLD = 'while [ ! -e "$0/go-on" ]; do sleep 0.1; done'
"""What a shell of a pod does that `listens`, until `tell` is called."""


def listens(pod: dict, folder) -> None:
    """Have the shells of a pod's spec know a folder of this machine, by which they are told."""
    pod["volumes"] = [{"name": "told", "hostPath": {"path": str(folder)}}]
    for container in pod["containers"]:
        container["command"] = [*container["command"], "/told"]  # the script's "$0"
        container["volumeMounts"] = [{"name": "told", "mountPath": "/told"}]


def listening(body: dict, folder) -> dict:
    """Return a job of kubeflow.org/v1 whose pods can be told to go on."""
    (roles,) = (specs for key, specs in body["spec"].items() if key.endswith("ReplicaSpecs"))
    for role in roles.values():
        listens(role["template"]["spec"], folder)
    return body


def tell(folder) -> None:
    """Let all go on that wait UNTIL_TOLD."""
    (folder / "go-on").touch()


def env(cluster, namespace, pod) -> dict[str, str]:
    """Return the environment of a pod's main container."""
    body = cluster.core.read_namespaced_pod(pod, namespace)
    return {e.name: e.value for e in body.spec.containers[0].env}


def wait_true(cluster, namespace, kind, name="j", timeout_s=30):
    """Wait until a condition is True."""
    cluster.wait(lambda: cluster.is_true(namespace, name, kind), f"{name} to be {kind}", timeout_s)


# -- 1.1 and 1.2: objects, names, labels --------------------------------------------------------


def test_pods_services_and_labels(cluster, namespace):
    cluster.create_job(namespace, job())
    cluster.wait_placed(namespace, "j-", 3)
    wait_true(cluster, namespace, "Running")
    pods = {p.metadata.name: p for p in cluster.core.list_namespaced_pod(namespace).items}
    services = {s.metadata.name: s for s in cluster.core.list_namespaced_service(namespace).items}
    assert set(pods) == set(services) == {"j-master-0", "j-worker-0", "j-worker-1"}
    for name, pod in pods.items():
        kind, index = name.split("-")[1:]
        wanted = {
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/job-name": "j",
            "training.kubeflow.org/replica-type": kind,
            "training.kubeflow.org/replica-index": index,
            "job-name": "j",
            "replica-type": kind,
            "replica-index": index,
            "group-name": "kubeflow.org",
        }
        if kind == "master":
            wanted["training.kubeflow.org/job-role"] = "master"
        for holder in (pod, services[name]):
            assert wanted.items() <= holder.metadata.labels.items()
            (owner,) = holder.metadata.owner_references
            assert (owner.kind, owner.name, owner.controller) == ("PyTorchJob", "j", True)
            assert owner.block_owner_deletion
        assert ("training.kubeflow.org/job-role" in pod.metadata.labels) == (kind == "master")
        service = services[name].spec
        assert service.cluster_ip == "None"
        assert service.selector.items() <= pod.metadata.labels.items()
        assert [(p.name, p.port) for p in service.ports] == [("pytorchjob-port", 23456)]
        ports = [(p.name, p.container_port) for p in pod.spec.containers[0].ports]
        assert ports == [("pytorchjob-port", 23456)]


def test_the_state_column_and_scale_subresource(cluster, namespace):
    cluster.create_job(namespace, job(workers=3, master=False))
    wait_true(cluster, namespace, "Running")
    table = cluster.kubectl("get", "pytorchjobs", "-n", namespace)
    assert table.split()[:3] == ["NAME", "STATE", "AGE"]
    assert table.split()[4] == "Running"
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/j/scale"
    scale = cluster.wait(
        lambda: (
            (now := json.loads(cluster.kubectl("get", "--raw", path)))["status"]["replicas"] == 3
            and now
        ),
        "three pods that run",
    )
    assert scale["spec"]["replicas"] == 3
    assert "training.kubeflow.org/replica-type=worker" in scale["status"]["selector"]
    cluster.kubectl("scale", "-n", namespace, "pytorchjob/j", "--replicas=2")
    cluster.wait(lambda: len(cluster.bound(namespace)) == 2, "one worker fewer")


# -- 1.3: environment ---------------------------------------------------------------------------


ENVIRONMENTS = {
    "master and workers": (
        {},
        {
            "j-master-0": {
                "MASTER_ADDR": "j-master-0",
                "MASTER_PORT": "23456",
                "WORLD_SIZE": "3",
                "RANK": "0",
                "PET_NODE_RANK": "0",
                "PET_NNODES": "3",
                "PET_MASTER_ADDR": "j-master-0",
                "PET_MASTER_PORT": "23456",
                "PYTHONUNBUFFERED": "1",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
            },
            "j-worker-1": {"MASTER_ADDR": "j-master-0", "RANK": "2", "PET_NODE_RANK": "2"},
        },
    ),
    "workers only": (
        {"master": False},
        {
            "j-worker-0": {"MASTER_ADDR": "j-worker-0", "RANK": "0", "WORLD_SIZE": "2"},
            "j-worker-1": {"MASTER_ADDR": "j-worker-0", "RANK": "1"},
        },
    ),
    "processes per node": (
        {"nprocPerNode": "4"},
        {"j-worker-0": {"WORLD_SIZE": "12", "PET_NPROC_PER_NODE": "4", "PET_NNODES": "3"}},
    ),
    "automatic processes per node": (
        {"nprocPerNode": "auto"},
        {"j-worker-0": {"WORLD_SIZE": "3", "PET_NPROC_PER_NODE": "auto"}},
    ),
    "elastic": (
        {
            "master": False,
            "elasticPolicy": {
                "minReplicas": 1,
                "maxReplicas": 2,
                "rdzvBackend": "c10d",
                "maxRestarts": 10,
                "standalone": True,
                "rdzvConf": [{"key": "timeout", "value": "60"}],
            },
        },
        {
            "j-worker-0": {
                "PET_NNODES": "1:2",
                "PET_RDZV_BACKEND": "c10d",
                "PET_MAX_RESTARTS": "10",
                "PET_RDZV_ENDPOINT": "j-worker-0:23456",
                "PET_RDZV_CONF": "timeout=60",
                "PET_STANDALONE": "1",
            }
        },
    ),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_environment(cluster, namespace, case):
    spec, wanted = ENVIRONMENTS[case]
    cluster.create_job(namespace, job(**copy.deepcopy(spec)))
    cluster.wait(lambda: wanted.keys() <= cluster.bound(namespace).keys(), "its pods to be bound")
    for pod, variables in wanted.items():
        assert variables.items() <= env(cluster, namespace, pod).items()


def test_the_users_own_port_and_variables_win(cluster, namespace):
    body = job()
    container = body["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "pytorchjob-port", "containerPort": 29400}]
    container["env"] = [{"name": "RANK", "value": "7"}]
    cluster.create_job(namespace, body)
    cluster.wait_placed(namespace, "j-", 3)
    assert env(cluster, namespace, "j-worker-0")["MASTER_PORT"] == "29400"
    assert env(cluster, namespace, "j-master-0")["RANK"] == "7"


# -- 1.4: status --------------------------------------------------------------------------------


def test_success_is_the_masters(cluster, namespace, tmp_path):
    script = f'case "$HOSTNAME" in *master*) {UNTIL_TOLD}; exit 0;; *) {FOR_EVER};; esac'
    cluster.create_job(namespace, listening(job(command=shell(script)), tmp_path))
    wait_true(cluster, namespace, "Running")
    tell(tmp_path)
    wait_true(cluster, namespace, "Succeeded")
    conditions = cluster.conditions(namespace, "j")
    assert conditions["Created"]["status"] == "True"
    assert conditions["Created"]["reason"] == "PyTorchJobCreated"
    assert conditions["Running"]["status"] == "False"
    assert conditions["Succeeded"]["reason"] == "PyTorchJobSucceeded"
    status = cluster.job(namespace, "j")["status"]
    assert {"startTime", "completionTime", "lastReconcileTime"} <= status.keys()
    assert status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert "Failed" not in conditions
    told = "PyTorchJobSucceeded", "SuccessfulCreatePod"  # as the Training Operator's
    for reason in told:
        cluster.wait_event(namespace, reason, name="j")


def test_without_a_master_all_workers_must_succeed(cluster, namespace, tmp_path):
    script = f'case "$HOSTNAME" in *-0) exit 0;; *) {UNTIL_TOLD}; exit 0;; esac'
    body = job(master=False, command=shell(script))
    cluster.create_job(namespace, listening(body, tmp_path))
    cluster.wait(
        lambda: (
            ((cluster.job(namespace, "j").get("status") or {}).get("replicaStatuses") or {})
            .get("Worker", {})
            .get("succeeded")
            == 1
        ),
        "the first worker",
    )
    assert not cluster.is_true(namespace, "j", "Succeeded")
    tell(tmp_path)
    wait_true(cluster, namespace, "Succeeded")


def test_never_means_failed_and_nothing_changes_after(cluster, namespace):
    cluster.create_job(namespace, job(workers=0, command=shell("exit 3")))
    wait_true(cluster, namespace, "Failed")
    failed = cluster.conditions(namespace, "j")["Failed"]
    assert failed["reason"] == "PyTorchJobFailed"
    assert "exit code 3" in failed["message"]
    cluster.stays(lambda: not cluster.is_true(namespace, "j", "Running"), 1, "running after all")


def test_on_failure_restarts_in_place(cluster, namespace):
    # In the pod's own folder: without isolation /tmp is this machine's.
    script = "test -e once && exit 0; touch once; exit 1"
    cluster.create_job(namespace, job(workers=0, restart="OnFailure", command=shell(script)))
    wait_true(cluster, namespace, "Succeeded")
    pod = cluster.core.read_namespaced_pod("j-master-0", namespace)
    assert pod.status.container_statuses[0].restart_count == 1


def test_exit_code_below_128_is_the_programs_fault(cluster, namespace):
    cluster.create_job(namespace, job(workers=0, restart="ExitCode", command=shell("exit 2")))
    wait_true(cluster, namespace, "Failed")


def test_exit_code_of_128_and_more_is_tried_again(cluster, namespace):
    cluster.create_job(namespace, job(workers=0, restart="ExitCode", command=shell("exit 130")))
    cluster.wait(
        lambda: any(r == "ExitedWithCode" for r, _ in cluster.events(namespace, "j")), "a retry"
    )
    cluster.wait(
        lambda: (
            cluster.conditions(namespace, "j").get("Restarting") is not None
            or cluster.is_true(namespace, "j", "Running")
        ),
        "the restart",
    )
    assert not cluster.is_true(namespace, "j", "Failed")
    pods = cluster.wait(lambda: cluster.core.list_namespaced_pod(namespace).items, "the next pod")
    uid = pods[0].metadata.uid
    cluster.wait(lambda: _uid(cluster, namespace) not in (None, uid), "a new pod")


def _uid(cluster, namespace):
    pods = cluster.core.list_namespaced_pod(namespace).items
    return pods[0].metadata.uid if pods else None


def test_crashes_are_reported_and_limited(cluster, namespace):
    """By two jobs at a time: the pauses between their tries take the longest."""
    crashes = {"workers": 0, "restart": "OnFailure", "command": shell("sleep 0.5; exit 9")}
    cluster.create_job(namespace, job("endless", **crashes))
    cluster.create_job(namespace, job("limited", runPolicy={"backoffLimit": 2}, **crashes))
    wait_true(cluster, namespace, "Failed", "limited", timeout_s=60)
    assert "backoff limit" in cluster.conditions(namespace, "limited")["Failed"]["message"]
    cluster.wait_event(namespace, "CrashLooping", "last exit code 9", "endless")
    assert not cluster.is_true(namespace, "endless", "Failed")


def test_active_deadline(cluster, namespace):
    body = job(
        workers=1,
        command=shell(FOR_EVER),
        runPolicy={"activeDeadlineSeconds": 2, "cleanPodPolicy": "Running"},
    )
    cluster.create_job(namespace, body)
    wait_true(cluster, namespace, "Failed")
    assert "deadline" in cluster.conditions(namespace, "j")["Failed"]["message"]
    cluster.wait(lambda: not cluster.core.list_namespaced_pod(namespace).items, "the clean-up")


CLEAN = {"None": 2, "Running": 1, "All": 0}


@pytest.mark.parametrize("policy", CLEAN)
def test_clean_pod_policy(cluster, namespace, tmp_path, policy):
    script = f'case "$HOSTNAME" in *master*) {UNTIL_TOLD}; exit 0;; *) {FOR_EVER};; esac'
    body = job(workers=1, command=shell(script), runPolicy={"cleanPodPolicy": policy})
    cluster.create_job(namespace, listening(body, tmp_path))
    cluster.wait(
        lambda: (
            [p.status.phase for p in cluster.core.list_namespaced_pod(namespace).items]
            == ["Running"] * 2
        ),
        "both to run",
    )
    tell(tmp_path)
    wait_true(cluster, namespace, "Succeeded")
    cluster.wait(
        lambda: len(cluster.core.list_namespaced_pod(namespace).items) == CLEAN[policy],
        f"{CLEAN[policy]} pods to be left",
    )
    cluster.wait(
        lambda: len(cluster.core.list_namespaced_service(namespace).items) == CLEAN[policy],
        "their services",
    )
    cluster.wait(lambda: not cluster.group_status(namespace, "j"), "the PodGroup to go")


@pytest.mark.parametrize("where", ["runPolicy", "alias"])
def test_ttl_deletes_the_job(cluster, namespace, where):
    ttl = {"ttlSecondsAfterFinished": 1}
    spec = {"runPolicy": ttl} if where == "runPolicy" else ttl
    cluster.create_job(namespace, job(workers=0, command=shell("exit 0"), **spec))
    cluster.wait(lambda: cluster.job(namespace, "j") is None, "the job to go")
    cluster.wait(lambda: not cluster.core.list_namespaced_pod(namespace).items, "its pods too")


def test_suspend_and_resume(cluster, namespace):
    cluster.create_job(namespace, job(runPolicy={"suspend": True}))
    wait_true(cluster, namespace, "Suspended")
    assert not cluster.core.list_namespaced_pod(namespace).items
    cluster.patch_job(namespace, "j", {"spec": {"runPolicy": {"suspend": False}}})
    wait_true(cluster, namespace, "Running")
    resumed = cluster.conditions(namespace, "j")["Suspended"]
    assert (resumed["status"], resumed["reason"]) == ("False", "PyTorchJobResumed")
    started = cluster.job(namespace, "j")["status"]["startTime"]
    cluster.patch_job(namespace, "j", {"spec": {"runPolicy": {"suspend": True}}})
    wait_true(cluster, namespace, "Suspended")
    cluster.wait(lambda: not cluster.core.list_namespaced_pod(namespace).items, "no pods")
    cluster.wait(lambda: not cluster.core.list_namespaced_service(namespace).items, "no services")
    assert cluster.conditions(namespace, "j")["Running"]["status"] == "False"
    cluster.wait(lambda: second(cluster, namespace) > started, "a later second")
    cluster.patch_job(namespace, "j", {"spec": {"runPolicy": {"suspend": False}}})
    wait_true(cluster, namespace, "Running")
    assert cluster.job(namespace, "j")["status"]["startTime"] != started


def second(cluster, namespace) -> str:
    """Return the second that it is, as the API server writes it."""
    body = {"metadata": {"name": "now"}}
    made = cluster.core.create_namespaced_config_map(namespace, body, dry_run="All")
    return f"{made.metadata.creation_timestamp:%Y-%m-%dT%H:%M:%SZ}"


# -- 1.5: gang ----------------------------------------------------------------------------------


def test_scheduling_policy_becomes_the_group(cluster, namespace):
    policy = {"minAvailable": 2, "scheduleTimeoutSeconds": 77}
    cluster.create_job(namespace, job(runPolicy={"schedulingPolicy": policy}))
    cluster.wait_placed(namespace, "j-", 3)
    spec = cluster.get_group(namespace, "j")["spec"]
    assert (spec["minMember"], spec["scheduleTimeoutSeconds"]) == (2, 77)


def test_a_job_that_does_not_fit_costs_no_pods_and_says_why(cluster, namespace):
    body = job(workers=40)
    cluster.create_job(namespace, body)
    cluster.wait(
        lambda: cluster.condition(namespace, "j").get("reason") == "LargerThanCluster", "the reason"
    )
    assert not cluster.core.list_namespaced_pod(namespace).items
    assert cluster.is_true(namespace, "j", "Created")
    assert not cluster.is_true(namespace, "j", "Running")
    told = set()

    def repeated() -> bool:
        """Tell whether the job says what its group says, or said when the job was written last."""
        told.add(cluster.condition(namespace, "j")["message"])
        return cluster.conditions(namespace, "j").get("Scheduled", {}).get("message") in told

    cluster.wait(repeated, "the same sentence on the job", 60)
    (warning,) = cluster.wait(
        lambda: [
            one
            for one in cluster.core.list_namespaced_event(namespace).items
            if one.involved_object.kind == "PyTorchJob" and one.reason == "LargerThanCluster"
        ],
        "its Event",
    )
    assert warning.type == "Warning"
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    cluster.custom.patch_namespaced_custom_object(
        "kubeflow.org", "v1", namespace, "pytorchjobs", "j", {"spec": body["spec"]}
    )
    cluster.wait_placed(namespace, "j-", 2)
    wait_true(cluster, namespace, "Scheduled")
    wait_true(cluster, namespace, "Running")


def test_whole_gang_restart_with_a_cap(cluster, namespace):
    body = job(
        workers=1,
        restart="OnFailure",
        command=shell(FOR_EVER),
        metadata={"annotations": {"gangsched.io/gang-restarts": "1"}},
    )
    cluster.create_job(namespace, body)
    cluster.wait_placed(namespace, "j-", 2)
    wait_true(cluster, namespace, "Running")
    uids = {p.metadata.uid for p in cluster.core.list_namespaced_pod(namespace).items}
    cluster.core.delete_namespaced_pod("j-worker-0", namespace)
    cluster.wait(
        lambda: (
            len(
                now := {
                    p.metadata.uid
                    for p in cluster.core.list_namespaced_pod(namespace).items
                    if p.spec.node_name
                }
            )
            == 2
            and not now & uids
        ),
        "every pod to be new",
        60,
    )
    wait_true(cluster, namespace, "Running")
    assert cluster.job(namespace, "j")["status"]["gangRestarts"] == 1
    cluster.core.delete_namespaced_pod("j-worker-0", namespace)
    wait_true(cluster, namespace, "Failed")
    assert "restarted 1 times, the limit" in cluster.conditions(namespace, "j")["Failed"]["message"]


def test_a_lost_worker_is_replaced(cluster, namespace):
    cluster.create_job(namespace, job())
    wait_true(cluster, namespace, "Running")
    uid = cluster.core.read_namespaced_pod("j-worker-1", namespace).metadata.uid
    cluster.core.delete_namespaced_pod("j-worker-1", namespace, grace_period_seconds=0)
    cluster.wait(
        lambda: any(
            p.metadata.name == "j-worker-1" and p.metadata.uid != uid and p.spec.node_name
            for p in cluster.core.list_namespaced_pod(namespace).items
        ),
        "a new worker-1",
    )


def test_pods_that_the_api_server_completes_are_planned_as_what_they_are(cluster, namespace):
    """The first pods show that they ask for more than the job's template; the next are expected."""
    default = {"type": "Container", "defaultRequest": {"memory": "64Mi"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}}
    text = cluster.yaml(limits | {"spec": {"limits": [default]}})
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    cluster.create_job(namespace, job())
    wait_true(cluster, namespace, "Running")
    pods = cluster.core.list_namespaced_pod(namespace).items
    assert {pod.spec.containers[0].resources.requests["memory"] for pod in pods} == {"64Mi"}


# -- bad input ----------------------------------------------------------------------------------


def _two_masters(body):
    body["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] = 2


def _no_container(body):
    role = body["spec"]["pytorchReplicaSpecs"]["Master"]
    role["template"]["spec"]["containers"][0]["name"] = "main"


def _unknown_type(body):
    specs = body["spec"]["pytorchReplicaSpecs"]
    specs["Boss"] = specs.pop("Master")


def _min_above_max(body):
    body["spec"]["elasticPolicy"] = {"minReplicas": 3, "maxReplicas": 2}


BAD = {
    "two masters": (_two_masters, "replicas is 2; a job has exactly 1 Master"),
    "no pytorch container": (_no_container, "one must be named 'pytorch'; there are: 'main'"),
    "unknown replica type": (_unknown_type, "'Boss' is no replica type; use Master or Worker"),
    "min above max": (_min_above_max, "minReplicas is 3, above maxReplicas 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_reported_on_the_job(cluster, namespace, case):
    spoil, message = BAD[case]
    body = job()
    spoil(body)
    cluster.create_job(namespace, body)
    wait_true(cluster, namespace, "Failed")
    failed = cluster.conditions(namespace, "j")["Failed"]
    assert failed["reason"] == "PyTorchJobFailedValidation"
    assert message in failed["message"]
    cluster.wait_event(namespace, "PyTorchJobFailedValidation", failed["message"], "j")
    assert not cluster.core.list_namespaced_pod(namespace).items


def test_explain_says_what_is_wrong_with_a_job(cluster, namespace):
    spoil, message = BAD["two masters"]
    body = job()
    spoil(body)
    cluster.create_job(namespace, body)
    wait_true(cluster, namespace, "Failed")
    code, text = cluster.gangsched("explain", f"{namespace}/j")
    assert code == 0, "it is over"
    assert message in text


def test_an_elastic_job_with_metrics_has_an_autoscaler(cluster, namespace):
    """It moves the scale subresource; it goes while the job is suspended."""
    usage = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": usage}}
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    cluster.create_job(namespace, job(workers=2, master=False, elasticPolicy=elastic))
    cluster.wait_placed(namespace, "j-", 2)
    autoscaling = kubernetes.client.AutoscalingV2Api(cluster.core.api_client)
    scaler = autoscaling.read_namespaced_horizontal_pod_autoscaler("j", namespace)
    assert (scaler.spec.min_replicas, scaler.spec.max_replicas) == (1, 3)
    assert scaler.spec.scale_target_ref.kind == "PyTorchJob"
    assert scaler.spec.metrics[0].resource.target.average_utilization == 80
    assert scaler.metadata.owner_references[0].name == "j"
    cluster.kubectl("scale", "pytorchjob/j", "--replicas=3", "-n", namespace)
    cluster.wait_placed(namespace, "j-", 3)
    cluster.patch_job(namespace, "j", {"spec": {"runPolicy": {"suspend": True}}})
    cluster.wait(
        lambda: not autoscaling.list_namespaced_horizontal_pod_autoscaler(namespace).items,
        "the autoscaler to go",
    )
    cluster.patch_job(namespace, "j", {"spec": {"runPolicy": {"suspend": False}}})
    cluster.wait(
        lambda: autoscaling.list_namespaced_horizontal_pod_autoscaler(namespace).items,
        "the autoscaler to return",
    )


def test_an_elastic_job_begins_with_what_fits_and_grows(cluster, namespace):
    cluster.create_job(namespace, job("other", workers=29, master=False))
    cluster.wait_placed(namespace, "other-", 29)
    elastic = {"minReplicas": 2, "maxReplicas": 5, "rdzvBackend": "c10d"}
    cluster.create_job(namespace, job(workers=5, master=False, elasticPolicy=elastic))
    cluster.wait_placed(namespace, "j-", 3)
    wait_true(cluster, namespace, "Running")
    assert env(cluster, namespace, "j-worker-0")["PET_NNODES"] == "2:5"
    cluster.kubectl("delete", "-n", namespace, "pytorchjob/other")
    cluster.wait_placed(namespace, "j-", 5)
