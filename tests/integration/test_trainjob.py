"""TrainJobs with the kubeflow SDK as users call it, and their contract."""

import pytest
from test_pytorchjob import FOR_EVER
from waiting import patience_s

pytestmark = pytest.mark.by("direct")  # its controller does not see who binds

COMPLETE = ("Complete", "True", "AllJobsCompleted")
PROCESS = {
    "tolerations": [{"key": "process", "operator": "Exists"}],
    "nodeSelector": {"gangsched.io/node-kind": "process"},
    "terminationGracePeriodSeconds": 0,
}


def on_processes(*jobs, **more):
    """Return the template patch that lets replicated jobs run on process nodes."""
    return {
        "spec": {
            "replicatedJobs": [
                {"name": job, "template": {"spec": {"template": {"spec": PROCESS | more}}}}
                for job in jobs or ("node",)
            ]
        }
    }


def trainjob(name="t", runtime="torch-distributed", patch=None, **spec):
    """Return a TrainJob whose pods run on process nodes."""
    template = on_processes() if patch is None else patch
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": runtime},
            "runtimePatches": [
                {"manager": "test.io/test", "trainingRuntimeSpec": {"template": template}}
            ],
            **spec,
        },
    }


def shell(text, **more):
    """Return a trainer that runs a shell script."""
    return {"command": ["sh", "-c", text], **more}


def get(cluster, namespace, name="t"):
    """Return a TrainJob as it is."""
    return cluster.custom.get_namespaced_custom_object(
        "trainer.kubeflow.org", "v1alpha1", namespace, "trainjobs", name
    )


def conditions(cluster, namespace, name="t"):
    """Return the conditions of a TrainJob: type, status, reason."""
    listed = (get(cluster, namespace, name).get("status") or {}).get("conditions") or []
    return [(one["type"], one["status"], one["reason"]) for one in listed]


@pytest.fixture
def sdk(cluster, namespace):
    """The SDK's client, in the test's namespace."""
    from kubeflow.common.types import KubernetesBackendConfig  # takes two seconds to import
    from kubeflow.trainer import TrainerClient

    kubeconfig = str(cluster.plane.kubeconfig)
    return TrainerClient(KubernetesBackendConfig(namespace=namespace, config_file=kubeconfig))


def train_by_gloo():
    import atexit
    import gc
    import os

    gc.disable()  # it takes a third of the time of importing torch
    atexit.register(gc.freeze)  # a collection at the exit takes a fifth of a short run
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    print("ranks", dist.get_world_size(), "sum", total.item(), "node", os.environ["PET_NODE_RANK"])
    dist.monitored_barrier()
    dist.destroy_process_group()


def _on_processes_for_the_sdk():
    """Return the same patch as the SDK writes it."""
    from kubeflow.trainer.options import kubernetes as patches

    pod = patches.PodSpecPatch(
        tolerations=PROCESS["tolerations"], node_selector=PROCESS["nodeSelector"]
    )
    job = patches.JobTemplatePatch(
        spec=patches.JobSpecPatch(template=patches.PodTemplatePatch(spec=pod))
    )
    jobset = patches.JobSetSpecPatch(
        replicated_jobs=[patches.ReplicatedJobPatch(name="node", template=job)]
    )
    return patches.RuntimePatch(
        patches.TrainingRuntimeSpecPatch(template=patches.JobSetTemplatePatch(spec=jobset))
    )


def test_what_the_guide_shows(cluster, namespace, sdk):
    from kubeflow.trainer import CustomTrainer

    names = {runtime.name for runtime in sdk.list_runtimes()}
    assert {"torch-distributed", "jax-distributed", "deepspeed-distributed"} <= names
    runtime = sdk.get_runtime("torch-distributed")
    assert runtime.trainer.framework == "torch"
    name = sdk.train(
        runtime=runtime,
        trainer=CustomTrainer(
            func=train_by_gloo,
            num_nodes=2,
            resources_per_node={"cpu": 1, "memory": "1Gi"},
        ),
        options=[_on_processes_for_the_sdk()],
    )
    running = sdk.wait_for_job_status(name, status={"Running", "Complete"}, timeout=patience_s(60))
    assert [step.name for step in running.steps] == ["node-0", "node-1"]
    assert {(step.device, step.device_count) for step in running.steps} == {("cpu", "1")}
    sdk.wait_for_job_status(name, timeout=patience_s(120))
    log = "\n".join(sdk.get_job_logs(name, step="node-0"))
    assert "ranks 2 sum 3.0 node 0" in log
    assert [job.name for job in sdk.list_jobs()] == [name]
    assert sdk.get_job(name).status == "Complete"
    assert conditions(cluster, namespace, name) == [COMPLETE]
    events = cluster.wait(lambda: sdk.get_job_events(name), "its Events")
    assert all(event.reason for event in events)
    sdk.delete_job(name)
    cluster.wait(lambda: not cluster.core.list_namespaced_pod(namespace).items, "the pods to go")


