"""The PyTorchJob examples of the guides, unchanged, and real clients."""

import inspect
import re
from pathlib import Path

import pytest
import yaml
from kubernetes.client import ApiException
from waiting import patience_s

GUIDES = Path(__file__).parents[3] / "shared" / "seeds"
needs_guides = pytest.mark.skipif(not GUIDES.exists(), reason=f"the guides are not at {GUIDES}")
needs_torch = pytest.mark.torch


def blocks(guide: str) -> dict[str, str]:
    """Return the YAML blocks of a guide by the file name in their first line."""
    (path,) = GUIDES.glob(f"{guide}_*.txt")
    found = re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", path.read_text(), re.DOTALL)
    return dict(found)


@pytest.fixture
def training(laptop):
    """The namespace the first guide uses."""
    with laptop.named_namespace("training") as name:
        yield name


@needs_guides
@needs_torch
def test_pytorch_simple_runs_unchanged(laptop, training):
    laptop.kubectl("apply", "-f", "-", stdin=blocks("000")["simple-pytorch-job.yaml"])
    laptop.wait(lambda: laptop.is_true(training, "pytorch-simple", "Succeeded"), "it", 90)
    log = laptop.kubectl("logs", "-n", training, "pytorch-simple-master-0")
    assert "Training completed successfully!" in log
    assert "Epoch 9, Loss:" in log


@needs_guides
@needs_torch
def test_master_and_workers_with_their_config_map(laptop, training):
    """The guide's own job, unchanged; its script as a CPU needs it, and with less to do."""
    (path,) = GUIDES.glob("000_*.txt")
    script = re.search(r"```python\n# train_ddp.py\n(.*?)```", path.read_text(), re.DOTALL)[1]
    for old, new in (
        ('backend="nccl"', 'backend="gloo"'),
        ("torch.cuda.set_device(local_rank)", "local_rank = 'cpu'"),
        ("device_ids=[local_rank]", "device_ids=None"),
        ("num_workers=2", "num_workers=0"),
        ("/workspace/model.pt", "/tmp/model.pt"),
        ("num_epochs = 10", "num_epochs = 2"),
        ("size=10000", "size=512"),
    ):
        assert old in script
        script = script.replace(old, new)
    quick = "import atexit, gc; gc.disable(); atexit.register(gc.freeze)"  # as in test_elastic.py
    script = f"{quick}\n{script}"
    laptop.core.create_namespaced_config_map(
        training, {"metadata": {"name": "training-script"}, "data": {"train_ddp.py": script}}
    )
    text = blocks("000")["distributed-pytorch-job.yaml"]
    laptop.kubectl("apply", "-f", "-", stdin=text)
    name = "pytorch-distributed-ddp"
    laptop.wait(lambda: laptop.is_true(training, name, "Succeeded"), "it", 150)
    pods = laptop.kubectl(
        "get", "pods", "-n", training, "-l", f"training.kubeflow.org/job-name={name}"
    )
    assert pods.count(name) == 4
    log = laptop.kubectl("logs", "-n", training, f"{name}-master-0")
    assert "Rank 0/4 initialized" in log
    assert "Model saved successfully!" in log


@needs_guides
def test_the_elastic_job_is_accepted_and_gets_its_rendezvous(laptop, training):
    """Its script is mounted nowhere, so it can but start; the address it names must be there."""
    laptop.kubectl("apply", "-f", "-", stdin=blocks("000")["elastic-pytorch-job.yaml"])
    laptop.wait_placed(training, "pytorch-elastic-", 4)
    pod = laptop.core.read_namespaced_pod("pytorch-elastic-worker-1", training)
    variables = {e.name: e.value for e in pod.spec.containers[0].env}
    assert variables["MASTER_ADDR"] == "pytorch-elastic-worker-0"
    assert variables["PET_NNODES"] == "2:4"


@needs_guides
def test_the_job_with_a_volume_waits_with_its_reason(laptop, training):
    """Its StorageClass does not exist here: kube-scheduler says so, and no pod is bound."""
    laptop.kubectl("apply", "-f", "-", stdin=blocks("000")["pytorch-job-with-pvc.yaml"])
    laptop.wait(
        lambda: any(
            "persistentvolumeclaim" in message.lower()
            for _, message in laptop.events(training, "pytorch-with-storage")
        ),
        "the reason on the group",
        60,
    )
    assert not laptop.bound(training)


@needs_guides
def test_a_resource_quota_never_leaves_half_a_gang(laptop, training):
    laptop.kubectl("apply", "-f", "-", stdin=blocks("000")["training-quota.yaml"])
    laptop.core.patch_namespaced_resource_quota(
        "training-quota", training, {"spec": {"hard": {"requests.nvidia.com/gpu": "1"}}}
    )
    laptop.wait(lambda: _is_too_much(laptop, training), "the API server to know the quota")
    text = blocks("000")["elastic-pytorch-job.yaml"]
    laptop.kubectl("apply", "-f", "-", stdin=text)
    laptop.wait(
        lambda: any(
            reason == "FailedCreatePod" and "exceeded quota" in message
            for reason, message in laptop.events(training, "pytorch-elastic")
        ),
        "the reason",
        30,
    )
    laptop.stays(lambda: not laptop.bound(training), 2, "half a gang")


def _is_too_much(laptop, namespace) -> bool:
    """Tell whether the quota keeps out a pod of two GPUs: a controller reads it first."""
    amounts = {"nvidia.com/gpu": "2", "memory": "1Gi"}
    container = {"name": "c", "image": "x", "resources": {"limits": amounts, "requests": amounts}}
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
    try:
        laptop.core.create_namespaced_pod(namespace, pod, dry_run="All")
    except ApiException as error:
        return "exceeded quota" in error.body
    return False


RESNET = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: resnet-distributed-training}
spec:
  pytorchReplicaSpecs:
    Master: &role
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata:
          annotations: {sidecar.istio.io/inject: "false"}
        spec:
          containers:
          - name: pytorch
            image: your-registry/distributed-training:v1
            resources:
              limits: {nvidia.com/gpu: 1, memory: 16Gi, cpu: 4}
              requests: {nvidia.com/gpu: 1, memory: 16Gi, cpu: 4}
            env:
            - {name: NCCL_DEBUG, value: INFO}
            - {name: NCCL_SOCKET_IFNAME, value: eth0}
            volumeMounts:
            - {name: dataset, mountPath: /data}
            - {name: shm, mountPath: /dev/shm}
          volumes:
          - name: dataset
            persistentVolumeClaim: {claimName: imagenet-dataset}
          - name: shm
            emptyDir: {medium: Memory, sizeLimit: 8Gi}
    Worker: {<<: *role, replicas: 3}
"""

GANG = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: gang-scheduled-training}
spec:
  schedulerName: gangsched
  ttlSecondsAfterFinished: 3600
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          schedulerName: gangsched
          containers:
          - {name: pytorch, image: x, command: ["true"]}
"""


def test_the_second_guides_jobs_are_accepted_as_strictly_as_kubectl_can(laptop):
    """The text of that guide lost its indentation; here it is restored, word for word."""
    for text in (RESNET, GANG):
        document = yaml.safe_dump(yaml.safe_load(text))
        laptop.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=document)


def test_a_field_that_does_not_exist_is_refused(laptop):
    text = GANG.replace("schedulerName: gangsched\n  ttl", "schedulingName: x\n  ttl")
    said = laptop.kubectl("apply", "--validate=strict", "-f", "-", stdin=text, check=False)
    assert 'unknown field "spec.schedulingName"' in said


def _work() -> None:
    import os

    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")


def test_the_kubeflow_training_sdk(laptop, monkeypatch):
    """create, wait, pods, logs, list, delete, as its users call them."""
    # The SDK asks at import where it runs; a cluster's secrets on this machine would mislead it.
    monkeypatch.setattr("os.path.isdir", lambda path: Path(path).is_dir() and "secrets" not in path)
    from kubeflow.training import TrainingClient

    namespace = laptop.new_namespace()
    sdk = TrainingClient(config_file=str(laptop.plane.kubeconfig), namespace=namespace)
    assert inspect.isfunction(_work)
    sdk.create_job(
        name="sdk",
        job_kind="PyTorchJob",
        train_func=_work,
        num_workers=2,
        base_image="docker.io/pytorch/pytorch:2.15.0",
        resources_per_worker={"cpu": "1", "memory": "1Gi"},
    )
    job = sdk.wait_for_job_conditions(
        name="sdk", job_kind="PyTorchJob", wait_timeout=patience_s(120), polling_interval=1
    )
    assert job.status.conditions[-1].type == "Succeeded"
    assert sdk.is_job_succeeded("sdk", job_kind="PyTorchJob")
    assert sorted(sdk.get_job_pod_names("sdk")) == ["sdk-master-0", "sdk-worker-0"]
    assert len(sdk.get_job_pods("sdk", is_master=True)) == 1
    logs, _ = sdk.get_job_logs("sdk", job_kind="PyTorchJob", is_master=True)
    assert "rank 0 of 2" in logs["sdk-master-0"]
    assert [one.metadata.name for one in sdk.list_jobs(job_kind="PyTorchJob")] == ["sdk"]
    assert sdk.get_job("sdk", job_kind="PyTorchJob").spec.run_policy is not None
    sdk.delete_job("sdk", job_kind="PyTorchJob")
    laptop.wait(lambda: laptop.job(namespace, "sdk") is None, "the job to go")
    laptop.remove_namespace(namespace)