def test_nodes_of_a_job_start_together_or_not_at_all(cluster, namespace):
    asked = {"limits": {"nvidia.com/gpu": "2"}}
    trainer = shell("sleep 99", numNodes=5, resourcesPerNode=asked)
    cluster.create_job(namespace, trainjob(trainer=trainer))
    cluster.wait(
        lambda: "5 pods" in cluster.group_status(namespace, "t").get("message", ""),
        "the reason that names all five",
    )
    assert not cluster.bound(namespace)
    cluster.wait(
        lambda: conditions(cluster, namespace) == [("Scheduled", "False", "LargerThanCluster")],
        "the reason on the TrainJob",
    )


def variables(cluster, namespace, pod):
    """Return the variables of a pod's container as they were given."""
    (spec,) = pod.spec.containers
    return {one.name: one.value or one.value_from.field_ref.field_path for one in spec.env}


def first_pod(cluster, namespace, job="node"):
    """Return the first pod of a replicated job."""
    return cluster.wait(
        lambda: (
            cluster.core.list_namespaced_pod(
                namespace, label_selector=f"jobset.sigs.k8s.io/replicatedjob-name={job}"
            ).items
        ),
        f"a pod of {job}",
    )[0]


INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

ENVIRONMENTS = {
    "torch on cores": (
        "torch-distributed",
        {"numNodes": 2, "resourcesPerNode": {"limits": {"cpu": "3"}}},
        {
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "3",
            "PET_NODE_RANK": INDEX,
            "PET_MASTER_ADDR": "t-node-0-0.t",
            "PET_MASTER_PORT": "29500",
        },
    ),
    "torch on GPUs": (
        "torch-distributed",
        {"resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}}},
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto"},
    ),
    "torch as asked": (
        "torch-distributed",
        {"numProcPerNode": 4},
        {"PET_NPROC_PER_NODE": "4"},
    ),
    "jax": (
        "jax-distributed",
        {"numNodes": 2},
        {
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": INDEX,
            "JAX_COORDINATOR_ADDRESS": "t-node-0-0.t:29500",
        },
    ),
    "xgboost": (
        "xgboost-distributed",
        {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}}},
        {
            "DMLC_TRACKER_URI": "t-node-0-0.t",
            "DMLC_TRACKER_PORT": "29500",
            "DMLC_TASK_ID": INDEX,
            "DMLC_NUM_WORKER": "4",
        },
    ),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_what_a_framework_reads(cluster, namespace, case):
    runtime, trainer, wanted = ENVIRONMENTS[case]
    cluster.create_job(namespace, trainjob(runtime=runtime, trainer=shell("true", **trainer)))
    found = variables(cluster, namespace, first_pod(cluster, namespace))
    assert wanted.items() <= found.items()
    cluster.wait(
        lambda: ("Complete", "True", "AllJobsCompleted") in conditions(cluster, namespace), "end"
    )


def test_a_job_without_a_trainer_still_gets_its_variables(cluster, namespace):
    patch = on_processes(containers=[{"name": "node", "command": ["sh", "-c", "env; sleep 1"]}])
    cluster.create_job(namespace, trainjob(patch=patch))
    found = variables(cluster, namespace, first_pod(cluster, namespace))
    assert found["PET_MASTER_ADDR"] == "t-node-0-0.t"


def test_suspended_by_its_user_and_resumed(cluster, namespace):
    cluster.create_job(namespace, trainjob(trainer=shell("sleep 2"), suspend=True))
    suspended = [("Suspended", "True", "Suspended")]
    cluster.wait(lambda: conditions(cluster, namespace) == suspended, "it to be suspended")
    assert not cluster.core.list_namespaced_pod(namespace).items
    patch(cluster, namespace, {"suspend": False})
    cluster.wait(
        lambda: ("Complete", "True", "AllJobsCompleted") in conditions(cluster, namespace),
        "the end",
    )
    assert ("Suspended", "False", "Resumed") in conditions(cluster, namespace)


def test_overrides_of_2_1_are_stored_and_ineffective_edits_reported(cluster, namespace):
    override = {
        "targetJobs": [{"name": "node"}],
        "metadata": {"labels": {"team": "x"}},
        "spec": {"serviceAccountName": "default", "imagePullSecrets": [{"name": "key"}]},
    }
    cluster.create_job(
        namespace, trainjob(trainer=shell(FOR_EVER), podTemplateOverrides=[override])
    )
    assert get(cluster, namespace)["spec"]["podTemplateOverrides"] == [override]
    pod = first_pod(cluster, namespace)
    assert pod.metadata.labels["team"] == "x"
    assert [one.name for one in pod.spec.image_pull_secrets] == ["key"]
    patch(cluster, namespace, {"trainer": shell("true")})
    cluster.wait(
        lambda: [
            one
            for one in cluster.core.list_namespaced_event(namespace).items
            if one.reason == "EditNotTaken" and one.message.startswith("spec.trainer changed")
        ],
        "the Event",
    )


def test_a_runtime_that_is_not_there_is_named_and_waited_for(cluster, namespace):
    cluster.create_job(namespace, trainjob(runtime="mine", trainer=shell("true")))
    cluster.wait(lambda: conditions(cluster, namespace), "a condition")
    (failed,) = get(cluster, namespace)["status"]["conditions"]
    assert failed["reason"] == "TrainingRuntimeNotSupported"
    assert failed["message"].startswith(
        f"TrainJob {namespace}/t: spec.runtimeRef: there is no ClusterTrainingRuntime 'mine'; "
        "there are: deepspeed-distributed, jax-distributed, "
    )


def test_a_deadline_ends_a_job_and_its_pods(cluster, namespace):
    cluster.create_job(namespace, trainjob(trainer=shell(FOR_EVER), activeDeadlineSeconds=3))
    cluster.wait(
        lambda: conditions(cluster, namespace) == [("Failed", "True", "DeadlineExceeded")],
        "the deadline",
    )
    cluster.wait(lambda: not cluster.bound(namespace), "its pods to go", 60)


WRONG = {
    "a variable of torchrun's": (
        {"trainer": shell("true", env=[{"name": "PET_NNODES", "value": "9"}])},
        (
            "spec.trainer.env has PET_NNODES, which is set for torchrun; use numNodes and "
            "numProcPerNode"
        ),
    ),
    "a patch of a job that is not there": (
        {"patch": on_processes("worker"), "trainer": shell("true")},
        "a patch names the replicated job 'worker', and runtime 'torch-distributed' has: node",
    ),
    "an initializer the runtime lacks": (
        {"initializer": {"dataset": {"storageUri": "hf://x/y"}}, "trainer": shell("true")},
        (
            "spec.initializer.dataset needs a replicated job dataset-initializer, and runtime "
            "'torch-distributed' has: node"
        ),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_on_the_job(cluster, namespace, case):
    fields, sentence = WRONG[case]
    cluster.create_job(namespace, trainjob(**fields))
    cluster.wait(lambda: conditions(cluster, namespace), "a condition")
    (failed,) = get(cluster, namespace)["status"]["conditions"]
    assert (failed["type"], failed["message"]) == (
        "Failed",
        f"TrainJob {namespace}/t: {sentence}",
    )
    assert not cluster.core.list_namespaced_pod(namespace).items


def patch(cluster, namespace, spec):
    """Change a TrainJob."""
    cluster.custom.patch_namespaced_custom_object(
        "trainer.kubeflow.org", "v1alpha1", namespace, "trainjobs", "t", {"spec": spec}
    )
